# SPDX-License-Identifier: Apache-2.0
"""Logs to "normjit": at INFO, which operators are replaced and restored; at WARNING, once for each reason, what is left
to torch."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from normjit.log import logger

MOST_REASONS = 100  # reasons may contain numbers, so there is no limit to how many there can be
_told: set[tuple[str, str | None]] = set()
_thread = threading.local()


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Logs nothing that this thread leaves to torch, for calls that nobody asked normjit to serve."""
    _thread.is_silent = True
    try:
        yield
    finally:
        _thread.is_silent = False


def left_to_torch(what: str, reason: str | None) -> None:
    """Logs why normjit does not serve something that it was asked to serve, once for each reason."""
    if getattr(_thread, "is_silent", False) or (what, reason) in _told or len(_told) == MOST_REASONS:
        return
    _told.add((what, reason))
    logger.warning("%s is left to torch: %s", what, reason)
    if len(_told) == MOST_REASONS:
        logger.warning("reasons are not told any more; normjit.torch.report() counts the calls")
