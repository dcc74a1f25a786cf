#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the heuristic gives away, from tuning records: its time over the best that was found.

    regret.py records.jsonl [--sample 60] [--seed 1] [--list 10]      geometric mean and worst case, for each device
    regret.py records.jsonl --again second.jsonl                      the same problems tuned twice: how much is noise
    regret.py --draw shapes.txt --sample 60 --without a.txt b.txt     specs to measure it with, drawn from a shapes file:
                                                                      none that the heuristic was fitted on
    regret.py records.jsonl --why build/tools/normjit/normjit         and which lines of the heuristic's tables are to blame

A problem whose heuristic was not beaten by more than the noise counts as 1.
"""
import argparse
import collections
import json
import math
import random
import subprocess
import sys


def read(path):
    """Records by problem and device; of several lines about the same, the last."""
    records = {}
    with open(path) as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            try:
                record = json.loads(line)
                key = (record["device"], record["target"], record["threads"], record["spec"])
                records[key] = (float(record["gain"]), record)
            except (ValueError, KeyError, TypeError) as error:
                print(f"{path}:{number}: no record: {error}", file=sys.stderr)
    return records


def geometric_mean(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def summary(gains):
    tuned = [gain for gain in gains if gain > 1]
    return (f"{len(gains)} problems: heuristic over best {geometric_mean(gains):.3f} in the geometric mean, "
            f"{max(gains):.3f} at worst; beaten in {len(tuned)}")


def reasons(normjit, record):
    """What decided the heuristic's schedule, as far as this build's heuristic still chooses it."""
    emit = [normjit, "compile", record["spec"], "--target", record["target"], "--emit"]
    schedule, why = (subprocess.run([*emit, stage], capture_output=True, text=True) for stage in ("schedule", "reasons"))
    if why.returncode:
        return [why.stderr.strip()]
    today = schedule.stdout.strip()
    return why.stdout.splitlines() + ([f"(chooses {today} today)"] if today != record["heuristic"] else [])


def read_shapes(path):
    """Specs by what is the same for the same problem."""
    with open(path) as file:
        lines = [line.split("#")[0].split() for line in file]
    return {frozenset(words) - {"x=f32"}: " ".join(words) for words in lines if words}


def draw(path, without, count, seed):
    """Of the specs in a shapes file that no other file has; in the order of the file."""
    fitted = {problem for other in without for problem in read_shapes(other)}
    left = [text for problem, text in read_shapes(path).items() if problem not in fitted]
    drawn = set(random.Random(seed).sample(left, min(count or len(left), len(left))))
    return [text for text in left if text in drawn]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?")
    parser.add_argument("--draw", metavar="SHAPES", help="print specs of this shapes file")
    parser.add_argument("--without", metavar="SHAPES", nargs="*", default=[], help="draw none that these files have")
    parser.add_argument("--sample", type=int, default=0, help="problems to draw, for each device [all]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", type=int, default=10, help="worst problems to show [10]")
    parser.add_argument("--why", metavar="NORMJIT", help="print what decided the heuristic's schedule, asking this program")
    parser.add_argument("--again", help="records of a second run over the same problems")
    arguments = parser.parse_args()
    if arguments.draw:
        print("\n".join(draw(arguments.draw, arguments.without, arguments.sample, arguments.seed)))
        return
    if not arguments.records:
        parser.error("give records, or --draw")
    records = read(arguments.records)
    devices = collections.defaultdict(list)
    for (device, target, threads, _), (gain, record) in sorted(records.items()):
        devices[f"{device or 'unknown device'}, {target.split()[0]}, {threads} threads"].append((gain, record))
    if not devices:
        sys.exit(f"{arguments.records}: no records")
    for device, found in devices.items():
        if 0 < arguments.sample < len(found):
            found = random.Random(arguments.seed).sample(found, arguments.sample)
        print(f"{device}: {summary([gain for gain, _ in found])}")
        for gain, record in sorted(found, key=lambda each: -each[0])[: arguments.list]:
            if gain > 1:
                print(f"  {gain:.3f}  {record['spec']}\n         {record['heuristic']}\n         {record['schedule']}")
                for line in reasons(arguments.why, record) if arguments.why else []:
                    print(f"         - {line}")
    if arguments.again:
        second = read(arguments.again)
        both = [(records[key][0], second[key][0]) for key in records if key in second]
        if not both:
            sys.exit("the two files have no problem in common")
        ratios = sorted(a / b for a, b in both)
        agree = sum((a > 1) == (b > 1) for a, b in both)
        print(f"tuned twice: {len(both)} problems; gain of the first over that of the second: "
              f"{geometric_mean(ratios):.3f} in the geometric mean, {ratios[0]:.3f} to {ratios[-1]:.3f}; "
              f"{agree} agree on whether the heuristic was beaten")


if __name__ == "__main__":
    main()
