# SPDX-License-Identifier: Apache-2.0
# needs: numpy
"""Runs the Python code of the pages as it is, with data that this file makes, and follows their links."""
import pathlib
import re
import textwrap

import processes
import pytest

ROOT = pathlib.Path(__file__).parents[3]
PAGES = ("README.md", "runtime/python/README.md", "runtime/python/REFERENCE.md")

ARRAYS = """
import numpy
x, z, dy, residual, stream = (numpy.random.rand(6, 64).astype("float32") for _ in range(5))
gamma, scale, bias = (numpy.random.rand(64).astype("float32") for _ in range(3))
rstd = (x ** 2).mean(-1) ** -0.5
"""
MODEL = """
def made():
    import torch, types

    class RMSNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.ones(64)), 1e-6

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    class Model(torch.nn.Sequential):
        def forward(self, inputs):
            return types.SimpleNamespace(loss=super().forward(inputs).square().mean())

    return Model(torch.nn.Linear(64, 64), RMSNorm(), torch.nn.LayerNorm(64)), {"inputs": torch.randn(6, 64)}

model, batch = made()
"""
SERVED = """
assert normjit.torch.report()["calls"] >= 2, normjit.torch.report()
"""


def found_snippets():
    for name in PAGES:
        for at, code in enumerate(re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.M | re.S)):
            yield pytest.param(code, id=f"{name}-{at}")


@pytest.mark.parametrize("code", list(found_snippets()))
def test_runs(code):
    for package in ("torch", "jax", "flatbuffers"):
        if re.search(rf"\b{package}\b", code):
            pytest.importorskip(package)
    has_model = "model(" in code
    program = "\n".join([ARRAYS, MODEL if has_model else "", textwrap.dedent(code), SERVED if "enable()" in code else ""])
    done = processes.run_program(program)
    if "InvalidCxxCompiler" in done.stderr:
        pytest.skip("torch.compile finds no C++ compiler")
    assert done.returncode == 0, f"{program}\n{done.stderr}"


@pytest.mark.parametrize("name", PAGES)
def test_there_are_snippets(name):
    assert "```python\n" in (ROOT / name).read_text()


def without_code(path):
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)


def anchors(path):
    """Returns the names that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_code(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    for link in re.findall(r"\]\((?!https?:)([^)]*)\)", without_code(page)):
        name, _, anchor = link.partition("#")
        path = page.parent / name if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield link


@pytest.mark.parametrize("name", ["README.md", "compiler/FORMULAS.md", "runtime/README.md", *(
    str(path.relative_to(ROOT)) for path in sorted((ROOT / "runtime" / "python").glob("*.md")))])
def test_links_lead_somewhere(name):
    assert list(broken_links(ROOT / name)) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `two`()\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](other.md) [e](https://example.org)\n")
    assert list(broken_links(page)) == ["#three", "other.md"]
