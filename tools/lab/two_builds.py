#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of normjit over the same shapes, in turn: how many times as fast is the second?

    tools/lab/two_builds.py OLD NEW tools/lab/gpu_shapes.txt --device cuda:0 --rounds 3 --json ratios.json

With --changed and a target, such as "sm_90 sms=132", only those are measured for which the builds choose different
schedules; --changed and --list print these, on any machine.

A round runs `normjit bench` of one build, then of the other, and the next round in reverse order, so that drift of
the machine affects both. A shape's figure is the median of its times over the rounds. The last lines are the geometric
mean of old time / new time and the shapes below --least.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program}: {done.stderr.strip()}")
    return done.stdout


def bench(program, arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run(program, "bench", *arguments, "--json", out.name)
        return {(r["spec"], r.get("threads")): r["median_seconds"] for r in json.load(open(out.name))["results"]}


def changed(old, new, shapes, target):
    """Returns the specs, also of files, for which the two programs choose different schedules."""
    files = [name for name in shapes if os.path.exists(name)]
    lines = [line.partition("#")[0].strip() for name in files for line in open(name)]
    specs = dict.fromkeys([*filter(None, lines), *(name for name in shapes if name not in files)])
    stage = ("--target", target, "--emit", "schedule")
    return [spec for spec in specs if run(old, "compile", spec, *stage) != run(new, "compile", spec, *stage)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("shapes", nargs="+", help="shapes files and specs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", help="CPU threads, as normjit bench takes them")
    parser.add_argument("--seconds", default="0.05", help="for each spec, build and round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--least", type=float, default=0.97, help="ratios below are listed")
    parser.add_argument("--json", help="all times, to this file")
    parser.add_argument("--changed", metavar="TARGET", help="leave out shapes whose schedules for this target are the same")
    parser.add_argument("--list", action="store_true", help="print the shapes and measure nothing")
    options = parser.parse_args()
    if options.changed:
        options.shapes = changed(options.old, options.new, options.shapes, options.changed)
    if options.list or not options.shapes:
        print(*options.shapes, sep="\n")
        return

    arguments = [*options.shapes, "--device", options.device, "--seconds", options.seconds]
    if options.threads:
        arguments += ["--threads", options.threads]
    times = {options.old: {}, options.new: {}}
    for number in range(options.rounds):
        order = [options.old, options.new] if number % 2 == 0 else [options.new, options.old]
        for program in order:
            for key, seconds in bench(program, arguments).items():
                times[program].setdefault(key, []).append(seconds)

    rows = []
    for key, old in times[options.old].items():
        new = times[options.new].get(key)
        if new:
            rows.append((statistics.median(old) / statistics.median(new), key, old, new))
    if not rows:
        sys.exit("no shape was measured by both builds")
    if options.json:
        with open(options.json, "w") as out:
            json.dump([{"spec": k[0], "threads": k[1], "ratio": r, "old": o, "new": n} for r, k, o, n in rows], out, indent=1)
    mean = math.exp(statistics.fmean(math.log(r) for r, *_ in rows))
    for ratio, (spec, threads), old, new in sorted(rows):
        if ratio < options.least:
            print(f"{ratio:.3f}  {spec}" + (f", {threads} threads" if threads else "") +
                  f": {statistics.median(old) * 1e6:.1f} -> {statistics.median(new) * 1e6:.1f} us")
    print(f"{len(rows)} shapes, geometric mean {mean:.4f}, least {min(rows)[0]:.3f}, most {max(rows)[0]:.3f}")


if __name__ == "__main__":
    main()
