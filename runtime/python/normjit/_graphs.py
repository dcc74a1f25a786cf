# SPDX-License-Identifier: Apache-2.0
"""Calls that torch.compile leaves out of its graphs."""
from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in typing, whose import takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_callers: dict[str, Callable[..., Any]] = {}  # by the reason that torch gives: functions that call another one


def is_traced() -> bool:
    """True where torch.compile traces the code, and False where torch.export runs it with tensors without data."""
    return "torch._dynamo" in sys.modules and sys.modules["torch"].compiler.is_dynamo_compiling()


def outside(reason: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls a function from code that torch.compile traces. The graph ends before the call, which runs as it is; if it
    may not end, torch raises an error with the reason."""
    _make(reason)
    return _callers[reason](function, *arguments, **named)


def _make(reason: str) -> None:
    if reason not in _callers:
        _callers[reason] = sys.modules["torch"].compiler.disable(_call, reason=reason)


_make._dynamo_marked_constant = True  # type: ignore[attr-defined]  # called while torch.compile traces; see operators.serves()


def _call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)
