#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the heuristic's regret from tuning records: its time over the best time found.

    regret.py records.jsonl [--sample 60] [--seed 1] [--list 10]      geometric mean and worst case, for each device
    regret.py records.jsonl --again second.jsonl                      the same problems tuned twice: shows the noise
    regret.py --random 60 [--seed 20261123] [--most 2048]             specs of random sizes, unknown to the heuristic,
                                                                      to measure it with; the seed is today's date
    regret.py --draw shapes.txt --sample 60 --without a.txt b.txt     specs of a shapes file that others do not have
    regret.py records.jsonl --classes                                 shares of the ceiling and regret by size
    regret.py records.jsonl --why build/tools/normjit/normjit         and the points to blame

A problem whose heuristic was not beaten by more than the noise counts as 1. Two commands on a machine:

    tools/lab/regret.py --random 60 > shapes.txt && normjit tune shapes.txt -o records.jsonl --device cuda:0 --candidates 60
    tools/lab/regret.py records.jsonl --classes --why build/tools/normjit/normjit
"""
import argparse
import collections
import datetime
import json
import math
import random
import statistics
import subprocess
import sys


def read(path):
    """Returns records by problem and device. If several lines have the same, the last one counts."""
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
    """Returns what decided the heuristic's schedule, if this build's heuristic still chooses it."""
    emit = [normjit, "compile", record["spec"], "--target", record["target"], "--emit"]
    schedule, why = (subprocess.run([*emit, stage], capture_output=True, text=True) for stage in ("schedule", "reasons"))
    if why.returncode:
        return [why.stderr.strip()]
    today = schedule.stdout.strip()
    return why.stdout.splitlines() + ([f"(chooses {today} today)"] if today != record["heuristic"] else [])


def read_shapes(path):
    """Returns specs by a key that is equal for equal problems."""
    with open(path) as file:
        lines = [line.split("#")[0].split() for line in file]
    return {frozenset(words) - {"x=f32"}: " ".join(words) for words in lines if words}


def draw(path, without, count, seed):
    """Draws specs of a shapes file that are in none of the files `without`. They keep the order of the file."""
    fitted = {problem for other in without for problem in read_shapes(other)}
    left = [text for problem, text in read_shapes(path).items() if problem not in fitted]
    drawn = set(random.Random(seed).sample(left, min(count or len(left), len(left))))
    return [text for text in left if text in drawn]


ITEM_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
NARROWEST, WIDEST = 64, 53248
LEAST_BYTES = 64 << 10
FEW_ROWS = 16  # one problem in eight has 1 to this many rows


def log_uniform(source, least, most):
    return math.exp(source.uniform(math.log(least), math.log(most)))


def random_spec(source, most_bytes):
    """Returns a spec of any width except powers of two, whose x, dy and dx take 64 KiB to most_bytes."""
    norm, dtype = source.choice(["layernorm", "rmsnorm"]), source.choice(sorted(ITEM_BYTES))
    while True:
        # Half of the widths are multiples of 64, as in models.
        cols = round(log_uniform(source, NARROWEST, WIDEST))
        if source.random() < 0.5:
            cols = max(cols // 64, 1) * 64
        if cols & (cols - 1) == 0:
            continue
        if source.random() < 1 / 8:
            rows = source.randint(1, FEW_ROWS)
        else:
            rows = round(log_uniform(source, LEAST_BYTES, most_bytes) / (3 * cols * ITEM_BYTES[dtype]))
        if rows >= 1 and LEAST_BYTES <= 3 * rows * cols * ITEM_BYTES[dtype] <= most_bytes:
            return f"{norm} rows={rows} cols={cols} x={dtype}"


def random_forward(source, most_bytes):
    """Returns a forward pass of a size of random_spec(). Every third one has a residual stream."""
    norm, *shape, x = random_spec(source, most_bytes).split()
    dtype = x[len("x="):]
    residual = f" residual={dtype}" if source.random() < 1 / 3 else ""
    gamma = " gamma=f32" if dtype != "f32" and source.random() < 1 / 3 else ""
    return f"{norm} pass=forward {' '.join(shape)} {x}{residual}{gamma}"


def random_formula(source, most_bytes):
    """Returns the forward or backward pass of a norm of templates/norms, with a width that models have, in 16 bits."""
    name = source.choice(["gated_rmsnorm", "rmsnorm_of_gated", "softmax", "l2norm", "dynamic_tanh", "qk_norm_rope",
                          "qk_norm_rope_interleaved", "groupnorm", "rmsnorm_blocks", "rmsnorm_mx", "rmsnorm_e4m3", "rmsnorm_i8"])
    dtype = source.choice(["bf16", "bf16", "f16"])
    slices, has_backward, weight, rest = 1, True, f" gamma={dtype}", ""
    if name.startswith("qk_norm"):
        cols, slices = source.choice([64, 96, 128, 256]), source.choice([4, 8, 16, 32, 64])
    elif name == "groupnorm":
        channels, run = source.choice([4, 8, 10, 16, 40]), source.choice([64, 256, 1024, 4096])
        cols, slices, rest = channels * run, 32, f" beta={dtype} R={run}"
    elif name in ("l2norm", "gated_rmsnorm") and source.random() < 0.5:
        cols = source.choice([64, 128, 256])
    else:
        cols = 128 * round(log_uniform(source, 1, 160))
    if name.startswith("rmsnorm_") and name != "rmsnorm_of_gated":
        has_backward, rest = False, " y=i8" if name == "rmsnorm_i8" else " y=e4m3" + (" scale=e8m0" if name == "rmsnorm_mx" else "")
    if name in ("softmax", "l2norm"):
        weight = ""
    if name == "dynamic_tanh":
        rest = f" beta={dtype} alpha=0.5"
    rows = max(1, round(log_uniform(source, LEAST_BYTES, most_bytes) / (6 * slices * cols)))
    words = [name, "pass=forward" if not has_backward or source.random() < 0.4 else "",
             f"slices={slices}" if slices > 1 else "", f"rows={rows}", f"cols={cols}", f"x={dtype}{weight}{rest}"]
    return " ".join(filter(None, words))


def random_options(source, most_bytes):
    """Returns a backward pass of a size of random_spec() with some of the keys that it leaves out."""
    norm, *shape, x = random_spec(source, most_bytes).split()
    dtype = x[len("x="):]
    rms = norm == "rmsnorm"
    options = {
        "stats=recompute": True, f"dresidual={dtype}": True, "gamma=f32 dgamma=f32": dtype != "f32", "gamma=none": True,
        "accumulate=dgamma": True, "out=dx": True, "out=dgamma" if rms else "out=dgamma,dbeta": True, "gamma_offset=1": True,
        "source=xhat": True, f"dresidual={dtype} rowscale=f32": True, "invariant=1": True, "rounding=llama": rms and dtype != "f32",
    }
    words = source.choice([option for option, possible in options.items() if possible])
    if "stats" not in words and "source" not in words and source.random() < 0.3:
        words += " stats=recompute"
    return f"{norm} {' '.join(shape)} {x} {words}"


KINDS = {"backward": random_spec, "forward": random_forward, "formulas": random_formula, "options": random_options}


def random_specs(count, seed, most_bytes, kinds):
    """Returns, in turn, as many problems of each kind; the numbers differ by at most one."""
    source = random.Random(seed)
    specs = {}
    while len(specs) < count:
        specs[KINDS[kinds[len(specs) % len(kinds)]](source, most_bytes)] = None
    return list(specs)


CLASSES = [1, 8, 32, 128, 512, math.inf]  # MiB, below


def mib_of(record):
    words = dict(word.split("=") for word in record["spec"].split()[1:])
    return 3 * int(words.get("slices", 1)) * int(words["rows"]) * int(words["cols"]) * ITEM_BYTES.get(words.get("x", "f32"), 4) / (1 << 20)


def class_table(found):
    """Returns lines with the heuristic's share of the ceiling, the best share found, and the regret."""
    lines = [f"  {'MiB':>11} {'problems':>8}   {'heuristic':>15}   {'best found':>15}   {'heuristic/best':>15}",
             f"  {'':>11} {'':>8}   {'median':>7} {'worst':>7}   {'median':>7} {'worst':>7}   {'mean':>7} {'worst':>7}"]
    for least, most in zip([0, *CLASSES], CLASSES):
        some = [(gain, record) for gain, record in found if least <= mib_of(record) < most]
        if not some:
            continue
        best = [record["share"] for _, record in some if record.get("share", -1) > 0]
        usual = [record["share"] / gain for gain, record in some if record.get("share", -1) > 0]
        shares = [f"{statistics.median(each):7.3f} {min(each):7.3f}" if each else f"{'-':>7} {'-':>7}" for each in (usual, best)]
        gains = [gain for gain, _ in some]
        name = f"{least} - {most}" if most < math.inf else f"from {least}"
        lines.append(f"  {name:>11} {len(some):8}   {shares[0]}   {shares[1]}   {geometric_mean(gains):7.3f} {max(gains):7.3f}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?")
    parser.add_argument("--draw", metavar="SHAPES", help="print specs of this shapes file")
    parser.add_argument("--without", metavar="SHAPES", nargs="*", default=[], help="draw none that these files have")
    parser.add_argument("--sample", type=int, default=0, help="problems to draw, for each device [all]")
    parser.add_argument("--random", type=int, metavar="N", help="print so many random specs")
    parser.add_argument("--of", default="backward", help=f"kinds of random problems, of {' '.join(KINDS)} [%(default)s]")
    parser.add_argument("--most", type=float, default=2048, help="MiB that a random problem may move [2048]")
    parser.add_argument("--seed", type=int, help="of --random [today's date] and of other draws [1]")
    parser.add_argument("--classes", action="store_true", help="also a table by size")
    parser.add_argument("--list", type=int, default=10, help="worst problems to show [10]")
    parser.add_argument("--why", metavar="NORMJIT", help="print what decided the heuristic's schedule, asking this program")
    parser.add_argument("--again", help="records of a second run over the same problems")
    arguments = parser.parse_args()
    seed = 1 if arguments.seed is None else arguments.seed
    if arguments.random:
        today = int(datetime.date.today().strftime("%Y%m%d"))
        kinds = arguments.of.split(",")
        if set(kinds) - set(KINDS):
            parser.error(f"--of {arguments.of}: allowed: {' '.join(KINDS)}, separated by commas")
        drawn_by = today if arguments.seed is None else seed
        specs = random_specs(arguments.random, drawn_by, arguments.most * (1 << 20), kinds)
        print("\n".join(specs))
        return
    if arguments.draw:
        print("\n".join(draw(arguments.draw, arguments.without, arguments.sample, seed)))
        return
    if not arguments.records:
        parser.error("give records, --random or --draw")
    records = read(arguments.records)
    devices = collections.defaultdict(list)
    for (device, target, threads, _), (gain, record) in sorted(records.items()):
        devices[f"{device or 'unknown device'}, {target.split()[0]}, {threads} threads"].append((gain, record))
    if not devices:
        sys.exit(f"{arguments.records}: no records")
    for device, found in devices.items():
        if 0 < arguments.sample < len(found):
            found = random.Random(seed).sample(found, arguments.sample)
        print(f"{device}: {summary([gain for gain, _ in found])}")
        if arguments.classes:
            print("\n".join(class_table(found)))
        for gain, record in sorted(found, key=lambda each: -each[0])[: arguments.list]:
            if gain > 1:
                share = f", share {record['share']:.3f}" if record.get("share", -1) > 0 else ""
                print(f"  {gain:.3f}  {record['spec']}{share}\n         {record['heuristic']}\n         {record['schedule']}")
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
