# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy
"""The logger "normjit": its messages, and its silence by default."""
import pytest
from processes import run_program

LEFT = """
import torch, normjit.torch

def backward(weight):
    x, statistic = torch.ones(2, 3), torch.ones(2, 1)
    try:  # types that torch's kernel does not have either
        torch.ops.aten.native_layer_norm_backward(x, x, [3], statistic, statistic, weight, None, [True, False, False])
    except RuntimeError:
        pass

with normjit.torch.enabled(devices="cpu"):
    for weight in (torch.ones(3), torch.ones(3).double(), torch.ones(3, dtype=torch.int32), torch.ones(3).double()):
        backward(weight)
assert normjit.torch.report()["left_to_torch"] == 3
"""


@pytest.mark.parametrize("level, counts", [("INFO", (2, 2)), ("WARNING", (0, 2)), (None, (0, 0))])
def test_what_is_said(level, counts):
    """Each reason, which report() has as well, is logged once; nothing is logged if the program has not configured
    logging."""
    configure = f"import logging; logging.basicConfig(level=logging.{level})\n" if level else ""
    # Torch 2.10 and 2.11 log the errors of their own kernels that they hand over.
    done = run_program(configure + LEFT, TORCH_CPP_LOG_LEVEL="FATAL")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    told = [line for line in lines if line.startswith("INFO:normjit:native_layer_norm_backward on CPU has ")]
    left = [line for line in lines if line.startswith("WARNING:normjit:native_layer_norm_backward on CPU is left to torch: ")]
    assert (len(told), len(left)) == counts and len(lines) == sum(counts), done.stderr
    assert len(set(left)) == len(left)


def test_probes_are_not_told():
    """What patch() and found() try with torch's own kernels does not count as calls that normjit leaves to torch."""
    done = run_program("""
import logging
logging.basicConfig(level=logging.WARNING)
import torch, normjit.torch
normjit.torch.enable(devices="cpu")
model = torch.nn.Sequential(torch.nn.LayerNorm(8))
normjit.torch.patch(model)(torch.ones(2, 8)).sum().backward()
assert normjit.torch.found(model)[0].norm == "layernorm" and normjit.torch.report()["calls"] == 1
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_reasons_are_bounded():
    done = run_program("""
import logging
logging.basicConfig()
from normjit.torch import log
for i in range(1000):
    log.left_to_torch("layer_norm on CPU", f"reason {i}")
""")
    lines = done.stderr.splitlines()
    assert len(lines) == 101 and "report() counts the calls" in lines[-1], done.stderr


ENGINES = {
    "arrays": "import numpy as np, normjit; normjit.rms_norm(np.ones((2, 8), 'f'))",
    "torch": "import normjit.torch; normjit.torch.enable(devices='cpu')",
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_what_engines_warn_of(engine):
    """A file that an engine cannot use is named, whatever serves the call."""
    configure = "import logging; logging.basicConfig(level=logging.WARNING)\n"
    environment = {"NORMJIT_RECORDS": "/nowhere/records.jsonl", "NORMJIT_CACHE_PACKS": "/nowhere/product.pack"}
    done = run_program(configure + engine, **environment)
    assert done.returncode == 0, done.stderr
    for name in environment.values():
        assert f"{name}: No such file or directory" in done.stderr, done.stderr
    assert run_program(engine, **environment).stderr == ""


def test_lines_that_are_not_captured_are_told():
    done = run_program("import logging; logging.basicConfig()\n" + ENGINES["arrays"], NORMJIT_CAPTURE="/dev/full")
    assert "WARNING:normjit:NORMJIT_CAPTURE=/dev/full: No space left on device" in done.stderr
