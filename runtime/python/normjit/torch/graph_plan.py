# SPDX-License-Identifier: Apache-2.0
"""Plans which part of a compiled graph a kernel of normjit replaces, and predicts what that saves."""
from __future__ import annotations

import functools
from typing import Any

from normjit._library import ROOM_FOR_TENSORS, Error
from normjit.torch import graph_costs, graph_formula, graph_operator
from normjit.torch.graph_nodes import Node, hint, kind_of
from normjit.torch.graph_regions import Region

SLOWER = "its predicted time is not lower than that of Inductor's kernels"


class Plan:
    """A region, its formula or the reason why there is none, and its predicted times."""

    def __init__(self, region: Region, seed: Node, take: str, on: graph_costs.Machine) -> None:
        self.region, self.seed, self.take = region, seed, take
        self.by: graph_formula.Written | None = None
        self.prediction: graph_costs.Prediction | None = None
        self.predictor: graph_costs.Predictor | None = None
        self.problem, self.around, self.is_promising = "a formula cannot say what it sums", set(region.axes), False
        if not region.axes:
            return
        try:
            if hint(region.frame.rows) is not None:
                self.predictor = graph_costs.Predictor(region, on)
                self.around = self.predictor.around
            self.region = graph_formula.fewer_tensors(region, ROOM_FOR_TENSORS)
            if take == "faster":
                self.region = graph_costs.best_part(self.region, on)
                self.problem = SLOWER
                if self.predictor is not None:
                    self.prediction = self.predictor.predict_at_best(self.region)
            self.is_promising = self.prediction is None or self.prediction.is_faster
        except Error as error:
            self.problem = str(error)

    @functools.cached_property
    def _fitted(self) -> tuple[Region, graph_formula.Written] | None:
        try:
            return graph_formula.fitted(self.region) if self.is_promising else None
        except Error:
            return None

    def first_kernel(self) -> graph_operator.Wanted | None:
        """Returns the kernel that make() makes first; None if there is none to make."""
        return None if self._fitted is None else _wanted(*self._fitted)

    def replaced(self) -> set[Node]:
        """Returns the nodes that this kernel replaces, without views, which cost nothing."""
        return set() if self._fitted is None else {node for node in self._fitted[0].axes if kind_of(node) != "view"}

    def make(self) -> None:
        """Makes a kernel for the region, or for a part of it, and measures it."""
        if not self.is_promising:
            return
        try:
            self.region, self.by = _makeable(self.region, self.seed, self._fitted)
            if self.predictor is not None:
                self.prediction = self.predictor.predict(self.region, self.by)
        except Error as error:
            self.problem = str(error)

    def gain(self) -> tuple[bool, float, int]:
        """Returns the key by which plans are sorted: whether there is a kernel, and how much it saves, in bytes if all
        regions are to be taken, otherwise in seconds."""
        saved, of = 0.0, self.prediction
        if of is not None:
            saved = of.inductor_bytes - of.normjit_bytes if self.take == "all" else of.inductor_seconds - of.normjit_seconds
        return self.by is not None, saved, len(self.region.axes)

    def facts(self) -> dict[str, Any]:
        """Returns what a report says."""
        found: dict[str, Any] = {"rows": hint(self.region.frame.rows)}
        if self.region.axes:
            found["nodes"] = [node.name for node in self.region.members()]
        if self.by is not None:
            found["formula"] = self.by.spec
        if self.prediction is not None:
            found["bytes"] = (self.prediction.normjit_bytes, self.prediction.inductor_bytes)
            found["seconds"] = (self.prediction.normjit_seconds, self.prediction.inductor_seconds)
        return found


def _makeable(region: Region, seed: Node, fitted: tuple[Region, graph_formula.Written] | None
              ) -> tuple[Region, graph_formula.Written]:
    """Returns a region and its formula. If normjit cannot make a kernel for it, returns the largest part around the row
    reduction `seed` for which it can, and that part's formula. `fitted` is graph_formula.fitted() of the region, or
    None, if that raises an error."""
    def made(part: Region, by: graph_formula.Written) -> tuple[Region, graph_formula.Written]:
        graph_operator.make(_wanted(part, by))
        return part, by

    try:
        return made(*(fitted or graph_formula.fitted(region)))
    except Error:
        parts = region.parts_around(seed)
        least, most, found = 0, len(parts), None
        while least < most:  # parts become smaller and smaller
            middle = (least + most) // 2
            try:
                found = made(*graph_formula.fitted(parts[middle]))
                most = middle
            except Error:
                least = middle + 1
        if found is None:
            raise
        return found


def _wanted(region: Region, by: graph_formula.Written) -> graph_operator.Wanted:
    slices = max(hint(region.frame.slices) or 1, 1)
    return graph_operator.Wanted(by.spec, region.frame.device, (hint(region.frame.rows) or 0) // slices, slices)
