#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what PyTorch and JAX gain from normjit on a GPU, in one run of at most six minutes.

The parts are operators and calls, training steps, eager and compiled (with Liger's, if installed), and JAX's gradients.
Each part writes its JSON and its output to a folder; a short table of all results comes last.

    PYTHONPATH=build/python torch_round.py FOLDER [--device cpu] [PART ...]    # operators host_memory steps jax

host_memory measures torch's operators on the machine's CPU, with and without keep_host_memory()."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
PARTS = {  # the script, its arguments, and its time limit in seconds
    "operators": ("torch_operators.py", ["--device", "{device}", "--rounds", "9"], 80),
    "host_memory": ("torch_operators.py", ["--rounds", "7"], 25),
    "host_memory_kept": ("torch_operators.py", ["--rounds", "7", "--keep-memory"], 25),
    "steps": ("compiled_models.py", ["gpt2", "llama", "--device", "{device}", "--rounds", "15"], 175),
    "jax": ("jax_norms.py", ["--rounds", "9"], 45),
}
SMALL = {"steps": ["--small", "--rounds", "3"]}  # arguments with which to try the round on a CPU


def run(part, folder, device):
    script, words, limit = PARTS[part]
    words = [word.format(device=device) for word in words] + (SMALL.get(part, []) if device == "cpu" else [])
    command = [sys.executable, str(HERE / script), *words, "--json", str(folder / f"{part}.json")]
    # Otherwise JAX takes most of a GPU at once.
    variables = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
    begin = time.monotonic()
    with open(folder / f"{part}.txt", "w") as output:
        try:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=variables, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = f"ended after {limit} s"
    print(f"{part}: {'done' if code == 0 else f'FAILED ({code})'}, {time.monotonic() - begin:.0f} s", flush=True)
    if code != 0:
        print("".join(open(folder / f"{part}.txt").readlines()[-8:]))
    return code == 0


def ratios(rows):
    """Returns torch's or XLA's time divided by normjit's: {kind of case: [of each case]}."""
    found = {}
    for row in rows:
        found.setdefault(row["kind"], []).append(row["us"][0] / row["us"][1])
    return found


def show(part, folder):
    path = folder / f"{part}.json"
    if not path.exists():
        return
    found = json.loads(path.read_text())
    print(f"\n{part}: {found.get('place', found.get('gpu', ''))}")
    if part == "steps":
        for kind, model in found["models"].items():
            for row in model["rows"]:
                print(f"  {kind:6} {row['contender']:22} step {row['step_ms'][0]:8.2f} ms  loss {row['loss']:.1e}  gradients "
                      f"{row['gradients']:.1e}")
        return
    for kind, times in ratios(found["results"]).items():
        print(f"  {kind:18} times as fast: {min(times):5.2f} to {max(times):5.2f}, median {statistics.median(times):5.2f}")
    calls = [row["call_us"][1] / row["call_us"][0] for row in found["results"] if "call_us" in row]
    if calls:
        print(f"  time of a call, over torch's: {min(calls):5.2f} to {max(calls):5.2f}, median "
              f"{statistics.median(calls):5.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    options = parser.parse_args()
    parts = [part for part in PARTS if not options.parts or any(part.startswith(word) for word in options.parts)]
    options.folder.mkdir(parents=True, exist_ok=True)
    done = [run(part, options.folder, options.device) for part in parts]
    for part in parts:
        show(part, options.folder)
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
