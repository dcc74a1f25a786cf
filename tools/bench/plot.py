#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Share of the memory ceiling over N, from files of `normjit bench --json`, gpu_peers.py and cpu_peers.py.

    python3 tools/bench/plot.py normjit.json peers.json --rows 32768 --dtype bf16 -o share.svg
    python3 tools/bench/plot.py cpu.json --elements 33554432 --threads 1 --dtype f32 -o share.svg

One panel for each norm; a line for normjit and for each peer.
"""
import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = {"torch": "PyTorch", "compile": "torch.compile", "triton": "Triton, flash-attention style", "liger": "Liger",
         "quack": "QuACK", "onednn": "oneDNN"}


def is_wanted(result, keys, options):
    """Of the dtype and size that are asked for, all outputs; gamma as x, or on a CPU any."""
    allowed = {"rows", "cols", "x"} | ({"gamma"} if options.threads else set())
    if set(keys) - allowed or "share" not in result or keys.get("x", "f32") != options.dtype:
        return False
    if options.threads and result["threads"] != options.threads:
        return False
    rows = int(keys["rows"])
    return rows * int(keys["cols"]) == options.elements if options.elements else rows == options.rows


def read_points(paths, options):
    """{norm: {series: {cols: share}}}"""
    points = {"layernorm": {}, "rmsnorm": {}}
    device = ""
    for path in paths:
        with open(path) as file:
            document = json.load(file)
        device = document.get("gpu") or document.get("cpu") or device
        for result in document["results"]:
            norm, *words = result["spec"].split()
            keys = dict(word.split("=") for word in words)
            if not is_wanted(result, keys, options):
                continue
            series = NAMES.get(result.get("peer"), result.get("peer", "normjit"))
            points[norm].setdefault(series, {})[int(keys["cols"])] = result["share"]
    return device, points


def draw(axes, norm, series):
    for name, shares in sorted(series.items(), key=lambda item: item[0] != "normjit"):
        cols = sorted(shares)
        ours = name == "normjit"
        axes.plot(cols, [shares[n] for n in cols], marker="o", markersize=4, label=name, linewidth=2.2 if ours else 1.2,
                  color="black" if ours else None)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.05)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_title(norm)
    axes.set_xlabel("N")
    axes.grid(alpha=0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--elements", type=int, help="rows times columns, instead of --rows")
    parser.add_argument("--threads", type=int, help="results of a CPU with so many threads")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    device, points = read_points(options.files, options)
    norms = [norm for norm in points if points[norm]]
    if not norms:
        parser.error("the files have no result for these rows and this dtype")
    figure, panels = plt.subplots(1, len(norms), figsize=(5.5 * len(norms), 4), sharey=True, squeeze=False)
    for axes, norm in zip(panels[0], norms):
        draw(axes, norm, points[norm])
    panels[0][0].set_ylabel("share of the memory ceiling")
    labels = {label: line for axes in panels[0] for line, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(labels.values(), labels.keys(), fontsize=9, loc="lower center", ncols=len(labels))
    size = f"{options.elements} elements" if options.elements else f"{options.rows} rows"
    threads = f", {options.threads} thread{'' if options.threads == 1 else 's'}" if options.threads else ""
    figure.suptitle(f"norm backward, {size}, {options.dtype}{threads}, {device}", fontsize=11)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(options.output)


if __name__ == "__main__":
    main()
