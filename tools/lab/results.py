#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes RESULTS.md from the measurements in results/, in the order and with the words of results/index.json.

    python3 tools/lab/results.py            the page
    python3 tools/lab/results.py --charts   its charts as well (needs matplotlib)
    python3 tools/lab/results.py --check    fails if the page is not what it would write

and the table of README.md, of the problems in results/readme.json: normjit, and the fastest of the others; and that of
the Python package's README.md, of training steps.

A file of results is what page_round.py, middle.py or compiled_models.py wrote, or `normjit bench --json`, cpu_peers.py,
torch_operators.py or jax_norms.py with the date.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).parent
PAGE = HERE / "RESULTS.md"
README = HERE.parents[1] / "README.md"
PYTHON_README = HERE.parents[1] / "runtime" / "python" / "README.md"
STEPS = ["h200_compiled_models.json", "h200_compiled_qwen3_next.json"]  # of PYTHON_README
PEERS = {"normjit": "normjit", "cudnn": "cuDNN", "quack": "QuACK", "triton": "Triton", "liger": "Liger",
         "compile": "torch.compile", "compile-best": "torch.compile, best", "torch": "PyTorch", "onednn": "oneDNN",
         "recompute": "normjit, statistics recomputed", "fla": "flash-linear-attention"}
HEAD = """# Results

Written by `tools/lab/results.py` from [results](results): change those, not this page.

The ceiling is the time in which the machine reads two matrices and writes one of the same size, measured in the same run. A share is
the ceiling's time over the time taken: 1.00 means that memory allows no more. Above 1 the data was in the caches, or the ceiling's own
kernel was not the best. Every time is a median of one whole backward pass of one layer, in microseconds; shares stand in brackets.
"""


def keys_of(spec):
    """("layernorm", {"rows": "32768", "cols": "256", "x": "bf16"}); the default, x=f32, is left out."""
    norm, *words = spec.split()
    keys = dict(word.split("=") for word in words)
    if keys.get("x") == "f32":
        del keys["x"]
    return norm, keys


def title_of(spec):
    """layernorm 32768x256 x=bf16"""
    norm, keys = keys_of(spec)
    size = [keys.pop(key) for key in ("slices", "rows", "cols") if key in keys]
    return " ".join([norm, "x".join(size), *(f"{key}={value}" for key, value in keys.items())])


def documents(names):
    """Returns the contents of some files of results."""
    return [json.loads((HERE / "results" / name).read_text()) for name in names]


def read(names):
    """Returns all results of some files."""
    return [result for document in documents(names) for result in document["results"]]


def versions(names):
    """Returns "liger-kernel 0.8.5, torch 2.11.0" of files that have the versions of their peers."""
    packages = {}
    for document in documents(names):
        packages |= document.get("packages", {})
    return ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))


def wanted(table):
    """Returns {title: {"normjit" or peer: result}} for a table, in the order of its files."""
    shapes = {}
    for result in read(table["files"]):
        title = title_of(result["spec"])
        if "threads" in table and result["threads"] != table["threads"]:
            continue
        if not re.search(table.get("only", ""), title) or "except" in table and re.search(table["except"], title):
            continue
        shapes.setdefault(title, {})[result.get("peer", "normjit")] = result
    return {title: results for title, results in shapes.items() if "normjit" in results}


def cell(result):
    if result is None:
        return "-"
    microseconds = result["median_seconds"] * 1e6
    time = f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"
    return f"{time} ({result['share']:.2f})" if "share" in result else time


def rows_of_times(shapes):
    peers = [peer for peer in PEERS if any(peer in results for results in shapes.values())]
    yield ["", "ceiling", *(PEERS[peer] for peer in peers)]
    for title, results in shapes.items():
        times = [cell(results.get(peer)) for peer in peers]
        best = min(results.values(), key=lambda result: result["median_seconds"])
        times[peers.index(best.get("peer", "normjit"))] = f"**{cell(best)}**"
        yield [title, cell(results["normjit"].get("ceiling")), *times]


def rows_of_shares(shapes):
    yield ["", "share"]
    for title, results in shapes.items():
        yield [title, f"{results['normjit']['share']:.2f}"]


def rows_of_widths(shapes):
    """Yields the rows of a table with a row for each width and a column for each norm."""
    norms, widths = {}, {}
    for title, results in shapes.items():
        norm, width = title.split()[:2]
        norms[norm] = True
        widths.setdefault(int(width), {})[norm] = f"{results['normjit']['share']:.2f}"
    yield ["N", *norms]
    for width, shares in sorted(widths.items()):
        yield [str(width), *(shares.get(norm, "-") for norm in norms)]


def rows_of_framework(document):
    """Yields a framework's norms with its own kernels and with normjit's."""
    theirs, results = "PyTorch" if "torch" in document else "JAX", document["results"]
    calls = any("call_us" in result for result in results)
    yield ["", theirs, "normjit", "times as fast", *(["a call, " + theirs, "a call, normjit"] if calls else [])]
    for result in results:
        before, after = result["us"]
        times = [f"{us:.1f}" if us < 100 else f"{us:.0f}" for us in (before, after)]
        call = [f"{us:.1f}" for us in result["call_us"]] if "call_us" in result else ["-"] * 2
        size, _, dtype = re.sub("^((forward|sum|rms):)+", "", result["case"]).partition(":")
        yield [f"{result['kind']} {size} {dtype or 'f32'}", *times, f"{before / after:.2f}", *(call if calls else [])]


def rows_of_formulas(found):
    """Yields a row for each case of formula_peers.py: first its forward pass, then its backward pass."""
    cases = {}
    for result in (each for document in found for each in document.get("formulas", document["results"])):
        cases.setdefault(result["case"], {})[result["peer"]] = result
    peers = [peer for peer in PEERS if any(peer in of_case for of_case in cases.values())]
    yield ["", "ceiling", *(PEERS[peer] for peer in peers)]
    for case, of_case in sorted(cases.items(), key=lambda each: each[0].removeprefix("forward:")):
        norm, shape, x = case.removeprefix("forward:").split(":")
        times = [cell(of_case.get(peer)) for peer in peers]
        best = min(of_case.values(), key=lambda result: result["median_seconds"])
        times[peers.index(best["peer"])] = f"**{cell(best)}**"
        name = f"{norm} {'forward' if case.startswith('forward:') else 'backward'} {shape} {x}"
        yield [name, cell(of_case["normjit"]["ceiling"]), *times]


def rows_of_middle(results):
    """Returns, for each range of sizes, normjit's shares of the plain ceiling and of what two launches allow (middle.py)."""
    yield ["MiB", "problems", "of the plain ceiling", "worst", "of two launches", "worst"]
    for least, most in ((1, 8), (8, 32), (32, 128)):
        some = [each for each in results if least <= each["mib"] < most]
        shares = [[each[limit] / each["normjit"] for each in some] for limit in ("plain", "limit")]
        yield [f"{least} to {most}", str(len(some)),
               *(f"{number:.2f}" for each in shares for number in (statistics.median(each), min(each)))]


MODELS = {"gpt2": "GPT-2, 1024 wide, 8 layers", "dit": "adaLN blocks, 1152, 6 layers", "llama": "Llama, 2048, 4 layers",
          "qwen3": "Qwen3, 2048, 4 layers", "qwen3_next": "Qwen3-Next, 2048, 2 layers", "gemma2": "Gemma 2, 2304",
          "gemma3": "Gemma 3, 2048", "olmo2": "OLMo 2, 2048", "cohere": "Cohere, 2048", "gpt_neox": "GPT-NeoX, 2048",
          "phi": "Phi, 2048"}  # the models of compiled_models.py
CONTENDERS = {"eager torch": "torch, eager", "eager Liger": "Liger's norms", "eager normjit": "`enable()`, `patch(model)`",
              "eager normjit, forward": "`enable()`, `patch(model, forward=True)`", "compiled torch": "torch.compile",
              "compiled by normjit": 'torch.compile, `backend="normjit"`'}


def rows_of_models(runs):
    """Yields the milliseconds of a training step of each model, and how torch.compile's backends compare."""
    models = {kind: model for run in runs for kind, model in run["models"].items()}

    def row(title, of_model):
        return [title, *(of_model(each) for each in models.values())]

    def step(contender):
        return lambda model: next(f"{each['step_ms'][0]:.1f}" for each in model["rows"] if each["contender"] == contender)

    def regions(model):
        ours = next(each for each in model["rows"] if each["contender"] == "compiled by normjit")
        return f"{len(ours['taken'])} of {ours['regions']}"

    yield row("", lambda each: next(MODELS[kind] for kind in models if models[kind] is each))
    measured = {each["contender"] for model in models.values() for each in model["rows"]}
    for contender, title in CONTENDERS.items():
        if contender in measured:
            yield row(title, step(contender))
    yield row('torch.compile over `backend="normjit"`, median of pairs', lambda each: f"{each['ratio']:.3f}")
    yield row("regions taken", regions)


# The tables of a file that page_round.py has written.
TABLES_OF_PAGE = (
    {"title": "Backward passes, bf16, 32768 rows", "only": "^\\S+ 32768x\\d+ x=bf16$"},
    {"title": "Backward passes: micro-batches, other types and widths", "only": "^\\S+ \\d+x\\d+ x=\\S+( gamma=f32)?$", "except": "^\\S+ 32768x\\d+ x=bf16$"},
    {"title": "Backward passes: a residual stream; samples with a scale and shift of their own (adaLN); heads with gammas of their own", "only": "(dresidual|^\\S+ \\d+x\\d+x\\d+ x=bf16 per_slice)"},
    {"title": "Forward passes", "only": "pass=forward"},
    {"title": "Norms of templates/norms", "form": "formulas"},
)

FORMS = {"times": lambda table: rows_of_times(wanted(table)), "shares": lambda table: rows_of_shares(wanted(table)),
         "widths": lambda table: rows_of_widths(wanted(table)), "middle": lambda table: rows_of_middle(read(table["files"])),
         "formulas": lambda table: rows_of_formulas(documents(table["files"])),
         "frameworks": lambda table: rows_of_framework(*documents(table["files"])),
         "models": lambda table: rows_of_models(documents(table["files"]))}


def markdown(rows):
    """Yields the lines of a table, whose first row is its head."""
    head, *rows = rows
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "---:|" * (len(head) - 1)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def lines_of_table(table):
    if "title" in table:
        yield f"### {table['title']}\n"
    devices = sorted({f"{each.get('gpu') or each['cpu']}, {each['date']}" for each in documents(table["files"])})
    files = ", ".join(f"[{name}](results/{name})" for name in table["files"])
    yield f"{'; '.join(devices)}: {files}\n"
    yield from markdown(FORMS[table.get("form", "times")](table))
    yield ""


def readme_table(rows):
    """Returns README's lines for what results/readme.json lists."""
    yield "| | ceiling | normjit | fastest other |"
    yield "|---|---:|---:|---:|"
    for row in rows:
        results = wanted({"files": [row["file"]], **({"threads": row["threads"]} if "threads" in row else {})})[row["problem"]]
        others = {peer: result for peer, result in results.items() if peer not in ("normjit", "compile")}
        peer, best = min(others.items(), key=lambda each: each[1]["median_seconds"])
        name = row["machine"] + ": " + row["problem"].replace(" x=", " ").replace(" gamma=f32", ", f32 gamma")
        yield (f"| {name} | {cell(results['normjit']['ceiling'])} | **{cell(results['normjit'])}** | "
               f"{PEERS[peer]} {cell(best)} |")


def with_table(path, head, lines):
    """Returns the text of a file in which these lines replace the table that begins with a head."""
    text = path.read_text()
    start = text.index(head)
    return text[:start] + "\n".join(lines) + text[text.index("\n\n", start):]


def written(sections):
    """Returns the text of each file that is written: {path: text}."""
    rows = json.loads((HERE / "results" / "readme.json").read_text())
    return {PAGE: page(sections),
            README: with_table(README, "| | ceiling | normjit | fastest other |", readme_table(rows)),
            PYTHON_README: with_table(PYTHON_README, "|  | GPT-2", markdown(rows_of_models(documents(STEPS))))}


def page(sections):
    lines = [HEAD]
    for section in sections:
        lines.append(f"## {section['title']}\n")
        lines += [text + "\n" for text in section["text"]]
        tables = section.get("tables", [])
        if "page" in section:
            lines.append(f"With {versions([section['page']])}.\n")
            tables = [{**table, "files": [section["page"]]} for table in TABLES_OF_PAGE]
        lines += [f"![{chart['title']}](charts/{chart['file']})\n" for chart in section.get("charts", [])]
        for table in tables:
            lines += lines_of_table(table)
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--charts", action="store_true", help="draw the charts as well")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page would change")
    options = parser.parse_args()
    sections = json.loads((HERE / "results" / "index.json").read_text())
    for path, text in written(sections).items():
        if not options.check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} is not what tools/lab/results.py writes: run it")
    if options.charts:
        import charts  # needs matplotlib
        for section in sections:
            for chart in section.get("charts", []):
                charts.draw(chart, [(panel, wanted_points(panel)) for panel in chart["panels"]], HERE / "charts")


def wanted_points(panel):
    """Returns {"normjit" or peer: {cols: share}}: the content of a panel."""
    points = {}
    for result in read(panel["files"]):
        norm, keys = keys_of(result["spec"])
        rows, cols = int(keys["rows"]), int(keys["cols"])
        gamma = keys.get("gamma", keys.get("x", "f32"))
        same = {"norm": norm, "x": keys.get("x", "f32"), "rows": rows, "elements": rows * cols,
                "threads": result.get("threads"), "gamma": gamma}
        # Peers on CPUs take only an f32 gamma, so the panel shows what was measured.
        if "share" not in result or set(keys) - {"rows", "cols", "x", "gamma"}:
            continue
        if any(same[key] != panel[key] for key in same if key in panel):
            continue
        if "gamma" not in panel and panel.get("threads") is None and gamma != same["x"]:
            continue
        points.setdefault(result.get("peer", "normjit"), {})[cols] = result["share"]
    return points


if __name__ == "__main__":
    main()
