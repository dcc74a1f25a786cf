# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="normjit"): Inductor, with a pass over its graphs that replaces row-wise regions by
kernels of formulas."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._inductor import config, custom_graph_pass
from torch._inductor.custom_graph_pass import CustomGraphPass

import normjit
from normjit._library import InvalidArgument
from normjit.log import logger
from normjit.torch import _kernels, graph_calibration, graph_costs, graph_formula, graph_operator
from normjit.torch.graph_nodes import Frame, Node, hint, value
from normjit.torch.graph_orders import Orders
from normjit.torch.graph_plan import SLOWER, Plan
from normjit.torch.graph_regions import Region, is_row_reduction
from normjit.torch.graph_rotations import Rotations
from normjit.torch.graph_scalars import HostScalars

MOST_REPORTED = 1000
MOST_AHEAD = 8  # from how many of the first and of the last row reductions of a graph kernels are made in parallel
MOST_SEEDS = 3  # how many other row reductions of a region are tried as the start of a plan
TAKE = ("faster", "all", "none")
OPTION = "normjit.take"

# A pass to which Inductor says whether the graph is for inference; some versions of torch have no such passes.
InferenceAware: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", None)

_reported: list[dict[str, Any]] = []


class GraphPass(InferenceAware or CustomGraphPass):  # type: ignore[misc]
    """A pass over Inductor's post-grad graphs, for use with another backend:

        torch.compile(model, options={"post_grad_custom_pre_pass": normjit.torch.GraphPass()})

    take   which regions get normjit's kernel: "faster", those whose predicted time is lower than Inductor's; "all", each
           that a formula can compute; "none"
    after  another pass, which runs before
    shares the shares of a copy's bandwidth that Inductor's kernels reach; None: those measured on this machine"""

    def __init__(self, take: str = "faster", after: Any = None,
                 shares: Mapping[graph_calibration.Need, float] | None = None) -> None:
        if take not in TAKE:
            raise InvalidArgument(f"{OPTION}: {take!r}; allowed: {', '.join(TAKE)}")
        self.take, self.after, self.shares = take, after, shares

    def __call__(self, graph: torch.fx.Graph, is_inference: bool = False) -> None:
        for each in _listed(self.after):
            if InferenceAware is not None and isinstance(each, InferenceAware):
                each(graph, is_inference)
            else:
                each(graph)
        if self.take != "none":
            _rewrite(graph, self.take, self.shares)

    def uuid(self) -> Any:
        others = [each.uuid() if isinstance(each, CustomGraphPass) else None for each in _listed(self.after)]
        if None in others:
            return None  # the graph is then not cached
        return (_fingerprint(), graph_calibration.fingerprint(self.shares), _why_not("cpu"), _kernels.is_batch_invariant(),
                self.take, _is_recorded(), *others)

    def __eq__(self, other: object) -> bool:
        return type(other) is GraphPass and (self.take, self.after, self.shares) == (
            other.take, other.after, other.shares)

    def __hash__(self) -> int:
        return hash(self.take)


def backend(module: torch.fx.GraphModule, inputs: Any, *, mode: str | None = None,
            options: Mapping[str, Any] | None = None, name: str | None = None) -> Any:
    """Compiles as torch.compile's own backend does, and takes its modes, options and names. In addition,
    options={"normjit.take": "all"} sets `take` of GraphPass."""
    from torch._inductor.compile_fx import compile_fx

    given = dict(options or {})
    take = given.pop(OPTION, "faster")
    unknown = next((name for name in given if name.startswith("normjit.")), None)
    if unknown is not None:
        raise InvalidArgument(f"{unknown}: there is no such option; normjit's is {OPTION}, all others are Inductor's")
    patches = torch._TorchCompileInductorWrapper(mode, given, None).config
    others = patches.get("post_grad_custom_pre_pass", config.post_grad_custom_pre_pass)
    shares = _measured_for(module, inputs) if take == "faster" else {}
    patches = {**patches, "post_grad_custom_pre_pass": GraphPass(take, others, shares)}
    named: Any = {} if name is None else {"compile_region_name": name}
    return compile_fx(module, inputs, config_patches=patches, **named)


def _measured_for(module: torch.fx.GraphModule, inputs: Any) -> dict[graph_calibration.Need, float]:
    try:
        return graph_calibration.shares_of(graph_calibration.needs_of(module, inputs))
    except Exception as error:  # a bug of this code must not stop the compilation
        logger.warning("graph: Inductor's kernels count as perfect after a mistake of normjit's: %s: %s",
                       type(error).__name__, error)
        return {}


def _reset() -> None:
    """Called by torch.compiler.reset(): forgets the memory of CUDA graphs."""
    if torch.cuda.is_available():
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees

        reset_cudagraph_trees()


backend.reset = _reset  # type: ignore[attr-defined]


def graph_report() -> list[dict[str, Any]]:
    """Returns a dict for each region of the graphs that this process compiled with backend="normjit", in order.

    taken     whether it got normjit's kernel
    why       why, or why not
    rows      the number of rows in the call for which the graph was compiled; None if it is not known
    cols      the number of columns
    nodes     the names of the graph's nodes
    formula   the text of its kernel, if a formula can compute it
    bytes     the bytes moved in and around the region: with normjit's kernel, and by Inductor alone
    seconds   the predicted times for both
    calls     the calls of such kernels in this process

    If a graph comes from Inductor's cache, the process that compiled it decided about its regions; here only those of
    its kernels that ran are listed."""
    known = {each.get("formula") for each in _reported}
    cached = [{"taken": True, "why": "in a graph from the cache", "formula": spec} for spec in graph_operator.calls
              if spec not in known]
    return [{**each, "calls": graph_operator.calls.get(each.get("formula", ""), 0) if each["taken"] else 0}
            for each in (*_reported, *cached)]


def _listed(passes: Any) -> list[Callable[[torch.fx.Graph], None]]:
    return [] if passes is None else list(passes) if isinstance(passes, (list, tuple)) else [passes]


@functools.lru_cache(maxsize=None)
def _fingerprint() -> str:
    """Returns a hash of what the kernels of a graph depend on: these sources, and the version of the library."""
    sources = hashlib.sha256(normjit.__version__.encode())
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in sorted(os.listdir(folder)):
        if name.startswith("graph") and name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as source:
                sources.update(source.read())
    return sources.hexdigest()


def _is_recorded() -> bool:
    """True if this thread's dispatcher reaches autograd. A failed torch.export can leave it in a state in which it does
    not, in any grad mode; torch's own keys for cached graphs contain only the grad mode."""
    return not torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C._dispatch_key_parse("AutogradFunctionality"))


@functools.lru_cache(maxsize=None)
def _why_not(device: str) -> str | None:
    return _kernels.why_not(device)


def _rewrite(graph: torch.fx.Graph, take: str, shares: Mapping[graph_calibration.Need, float] | None) -> None:
    """Puts kernels into a graph. The graph stays as it was if no region is taken, or if this code fails."""
    before, reported = torch.fx.Graph(), len(_reported)
    _copy(graph, before)
    is_changed = False
    try:
        is_changed = _Rewriter(graph, take, shares).run()
    except Exception as error:
        logger.warning("graph: left to Inductor after a mistake of normjit's: %s: %s", type(error).__name__, error)
        for facts in _reported[reported:]:
            facts.update(taken=False, why=f"{type(error).__name__} elsewhere in the graph: {error}")
    if not is_changed:
        _put_back(before, graph)


def _put_back(before: torch.fx.Graph, graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        node.args, node.kwargs = (), {}  # no node then has users, so that they can be erased in any order
    for node in list(graph.nodes):
        graph.erase_node(node)
    _copy(before, graph)


def _copy(source: torch.fx.Graph, target: torch.fx.Graph) -> None:
    """Copies a graph, with Inductor's metadata of its nodes, into an empty one."""
    target.output(target.graph_copy(source, {}))
    target.output_node().meta.update(source.output_node().meta)


class _Rewriter:
    """Finds the regions of one graph, and replaces those to be taken."""

    def __init__(self, graph: torch.fx.Graph, take: str, shares: Mapping[graph_calibration.Need, float] | None) -> None:
        self.graph, self.take, self.shares = graph, take, shares
        self.seen: set[Node] = set()
        self.has_rotations = False

    def run(self) -> bool:
        """Returns whether a region was taken."""
        from torch._inductor.fx_passes.post_grad import remove_noop_ops

        is_changed = False
        if config.pattern_matcher:
            remove_noop_ops(self.graph)  # Inductor does this after the pass as well
        rotations, orders, scalars = Rotations(self.graph), Orders(self.graph), HostScalars(self.graph)
        if any(map(is_row_reduction, self.graph.nodes)):
            rotations.write()
            orders.write()
            self.has_rotations = bool(rotations.turned)
            scalars.write()
        seeds = [node for node in self.graph.nodes if is_row_reduction(node)]
        self._make_ahead(seeds)
        for seed in seeds:
            if seed in self.seen:
                continue
            if self._consider(seed):
                _sort(self.graph)
                is_changed = True
        if is_changed:
            rotations.restore(orders.restore())
            scalars.restore()
            _sort(self.graph)  # what is restored may read sizes that are computed later in the graph
            self.graph.lint()
        return is_changed

    def _consider(self, seed: Node) -> bool:
        """Replaces the region around a row reduction, or says why not."""
        source = value(seed.args[0])
        assert source is not None
        self.seen.add(seed)
        facts: dict[str, Any] = {"taken": False, "rows": None, "cols": source.shape[-1], "nodes": [seed.name]}
        why = _why_not(source.device.type) or _refused_by_settings()
        if why is None:
            try:
                plan = self._best_plan(seed, source)
            except Exception as error:  # a bug of this code must not stop the compilation
                why = f"{type(error).__name__}: {error}"
                logger.warning("graph: %s is left to Inductor after a mistake of normjit's: %s", seed.name, why)
            else:
                self.seen.update(plan.region.axes)
                facts.update(plan.facts())
                why = self._decide(plan, facts)
        facts["why"] = why
        logger.info("graph: %s of %s columns is %s: %s", seed.name, facts["cols"],
                    "taken" if facts["taken"] else "left to Inductor", why)
        if len(_reported) < MOST_REPORTED:
            _reported.append(facts)
        return bool(facts["taken"])

    def _best_plan(self, seed: Node, source: torch.Tensor) -> Plan:
        """Returns the best plan that starts from this row reduction or from another one of the same region."""
        plans = self._plans(seed, source)
        others = [node for node in plans[0].around if is_row_reduction(node) and node not in self.seen]
        for other in others[:MOST_SEEDS]:
            tensor = value(other.args[0])
            if tensor is not None and tensor.device == source.device:
                plans += self._plans(other, tensor)
        for plan in plans:
            plan.make()
        return max(plans, key=Plan.gain)

    def _plans(self, seed: Node, source: torch.Tensor) -> list[Plan]:
        """Returns plans that start from a row reduction, one for each way to divide its tensor. Leaves out ways with
        slices whose kernel would replace no node that one without slices does not replace."""
        plans = [self._planned(seed, frame) for frame in self._frames(source)]
        whole = [plan.replaced() for plan in plans if not plan.region.frame.split]
        return [plan for plan in plans if not plan.region.frame.split or not plan.replaced() or
                not any(map(plan.replaced().issubset, whole))]

    def _make_ahead(self, seeds: Sequence[Node]) -> None:
        """Makes the kernels that the plans for some row reductions need, in parallel. Layers repeat, so that the first
        and the last reductions of a graph need most of its kernels."""
        chosen = seeds if len(seeds) <= 2 * MOST_AHEAD else [*seeds[:MOST_AHEAD], *seeds[-MOST_AHEAD:]]
        wanted = (kernel for seed in chosen for kernel in self._first_kernels(seed))
        # Plans for a CPU measure copies, which compiling at the same time would slow down.
        is_on_cpu = any(tensor is not None and tensor.is_cpu for tensor in (value(seed.args[0]) for seed in chosen))
        graph_operator.make_ahead(list(wanted) if is_on_cpu else wanted)

    def _first_kernels(self, seed: Node) -> list[graph_operator.Wanted | None]:
        source = value(seed.args[0])
        if source is not None and _why_not(source.device.type) is None and _refused_by_settings() is None:
            with contextlib.suppress(Exception):  # _consider() meets the same mistakes, and reports them
                return [plan.first_kernel() for plan in self._plans(seed, source)]
        return []

    def _frames(self, source: torch.Tensor) -> list[Frame]:
        """Returns the ways to divide a tensor into slices. With rotations, slices may also be the last dimensions, such as
        heads, which share the angles of their tokens."""
        frames = [Frame.of(source, split) for split in range(source.dim() - 1)]
        if self.has_rotations:
            frames += [Frame.of(source, split, rows_first=True) for split in range(1, source.dim() - 1)]
        return frames

    def _planned(self, seed: Node, frame: Frame) -> Plan:
        region = Region(frame, {node: i for i, node in enumerate(self.graph.nodes)})
        region.grow(seed)
        return Plan(region, seed, self.take, graph_costs.Machine(frame.device, self.shares))

    def _decide(self, plan: Plan, facts: dict[str, Any]) -> str:
        """Replaces a region if it is to be taken, and returns the reason."""
        if plan.by is None:
            return plan.problem
        if self.take == "faster" and plan.prediction is None:
            return "the number of its rows is not known"
        if self.take == "faster" and plan.prediction is not None and not plan.prediction.is_faster:
            return SLOWER
        graph_formula.replace(self.graph, plan.region, plan.by)
        facts["taken"] = True
        return "its predicted time is lower" if self.take == "faster" else "all are to be taken"


def _refused_by_settings() -> str | None:
    """Returns why Inductor's settings do not allow foreign kernels, or None if they do."""
    from torch._inductor.virtualized import V

    if config.cpp_wrapper or getattr(V, "aot_compilation", False) is True:
        return "its code is to be C++ only"
    if config.emulate_precision_casts:
        return "emulate_precision_casts is on, and formulas do not round between"
    return None


def _sort(graph: torch.fx.Graph) -> None:
    from torch._inductor.pattern_matcher import stable_topological_sort

    stable_topological_sort(graph)
