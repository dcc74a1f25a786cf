#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch's norms gain by normjit, in a process of torch's: backward passes through torch's operators, with its
kernels and with normjit's in turn, outputs allocated; and how far each is from double precision.

    PYTHONPATH=build/python torch_operators.py [--device cuda] [--keep-memory] [--rounds 15] [SHAPE ...]

SHAPE: 512x768, 4096x4096:bf16, 4096x4096:bf16/f32 (weight), rms:2048x768. On a CPU torch's RMSNorm is many operators,
and normjit's is normjit.torch.rms_norm. Times are medians of rounds in which the two take turns, the error of a
weight's gradient is relative, in the 2-norm."""
import argparse
import statistics
import time

import normjit.torch
import torch
from torch.nn import functional

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SHAPES = [
    "2x256",
    "512x768",
    "512x768:bf16/f32",
    "2048x768",
    "4096x4096",
    "4096x4096:bf16",
    "rms:512x768",
    "rms:4096x4096:bf16",
]
EPS = 1e-5
ROUND_SECONDS = 0.05


class Problem:
    def __init__(self, text, device):
        *norm, size, types = (text if ":" in text.removeprefix("rms:") else text + ":f32").split(":")
        self.norm = "rmsnorm" if norm else "layernorm"
        rows, cols = (int(n) for n in size.split("x"))
        x_type, _, weight_type = types.partition("/")
        x_type, weight_type = TYPES[x_type], TYPES[weight_type or x_type]
        made = lambda *shape, dtype: torch.randn(shape, device=device).to(dtype).requires_grad_()  # noqa: E731
        self.x, self.dy = made(rows, cols, dtype=x_type), made(rows, cols, dtype=x_type).detach()
        self.w, self.b = made(cols, dtype=weight_type), made(cols, dtype=weight_type)
        self.inputs = [self.x, self.w] if norm else [self.x, self.w, self.b]
        self.cpu_rms = self.norm == "rmsnorm" and device == "cpu"

    def forward(self, with_normjit):
        if self.cpu_rms and with_normjit:
            return normjit.torch.rms_norm(self.x, self.w, eps=EPS)
        if self.norm == "rmsnorm":
            return functional.rms_norm(self.x, self.w.shape, self.w, EPS)
        return functional.layer_norm(self.x, self.w.shape, self.w, self.b, EPS)

    def backward_pass(self, with_normjit):
        y = self.forward(with_normjit)
        dy = self.dy.to(y.dtype)
        return lambda: torch.autograd.grad(y, self.inputs, dy, retain_graph=True)

    def error(self, gradients):
        x, dy = self.x.detach().double(), self.dy.double()
        centred = x - x.mean(-1, keepdim=True) if self.norm == "layernorm" else x
        right = (dy * centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt()).sum(0)
        return float((gradients[1].double() - right).norm() / right.norm())


def seconds(call, count, device):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def compare(problem, rounds, device):
    """[torch's, normjit's], each (microseconds, error)."""
    calls = [problem.backward_pass(with_normjit) for with_normjit in (False, True)]
    times, errors, counts = ([], []), [0.0, 0.0], [1, 1]
    for i in range(-2, rounds):  # two to warm up and to see how many calls fill a round
        for which, call in enumerate(calls):
            with normjit.torch.enabled() if which else torch.enable_grad():
                taken = seconds(call, counts[which], device)
                errors[which] = problem.error(call()) if i < 0 else errors[which]
            if i < 0:
                counts[which] = max(1, int(ROUND_SECONDS / taken))
            else:
                times[which].append(taken)
    return [(statistics.median(t) * 1e6, e) for t, e in zip(times, errors)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--keep-memory", action="store_true", help="call normjit.torch.keep_host_memory() before")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.keep_memory:
        normjit.torch.keep_host_memory()
    print(f"torch {torch.__version__}, {options.device}, {torch.get_num_threads()} threads")
    print(f"{'shape':24} {'torch us':>10} {'normjit us':>10} {'times':>6} {'torch error':>12} {'normjit error':>13}")
    for shape in options.shapes:
        (torchs, torch_error), (ours, our_error) = compare(
            Problem(shape, options.device), options.rounds, options.device
        )
        print(
            f"{shape:24} {torchs:10.1f} {ours:10.1f} {torchs / ours:6.2f} {torch_error:12.1e} {our_error:13.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
