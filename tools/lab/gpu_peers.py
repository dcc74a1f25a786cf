#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures other libraries' norm passes on a GPU, over a file of shapes, as `normjit bench --json`.

    python3 tools/lab/gpu_peers.py --shapes tools/lab/gpu_shapes.txt --json peers.json [--only torch,triton] [--limit 300]

The whole operation counts: dx, dgamma and, for layernorm, dbeta, with the sums of partials and their casts. A time is
the median of CUDA graph replays with the L2 cache flushed before each; the ceiling is torch.add(x, dy, out=dx), which
reads two matrices and writes one. For specs with pass=forward the operation is y and what a peer saves in addition, and
the ceiling is that of torch.neg(x, out=y). With a residual the ceiling's time grows with the bytes. A peer that cannot be
imported, compiled or run for a shape, or whose result is wrong, is left out with a line that says so.

    torch    the operators that autograd calls (eager)
    compile  torch.compile of the formula, forward or backward, with its defaults
    compile-best  the fastest of several settings of torch.compile
    triton   a row per step, partial sums of columns per program, summed by torch, as in flash-attention's layer norm;
             no forward pass
    liger    Liger-Kernel (PyPI: liger-kernel)
    cudnn    cuDNN through its frontend (PyPI: nvidia-cudnn-frontend)
    quack    QuACK, CuTe DSL (PyPI: quack-kernels, with nvidia-cutlass-dsl, apache-tvm-ffi, torch-c-dlpack-ext)
    normjit  this project's Python package

All run as replays of a CUDA graph; those of a shape take turns. A missing package is reported, and its peer skipped.
"""
import argparse
import functools
import importlib
import json
import sys
import time

import torch

from gpu_problem import EPS, Problem, specs_of
from gpu_timing import captured, compiling, fastest_setting, known, seconds_of


def torch_eager(p):
    if not p.is_plain():
        run = p.composite()
        return lambda: run(*p.inputs())
    gamma, beta = p.gamma.to(p.x.dtype), p.beta.to(p.x.dtype)
    if p.is_forward and p.is_layernorm:
        return lambda: torch.ops.aten.native_layer_norm(p.x, [p.cols], gamma, beta, EPS)
    if p.is_forward:
        return lambda: torch.ops.aten._fused_rms_norm(p.x, [p.cols], gamma, EPS)
    mean, rstd = p.mean[:, None], p.rstd[:, None]
    if p.is_layernorm:
        return lambda: torch.ops.aten.native_layer_norm_backward(p.dy, p.x, [p.cols], mean, rstd, gamma, beta, [True] * 3)
    return lambda: torch.ops.aten._fused_rms_norm_backward(p.dy, p.x, [p.cols], rstd, gamma, [True] * 2)


def compiled(p, options):
    run = torch.compile(p.composite(), fullgraph=True, dynamic=False, options=known(options))
    return lambda: run(*p.inputs())


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
    p.require_plain()
    if triton is None:
        raise ValueError("no Triton")
    if p.is_forward:
        raise ValueError("no forward pass")
    width = triton.next_power_of_2(p.cols)
    if width * p.x.element_size() > 65536:
        raise ValueError("a row does not fit a block")
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def make(warps, blocks):
        programs = min(p.rows, sms * blocks)
        each = -(-p.rows // programs)
        partials = [torch.empty(programs, p.cols, device="cuda") for _ in range(2)]

        def run():
            norm_backward[(programs,)](p.x, p.dy, p.gamma, p.mean, p.rstd, p.dx, *partials, p.rows, each, p.cols, width,
                                       p.is_layernorm, num_warps=warps)
            return [p.dx, *(part.sum(0).to(p.gamma.dtype) for part in partials[: 2 if p.is_layernorm else 1])]

        return run

    # The best of a few settings, as an autotuner would find it.
    tried = []
    for warps in (1, 2, 4, 8, 16):
        for blocks in (1, 2, 4, 8):
            if width // (warps * 32) > 128 or width < warps * 32:
                continue
            run = make(warps, blocks)
            tried.append((*seconds_of([captured(run)], 5), len(tried), run))
    return min(tried)[2]


def liger(p):
    from liger_kernel.ops import fused_add_rms_norm, layer_norm, rms_norm
    from liger_kernel.ops.utils import calculate_settings

    if p.residual is not None and not p.is_layernorm:
        return lambda: fused_add_rms_norm.fused_add_rms_norm_forward(p.x, p.residual, p.gamma, EPS, 0.0, "llama")
    p.require_plain()
    if p.is_forward and p.is_layernorm:
        return lambda: layer_norm.layer_norm_forward(p.x, p.gamma, p.beta, EPS)
    if p.is_forward:
        return lambda: rms_norm.rms_norm_forward(p.x, p.gamma, EPS, 0.0, "llama", None)
    if p.is_layernorm:
        return lambda: layer_norm.layer_norm_backward(p.dy, p.x, p.gamma, p.beta, p.mean, p.rstd)
    block, warps = calculate_settings(p.cols)
    return lambda: rms_norm.rms_norm_backward(p.dy, p.x, p.gamma, p.rstd, 0.0, 1, block, warps, False, None)


def quack(p):
    from quack.rmsnorm import layernorm_bwd, layernorm_fwd, rmsnorm_bwd, rmsnorm_fwd

    if p.slices is not None:
        raise ValueError("no slices")
    if p.is_layernorm or p.into:
        p.require_plain()
    if p.is_forward and p.is_layernorm:
        gamma, beta = p.gamma.float(), p.beta.float()  # it takes no other type
        return lambda: layernorm_fwd(p.x, gamma, bias=beta, eps=EPS)
    if p.is_forward:
        return lambda: rmsnorm_fwd(p.x, p.gamma, residual=p.residual, eps=EPS)
    if p.is_layernorm:
        return lambda: layernorm_bwd(p.x, p.gamma, p.dy, p.rstd, p.mean)
    return lambda: rmsnorm_bwd(p.x, p.gamma, p.dy, p.rstd, dresidual_out=p.dresidual)


def cudnn_graph(p):
    """Returns cuDNN's kernel for the pass, with the first of its plans. Rows are images, and columns are channels."""
    import cudnn

    p.require_plain()
    types = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF, torch.float32: cudnn.data_type.FLOAT}
    handle = cudnn.create_handle()
    graph = cudnn.pygraph(io_data_type=types[p.x.dtype], intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)
    tensors = {}

    def tensor(array, name):
        rows, cols = (p.rows if array.numel() >= p.rows and array.shape[0] == p.rows else 1,
                      p.cols if array.shape[-1] == p.cols else 1)
        made = graph.tensor(name=name, dim=[rows, cols, 1, 1], stride=[cols, 1, cols, cols], data_type=types[array.dtype])
        tensors[made] = array
        return made

    def result(made, like):
        made.set_output(True).set_data_type(types[like.dtype])
        tensors[made] = like
        return like

    x, gamma = tensor(p.x, "x"), tensor(p.gamma[None], "gamma")
    if p.is_forward:
        epsilon = graph.tensor(name="epsilon", dim=[1] * 4, stride=[1] * 4, is_pass_by_value=True, data_type=types[torch.float32])
        tensors[epsilon] = torch.full((1, 1, 1, 1), EPS)
        rstd = torch.empty(p.rows, 1, device="cuda")
        if p.is_layernorm:
            made = graph.layernorm(name="norm", norm_forward_phase=cudnn.norm_forward_phase.TRAINING, input=x, scale=gamma,
                                   bias=tensor(p.beta[None], "beta"), epsilon=epsilon)
            results = [result(each, like) for each, like in zip(made, (p.dx, torch.empty_like(rstd), rstd))]
        else:
            made = graph.rmsnorm(name="norm", norm_forward_phase=cudnn.norm_forward_phase.TRAINING, input=x, scale=gamma,
                                 epsilon=epsilon)
            results = [result(each, like) for each, like in zip(made, (p.dx, rstd))]
    else:
        grad, rstd = tensor(p.dy, "dy"), tensor(p.rstd[:, None], "rstd")
        if p.is_layernorm:
            made = graph.layernorm_backward(name="norm", grad=grad, input=x, scale=gamma, mean=tensor(p.mean[:, None], "mean"),
                                            inv_variance=rstd)
        else:
            made = graph.rmsnorm_backward(name="norm", grad=grad, input=x, scale=gamma, inv_variance=rstd, has_dbias=False)
        likes = p.dx, torch.empty_like(p.gamma), torch.empty_like(p.gamma)
        results = [result(each, like) for each, like in zip(made, likes) if each is not None]
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)

    def run():
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(tensors, workspace, handle=handle)
        return results

    return run


SLICED = {"layernorm": """norm adaln(x[S,M,N], gamma[S,N], beta[S,N]) -> y[S,M,N], mean?[S,M], rstd?[S,M]
    mean    = row_mean(x)
    centred = x - mean
    rstd    = rsqrt(row_mean(centred * centred) + eps)
    y       = centred * rstd * gamma + beta""",
          "rmsnorm": """norm heads(x[S,M,N], gamma[S,N]) -> y[S,M,N], rstd?[S,M]
    rstd = rsqrt(row_mean(x * x) + eps)
    y    = x * rstd * gamma"""}


def normjit_itself(p):
    import normjit

    statistics = {"mean": p.mean, "rstd": p.rstd} if p.is_layernorm else {"rstd": p.rstd}
    if p.slices is not None:
        formula = normjit.formula(SLICED[p.norm])
        given = {"x": p.x, "gamma": p.gamma, **({"beta": p.beta} if p.is_layernorm else {})}
        if p.is_forward:
            return lambda: formula(**given, eps=EPS, out={"y": p.dx})
        return lambda: formula.backward(**given, **statistics, dy=p.dy, eps=EPS, out={"dx": p.dx})
    if p.is_forward:
        given = (p.x, p.gamma, p.beta) if p.is_layernorm else (p.x, p.gamma)
        norm = normjit.layer_norm if p.is_layernorm else normjit.rms_norm
        return lambda: norm(*given, residual=p.residual, eps=EPS, out={"y": p.dx})
    backward = normjit.layer_norm_backward if p.is_layernorm else normjit.rms_norm_backward
    return lambda: backward(p.x, p.dy, p.gamma, **statistics, dresidual=p.dresidual, out={"dx": p.dx, **p.into},
                            accumulate=p.into)


PEERS = {"torch": torch_eager, "triton": triton_rows, "liger": liger, "quack": quack, "cudnn": cudnn_graph, "compile": torch_compile,
         "compile-best": torch_compile_best, "normjit": normjit_itself}
PACKAGES = {"triton": "triton", "liger": "liger_kernel.ops", "quack": "quack.rmsnorm", "cudnn": "cudnn", "normjit": "normjit"}
def measure_spec(spec, only, budget):
    try:
        p = Problem(spec)
    except (ValueError, torch.cuda.OutOfMemoryError) as error:
        print(f"{spec}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return []
    torch._dynamo.reset()  # it compiles a function only for a few shapes
    method, move, moved = p.ceiling()
    runs = {method: captured(move)}
    for name in only:
        try:
            with compiling():
                made = PEERS[name](p)
            run = captured(made)
            run()
            p.check(run.results[0])
            runs[name] = run
        except Exception as error:  # peers fail in various ways on unsupported shapes
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"{spec}: {name} left out: {reason[:100]}", file=sys.stderr)
    once = sum(seconds_of(runs.values(), 1)) + 1e-4 * len(runs)
    ceiling, *times = seconds_of(runs.values(), max(7, min(200, int(budget / once))))
    ceiling *= p.bytes() / moved
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
    parser.add_argument("--part", default="0/1", help="I/N: every Nth shape, from the Ith on, counted from 0 [%(default)s]")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in PEERS]
    if unknown:
        parser.error(f"--only {unknown[0]}: allowed: {' '.join(PEERS)}")
    only = importable(options.only.split(","))
    part, parts = map(int, options.part.split("/"))
    start = time.monotonic()
    document = {"device": "cuda:0", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "results": []}
    for spec in specs_of(options.shapes)[part::parts]:
        if time.monotonic() - start > options.limit:
            print(f"{spec} and what follows: no time left", file=sys.stderr)
            break
        document["results"] += measure_spec(spec, only, options.budget)
        with open(options.json, "w") as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
