# SPDX-License-Identifier: Apache-2.0
"""Makes random calls, valid and invalid, of the Python package's operators and functions, on memory between guard
pages.

    PYTHONPATH=build/python python runtime/python/tests/fuzz.py --calls 100000 [--seed 1] [--only SEED] [--kinds
    operator,...]

If the documented rule accepts a call, its results must be those of double precision; otherwise it must be refused in
words that name the operand. Only outputs may be written. Calls run in forked processes: a crash is reported with its
seed and the reduced call. Prints the counts of outcomes; exit code 1 if something is wrong."""
import argparse
import collections
import copy
import faulthandler
import os
import random
import signal
import sys
import tempfile
import time
import traceback

import fuzz_calls
import fuzz_runs
import jax_handler_test  # torch imports this lazily; importing it here is better than in each child
import numpy.random  # noqa: F401
import torch
import torch._dynamo  # noqa: F401

MOST_SHRUNK = 5
KINDS = ("operator", "operator", "operator", "aten", "function", "arrays", "arrays", "handler")
MOST_PROBLEMS = 30
SECONDS_OF_A_CALL = 60


def drawn(seed, kinds):
    return fuzz_calls.draw(random.Random(seed), kinds)


def outcome(call, seed):
    try:
        with fuzz_runs.quietly():
            return fuzz_runs.run(call, seed)
    except fuzz_runs.Wrong as error:
        return f"WRONG {error}".replace("\n", " ")


def in_child(work):
    """Runs work(file) in a forked process. Returns the lines that it wrote, and how it ended: 0, or what killed it."""
    with tempfile.TemporaryFile("w+", buffering=1) as file:
        child = os.fork()
        if child == 0:
            status = 99
            faulthandler.disable()  # pytest's handler would report a deliberate crash
            try:
                torch.set_num_threads(1)  # threads that this process has started do not exist in the child
                work(file)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                file.flush()
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        file.seek(0)
        return file.read().splitlines(), status


def run_range(seeds, kinds):
    """Yields (seed, outcome) of each call. A crash ends only the child."""
    seeds = collections.deque(seeds)
    while seeds:
        def work(file):
            for seed in seeds:
                signal.alarm(SECONDS_OF_A_CALL)
                print(outcome(drawn(seed, kinds), seed), file=file)

        lines, status = in_child(work)
        for line in lines:
            yield seeds.popleft(), line
        if seeds:
            yield seeds.popleft(), f"WRONG crashed: {describe(status)}"


def describe(status):
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit code {os.waitstatus_to_exitcode(status)}"


def shrunk(call, seed, came_to):
    """Returns a smaller call that fails in the same way."""
    def is_wrong(call, seed):
        lines, status = in_child(lambda file: print(outcome(call, seed), file=file))
        again = f"WRONG crashed: {describe(status)}" if status else lines[0]
        return again.partition(":")[0] == came_to.partition(":")[0]

    for name in list(call.tensors):
        smaller = copy.deepcopy(call)
        del smaller.tensors[name]
        if name != "x" and is_wrong(smaller, seed):
            call = smaller
    for name, t in call.tensors.items():
        smaller = copy.deepcopy(call)
        plain = smaller.tensors[name]
        plain.layout, plain.before, plain.strides = "contiguous", 0, tuple(
            fuzz_calls.strides_of("contiguous", t.shape, random.Random(0)))
        if t.layout != "contiguous" and is_wrong(smaller, seed):
            call = smaller
    return call


def fuzz(first, count, kinds=KINDS):
    """Returns the counts of outcomes, and a text for each failure."""
    counts, problems = collections.Counter(), []
    for seed, came_to in run_range(range(first, first + count), kinds):
        call = drawn(seed, kinds)
        if not came_to.startswith("WRONG"):
            counts[f"{call.kind}: {came_to}"] += 1
            continue
        counts[f"{call.kind}: WRONG"] += 1
        smaller = f"\n    smaller: {shrunk(call, seed, came_to)}" if len(problems) < MOST_SHRUNK else ""
        problems.append(f"seed {seed}: {came_to}\n    {call}{smaller}")
        print(problems[-1])
        if len(problems) == MOST_PROBLEMS:
            print(f"stopped at {MOST_PROBLEMS} problems")
            break
    return counts, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the call of this seed alone, in this process")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    kinds = tuple(options.kinds.split(","))
    if options.only is not None:
        call = drawn(options.only, kinds)
        print(call, flush=True)
        print(outcome(call, options.only))
        return 0
    begin = time.time()
    counts, problems = fuzz(options.seed, options.calls, kinds)
    for what, count in sorted(counts.items()):
        print(f"{count:8} {what}")
    print(f"{sum(counts.values())} calls, {len(problems)} wrong, {time.time() - begin:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
