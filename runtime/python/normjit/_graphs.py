# SPDX-License-Identifier: Apache-2.0
"""Keeps calls out of the graphs of torch.compile."""
from __future__ import annotations

import sys

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but importing typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_callers: dict[str, Callable[..., Any]] = {}  # functions that call another one, by the reason that torch is to show


def is_traced() -> bool:
    """True while torch.compile traces the code, and False while torch.export runs it with tensors that have no data."""
    return "torch._dynamo" in sys.modules and sys.modules["torch"].compiler.is_dynamo_compiling()


def outside(reason: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls a function from code that torch.compile traces. The graph ends before the call, which runs unchanged. If
    the graph may not end there, torch raises an error with the reason."""
    _make(reason)
    return _callers[reason](function, *arguments, **named)


def _make(reason: str) -> None:
    if reason not in _callers:
        _callers[reason] = sys.modules["torch"].compiler.disable(_call, reason=reason)


_make._dynamo_marked_constant = True  # type: ignore[attr-defined]  # called while torch.compile traces; see operators.serves()


def _call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)
