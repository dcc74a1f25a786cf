# SPDX-License-Identifier: Apache-2.0
# needs: torch numpy jax mypy
"""Runs a type checker on the package and on programs that use it."""
import os
import pathlib
import subprocess
import sys

import normjit
import pytest

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = pathlib.Path(normjit.__file__).parent

RIGHT = """
import normjit
import torch
from normjit.jax import layer_norm

version: str = normjit.__version__
facts: dict[str, object] = normjit.info()
code: bytes = normjit.compile("rmsnorm cols=64", target="x86-64-avx512")
normjit.tune("shapes.txt", "records.jsonl", budget="10m")
normjit.torch.enable(devices=["cpu", torch.device("cuda:0")], threads="own")
is_on: bool = normjit.torch.is_enabled()
norms: list[torch.nn.Module] = [
    normjit.torch.LayerNorm((4, 16), bias=False), normjit.torch.RMSNorm(64, None, False, weight_offset=0.0)]
model: torch.nn.Linear = normjit.torch.unpatch(normjit.torch.patch(torch.nn.Linear(2, 2), strict=False))
reasons: list[str | None] = [each.reason for each in normjit.torch.found(model)]
count: int = normjit.torch.prepare(norms[0], dtype=torch.bfloat16)
with normjit.torch.enabled(layer_norm=False):
    print(normjit.torch.report(norms[0])["calls"])
y = layer_norm(3.0, None, epsilon=1e-5) + 1
alone: torch.Tensor = normjit.torch.rms_norm(torch.ones(3, 4))
both: tuple[torch.Tensor, torch.Tensor] = normjit.torch.layer_norm(torch.ones(3, 4), residual=torch.ones(3, 4))
dx, dgamma, dbeta = normjit.layer_norm_backward(torch.ones(3, 4), torch.ones(3, 4), outputs="dx", out={"dx": alone})
"""
WRONG = {
    'normjit.torch.enable(devices=1.5)': "arg-type",
    'normjit.torch.RMSNorm(64, weight_offset="1")': "arg-type",
    'normjit.torch.patch("model")': "type-var",
    'normjit.compile(b"rmsnorm cols=64")': "arg-type",
    'normjit.torch.is_enabled().pop()': "attr-defined",
    'normjit.jax.rms_norm(1.0, bias=None)': "call-arg",
    'normjit.no_such_name': "attr-defined",
    'normjit.torch.layer_norm(torch.ones(2), eps="1")': "call-overload",
    'normjit.torch.rms_norm(torch.ones(2), residual=torch.ones(2)).sum()': "attr-defined",
    'normjit.rms_norm([1.0], gama=None)': "call-arg",
}


def mypy(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), *words], cwd=PACKAGE.parent,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_package(folder):
    done = mypy(folder, "--config-file", str(ROOT / "pyproject.toml"), "-p", "normjit")
    assert done.returncode == 0, done.stdout + done.stderr


def test_is_told_to_type_checkers():
    assert (PACKAGE / "py.typed").exists()


def test_a_program(folder):
    program = folder / "program.py"
    program.write_text(RIGHT)
    done = mypy(folder, "--strict", "--config-file", os.devnull, str(program))
    assert done.returncode == 0, done.stdout + done.stderr


def test_mistakes(folder):
    program = folder / "mistakes.py"
    program.write_text("\n".join(["import torch, normjit.jax, normjit.torch", *WRONG]))
    found = mypy(folder, "--strict", "--config-file", os.devnull, str(program)).stdout
    for line, (code, kind) in enumerate(WRONG.items(), start=2):
        (_, *of_line) = found.split(f"mistakes.py:{line}: error: ")
        assert of_line and f"[{kind}]" in of_line[0].split("\n")[0], f"{code}\n{found}"
