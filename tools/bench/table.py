#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table: time and share of the memory ceiling of normjit and its peers, a line a shape, from files of
`normjit bench --json` and gpu_peers.py, or of cpu_peers.py.

    python3 tools/bench/table.py normjit.json peers.json
    python3 tools/bench/table.py cpu.json --threads 16
"""
import argparse
import json

PEERS = {"torch": "PyTorch", "compile": "torch.compile", "liger": "Liger", "triton": "Triton, flash-attention style",
         "quack": "QuACK", "onednn": "oneDNN"}


def read_results(paths):
    """{(spec, CPU threads or None): {"normjit" or peer: result}}, in the order of the files."""
    results = {}
    for path in paths:
        with open(path) as file:
            document = json.load(file)
        for result in document["results"]:
            threads = result["threads"] if document["device"] == "cpu" else None
            spec = result["spec"].replace(" x=f32", "")  # as normjit prints what is usual
            results.setdefault((spec, threads), {})[result.get("peer", "normjit")] = result
    return {key: of_spec for key, of_spec in results.items() if "normjit" in of_spec}


def title(spec, threads):
    """layernorm 32768x256 x=bf16, 2 threads"""
    norm, *words = spec.split()
    keys = dict(word.split("=") for word in words)
    words = [norm, f"{keys.pop('rows')}x{keys.pop('cols')}", *(f"{key}={value}" for key, value in keys.items())]
    on = "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    return " ".join(words) + on


def cell(result):
    if result is None:
        return "-"
    microseconds = result["median_seconds"] * 1e6
    time = f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"
    return f"{time} ({result['share']:.2f})" if "share" in result else time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--threads", type=int, help="of a CPU: only the results with so many")
    options = parser.parse_args()
    results = read_results(options.files)
    if options.threads:
        results = {(spec, None): of_spec for (spec, threads), of_spec in results.items() if threads == options.threads}
    peers = [peer for peer in PEERS if any(peer in of_spec for of_spec in results.values())]
    print("|", " | ".join(["us (share of the ceiling)", "ceiling", "normjit", *(PEERS[peer] for peer in peers)]), "|")
    print("|---" * (3 + len(peers)) + "|")
    for (spec, threads), of_spec in results.items():
        ours = of_spec["normjit"]
        ceiling = ours.get("ceiling", {}).get("median_seconds")
        cells = [cell({"median_seconds": ceiling}) if ceiling else "-", f"**{cell(ours)}**"]
        print("|", title(spec, threads), "|", " | ".join(cells + [cell(of_spec.get(peer)) for peer in peers]), "|")


if __name__ == "__main__":
    main()
