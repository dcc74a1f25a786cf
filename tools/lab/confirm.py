#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks by separate runs whether tuning records hold.

    confirm.py records.jsonl --pick 16 [--target TEXT] > shapes.txt
                                                        problems whose records, of this target ("target" of normjit
                                                        info --json), name a schedule other than the heuristic's:
                                                        those that gained most, then some of the others
    NORMJIT_RECORDS=records.jsonl normjit bench shapes.txt --cold --against heuristic --json 1.json     several times
    confirm.py records.jsonl 1.json 2.json 3.json       gains, next to the tuner's; exit code 1: a record loses

A record loses if most runs show, at 95 %, that its schedule is the slower one, or did not use it. Runs with data in the
caches say nothing about a record that was measured without.
"""
import argparse
import json
import math
import statistics
import sys

import regret


def pick(records, count, target):
    tuned = [r for _, r in records if r["schedule"] != r["heuristic"] and target in (None, r["target"])]
    tuned.sort(key=lambda r: -float(r["gain"]))
    most, rest = tuned[: count // 2], tuned[count // 2 :]
    return most + rest[:: max(1, math.ceil(len(rest) / (count - len(most))))] if rest else most


def read_duels(paths):
    """Returns {spec: [result with "against", ...]}."""
    duels = {}
    for path in paths:
        with open(path) as file:
            for result in json.load(file)["results"]:
                duels.setdefault(result["spec"], []).append(result)
    return duels


def verdict(record, results):
    """Returns what is wrong with the record, or nothing."""
    if record.get("caches") == "cold" and any(r.get("caches") == "warm" for r in results):
        return "MEASURED WARM"
    most = len(results) // 2 + 1
    if sum(r["schedule"] == r["against"]["schedule"] for r in results) >= most:
        return "NOT USED"
    return "SLOWER" if sum(r["against"]["high"] < 1 for r in results) >= most else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records")
    parser.add_argument("runs", nargs="*", help="files of normjit bench --against heuristic --json")
    parser.add_argument("--pick", type=int, help="print so many specs")
    parser.add_argument("--target", help="of the records to pick from [any]")
    arguments = parser.parse_args()
    records = regret.read(arguments.records).values()
    if arguments.pick:
        print("".join(record["spec"] + "\n" for record in pick(records, arguments.pick, arguments.target)), end="")
        return
    promised = {record["spec"]: (gain, record) for gain, record in records}
    duels = read_duels(arguments.runs)
    medians, bad = [], 0
    for spec, results in duels.items():
        gains = [r["against"]["gain"] for r in results]
        medians.append(statistics.median(gains))
        low, high = min(r["against"]["low"] for r in results), max(r["against"]["high"] for r in results)
        gain, record = promised.get(spec, (1, {}))
        wrong = verdict(record, results)
        bad += bool(wrong)
        print(f"  {spec:52} tuner {gain:.3f}  bench {medians[-1]:.3f}, "
              f"{min(gains):.3f} to {max(gains):.3f} over {len(gains)} runs, 95 % within {low:.3f} to {high:.3f}  {wrong}")
    if not medians:
        sys.exit("no results: nothing is confirmed")
    print(f"records gain {regret.geometric_mean(medians):.3f} over the heuristic in bench, {min(medians):.3f} at worst; "
          f"{len(medians)} tuned problems, {bad} of them confirmed to be no gain")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
