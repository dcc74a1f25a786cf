# SPDX-License-Identifier: Apache-2.0
"""Measures the time of calls, and the bandwidth that a copy reaches."""
from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

LEAST_COPIED, MOST_COPIED = 1 << 22, 1 << 26  # bytes of the copies that measure the bandwidth
GPU_CALLS = 10  # in each measurement
FEWEST, MOST, ENOUGH = 5, 100, 0.05  # measurements of a call, and the seconds after which there are no more than the fewest


def bandwidth(device: torch.device, moved: int) -> float:
    """Returns the bytes a second of a copy that moves about as many bytes."""
    size = min(max(moved, LEAST_COPIED), MOST_COPIED)
    return _copied(device, 1 << (size - 1).bit_length())


@functools.lru_cache(maxsize=None)
def _copied(device: torch.device, moved: int) -> float:
    with unset_fake_temporarily(), torch.no_grad():
        source = torch.ones(moved // 2, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return moved / seconds(lambda: target.copy_(source), device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Returns the shortest time of a call. On a GPU calls follow one another as in a graph, without waiting."""
    times: list[float] = []
    count = 1 if device.type == "cpu" else GPU_CALLS
    call()
    while len(times) < FEWEST or (len(times) < MOST and sum(times) * count < ENOUGH):
        if device.type != "cpu":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(count):
            call()
        if device.type != "cpu":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - begin) / count)
    return min(times)
