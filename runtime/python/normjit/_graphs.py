# SPDX-License-Identifier: Apache-2.0
"""Calls that torch.compile leaves out of its graphs."""
import sys

_leavers = {}  # functions that call another one outside of a graph, by the reason that torch gives


def is_traced():
    """True where torch.compile traces the code."""
    return "torch._dynamo" in sys.modules and sys.modules["torch"].compiler.is_compiling()


def outside(reason, function, *arguments, **named):
    """Calls a function from code that torch.compile traces. The graph ends before the call, which runs as it is; if it
    may not end, torch raises an error with the reason."""
    _make(reason)
    return _leavers[reason](function, *arguments, **named)


def _make(reason):
    if reason not in _leavers:
        _leavers[reason] = sys.modules["torch"].compiler.disable(_call, reason=reason)


_make._dynamo_marked_constant = True  # as in torch.operators.serves(): torch.compile runs it while it traces


def _call(function, *arguments, **named):
    return function(*arguments, **named)
