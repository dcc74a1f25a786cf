#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures backward passes of 1 to 128 MiB against the bound of two launches (needs CuPy and PyTorch).

    PYTHONPATH=build/python tools/lab/middle.py --json middle.json [--problems 60] [--seed 20261127] [--seconds 300]

Measures, for each random problem in one process, the microseconds of a launch in a CUDA graph of 40, with data from
memory:

    plain    launch_cost.py's `stream`: reads two arrays and writes one of the problem's size
    limit    its `pair`, which also writes a partial of each block for every column sum, and launches early a second
             kernel that adds them up; both with the fastest of some numbers of blocks
    normjit  the backward pass of RMSNorm (one column sum) or LayerNorm (two), bf16

normjit's share of the plain ceiling is plain / normjit; its share of the bound of two launches is limit / normjit."""
import argparse
import datetime
import json
import pathlib
import random
import statistics
import time

import launch_cost
import torch
from gpu_peers import normjit_itself
from gpu_problem import Problem
from gpu_timing import LAUNCHES, microseconds

BYTES = 512 << 20
GRIDS = (132, 264, 396, 528)
CLASSES = ((1, 8), (8, 32), (32, 128))  # in MiB


class Limits:
    """Plain streams and pairs of launches over memory that no launch finds in L2."""

    def __init__(self):
        self.kernels = launch_cost.Kernels()
        self.data = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
        self.partials, self.sums = (torch.zeros(32 << 20, device="cuda") for _ in range(2))

    def arguments(self, size, sums, grid):
        places = max(1, min(LAUNCHES, BYTES // (3 * size)))
        starts = [self.data.data_ptr() + place * 3 * size for place in range(places)]
        return [launch_cost.Stream(start, start + size, start + 2 * size, size // 16, self.partials.data_ptr(),
                                   self.sums.data_ptr(), sums, grid) for start in starts]

    def plain(self, size, grid):
        arguments = self.arguments(size, 32, grid)
        return microseconds(lambda number: self.kernels.launch(
            "stream", grid, torch.cuda.current_stream().cuda_stream, arguments[number % len(arguments)]))

    def pair(self, size, sums, grid):
        arguments = self.arguments(size, sums, grid)

        def launch(number):
            stream, argument = torch.cuda.current_stream().cuda_stream, arguments[number % len(arguments)]
            self.kernels.launch("pair_first", grid, stream, argument)
            self.kernels.launch("pair_second", sums // 32, stream, argument, launch_cost.PROGRAMMATIC)
        return microseconds(launch)


def measure(spec, limits):
    problem = Problem(spec)
    size = problem.x.numel() * problem.x.element_size() // 4096 * 4096
    sums = problem.cols * (2 if problem.is_layernorm else 1)
    copies = [problem] + [Problem(spec) for _ in range(max(1, min(LAUNCHES, BYTES // (3 * size))) - 1)]
    runs = [normjit_itself(copy) for copy in copies]
    return {"spec": spec, "mib": 3 * size / (1 << 20), "normjit": microseconds(lambda number: runs[number % len(runs)]()),
            "plain": min(limits.plain(size, grid) for grid in GRIDS),
            "limit": min(limits.pair(size, sums, grid) for grid in GRIDS)}


def random_spec(source):
    mib = 2 ** source.uniform(0, 7)
    cols = 64 * round(2 ** source.uniform(2, 8))
    rows = max(1, round(mib * (1 << 20) / (6 * cols)))
    return f"{source.choice(['layernorm', 'rmsnorm'])} rows={rows} cols={cols} x=bf16"


def table(results):
    lines = [f"{'MiB':>8} {'problems':>8}   {'of the plain ceiling':>22}   {'of two launches':>17}",
             f"{'':>8} {'':>8}   {'median':>14} {'worst':>7}   {'median':>9} {'worst':>7}"]
    for least, most in CLASSES:
        some = [each for each in results if least <= each["mib"] < most]
        if some:
            plain = [each["plain"] / each["normjit"] for each in some]
            limit = [each["limit"] / each["normjit"] for each in some]
            lines.append(f"{least:>3} - {most:<3} {len(some):>7}   {statistics.median(plain):>14.3f} {min(plain):>7.3f}   "
                         f"{statistics.median(limit):>9.3f} {min(limit):>7.3f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, type=pathlib.Path)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261127)
    parser.add_argument("--seconds", type=float, default=3600, help="after which no new problem is begun")
    options = parser.parse_args()
    source, limits, begun = random.Random(options.seed), Limits(), time.monotonic()
    results = []
    for _ in range(options.problems):
        if time.monotonic() - begun > options.seconds:
            break
        results.append(measure(random_spec(source), limits))
        document = {"gpu": torch.cuda.get_device_name(), "date": datetime.date.today().isoformat(), "results": results}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    for each in sorted(results, key=lambda each: each["limit"] / each["normjit"]):
        print(f"{each['spec']:42} {each['mib']:6.1f} MiB  plain {each['plain']:6.2f}  limit {each['limit']:6.2f}  "
              f"normjit {each['normjit']:6.2f}  {each['limit'] / each['normjit']:.3f}")
    print(table(results))


if __name__ == "__main__":
    main()
