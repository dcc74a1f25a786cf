# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Runs some of fuzz.py's calls (other ones with NORMJIT_FUZZ_SEED), and checks that fuzz.py detects errors."""
import copy
import os
import random
import signal

import fuzz
import fuzz_calls
import fuzz_runs
import numpy as np
import pytest
from guarded import LAYOUTS, Block, bytes_at, strides_of

CALLS = 3000


def test_calls():
    seed = int(os.environ.get("NORMJIT_FUZZ_SEED", "0"))
    counts, problems = fuzz.fuzz(seed, CALLS)
    assert not problems, "\n".join(problems)
    assert sum(counts.values()) == CALLS
    for kind in set(fuzz.KINDS):  # no kind of call is always refused or always accepted
        assert counts[f"{kind}: right"] > CALLS / 100, counts
        assert sum(count for what, count in counts.items() if what.startswith(f"{kind}: refused")) > CALLS / 100, counts


@pytest.mark.parametrize("at_the_left", [False, True])
def test_guards(at_the_left):
    """An access beyond an end of the memory ends the process."""
    def touch(file):
        block = Block((10,), (1,), np.float32, at_the_left)
        beyond = block.flat.__array_interface__["data"][0] + (-1 if at_the_left else 40)
        print("alive", file=file, flush=True)
        np.frombuffer(bytes_at(beyond, 1), np.uint8)[0] += 1

    lines, status = fuzz.in_child(touch)
    assert lines == ["alive"] and os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.parametrize("layout", [*LAYOUTS, "flipped"])
def test_what_is_written_is_seen(layout):
    block = Block((3, 4, 5), strides_of(layout, (3, 4, 5), random.Random(1)), np.float32, False, before=3)
    block.keep()
    block.array[1, 2, 3] = 7
    assert block.was_changed(is_output=False) and not block.was_changed(is_output=True)
    block.flat[0] = 7
    assert block.was_changed(is_output=True)
    block.free()


def test_what_is_wrong_is_seen(monkeypatch):
    """Detects a wrong result, an invalid call that is accepted, a refusal that names nothing, and a crash."""
    kinds, real = ("operator",), fuzz_runs.RUNS["operator"]

    def is_fit(call):
        return call.backward and call.mask[0] and not call.wrong and fuzz_calls.why_refused(call) is None

    seed = next(s for s in range(1000) if is_fit(fuzz.drawn(s, kinds)) and 0 not in fuzz.drawn(s, kinds).tensors["x"].shape)
    call = fuzz.drawn(seed, kinds)
    wrong = copy.deepcopy(call)
    wrong.row, wrong.wrong = [7777], ["normalized_shape"]

    def refuse(*_):
        raise RuntimeError("no")

    for run, given, message in [
        (real, call, "right"), (real, wrong, "refused: normalized_shape"),
        (lambda *a: {name: t + 1e3 for name, t in real(*a).items() if t is not None}, call, "WRONG dx: "),
        (refuse, call, "WRONG refused, and fits"), (refuse, wrong, "WRONG refused, but names none of"),
        (lambda *_: {}, wrong, "WRONG accepted, and must be refused: normalized_shape"),
    ]:
        monkeypatch.setitem(fuzz_runs.RUNS, "operator", run)
        assert fuzz.outcome(given, seed).startswith(message)
    monkeypatch.setitem(fuzz_runs.RUNS, "operator", lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
    assert [line for _, line in fuzz.run_range([seed], kinds)] == ["WRONG crashed: SIGSEGV"]
