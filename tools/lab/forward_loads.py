#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures plain kernels of an RMSNorm forward pass that differ in their loads (needs CuPy and PyTorch).

    PYTHONPATH=build/python tools/lab/forward_loads.py --json loads.json [--cols 4096 8192 16384] [--seconds 45]

A block has one row. It keeps the row in registers, or reads it again for the last sweep. Prints the microseconds of a
launch in a CUDA graph of 40, and of one after a flush of L2, also for normjit and torch.compile. In a kernel's line,
`keep` says whether the row is kept, `ahead` how many vectors a thread has in flight, `first`, `second` and `gamma` name
the hints of the loads, and `blocks` says how many blocks a multiprocessor should hold. --seconds is the time for each
width."""
import argparse
import itertools
import json
import time

import cupy
import torch
from gpu_peers import normjit_itself, torch_compile_best
from gpu_problem import Problem
from gpu_timing import captured, microseconds, seconds_of

SOURCE = r"""
#include <cuda_bf16.h>
typedef unsigned long long ull;
struct alignas(16) Vector { unsigned w[4]; };

#define LOAD(NAME, HINT)                                                                                \
    __device__ __forceinline__ Vector NAME(const Vector* p) {                                           \
        Vector v;                                                                                       \
        asm volatile("ld.global" HINT ".v4.u32 {%0, %1, %2, %3}, [%4];"                                  \
                     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p));                \
        return v;                                                                                       \
    }
#define LOAD_BY_POLICY(NAME, HINT, POLICY)                                                              \
    __device__ __forceinline__ Vector NAME(const Vector* p) {                                           \
        Vector v;                                                                                       \
        ull policy;                                                                                     \
        asm volatile("createpolicy.fractional.L2::" POLICY ".b64 %0, 1.0;" : "=l"(policy));             \
        asm volatile("ld.global" HINT ".L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"               \
                     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p), "l"(policy));   \
        return v;                                                                                       \
    }
LOAD(plain, "")
LOAD(constant, ".nc")
LOAD(past_l1, ".L1::no_allocate")
LOAD_BY_POLICY(stays, ".L1::evict_last", "evict_last")
LOAD_BY_POLICY(stays_in_l2, "", "evict_last")
LOAD_BY_POLICY(goes, ".L1::evict_first", "evict_first")

__device__ float low(unsigned w) { return __uint_as_float(w << 16); }
__device__ float high(unsigned w) { return __uint_as_float(w & 0xffff0000u); }
__device__ unsigned pair(float a, float b) {
    __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<unsigned*>(&both);
}
__device__ float sum_of_warp(float sum) {
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    forward(const Vector* x, const Vector* gammas, Vector* y, float* rstd) {
    constexpr int steps = COLS / 8 / THREADS, at_once = KEEP || steps < AHEAD ? steps : AHEAD;
    __shared__ float sums[32];
    const long long row = blockIdx.x * (long long)(COLS / 8) + threadIdx.x;
    Vector v[at_once];
    float sum = 0;
#pragma unroll
    for (int t = 0; t < steps; t += at_once) {
#pragma unroll
        for (int i = 0; i < at_once; i++) v[i] = FIRST(x + row + (t + i) * THREADS);
#pragma unroll
        for (int i = 0; i < at_once; i++)
            for (int j = 0; j < 4; j++) sum += low(v[i].w[j]) * low(v[i].w[j]) + high(v[i].w[j]) * high(v[i].w[j]);
    }
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = sum_of_warp(threadIdx.x % 32 < THREADS / 32 ? sums[threadIdx.x % 32] : 0);
    const float scale = rsqrtf(sum / COLS + 1e-6f);
    if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
#pragma unroll
    for (int t = 0; t < steps; t += at_once) {
        Vector g[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++)
            if (!KEEP) v[i] = SECOND(x + row + (t + i) * THREADS);
#pragma unroll
        for (int i = 0; i < at_once; i++) g[i] = GAMMA(gammas + threadIdx.x + (t + i) * THREADS);
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            Vector to;
            for (int j = 0; j < 4; j++)
                to.w[j] = pair(low(v[i].w[j]) * scale * low(g[i].w[j]), high(v[i].w[j]) * scale * high(g[i].w[j]));
            y[row + (t + i) * THREADS] = to;
        }
    }
}
"""
ROWS, SAMPLES = 32768, 7
HINTS = [("stays", "goes", "stays"), ("plain", "plain", "constant"), ("plain", "goes", "constant"),
         ("stays", "plain", "constant"), ("stays_in_l2", "goes", "constant")]


def kernels(cols):
    """Yields the settings of kernels, the most telling first."""
    for ahead, (first, second, gamma), threads, share in itertools.product((4, 2), HINTS, (256, 512, 128), (1, 0.75)):
        if 1 <= cols // 8 // threads <= 16:
            yield {"KEEP": 0, "THREADS": threads, "BLOCKS": int(2048 * share) // threads, "AHEAD": ahead, "FIRST": first,
                   "SECOND": second, "GAMMA": gamma}
    for first, threads in itertools.product(("plain", "past_l1"), (256, 512, 1024)):
        if 1 <= cols // 8 // threads <= 8:
            yield {"KEEP": 1, "THREADS": threads, "BLOCKS": 1, "AHEAD": 8, "FIRST": first, "SECOND": first,
                   "GAMMA": "constant"}


def timed(launch):
    """Returns microseconds of launch(number) among others, and after a flush of L2."""
    return microseconds(launch), 1e6 * seconds_of([captured(lambda: launch(0))], SAMPLES)[0]


def measure(cols, seconds, say):
    copies = [Problem(f"rmsnorm pass=forward rows={ROWS} cols={cols} x=bf16") for _ in range(2)]
    ours = [normjit_itself(problem) for problem in copies]
    say(cols, "normjit", timed(lambda number: ours[number % 2]()))
    compiled = torch_compile_best(copies[0])
    say(cols, "torch.compile, best", timed(lambda number: compiled()))
    rstd, begun = torch.empty(ROWS, device="cuda"), time.monotonic()
    for setting in kernels(cols):
        if time.monotonic() - begun > seconds:
            break
        options = tuple(f"-D{key}={value}" for key, value in {**setting, "COLS": cols}.items())
        kernel = cupy.RawKernel(SOURCE, "forward", options=("-std=c++17", *options))

        def launch(number):
            p = copies[number % 2]
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                kernel((ROWS,), (setting["THREADS"],), (p.x.data_ptr(), p.gamma.data_ptr(), p.dx.data_ptr(), rstd.data_ptr()))
        say(cols, " ".join(f"{key.lower()}={value}" for key, value in setting.items()), timed(launch))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True)
    parser.add_argument("--cols", type=int, nargs="+", default=[4096, 8192, 16384])
    parser.add_argument("--seconds", type=float, default=45)
    options = parser.parse_args()
    results = []

    def say(cols, what, microseconds):
        results.append({"cols": cols, "what": what, "us": microseconds})
        with open(options.json, "w") as out:
            json.dump({"gpu": torch.cuda.get_device_name(), "rows": ROWS, "results": results}, out, indent=1)

    for cols in options.cols:
        measure(cols, options.seconds, say)
    for each in sorted(results, key=lambda each: (each["cols"], each["us"])):
        print(f"{each['cols']:6} {each['us'][0]:8.1f} {each['us'][1]:8.1f}  {each['what']}")


if __name__ == "__main__":
    main()
