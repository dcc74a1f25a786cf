# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Training by two processes equals training by one: FSDP2 and sequence parallelism, on the CPU;
tools/lab/two_gpus.py does it on GPUs."""
import json
import pathlib
import sys

import pytest
from processes import run

SCRIPT = pathlib.Path(__file__).parents[3] / "tools/lab/two_gpus.py"
SMALL = ["--device", "cpu", "--world", "2", "--width", "64", "--layers", "1", "--tokens", "16", "--vocabulary", "64",
         "--batch", "4", "--steps", "3"]


def train(*words):
    return run([sys.executable, str(SCRIPT), *SMALL, *words])


@pytest.mark.parametrize("words, passes", [([], 1), (["--forward"], 2)])
def test_as_one_process(words, passes, tmp_path):
    done = train(*words, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["runs"]
    for kind in ("gpt2", "llama"):
        assert [row["run"] for row in found[kind]] == ["torch's norms", "one process", "FSDP2", "sequence parallel"]
        assert [row["served"] for row in found[kind]] == [0, *[passes * 3 * 3] * 3]  # norms times steps


def test_a_difference_is_told():
    done = train("llama", "--tolerance", "1e-12")
    assert done.returncode == 1 and "WRONG" in done.stdout
