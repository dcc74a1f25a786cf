#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures norms of templates/norms and other implementations of the same norms, forward and backward, on a GPU or a
CPU.

    PYTHONPATH=build/python python3 tools/lab/formula_peers.py --json formulas.json [--device cpu] [--only torch,compile]
        [CASE ...]

CASE: gated_rmsnorm:8192x4096:bf16, backward; forward:gated_rmsnorm:8192x4096:bf16; slices before the rows:
qk_norm_rope:16x16384x128:bf16, whose x is a view of [rows, 3, slices, cols], as a projection makes queries, keys and values;
groupnorm:32x8x40960/4096:bf16, 8 images in 32 groups of 40960 elements, 4096 to a channel.

    normjit       the Python package's formula, with the statistics of the forward pass
    recompute     the same without saved statistics
    torch         the operators of the formula in torch code and their autograd
    compile       torch.compile of this code with its defaults
    compile-best  the fastest of several settings of torch.compile
    fla           flash-linear-attention (PyPI: flash-linear-attention, fla-core), where it has the norm

On a GPU a time is the median of CUDA graph replays, with the L2 cache flushed before each; on a CPU it is the median of
calls. Peers take turns. The ceiling is the time that the bytes of the inputs and gradients take at the rate of
torch.add(x, dy, out=dx)."""
import argparse
import importlib
import inspect
import json
import pathlib
import statistics
import sys
import time

import gpu_timing
import normjit
import torch
from gpu_problem import DTYPES, specs_of
from torch.nn import functional

EPS = 1e-5
TYPES = {"f32": torch.float32, **DTYPES}
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "templates/norms"


def case_of(spec):
    """Returns the case that a spec stands for, without the types of weights."""
    norm, *words = spec.split()
    keys = dict(word.split("=") for word in words)
    form = "forward:" if keys.get("pass") == "forward" else ""
    run = f"/{keys['R']}" if "R" in keys else ""
    return f"{form}{norm}:" + "x".join(keys[axis] for axis in ("slices", "rows", "cols") if axis in keys) + f"{run}:{keys['x']}"


GPU_CASES = [case_of(spec) for spec in specs_of(pathlib.Path(__file__).with_name("page_formulas.txt"))]
PEERS = ("normjit", "recompute", "torch", "compile", "compile-best", "fla")
CPU_CASES = [f"{form}{case}" for case in ("gated_rmsnorm:8192x4096:bf16", "gated_rmsnorm:8192x4096:f32",
             "gated_rmsnorm:512x4096:f32", "rmsnorm_silu:8192x4096:bf16", "rmsnorm_silu:8192x4096:f32",
             "softmax:8192x4096:f32") for form in ("", "forward:")]


def rms(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def gated_rmsnorm(x, z, gamma):
    return (rms(x.float()) * gamma.float() * functional.silu(z.float())).to(x.dtype)


def rmsnorm_of_gated(x, z, gamma):
    return (rms(x.float() * functional.silu(z.float())) * gamma.float()).to(x.dtype)


def rmsnorm_silu(x, gamma):
    return functional.silu(rms(x.float()) * gamma.float()).to(x.dtype)


def qk_norm_rope(x, gamma, cos, sin):
    q = rms(x.float()) * gamma.float()
    return (q * cos.float() + torch.roll(q, q.shape[-1] // 2, -1) * sin.float()).to(x.dtype)


def qk_norm_rope_interleaved(x, gamma, cos, sin):
    q = rms(x.float()) * gamma.float()
    other = q.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return (q * cos.float() + other * sin.float()).to(x.dtype)


def rmsnorm_blocks(x, gamma):
    groups = (rms(x.float()) * gamma.float()).unflatten(-1, (-1, 128))
    scale = (groups.abs().amax(-1, keepdim=True) / 448).clamp_min(1e-12)
    return (groups / scale).flatten(-2).to(torch.float8_e4m3fn), scale.squeeze(-1)


def softmax(x):
    return torch.softmax(x, -1)


def l2norm(x):
    return (x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + EPS)).to(x.dtype)


def dynamic_tanh(x, gamma, beta):
    return (torch.tanh(x.float() * 0.5) * gamma.float() + beta.float()).to(x.dtype)


def groupnorm(x, gamma, beta):
    images = x.transpose(0, 1)
    y = functional.group_norm(images.reshape(images.shape[0], gamma.numel(), -1), x.shape[0], gamma.view(-1), beta.view(-1), EPS)
    return y.view(images.shape).transpose(0, 1)


NORMS = {each.__name__: each for each in (gated_rmsnorm, rmsnorm_of_gated, rmsnorm_silu, qk_norm_rope, qk_norm_rope_interleaved,
                                          rmsnorm_blocks, softmax, l2norm, dynamic_tanh, groupnorm)}
RMSNORM_SILU = """norm rmsnorm_silu(x[M,N], gamma?[N]) -> y[M,N], rstd?[M]
    rstd = rsqrt(row_mean(x * x) + eps)
    y    = silu(x * rstd * gamma)"""


class Problem:
    """A case, and its tensors, which are filled."""

    def __init__(self, case, device):
        *forward, self.norm, shape, type_name = case.split(":")
        if forward not in ([], ["forward"]) or self.norm not in NORMS or type_name not in TYPES:
            raise ValueError(f"{case}: a norm is one of {' '.join(NORMS)}, a type one of {' '.join(TYPES)}")
        self.case, self.is_forward, dtype = case, bool(forward), TYPES[type_name]
        shape, _, run = shape.partition("/")
        shape = tuple(int(part) for part in shape.split("x"))
        torch.manual_seed(1)
        make = lambda *dims: torch.randn(*dims, device=device).to(dtype)
        self.function = NORMS[self.norm]
        path = FOLDER / f"{self.norm}.norm"
        self.formula = normjit.formula(path.read_text() if path.exists() else RMSNORM_SILU)
        self.inputs = {}
        for name in inspect.signature(self.function).parameters:
            axes = self.formula.axes(name)
            if axes == "N":
                self.inputs[name] = 1 + 0.1 * make(shape[-1])
            elif axes == "S,N":
                self.inputs[name] = 1 + 0.1 * make(shape[0], shape[-1] // int(run))
            elif run:
                self.inputs[name] = make(shape[1], shape[0], shape[2]).transpose(0, 1)
            elif axes == "M,N" and len(shape) == 3:
                self.inputs[name] = make(*shape[1:])
            elif len(shape) == 3:
                self.inputs[name] = make(shape[1], 3, shape[0], shape[2])[:, 0].transpose(0, 1)
            else:
                self.inputs[name] = make(*shape)
        self.wanted = [name for name in self.inputs if name not in ("cos", "sin")]
        self.dy = torch.empty_like(self.inputs["x"], memory_format=torch.preserve_format).copy_(make(*shape))
        numbers = {"eps": EPS, "gamma_offset": 0, "alpha": 0.5}
        self.numbers = {name: value for name, value in numbers.items() if name in self.formula.text}
        self.results = {"y": torch.empty_like(self.dy)}
        if self.norm == "rmsnorm_blocks":
            self.results = {"y": torch.empty_like(self.dy, dtype=torch.float8_e4m3fn),
                            "scale": torch.empty(*shape[:-1], shape[-1] // 128, device=device)}
        results = list(self.results.values()) if self.is_forward else [self.dy, *(self.inputs[name] for name in self.wanted)]
        self.bytes = sum(each.numel() * each.element_size() for each in (*self.inputs.values(), *results))


def ours(p, saves):
    if p.is_forward:
        return lambda: p.formula(**p.inputs, **p.numbers, out=p.results)
    saved = {}
    if saves:
        statistics_ = [name for name in ("mean", "rstd") if name in p.formula.outputs]
        made = p.formula(**p.inputs, **p.numbers, outputs=statistics_) if statistics_ else ()
        saved = dict(zip(statistics_, made))
    out = {f"d{name}": torch.empty_like(p.inputs[name]) for name in p.wanted}
    return lambda: p.formula.backward(**p.inputs, dy=p.dy, **saved, **p.numbers, out=out)


def through_autograd(p, function):
    if p.is_forward:
        def forward():
            with torch.no_grad():
                return function(**p.inputs)
        return forward
    inputs = {name: each.detach().requires_grad_(name in p.wanted) for name, each in p.inputs.items()}
    y = function(**inputs)
    wanted = [inputs[name] for name in p.wanted]
    return lambda: torch.autograd.grad(y, wanted, p.dy, retain_graph=True)


def compiled(p, options):
    torch._dynamo.reset()
    options = gpu_timing.known(options)
    return through_autograd(p, torch.compile(p.function, fullgraph=True, dynamic=False, options=options))


def fla(p):
    if p.norm == "gated_rmsnorm":
        rms_norm_gated = importlib.import_module("fla.modules.norm.fused_norm_gate").rms_norm_gated
        return through_autograd(p, lambda x, z, gamma: rms_norm_gated(x, z, gamma, None, eps=EPS))
    if p.norm == "rmsnorm_of_gated":
        rmsnorm_fn = importlib.import_module("fla.modules.norm.layernorm_gated").rmsnorm_fn
        return through_autograd(p, lambda x, z, gamma: rmsnorm_fn(x, gamma, None, z=z, eps=EPS, norm_before_gate=False))
    if p.norm == "l2norm":
        l2norm_ = importlib.import_module("fla.modules.norm.l2norm").l2_norm
        return through_autograd(p, lambda x: l2norm_(x, EPS))
    raise ValueError("it has no such norm")


def seconds_on_cpu(runs, samples):
    """Returns the medians of calls that take turns."""
    times = [[] for _ in runs]
    for _ in range(samples):
        for run, of_run in zip(runs, times):
            start = time.perf_counter()
            run()
            of_run.append(time.perf_counter() - start)
    return [statistics.median(of_run) for of_run in times]


def measure(p, only, device, budget):
    # A run is captured once, and the same graph is replayed for all its times.
    ready, timed = (gpu_timing.captured, gpu_timing.seconds_of) if device == "cuda" else (lambda run: run, seconds_on_cpu)
    best = lambda: gpu_timing.fastest_setting(p.case, lambda options: compiled(p, options),
                                             lambda run: timed([ready(run)], 9)[0])
    peers = {"normjit": lambda: ours(p, True), "recompute": lambda: ours(p, False),
             "torch": lambda: through_autograd(p, p.function), "compile": lambda: compiled(p, {}),
             "compile-best": best, "fla": lambda: fla(p)}
    y = p.dy.contiguous()
    out = torch.empty_like(y)
    x = torch.zeros_like(y)
    runs = {"ceiling": ready(lambda: torch.add(x, y, out=out))}
    for name in only:
        if name == "recompute" and (p.is_forward or "rstd" not in p.formula.outputs):
            continue
        try:
            with gpu_timing.compiling():
                made = peers[name]()
            run = ready(made)
            timed([run], 1)
            runs[name] = run
        except Exception as error:  # peers fail in various ways
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"{p.case}: {name} left out: {reason[:160]}", file=sys.stderr)
    once = sum(timed(list(runs.values()), 1)) + 1e-4
    ceiling, *times = timed(list(runs.values()), max(5, min(200, int(budget / once))))
    ceiling *= p.bytes / (3 * y.numel() * y.element_size())
    print(f"{p.case}: ceiling {1e6 * ceiling:.1f} us  " + "  ".join(
        f"{name} {1e6 * seconds:.1f} us {ceiling / seconds:.2f}" for name, seconds in zip(list(runs)[1:], times)), flush=True)
    return [{"case": p.case, "peer": name, "median_seconds": seconds, "bytes": p.bytes, "share": ceiling / seconds,
             "ceiling": {"median_seconds": ceiling, "method": "torch.add"}} for name, seconds in zip(list(runs)[1:], times)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--json", required=True, help="the file to write")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default=",".join(PEERS), help="[%(default)s]")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds of measuring, of a case [%(default)s]")
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    document = {"device": name, "torch": torch.__version__, "threads": torch.get_num_threads(), "results": []}
    for case in options.cases or (GPU_CASES if options.device == "cuda" else CPU_CASES):
        document["results"] += measure(Problem(case, options.device), options.only.split(","), options.device, options.budget)
        with open(options.json, "w") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
