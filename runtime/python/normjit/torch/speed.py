# SPDX-License-Identifier: Apache-2.0
"""Measures the speed-up of normjit's backward pass of a norm over torch's on this machine."""
from __future__ import annotations

import collections.abc
import functools
import statistics
import time

import torch
from torch.nn import functional

from normjit.torch import functional as normjits, override

ROUNDS = 7  # rounds in which the two are timed in turn
ROUND_SECONDS = 0.01


def times_torchs(norm: str, rows: int, cols: int, dtype: torch.dtype, weight_dtype: torch.dtype, has_bias: bool,
                 device: str, weight_offset: float = 0.0) -> float:
    """Returns torch's median time for a backward pass over normjit's, for random inputs of [rows, cols]. Both
    allocate their outputs."""
    made = lambda *shape, dtype: torch.randn(shape, device=device).to(dtype).requires_grad_()  # noqa: E731
    x, weight = made(rows, cols, dtype=dtype), made(cols, dtype=weight_dtype)
    bias = made(cols, dtype=weight_dtype) if has_bias else None
    dy = made(rows, cols, dtype=dtype).detach()
    inputs = [t for t in (x, weight, bias) if t is not None]

    def backward_of(y: torch.Tensor) -> collections.abc.Callable[[], object]:
        return functools.partial(torch.autograd.grad, y, inputs, dy.to(y.dtype), retain_graph=True)

    with torch.enable_grad(), override.disabled():
        offset_weight = weight + weight_offset if weight_offset else weight
        if norm == "layernorm":
            theirs = backward_of(functional.layer_norm(x, (cols,), offset_weight, bias))
            ours = backward_of(normjits.layer_norm(x, weight, bias, weight_offset=weight_offset))
        else:
            theirs = backward_of(functional.rms_norm(x, (cols,), offset_weight, 1e-6))
            ours = backward_of(normjits.rms_norm(x, weight, eps=1e-6, weight_offset=weight_offset))
        return _ratio(theirs, ours, device)


def _ratio(theirs: collections.abc.Callable[[], object], ours: collections.abc.Callable[[], object],
           device: str) -> float:
    ratios, count = [], 1
    for i in range(-2, ROUNDS):  # the first two warm up
        first, second = (_seconds(call, count, device) for call in (theirs, ours))
        if i >= 0:
            ratios.append(first / second)
        count = max(1, int(ROUND_SECONDS / first))
    return statistics.median(ratios)


def _seconds(call: collections.abc.Callable[[], object], count: int, device: str) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - begin) / count
