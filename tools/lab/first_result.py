#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the time to a process's first gradients: without a cache, with an empty one, a full one, and a pack.

    first_result.py build/tools/lab/normjit_first_result [SPEC...] [--device cpu|cuda:0] [--processes 15]

Medians of many processes, in turn; making the data does not count. process: up to main(); engine: creating it; kernel:
preparing it, from the cache or else compiled and kept; launch: until the gradients are complete. Fails if a gradient is
wrong, if nothing was compiled without a cache or with an empty one, if something was compiled with a full one or a pack,
or if NVRTC or LLVM was opened without need. Exit code 3: no such device, or no NVRTC.

--device cuda:0 also works without a GPU, if NORMJIT_CUDA_DRIVER names a library that plays its driver
(build/tests/libnormjit_fake_cuda.so). The driver's own time is missing then, and --unchecked is needed.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SPECS = ["layernorm rows=512 cols=4096 x=bf16", "rmsnorm rows=512 cols=16384 x=bf16 gamma=f32"]
STEPS = ["process", "engine", "kernel", "launch"]


def start(arguments, spec, environment):
    words = [arguments.program, spec, arguments.device, str(time.monotonic_ns())] + ["unchecked"] * arguments.unchecked
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        print(f"{spec}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(done.returncode)
    result = json.loads(done.stdout)
    if not result["right"]:
        sys.exit(f"{spec}: wrong gradients")
    return result


def pack(arguments, cache, path):
    normjit = arguments.normjit or pathlib.Path(arguments.program).parent.parent / "normjit" / "normjit"
    subprocess.run([normjit, "cache", "pack", "--dir", cache, "-o", path], check=True, capture_output=True)


def measure(arguments, spec, folder):
    """Returns {name of the cache: [result of a process, ...]}."""
    full, packed = folder / "full", folder / "kernels.pack"
    everything = {"NORMJIT_CACHE_EVERYTHING": "1", "NORMJIT_CACHE_PACKS": ""}
    start(arguments, spec, everything | {"NORMJIT_CACHE_DIR": str(full)})
    pack(arguments, full, packed)
    found = {"none": [], "empty": [], "full": [], "pack": []}
    for i in range(arguments.processes):
        environments = {
            "none": {"NORMJIT_CACHE_DIR": "off"},
            "empty": {"NORMJIT_CACHE_DIR": str(folder / f"empty{i}")},
            "full": {"NORMJIT_CACHE_DIR": str(full)},
            "pack": {"NORMJIT_CACHE_DIR": "off", "NORMJIT_CACHE_PACKS": str(packed)},
        }
        for name, environment in environments.items():
            result = start(arguments, spec, everything | environment)
            is_made = name in ("none", "empty")
            if result["compiled"] != is_made:
                sys.exit(f"{spec}: cache {name}: {result['compiled']} kernels were compiled")
            for library, maker in [("nvrtc", "cuda"), ("llvm", "llvm")]:
                if result[library] != (is_made and result["maker"].startswith(maker)):
                    sys.exit(f"{spec}: cache {name}, code by {result['maker']}: {library} open: {result[library]}")
            found[name].append(result)
    return found


def milliseconds(values):
    values = sorted(values)
    ends = [values[round(share * (len(values) - 1))] for share in (0.2, 0.8)]
    return f"{1e3 * statistics.median(values):.2f} ({1e3 * ends[0]:.2f}-{1e3 * ends[1]:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=15, help="of each kind [15]")
    parser.add_argument("--unchecked", action="store_true", help="do not check the gradients")
    parser.add_argument("--normjit", help="the program of this name, for its cache pack [beside PROGRAM in the build]")
    arguments = parser.parse_args()
    print(f"ms, median (20 % to 80 %) of {arguments.processes} processes, {arguments.device}\n")
    titles = ["", "cache", *STEPS, "to the first result"]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for spec in arguments.specs:
        with tempfile.TemporaryDirectory() as folder:
            for name, results in measure(arguments, spec, pathlib.Path(folder)).items():
                cells = [milliseconds(r[step] for r in results) for step in STEPS]
                total = milliseconds(sum(r[step] for step in STEPS) for r in results)
                print(f"| {spec} | {name} | " + " | ".join(cells) + f" | **{total}** |")


if __name__ == "__main__":
    main()
