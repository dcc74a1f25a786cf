# SPDX-License-Identifier: Apache-2.0
"""Draws the share of the memory ceiling over N as SVG, with a panel for each norm and type, and a line for each
library."""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: E402

# The look of each library, the same in all charts, with colours for the colour-blind (Okabe and Ito).
LOOKS = {
    "normjit": ("normjit", "black", "o"),
    "quack": ("QuACK", "#0072B2", "s"),
    "triton": ("Triton", "#E69F00", "^"),
    "liger": ("Liger", "#009E73", "D"),
    "cudnn": ("cuDNN", "#F0E442", "<"),
    "compile-best": ("torch.compile, best", "#CC79A7", "v"),
    "torch": ("PyTorch", "#D55E00", "X"),
    "onednn": ("oneDNN", "#56B4E9", "P"),
}


def width_label(cols, _):
    """Returns 256, 1k, 64k."""
    return f"{cols / 1024:g}k" if cols >= 1024 else f"{cols:g}"


def draw_panel(axes, panel, points):
    for name, (label, colour, marker) in LOOKS.items():
        shares = points.get(name, {})
        cols = sorted(shares)
        ours = name == "normjit"
        axes.plot(cols, [shares[n] for n in cols], label=label if cols else None, color=colour, marker=marker,
                  markersize=6 if ours else 5, linewidth=2.4 if ours else 1.4, zorder=3 if ours else 2)
    widths = sorted({n for shares in points.values() for n in shares})
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths)
    axes.xaxis.set_major_formatter(FuncFormatter(width_label))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.09)
    axes.axhline(1, color="grey", linewidth=0.9, linestyle="--", zorder=1)
    axes.set_title(f"{panel['norm']}, {panel['x']}", fontsize=11)
    axes.set_xlabel("N, columns of a row")
    axes.grid(alpha=0.25)


def draw(chart, panels, folder):
    panels = [(panel, points) for panel, points in panels if len(points.get("normjit", {})) > 1]
    plt.rcParams.update({"svg.hashsalt": chart["file"], "font.size": 10})  # the same numbers then give the same file
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.9), sharey=True, squeeze=False)
    for each, (panel, points) in zip(axes[0], panels):
        draw_panel(each, panel, points)
    axes[0][0].set_ylabel("share of the memory ceiling (1 = dashed)")
    lines = {label: line for each in axes[0] for line, label in zip(*each.get_legend_handles_labels())}
    figure.suptitle(chart["title"] + ": higher is better", fontsize=12)
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=len(lines), frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(folder / chart["file"], metadata={"Date": None})
    plt.close(figure)
