#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table: time and share of the memory ceiling of normjit and its peers, a line a shape, from files of
`normjit bench --json` and gpu_peers.py.

    python3 tools/bench/table.py normjit.json peers.json
"""
import argparse
import json

PEERS = {"torch": "PyTorch", "compile": "torch.compile", "liger": "Liger", "triton": "Triton, flash-attention style",
         "quack": "QuACK"}


def read_results(paths):
    """{spec: {"normjit" or peer: result}}, in the order of the files."""
    results = {}
    for path in paths:
        with open(path) as file:
            for result in json.load(file)["results"]:
                results.setdefault(result["spec"], {})[result.get("peer", "normjit")] = result
    return {spec: of_spec for spec, of_spec in results.items() if "normjit" in of_spec}


def title(spec):
    """layernorm 32768x256 x=bf16"""
    norm, *words = spec.split()
    keys = dict(word.split("=") for word in words)
    return " ".join([norm, f"{keys.pop('rows')}x{keys.pop('cols')}", *(f"{key}={value}" for key, value in keys.items())])


def cell(result):
    if result is None:
        return "-"
    microseconds = result["median_seconds"] * 1e6
    time = f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"
    return f"{time} ({result['share']:.2f})" if "share" in result else time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    results = read_results(parser.parse_args().files)
    peers = [peer for peer in PEERS if any(peer in of_spec for of_spec in results.values())]
    print("| us (share of the ceiling) | ceiling | normjit |", " | ".join(PEERS[peer] for peer in peers), "|")
    print("|---" * (3 + len(peers)) + "|")
    for spec, of_spec in results.items():
        ours = of_spec["normjit"]
        ceiling = ours.get("ceiling", {}).get("median_seconds")
        cells = [cell({"median_seconds": ceiling}) if ceiling else "-", f"**{cell(ours)}**"]
        print("|", title(spec), "|", " | ".join(cells + [cell(of_spec.get(peer)) for peer in peers]), "|")


if __name__ == "__main__":
    main()
