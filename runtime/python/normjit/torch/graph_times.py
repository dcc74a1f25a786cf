# SPDX-License-Identifier: Apache-2.0
"""Measures the time of calls, and the bandwidth that a copy reaches."""
from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

LEAST_COPIED, MOST_COPIED = 1 << 22, 1 << 26  # bytes of the copies with which the bandwidth is measured
GPU_CALLS = 10  # calls in a CUDA graph
FEWEST, ENOUGH = 5, 0.05  # the fewest measurements of a call, and the seconds after which no more than these are made
MOST = {"cpu": 100, "cuda": 30}  # the most measurements: a GPU's vary less


def bandwidth(device: torch.device, moved: int) -> float:
    """Returns the bytes per second of a copy that moves about this many bytes."""
    size = min(max(moved, LEAST_COPIED), MOST_COPIED)
    return _copied(device, 1 << (size - 1).bit_length())


@functools.lru_cache(maxsize=None)
def _copied(device: torch.device, moved: int) -> float:
    with unset_fake_temporarily(), torch.no_grad():
        source = torch.ones(moved // 2, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return moved / seconds(lambda: target.copy_(source), device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Returns the shortest time of a call; on a GPU, the time of its kernels, without delays by the host."""
    call()
    return _on_cpu(call) if device.type == "cpu" else _on_gpu(call, device)


def _on_cpu(call: Callable[[], object]) -> float:
    times: list[float] = []
    while _goes_on(times, MOST["cpu"]):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _on_gpu(call: Callable[[], object], device: torch.device) -> float:
    """Times a CUDA graph of calls, because models launch kernels ahead, which hides the host's time for a call."""
    times: list[float] = []
    with torch.cuda.device(device):
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(GPU_CALLS):
                call()
        while _goes_on(times, MOST["cuda"]):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3 / GPU_CALLS)
    return min(times)


def _goes_on(times: list[float], most: int) -> bool:
    return len(times) < FEWEST or (len(times) < most and sum(times) < ENOUGH)
