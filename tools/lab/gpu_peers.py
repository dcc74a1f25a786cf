#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures other libraries' norm passes on a GPU, over a file of shapes, as `normjit bench --json`.

    python3 tools/lab/gpu_peers.py --shapes tools/lab/gpu_shapes.txt --json peers.json [--only torch,triton] [--limit 300]

The whole operation counts: dx, dgamma and, for layernorm, dbeta, with the sums of partials and their casts. A time is
the median of CUDA graph replays with the L2 cache flushed before each; the ceiling is torch.add(x, dy, out=dx), which
reads two matrices and writes one. For specs with pass=forward the operation is y and what a peer saves in addition, and
torch.neg(x, out=y) replaces the ceiling, which only `normjit bench` has. A peer that cannot be imported, compiled or run
for a shape is skipped.

    torch    the operators that autograd calls (eager)
    compile  torch.compile of the formula, forward or backward, with its defaults
    compile-best  the fastest of several settings of torch.compile
    triton   a row per step, partial sums of columns per program, summed by torch, as in flash-attention's layer norm;
             no forward pass
    liger    Liger-Kernel (PyPI: liger-kernel)
    quack    QuACK, CuTe DSL (PyPI: quack-kernels, with nvidia-cutlass-dsl, apache-tvm-ffi, torch-c-dlpack-ext)
    normjit  this project's Python package, in the same harness, which is not that of `normjit bench`

All run as replays of a CUDA graph; those of a shape take turns. A missing package is reported, and its peer skipped.
"""
import argparse
import functools
import importlib
import json
import statistics
import sys
import time

import torch

EPS = 1e-5
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
FLUSH_BYTES = 256 << 20


class Problem:
    """The filled tensors of one line of a shapes file."""

    def __init__(self, spec):
        words = spec.split()
        keys = dict(word.split("=") for word in words[1:])
        self.spec, self.norm = spec, words[0]
        self.rows, self.cols = int(keys["rows"]), int(keys["cols"])
        self.is_forward = keys.pop("pass", "backward") == "forward"
        if set(keys) - {"rows", "cols", "x", "gamma"} or keys.get("gamma", keys["x"]) not in DTYPES:
            raise ValueError("a key that the peers have no word for")
        dtype, weight_dtype = DTYPES[keys["x"]], DTYPES[keys.get("gamma", keys["x"])]
        torch.manual_seed(1)
        make = lambda scale, mean: torch.empty(self.rows, self.cols, device="cuda", dtype=dtype).normal_(mean, scale)
        self.x = make(1, 0.5)
        self.dy = None if self.is_forward else make(1, 0)
        self.dx = torch.empty_like(self.x)  # holds y in a forward pass
        self.gamma = torch.empty(self.cols, device="cuda", dtype=weight_dtype).normal_(1, 0.1)
        self.beta = torch.zeros_like(self.gamma)
        self.mean, self.rstd = (None, None) if self.is_forward else self.statistics()

    def statistics(self):
        mean, rstd = (torch.zeros(self.rows, device="cuda") for _ in range(2))
        step = max(1, (64 << 20) // self.cols)
        for i in range(0, self.rows, step):
            part = self.x[i : i + step].float()
            if self.norm == "layernorm":
                mean[i : i + step] = part.mean(-1)
                part -= mean[i : i + step, None]
            rstd[i : i + step] = torch.rsqrt(part.square().mean(-1) + EPS)
        return mean, rstd

    def bytes(self):
        return (2 if self.is_forward else 3) * self.x.numel() * self.x.element_size()

    def ceiling(self):
        """Returns a name, and a function that moves the same bytes."""
        if self.is_forward:
            return "torch.neg", lambda: torch.neg(self.x, out=self.dx)
        return "torch.add", lambda: torch.add(self.x, self.dy, out=self.dx)


def torch_eager(p):
    if p.is_forward:
        gamma, beta = p.gamma.to(p.x.dtype), p.beta.to(p.x.dtype)
        if p.norm == "layernorm":
            return lambda: torch.ops.aten.native_layer_norm(p.x, [p.cols], gamma, beta, EPS)
        return lambda: torch.ops.aten._fused_rms_norm(p.x, [p.cols], gamma, EPS)
    if p.norm == "layernorm":
        mean, rstd = p.mean[:, None], p.rstd[:, None]
        gamma, beta = p.gamma.to(p.x.dtype), p.beta.to(p.x.dtype)
        return lambda: torch.ops.aten.native_layer_norm_backward(p.dy, p.x, [p.cols], mean, rstd, gamma, beta, [True] * 3)
    gamma = p.gamma.to(p.x.dtype)
    return lambda: torch.ops.aten._fused_rms_norm_backward(p.dy, p.x, [p.cols], p.rstd[:, None], gamma, [True] * 2)


# Settings of Inductor for a norm besides its defaults; "compile-best" is the fastest of these.
INDUCTOR = {
    "default": {},
    "mix-order reduction": {"triton.mix_order_reduction": True, "triton.mix_order_reduction_non_strict_mode": True},
    "all of it": {"max_autotune": True, "coordinate_descent_tuning": True, "triton.mix_order_reduction": True,
                  "triton.mix_order_reduction_non_strict_mode": True,
                  "triton.mix_order_reduction_autotune_split_size": True},
}


def known(options):
    """Returns the settings that this version of Inductor has."""
    return {name: value for name, value in options.items() if name in torch._inductor.list_options()}


def fastest_setting(title, make, seconds):
    """Returns the fastest of make(options) over INDUCTOR; seconds(run) measures."""
    tried = []
    for name, options in INDUCTOR.items():
        run = make(options)
        tried.append((seconds(run), len(tried), run, name))
    print(f"{title}: of torch.compile the fastest is {min(tried)[3]}", file=sys.stderr)
    return min(tried)[2]


def compiled(p, options):
    """Returns the compiled formula: y, or all gradients from the saved statistics, as in a graph's backward pass."""
    def forward(x, gamma, beta):
        if p.norm == "layernorm":
            wide = torch.nn.functional.layer_norm(x.float(), (p.cols,), gamma.float(), beta.float(), EPS)
        else:
            wide = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS) * gamma.float()
        return wide.to(x.dtype)

    def backward(dy, x, gamma, mean, rstd):
        dy, x, weight = dy.float(), x.float(), gamma.float()
        xhat = (x - mean if p.norm == "layernorm" else x) * rstd
        g = dy * weight
        inner = g - xhat * (g * xhat).mean(-1, keepdim=True)
        if p.norm == "layernorm":
            inner = inner - g.mean(-1, keepdim=True)
        sums = (dy * xhat, dy) if p.norm == "layernorm" else (dy * xhat,)
        return (inner * rstd).to(p.x.dtype), *((each.sum(0)).to(gamma.dtype) for each in sums)

    compile_ = functools.partial(torch.compile, fullgraph=True, dynamic=False, options=known(options))
    if p.is_forward:
        of_forward = compile_(forward)
        return lambda: of_forward(p.x, p.gamma, p.beta)
    of_backward = compile_(backward)
    return lambda: of_backward(p.dy, p.x, p.gamma, p.mean[:, None], p.rstd[:, None])


def torch_compile(p):
    return compiled(p, {})


def torch_compile_best(p):
    return fastest_setting(p.spec, functools.partial(compiled, p), lambda run: seconds_of([captured(run)], 9)[0])


try:
    import triton
    import triton.language as tl

    @triton.jit
    def norm_backward(x_ptr, dy_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, dgamma_ptr, dbeta_ptr, rows, each,
                      cols: tl.constexpr, width: tl.constexpr, layernorm: tl.constexpr):
        program = tl.program_id(0)
        at = tl.arange(0, width)
        inside = at < cols
        gamma = tl.load(gamma_ptr + at, mask=inside, other=0).to(tl.float32)
        dgamma = tl.zeros((width,), tl.float32)
        dbeta = tl.zeros((width,), tl.float32)
        for row in range(program * each, min((program + 1) * each, rows)):
            start = row.to(tl.int64) * cols
            x = tl.load(x_ptr + start + at, mask=inside, other=0).to(tl.float32)
            dy = tl.load(dy_ptr + start + at, mask=inside, other=0).to(tl.float32)
            rstd = tl.load(rstd_ptr + row)
            xhat = x * rstd
            if layernorm:
                xhat = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0)
                dbeta += dy
            g = dy * gamma
            dgamma += dy * xhat
            inner = g - xhat * (tl.sum(g * xhat, 0) / cols)
            if layernorm:
                inner -= tl.sum(g, 0) / cols
            tl.store(dx_ptr + start + at, (inner * rstd).to(dx_ptr.dtype.element_ty), mask=inside)
        tl.store(dgamma_ptr + program * cols + at, dgamma, mask=inside)
        if layernorm:
            tl.store(dbeta_ptr + program * cols + at, dbeta, mask=inside)
except ImportError:
    triton = None


def triton_rows(p):
    if triton is None:
        raise ValueError("no Triton")
    if p.is_forward:
        raise ValueError("no forward pass")
    width = triton.next_power_of_2(p.cols)
    if width * p.x.element_size() > 65536:
        raise ValueError("a row does not fit a block")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    layernorm = p.norm == "layernorm"

    def make(warps, blocks):
        programs = min(p.rows, sms * blocks)
        each = -(-p.rows // programs)
        partials = [torch.empty(programs, p.cols, device="cuda") for _ in range(2)]

        def run():
            norm_backward[(programs,)](p.x, p.dy, p.gamma, p.mean, p.rstd, p.dx, *partials, p.rows, each, p.cols, width,
                                       layernorm, num_warps=warps)
            return [part.sum(0).to(p.gamma.dtype) for part in partials[: 2 if layernorm else 1]]

        return run

    # The best of a few, as an autotuner would find it.
    tried = []
    for warps in (1, 2, 4, 8, 16):
        for blocks in (1, 2, 4, 8):
            if width // (warps * 32) > 128 or width < warps * 32:
                continue
            run = make(warps, blocks)
            tried.append((*seconds_of([captured(run)], 5), len(tried), run))
    return min(tried)[2]


def liger(p):
    from liger_kernel.ops import layer_norm, rms_norm
    from liger_kernel.ops.utils import calculate_settings

    if p.is_forward and p.norm == "layernorm":
        return lambda: layer_norm.layer_norm_forward(p.x, p.gamma, p.beta, EPS)
    if p.is_forward:
        return lambda: rms_norm.rms_norm_forward(p.x, p.gamma, EPS, 0.0, "llama", None)
    if p.norm == "layernorm":
        return lambda: layer_norm.layer_norm_backward(p.dy, p.x, p.gamma, p.beta, p.mean, p.rstd)
    block, warps = calculate_settings(p.cols)
    return lambda: rms_norm.rms_norm_backward(p.dy, p.x, p.gamma, p.rstd, 0.0, 1, block, warps, False, None)


def quack(p):
    from quack.rmsnorm import layernorm_bwd, layernorm_fwd, rmsnorm_bwd, rmsnorm_fwd

    if p.is_forward and p.norm == "layernorm":
        gamma, beta = p.gamma.float(), p.beta.float()  # it takes nothing else
        return lambda: layernorm_fwd(p.x, gamma, bias=beta, eps=EPS)
    if p.is_forward:
        return lambda: rmsnorm_fwd(p.x, p.gamma, eps=EPS)
    if p.norm == "layernorm":
        return lambda: layernorm_bwd(p.x, p.gamma, p.dy, p.rstd, p.mean)
    return lambda: rmsnorm_bwd(p.x, p.gamma, p.dy, p.rstd)


def normjit_itself(p):
    import normjit

    if p.is_forward and p.norm == "layernorm":
        return lambda: normjit.layer_norm(p.x, p.gamma, p.beta, eps=EPS, out={"y": p.dx})
    if p.is_forward:
        return lambda: normjit.rms_norm(p.x, p.gamma, eps=EPS, out={"y": p.dx})
    if p.norm == "layernorm":
        return lambda: normjit.layer_norm_backward(p.x, p.dy, p.gamma, mean=p.mean, rstd=p.rstd, out={"dx": p.dx})
    return lambda: normjit.rms_norm_backward(p.x, p.dy, p.gamma, rstd=p.rstd, out={"dx": p.dx})


PEERS = {"torch": torch_eager, "triton": triton_rows, "liger": liger, "quack": quack, "compile": torch_compile,
         "compile-best": torch_compile_best, "normjit": normjit_itself}
PACKAGES = {"triton": "triton", "liger": "liger_kernel.ops", "quack": "quack.rmsnorm", "normjit": "normjit"}
flush = None


def seconds_of(runs, samples):
    """Returns medians of runs that take turns, each after a flush of the L2 cache."""
    global flush
    if flush is None:
        flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    events = [[[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in runs] for _ in range(samples)]
    for turn in events:
        for run, (first, last) in zip(runs, turn):
            flush.zero_()
            first.record()
            run()
            last.record()
    torch.cuda.synchronize()
    return [statistics.median(1e-3 * first.elapsed_time(last) for first, last in of_run) for of_run in zip(*events)]


def captured(run):
    """Returns a replay of the graph of a run, which keeps the run's memory alive."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return functools.partial(replay, graph, run, results)


def replay(graph, *_):
    graph.replay()


def measure_spec(spec, only, budget):
    try:
        p = Problem(spec)
    except (ValueError, torch.cuda.OutOfMemoryError) as error:
        print(f"{spec}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return []
    torch._dynamo.reset()  # it compiles a function for a few shapes only
    method, move = p.ceiling()
    runs = {method: captured(move)}
    for name in only:
        try:
            runs[name] = captured(PEERS[name](p))
        except Exception as error:  # peers fail in various ways on unsupported shapes
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"{spec}: {name} left out: {reason[:100]}", file=sys.stderr)
    once = sum(seconds_of(runs.values(), 1)) + 1e-4 * len(runs)
    ceiling, *times = seconds_of(runs.values(), max(7, min(200, int(budget / once))))
    results = [{"spec": spec, "peer": name, "median_seconds": seconds, "bytes": p.bytes(),
                "bytes_per_second": p.bytes() / seconds, "share": ceiling / seconds,
                "ceiling": {"median_seconds": ceiling, "bytes_per_second": p.bytes() / ceiling, "method": method}}
               for name, seconds in zip(list(runs)[1:], times)]
    shares = "  ".join(f"{r['peer']} {1e6 * r['median_seconds']:.1f} us {r['share']:.2f}" for r in results)
    print(f"{spec}: ceiling {1e6 * ceiling:.1f} us  {shares}", flush=True)
    return results


def importable(names):
    """Returns the available peers."""
    there = []
    for name in names:
        try:
            importlib.import_module(PACKAGES.get(name, "torch"))
        except Exception as error:  # an installed package may still not suit this Python, torch or driver
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"{name} left out: {reason[:200]}", file=sys.stderr)
            continue
        there.append(name)
    return there


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", required=True, help="a file with one spec a line")
    parser.add_argument("--json", required=True, help="the file to write")
    parser.add_argument("--only", default=",".join(PEERS), help="peers, separated by commas [%(default)s]")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of measuring, of a shape [%(default)s]")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which no new shape is begun")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in PEERS]
    if unknown:
        parser.error(f"--only {unknown[0]}: allowed: {' '.join(PEERS)}")
    only = importable(options.only.split(","))
    start = time.monotonic()
    with open(options.shapes) as file:
        specs = [line.split("#")[0].strip() for line in file]
    document = {"device": "cuda:0", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "results": []}
    for spec in filter(None, specs):
        if time.monotonic() - start > options.limit:
            print(f"{spec} and what follows: no time left", file=sys.stderr)
            break
        document["results"] += measure_spec(spec, only, options.budget)
        with open(options.json, "w") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
