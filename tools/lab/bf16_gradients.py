#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the errors of the gradients of a bf16 transformer's LayerNorms on a CPU, PyTorch's and normjit's.

The reference is the same model, weights and tokens in double precision.

    PYTHONPATH=build/python bf16_gradients.py [--json FILE] [--svg FILE]     measures, and draws (needs matplotlib)
    bf16_gradients.py --draw FILE.json --svg FILE.svg                        draws earlier results (needs no torch)

The network is the "gpt2" of small_transformer.py, with torch.nn.LayerNorm. Only the kernel of
aten::native_layer_norm_backward differs between the two: normjit.torch.enabled(). The error is the relative error of
the whole step in the 2-norm."""
import argparse
import json
import statistics


def gradients(model, ids):
    """Returns the gradients of all LayerNorms, by name."""
    model.zero_grad()
    model(ids).backward()
    return {name: p.grad.double() for name, p in model.named_parameters() if ".ln_" in f".{name}"}


def measure(options):
    import copy

    import normjit.torch
    import small_transformer
    import torch

    model = small_transformer.make("gpt2", options.width, options.layers, options.vocabulary, options.tokens)
    ids = torch.randint(options.vocabulary, (options.batch, options.tokens + 1))
    right = gradients(copy.deepcopy(model).double(), ids)
    by_torch = gradients(model, ids)
    calls = normjit.torch.report()["calls"]
    with normjit.torch.enabled(devices="cpu"):
        by_normjit = gradients(model, ids)
    served = normjit.torch.report()["calls"] - calls
    assert served == 2 * options.layers + 1, f"normjit served {served} of {2 * options.layers + 1} LayerNorms"
    error = lambda got, name: float((got[name] - right[name]).norm() / right[name].norm())  # noqa: E731
    return {
        "title": f"bf16 transformer, {options.layers} layers of {options.width}, "
        f"{options.batch} x {options.tokens} tokens, CPU, torch {torch.__version__.partition('+')[0]}",
        "errors": [{"name": name, "torch": error(by_torch, name), "normjit": error(by_normjit, name)} for name in right],
    }


def show(found):
    print(found["title"])
    print(f"{'gradient of':16} {'torch':>9} {'normjit':>9} {'ratio':>6}")
    for each in found["errors"]:
        print(f"{each['name']:16} {each['torch']:9.2%} {each['normjit']:9.2%} {each['torch'] / each['normjit']:6.1f}")
    for kind in ("weight", "bias"):
        of = [each for each in found["errors"] if each["name"].endswith(kind)]
        middle = {which: statistics.median(each[which] for each in of) for which in ("torch", "normjit")}
        print(f"median of {'weights' if kind == 'weight' else 'biases'}: torch {middle['torch']:.2%}, normjit {middle['normjit']:.2%}")


def draw(found, path):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plt.rcParams.update({"svg.hashsalt": path, "font.size": 10})
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 4.2), sharex=True)
    for axes, kind in zip(panels, ("weight", "bias")):
        of = [each for each in found["errors"] if each["name"].endswith(kind)][::-1]
        names = [each["name"].removesuffix("." + kind).removeprefix("h.") for each in of]
        for row, each in enumerate(of):
            axes.plot([each["normjit"], each["torch"]], [row, row], color="lightgrey", linewidth=2, zorder=1)
        for which, label, colour, marker in (("torch", "PyTorch", "#D55E00", "X"), ("normjit", "normjit", "black", "o")):
            axes.scatter([each[which] for each in of], range(len(of)), color=colour, marker=marker, s=42, label=label,
                         zorder=2)
        axes.set_yticks(range(len(of)), names)
        axes.set_xscale("log")
        axes.set_xlim(1e-3, 1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.1%}" if x < 0.01 else f"{x:.0%}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(f"gradients of LayerNorm {'weights' if kind == 'weight' else 'biases'}", fontsize=11)
        axes.set_xlabel("error against double precision: lower is better")
        axes.grid(axis="x", alpha=0.3)
    figure.suptitle(found["title"], fontsize=11)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--width", type=int, default=768, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="of a sequence")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--json", help="write what was measured")
    parser.add_argument("--svg", help="draw it")
    parser.add_argument("--draw", metavar="JSON", help="measure nothing, draw what was measured")
    options = parser.parse_args()
    if options.draw:
        with open(options.draw) as file:
            found = json.load(file)
    else:
        found = measure(options)
    show(found)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)
    if options.svg:
        draw(found, options.svg)


if __name__ == "__main__":
    main()
