# SPDX-License-Identifier: Apache-2.0
"""The results of row-wise functions: tensors and None in tuples, named tuples, lists and dicts of any depth."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree


_classes: dict[str, Any] = {}  # of named tuples, by key: torch.compile takes no class for a constant


class _Dict(NamedTuple):
    """A dict, in a form that torch.compile takes for a constant."""

    keys: tuple[Any, ...]
    parts: tuple[Any, ...]


class _Named(NamedTuple):
    """A named tuple, in such a form."""

    key: str
    parts: tuple[Any, ...]


def flat(results: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """Returns what the results contain, and its order."""
    return pytree.tree_flatten(results, is_leaf=lambda each: type(each) not in (tuple, list, dict) and not _is_named(each))


def _is_named(each: Any) -> bool:
    return isinstance(each, tuple) and hasattr(each, "_fields")


def in_order(names: list[Any], order: pytree.TreeSpec) -> Any:
    """Returns names in the order of a function's results, as a constant for torch.compile."""
    return _constant(pytree.tree_unflatten(names, order))


def _constant(names: Any) -> Any:
    if isinstance(names, dict):
        return _Dict(tuple(names), tuple(map(_constant, names.values())))
    if not isinstance(names, (tuple, list)):
        return names
    parts = map(_constant, names)
    if not _is_named(names):
        return type(names)(parts)
    key = f"{type(names).__qualname__} {id(type(names))}"
    _classes[key] = type(names)
    return _Named(key, tuple(parts))


def arranged(names: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Returns tensors in place of their names."""
    if not isinstance(names, (tuple, list)):
        return tensors.get(names)
    if isinstance(names, _Dict):
        return {key: arranged(each, tensors) for key, each in zip(names.keys, names.parts)}
    if isinstance(names, _Named):
        return _classes[names.key](*[arranged(each, tensors) for each in names.parts])
    parts = [arranged(each, tensors) for each in names]
    return parts if isinstance(names, list) else tuple(parts)
