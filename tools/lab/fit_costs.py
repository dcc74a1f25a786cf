#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the trees with which the heuristic compares CUDA schedules to all times in results/points (needs LightGBM).

    cmake --build build --target normjit_candidates
    tools/lab/fit_costs.py build/tools/lab/normjit_candidates          writes compiler/schedule/costs/cuda.txt
    tools/lab/fit_costs.py ... --without h200_fresh_2 -o costs.txt     leaves records out, to be judged by them

A tree's answer is the logarithm of a schedule's time over that of the fastest schedule that was timed for the problem.
Each problem counts the same, and differences among schedules that take much longer than the fastest count less: the
heuristic has to tell the best ones apart. Fitting the same records again gives the same text."""
import argparse
import collections
import lzma
import math
import pathlib
import subprocess
import tempfile

import lightgbm
import numpy

HERE = pathlib.Path(__file__).resolve().parent
RECORDS, COSTS = HERE / "results" / "points", HERE.parents[1] / "compiler" / "schedule" / "costs" / "cuda.txt"
SLOW, BEYOND = 0.15, 0.15  # a logarithm of a ratio, and how much each unit beyond it counts
SETTINGS = {"objective": "regression", "num_leaves": 127, "learning_rate": 0.1, "lambda_l2": 150, "min_child_samples": 20,
            "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.5, "seed": 1, "deterministic": True, "force_row_wise": True,
            "num_threads": 1, "verbose": -1}
TREES = 600
UNIT = 1e-5  # the unit of leaves


def slowness(ratio):
    """Returns what a tree should say about a schedule that takes `ratio` times as long as the fastest."""
    slow = min(max(math.log(ratio), 0), 1)
    return slow if slow < SLOW else SLOW + BEYOND * (slow - SLOW)


def candidates(program, files):
    """Returns the names of the numbers, the numbers of each timed schedule, its target and its weight."""
    text = subprocess.run([program, *files], check=True, capture_output=True, text=True).stdout
    names, *lines = (line.split("\t") for line in text.splitlines())
    problems = [line[0] for line in lines]
    counts = collections.Counter(problems)
    target = [slowness(float(line[2])) for line in lines]
    return (names[3:], numpy.array([[float(each) for each in line[3:]] for line in lines]), numpy.array(target),
            numpy.array([len(problems) / len(counts) / counts[problem] for problem in problems]))


def limit_of(node):
    """Returns a node's limit as the text has it."""
    assert node["decision_type"] == "<="
    return float(f"{node['threshold']:.6g}")


def nodes_of(node):
    """Yields a tree's nodes in prefix order."""
    yield node
    if "leaf_value" not in node:
        yield from nodes_of(node["left_child"])
        yield from nodes_of(node["right_child"])


def text_of(trees, names):
    """Returns the limits of each number, and the trees, in lines (compiler/schedule/cuda_cost.h)."""
    limits = [{0.0} for _ in names]  # a number that no tree compares has a limit as well, which is 0
    for tree in trees:
        for node in nodes_of(tree):
            if "leaf_value" not in node:
                limits[node["split_feature"]].add(limit_of(node))
    limits = [sorted(each) for each in limits]
    places = [{limit: str(place) for place, limit in enumerate(each)} for each in limits]

    def word(node):
        if "leaf_value" in node:
            return str(round(node["leaf_value"] / UNIT))
        return f"{node['split_feature']}:{places[node['split_feature']][limit_of(node)]}"
    lines = [" ".join(f"{limit:.6g}" for limit in each) for each in limits]
    return lines + [" ".join(word(node) for node in nodes_of(tree)) for tree in trees]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="normjit_candidates")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="records to leave out")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=COSTS)
    options = parser.parse_args()
    packed = [path for path in sorted(RECORDS.glob("h*.jsonl.xz")) if path.name.removesuffix(".jsonl.xz") not in options.without]
    with tempfile.TemporaryDirectory() as folder:
        for path in packed:
            for name in (path, path.with_name(path.name.replace(".jsonl.xz", ".progress.xz"))):
                if name.exists():
                    to = path.name.removesuffix(".xz") + (".progress" if "progress" in name.name else "")
                    (pathlib.Path(folder) / to).write_bytes(lzma.decompress(name.read_bytes()))
        names, numbers, target, weights = candidates(options.program, [f"{folder}/{path.name.removesuffix('.xz')}" for path in packed])
    trees = lightgbm.train(SETTINGS, lightgbm.Dataset(numbers, target, weight=weights), TREES).dump_model()["tree_info"]
    header = (f"# How much longer a CUDA schedule takes than a problem's fastest, as decision trees: schedule/cuda_cost.h.\n"
              f"# Written by tools/lab/fit_costs.py from {len(target)} schedules of {len(set(zip(*numbers.T[:2])))} sizes, LightGBM "
              f"{lightgbm.__version__}.\n")
    lines = text_of([tree["tree_structure"] for tree in trees], names)
    options.output.write_text(header + " ".join(names) + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
