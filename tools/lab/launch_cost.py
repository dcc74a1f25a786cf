#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what sums over all blocks cost a short launch on a GPU: a second kernel, or a barrier (needs CuPy).

    tools/lab/launch_cost.py [--grids 132,264]

Prints the microseconds of one launch in a CUDA graph of 40, with data from memory. First come kernels that do nothing
(`null`, a pair of them, a barrier alone), then kernels that read two arrays and write one: alone (`stream`); with a
partial of each block (`partials`); and with a sum of the partials, by a second kernel that is launched early (`pair`),
or by the same blocks after a barrier in global memory (`barrier`; `cooperative`: in a launch that may wait for all its
blocks)."""
import argparse
import ctypes
import statistics

import cupy

SOURCE = r"""
struct Stream { const uint4 *a, *b; uint4 *to; long vectors; float *partials, *sums; int cols, groups; };
__device__ unsigned arrived;

// The counter's top bit turns when all blocks have come.
__device__ void barrier() {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned mine = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1, before, now;
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(&arrived), "r"(mine) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(&arrived) : "memory");
        while (((before ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}

__device__ float stream_all(const Stream& s) {
    float sum = 0;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < s.vectors; i += (long)gridDim.x * blockDim.x) {
        uint4 x = s.a[i], y = s.b[i];
        x.x += y.x, x.y ^= y.y, x.z += y.z, x.w ^= y.w;
        s.to[i] = x;
        sum += __uint_as_float(x.x);
    }
    return sum;
}

__device__ void write_partial(const Stream& s, float sum) {
    for (int c = threadIdx.x * 4; c < s.cols; c += blockDim.x * 4)
        *(float4*)(s.partials + (long)blockIdx.x * s.cols + c) = make_float4(sum, sum, sum, sum);
}

// 256 threads: 8 lanes of 4 columns, 32 shares of the groups.
__device__ void add_partials(const Stream& s) {
    __shared__ float shared[8][32];
    const int lane = threadIdx.x % 8, share = threadIdx.x / 8;
    for (int base = blockIdx.x * 32; base < s.cols; base += gridDim.x * 32) {
        float total[4] = {};
#pragma unroll 6
        for (int group = share; group < s.groups; group += 32) {
            const float4 part = __ldcg((const float4*)(s.partials + (long)group * s.cols + base + lane * 4));
            total[0] += part.x, total[1] += part.y, total[2] += part.z, total[3] += part.w;
        }
        for (int e = 0; e < 4; e++) {
            for (int distance = 8; distance < 32; distance *= 2) total[e] += __shfl_xor_sync(~0u, total[e], distance);
            if (share % 4 == 0) shared[share / 4][lane * 4 + e] = total[e];
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            float sum = 0;
            for (int k = 0; k < 8; k++) sum += shared[k][threadIdx.x];
            s.sums[base + threadIdx.x] = sum;
        }
        __syncthreads();
    }
}

extern "C" {
__global__ void nothing() {}
__global__ void nothing_first() { asm volatile("griddepcontrol.launch_dependents;"); }
__global__ void nothing_second() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__global__ void barrier_alone() { barrier(); }
__global__ void stream(Stream s) {
    if (stream_all(s) == 12345.f) s.sums[0] = 0;
}
__global__ void partials(Stream s) { write_partial(s, stream_all(s)); }
__global__ void pair_first(Stream s) {
    asm volatile("griddepcontrol.launch_dependents;");
    write_partial(s, stream_all(s));
}
__global__ void pair_second(Stream s) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    add_partials(s);
}
__global__ void one(Stream s) {
    write_partial(s, stream_all(s));
    barrier();
    add_partials(s);
}
}
"""
THREADS, LAUNCHES, ROUNDS = 256, 40, 15
COOPERATIVE, PROGRAMMATIC = 2, 6  # values of CUlaunchAttributeID
PROBLEMS = ((0.25, 2048), (0.5, 2048), (1, 2048), (4, 2048), (4, 8192), (8, 8192), (16, 8192), (32, 8192))


class Stream(ctypes.Structure):
    _fields_ = [("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("to", ctypes.c_void_p), ("vectors", ctypes.c_long),
                ("partials", ctypes.c_void_p), ("sums", ctypes.c_void_p), ("cols", ctypes.c_int),
                ("groups", ctypes.c_int)]


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_byte * 64)]


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]


class Kernels:
    def __init__(self):
        self.module = cupy.RawModule(code=SOURCE)
        self.driver = ctypes.CDLL("libcuda.so.1")

    def launch(self, name, grid, stream, argument=None, attribute=None):
        attributes = (Attribute * 1)()
        if attribute:
            attributes[0].id, attributes[0].value[0] = attribute, 1
        config = Config((grid, 1, 1), (THREADS, 1, 1), 0, stream, attributes, 1 if attribute else 0)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument) if argument else None)
        function = ctypes.c_void_p(self.module.get_function(name).kernel.ptr)
        status = self.driver.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None)
        if status:
            raise RuntimeError(f"{name}: CUDA error {status}")


def microseconds(launch):
    """Returns the median of a launch's share of a graph; launch(stream, number) enqueues one."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        launch(stream.ptr, 0)
        stream.synchronize()
        stream.begin_capture()
        for number in range(LAUNCHES):
            launch(stream.ptr, number)
        graph = stream.end_capture()
        times = []
        for _ in range(ROUNDS + 1):
            first, last = cupy.cuda.Event(), cupy.cuda.Event()
            first.record()
            graph.launch()
            last.record()
            last.synchronize()
            times.append(cupy.cuda.get_elapsed_time(first, last) * 1000 / LAUNCHES)
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", default="132,264", help="blocks, separated by commas [%(default)s]")
    grids = [int(grid) for grid in parser.parse_args().grids.split(",")]
    kernels = Kernels()

    def pair(first, second, blocks, argument=None):
        def launch(grid, stream):
            kernels.launch(first, grid, stream, argument)
            kernels.launch(second, blocks, stream, argument, PROGRAMMATIC)
        return launch

    def single(name, argument=None, attribute=None):
        return lambda grid, stream: kernels.launch(name, grid, stream, argument, attribute)

    def show(title, launches, grid):
        """Prints a row. `launches` has functions by name, each of which takes the number of a launch."""
        times = [f"{name} {microseconds(lambda stream, number: make(number)(grid, stream)):.2f}"
                 for name, make in launches.items()]
        print(f"{title}, {grid} blocks: " + "  ".join(times), flush=True)

    for grid in grids:
        show("nothing", {"null": lambda n: single("nothing"), "cooperative": lambda n: single("nothing", None, COOPERATIVE),
                         "pair": lambda n: pair("nothing_first", "nothing_second", 32),
                         "barrier": lambda n: single("barrier_alone")}, grid)
    data = cupy.zeros(512 << 20, dtype=cupy.uint8)
    partials, sums = cupy.zeros(64 << 20, dtype=cupy.float32), cupy.zeros(1 << 20, dtype=cupy.float32)
    for mib, cols in PROBLEMS:
        size = int(mib * (1 << 20)) // 3 // 4096 * 4096
        places = max(1, min(LAUNCHES, data.nbytes // (3 * size)))  # launches take turns, so that L2 has no data of the
                                                                   # next one
        for grid in grids:
            arguments = []
            for place in range(places):
                start = data.data.ptr + place * 3 * size
                arguments.append(Stream(start, start + size, start + 2 * size, size // 16, partials.data.ptr,
                                        sums.data.ptr, cols, grid))
            of = lambda number: arguments[number % places]
            show(f"{mib} MiB, {cols} sums", {
                "stream": lambda n: single("stream", of(n)), "partials": lambda n: single("partials", of(n)),
                "pair": lambda n: pair("pair_first", "pair_second", cols // 32, of(n)),
                "barrier": lambda n: single("one", of(n)),
                "cooperative": lambda n: single("one", of(n), COOPERATIVE)}, grid)


if __name__ == "__main__":
    main()
