#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of normjit on a CPU wherever launches share threads: how many times as fast is the second?

    tools/lab/threads_round.py OLD NEW [--parts bench,host,torch] [--rounds 4] [--json FILE]

OLD and NEW are folders with `normjit`, `normjit_openmp_host` and, for `torch`, `python` (the package as built). The
builds run in the order old, new, new, old. A figure is the median over the rounds.
  bench   `normjit bench` with one thread and with all, in a program without OpenMP
  host    every thread policy in a program with OpenMP regions of its own or without, beside programs that never sleep:
          medians and means of a launch
  torch   backward operators in a PyTorch process (torch_operators.py)
"""
import argparse
import collections
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from two_builds import bench

LAB = pathlib.Path(__file__).resolve().parent
SPECS = ["layernorm rows=1 cols=65536", "layernorm rows=1 cols=16384", "layernorm rows=4 cols=8192",
         "layernorm rows=4 cols=65536", "layernorm rows=64 cols=1024 x=bf16", "layernorm rows=512 cols=256",
         "layernorm rows=512 cols=768", "layernorm rows=2048 cols=768", "layernorm rows=512 cols=65536",
         "layernorm rows=8192 cols=4096 x=bf16", "layernorm rows=2048 cols=768 pass=forward"]
HOST_SPECS = [SPECS[0], SPECS[4], SPECS[6], SPECS[8]]
TORCH_CASES = ["2x256", "512x768", "2048x768", "512x768:bf16/f32", "rms:512x768", "4096x4096:bf16"]


def of_bench(folder, options):
    arguments = [*SPECS, "--threads", "1,all", "--seconds", str(options.seconds)]
    for (spec, threads), seconds in bench(f"{folder}/normjit", arguments).items():
        yield ("bench", spec, f"{threads} threads"), seconds * 1e6


def of_host(folder, options):
    cores = len(os.sched_getaffinity(0))
    for host_us in (0, 100):
        arguments = ["--neighbours", ",".join(str(n) for n in sorted({0, cores // 2, cores})), "--host-us", str(host_us),
                     "--seconds", str(options.seconds), *HOST_SPECS]
        done = subprocess.run([f"{folder}/normjit_openmp_host", *arguments], capture_output=True, text=True, check=True)
        place = spec = ""
        for line in done.stdout.splitlines():
            words = line.split()
            if "neighbours" in line:
                place = f"{words[2]} neighbours, host {host_us} us"
            elif not line.startswith(" "):
                spec = line
            elif words[0] != "policy":
                for name, value in zip(("median", "mean"), words[1:3]):
                    yield (place, spec, f"{words[0]}, {name}"), float(value)


def of_torch(folder, options):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sys.executable, LAB / "torch_operators.py", *TORCH_CASES, "--keep-memory", "--rounds", "9",
                        "--json", out.name], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PYTHONPATH": f"{folder}/python"})
        for row in json.load(open(out.name))["results"]:
            yield ("torch", row["case"], row["kind"]), row["us"][1]


PARTS = {"bench": of_bench, "host": of_host, "torch": of_torch}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--parts", default="bench,host", help="of bench, host and torch")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each spec, build and round")
    parser.add_argument("--json", help="all times in microseconds, to this file")
    options = parser.parse_args()

    times = collections.defaultdict(lambda: {options.old: [], options.new: []})
    for number in range(options.rounds):
        order = [options.old, options.new] if number % 4 in (0, 3) else [options.new, options.old]
        for folder in order:
            for part in options.parts.split(","):
                for key, us in PARTS[part](folder, options):
                    times[key][folder].append(us)
    if options.json:
        with open(options.json, "w") as out:
            json.dump([{"case": key, "old": t[options.old], "new": t[options.new]} for key, t in times.items()], out)

    ratios = collections.defaultdict(list)
    place = spec = None
    print(f"{'':40} {'old us':>10} {'new us':>10} {'old/new':>8}")
    for key in sorted(times, key=lambda k: k[:2]):
        if key[:2] != (place, spec):
            place, spec = key[:2]
            print(f"{place}: {spec}")
        old, new = (statistics.median(times[key][folder]) for folder in (options.old, options.new))
        ratios[place, key[2]].append(old / new)
        print(f"  {key[2]:38} {old:10.1f} {new:10.1f} {old / new:8.3f}")
    print("\nGeometric means, old/new")
    for (place, what), each in ratios.items():
        print(f"  {place + ', ' + what:50} {math.exp(statistics.fmean(math.log(r) for r in each)):.3f}, least {min(each):.3f}")


if __name__ == "__main__":
    main()
