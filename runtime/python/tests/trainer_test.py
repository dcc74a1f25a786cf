# SPDX-License-Identifier: Apache-2.0
# needs: torch transformers accelerate
"""The example with Hugging Face's Trainer runs offline and learns, and normjit serves every backward pass of a norm."""
import pathlib
import re
import sys

import processes

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples/trainer.py"
NORMS, STEPS = 5, 30


def test_trainer():
    done = processes.run([sys.executable, str(EXAMPLE)])
    assert done.returncode == 0, done.stderr
    first, *_, last = map(float, re.search(r"^losses (.*)$", done.stdout, re.M)[1].split())
    assert last < 0.6 * first
    assert f"calls: {NORMS * STEPS} by normjit, 0 left to torch: None" in done.stdout
    assert done.stdout.count("normjit's, by patch()") == NORMS
