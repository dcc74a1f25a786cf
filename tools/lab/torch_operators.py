#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what torch's norms gain from normjit: time and error of operators with both kernels, in turn.

Results are allocated, as in a program. Errors are measured against double precision.

    PYTHONPATH=build/python torch_operators.py [--device cuda] [--keep-memory] [--rounds 15] [--json FILE] [CASE ...]

CASE: 512x768, 4096x4096:bf16, 4096x4096:bf16/f32 (weight), rms:2048x768; forward:512x768 for the norm itself, and
sum:rms:512x768 for the norm of x + residual and the sum. Times are medians of rounds in which the two take turns. On a
CPU backward passes go through autograd, and torch's RMSNorm is many operators. On a GPU the time of an operator is the
time of a CUDA graph of calls, divided by their number, with data in the L2 cache if it fits; the time of a call is what
the host needs to make one. The error is the relative error of a weight's gradient, or of y, in the 2-norm."""
import argparse
import contextlib
import json
import pathlib
import statistics
import time

import normjit.torch
import torch
from torch.nn import functional

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CPU_CASES = ["2x256", "512x768", "512x768:bf16/f32", "2048x768", "4096x4096", "4096x4096:bf16", "rms:512x768",
             "rms:4096x4096:bf16", "forward:2048x768", "sum:2048x768", "sum:rms:2048x768:bf16"]
CUDA_CASES = ["2x256:bf16", "512x768:bf16", "8192x768:bf16", "8192x4096:bf16", "8192x8192:bf16", "32768x768:bf16",
              "32768x4096:bf16", "32768x8192:bf16", "16384x4096", "rms:2x256:bf16", "rms:8192x768:bf16",
              "rms:8192x4096:bf16", "rms:32768x768:bf16", "rms:32768x4096:bf16", "rms:32768x8192:bf16",
              "forward:8192x768:bf16", "forward:8192x4096:bf16", "forward:32768x4096:bf16", "forward:rms:8192x768:bf16",
              "forward:rms:8192x4096:bf16", "forward:rms:32768x4096:bf16", "forward:rms:8192x4096:bf16/f32",
              "sum:8192x4096:bf16", "sum:rms:8192x4096:bf16", "sum:rms:32768x4096:bf16"]
EPS = 1e-5
ROUND_SECONDS = 0.05
CALLS_OF_HOST = 100  # calls in a row; a GPU's queue holds more than that


class Problem:
    def __init__(self, text, device):
        self.kind, self.norm, rest = "backward", "layernorm", text
        for kind in ("forward", "sum"):
            if rest.startswith(kind + ":"):
                self.kind, rest = kind, rest.removeprefix(kind + ":")
        if rest.startswith("rms:"):
            self.norm, rest = "rmsnorm", rest.removeprefix("rms:")
        size, _, types = rest.partition(":")
        rows, cols = (int(n) for n in size.split("x"))
        x_type, _, weight_type = (types or "f32").partition("/")
        x_type, weight_type = TYPES[x_type], TYPES[weight_type or x_type]
        made = lambda *shape, dtype: torch.randn(shape, device=device).to(dtype).requires_grad_()  # noqa: E731
        self.device = device
        self.x, self.dy = made(rows, cols, dtype=x_type), made(rows, cols, dtype=x_type).detach()
        self.w, self.b = made(cols, dtype=weight_type), made(cols, dtype=weight_type)

    def calls(self):
        """Returns torch's and normjit's version of a case. Each is a function without arguments that returns a
        tuple."""
        if self.kind == "backward":
            return self.through_autograd() if self.device == "cpu" else [self.operator()] * 2
        torchs, ours = [(self.y_of_torch, self.y_of_normjit), (self.sum_of_torch, self.sum_of_normjit)][
            self.kind == "sum"]
        return [torch.no_grad()(torchs), torch.no_grad()(ours)]

    def y_of_torch(self, h=None):
        h = self.x if h is None else h
        if self.norm == "rmsnorm":
            return (functional.rms_norm(h, self.w.shape, self.w, EPS),)
        w, b = (t if self.device == "cpu" else t.to(h.dtype) for t in (self.w, self.b))  # on GPUs, torch has no kernel
                                                                                         # for mixed types
        return (functional.layer_norm(h, w.shape, w, b, EPS),)

    def y_of_normjit(self):
        return (self.of_normjit(),)

    def sum_of_torch(self):
        h = self.x + self.dy
        return (*self.y_of_torch(h), h)

    def sum_of_normjit(self):
        return self.of_normjit(residual=self.dy)

    def of_normjit(self, **options):
        if self.norm == "rmsnorm":
            return normjit.torch.rms_norm(self.x, self.w, eps=EPS, **options)
        return normjit.torch.layer_norm(self.x, self.w, self.b, eps=EPS, **options)

    def operator(self):
        """Returns torch's backward operator, which normjit overrides."""
        x, w, b = (t.detach() for t in (self.x, self.w, self.b))
        mean = x.float().mean(-1, keepdim=True)
        if self.norm == "rmsnorm":
            rstd = (x.float().square().mean(-1, keepdim=True) + EPS).rsqrt()
            return lambda: torch.ops.aten._fused_rms_norm_backward(self.dy, x, w.shape, rstd, w, [True, True])
        rstd = ((x.float() - mean).square().mean(-1, keepdim=True) + EPS).rsqrt()
        return lambda: torch.ops.aten.native_layer_norm_backward(self.dy, x, w.shape, mean, rstd, w, b, [True] * 3)

    def through_autograd(self):
        inputs = [self.x, self.w] if self.norm == "rmsnorm" else [self.x, self.w, self.b]
        found = []
        for forward in (self.y_of_torch, self.y_of_normjit if self.norm == "rmsnorm" else self.y_of_torch):
            (y,) = forward()
            found.append(lambda y=y: torch.autograd.grad(y, inputs, self.dy.to(y.dtype), retain_graph=True))
        return found

    def error(self, results):
        x, dy = self.x.detach().double(), self.dy.double()
        h = x + dy if self.kind == "sum" else x
        centred = h - h.mean(-1, keepdim=True) if self.norm == "layernorm" else h
        xhat = centred * (centred.square().mean(-1, keepdim=True) + EPS).rsqrt()
        if self.kind == "backward":
            got, right = results[1], (dy * xhat).sum(0)
        else:
            w, b = (t.detach().double() for t in (self.w, self.b))
            got, right = results[0], xhat * w + (b if self.norm == "layernorm" else 0)
        return float((got.double() - right).norm() / right.norm())


def on_cpu(call):
    """Returns a function that makes a given number of calls and returns the seconds of one."""
    def seconds(count):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count

    return seconds


def in_graph(call):
    """Does the same on the GPU. The graph has as many calls as take a millisecond, but at most 50."""
    call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(), call(), end.record(), end.synchronize()
    calls = min(50, max(2, int(1 / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()

    def seconds(count):
        begin.record()
        for _ in range(-(-count // calls)):
            graph.replay()
        end.record(), end.synchronize()
        return begin.elapsed_time(end) / 1e3 / (-(-count // calls) * calls)

    return seconds


def of_host(call):
    def seconds(_):
        torch.cuda.synchronize()
        return on_cpu(call)(CALLS_OF_HOST)

    return seconds


def medians(calls, timer, rounds):
    """Returns the microseconds of each of two calls, which take turns."""
    contexts = [contextlib.nullcontext, normjit.torch.enabled]
    timers, times, counts = [], ([], []), [1, 1]
    for call, context in zip(calls, contexts):
        with context():
            timers.append(timer(call))
    for i in range(-2, rounds):  # two to warm up and to see how many calls fill a round
        for which, (seconds, context) in enumerate(zip(timers, contexts)):
            with context():
                taken = seconds(counts[which])
            if i < 0:
                counts[which] = max(1, int(ROUND_SECONDS / taken))
            else:
                times[which].append(taken * 1e6)
    return [statistics.median(t) for t in times]


def compare(text, device, rounds):
    problem = Problem(text, device)
    calls = problem.calls()
    errors = [problem.error(calls[0]())]
    with normjit.torch.enabled():
        errors.append(problem.error(calls[1]()))
    row = {"case": text, "kind": f"{problem.norm} {problem.kind}", "error": errors,
           "us": medians(calls, in_graph if device == "cuda" else on_cpu, rounds)}
    if device == "cuda":
        row["call_us"] = medians(calls, of_host, rounds)
    return row


def show(row):
    (torchs, ours), errors = row["us"], row["error"]
    line = f"{row['case']:30} {torchs:10.1f} {ours:10.1f} {torchs / ours:6.2f} {errors[0]:12.1e} {errors[1]:13.1e}"
    print(line + "".join(f" {us:8.1f}" for us in row.get("call_us", [])), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--keep-memory", action="store_true", help="call normjit.torch.keep_host_memory() before")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write what was measured")
    options = parser.parse_args()
    if options.keep_memory:
        normjit.torch.keep_host_memory()
    place = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {place}{', memory kept' if options.keep_memory else ''}")
    print(f"{'case':30} {'torch us':>10} {'normjit us':>10} {'times':>6} {'torch error':>12} {'normjit error':>13}"
          + ("  a call:  torch  normjit" if options.device == "cuda" else ""))
    found = {"torch": torch.__version__, "place": place, "keep_memory": options.keep_memory, "results": []}
    for case in options.cases or (CUDA_CASES if options.device == "cuda" else CPU_CASES):
        found["results"].append(compare(case, options.device, options.rounds))
        show(found["results"][-1])
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
