# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""Training by two processes is that by one: FSDP2 and sequence parallelism, on the CPU; tools/lab/two_gpus.py does it on
GPUs."""
import json
import pathlib
import sys

import pytest
from processes import run

SCRIPT = pathlib.Path(__file__).parents[3] / "tools/lab/two_gpus.py"
SMALL = ["--device", "cpu", "--world", "2", "--width", "128", "--layers", "2", "--tokens", "32", "--vocabulary", "128",
         "--batch", "4", "--steps", "5"]


def train(*words):
    return run([sys.executable, str(SCRIPT), *SMALL, *words])


@pytest.mark.parametrize("words, passes", [([], 1), (["--forward"], 2)])
def test_as_one_process(words, passes, tmp_path):
    done = train(*words, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["runs"]
    for kind in ("gpt2", "llama"):
        assert [row["run"] for row in found[kind]] == ["torch's norms", "one process", "FSDP2", "sequence parallel"]
        assert [row["served"] for row in found[kind]] == [0, *[passes * 5 * 5] * 3]  # norms times steps


def test_a_difference_is_told():
    done = train("llama", "--tolerance", "1e-12")
    assert done.returncode == 1 and "WRONG" in done.stdout
