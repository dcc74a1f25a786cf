# SPDX-License-Identifier: Apache-2.0
# needs: pytest
"""Tests what `import normjit` provides: its version, its submodules, and handles of its library."""
import copy
import os
import pathlib
import pickle
import re
import subprocess
import sys

import normjit
from normjit import _library
import pytest

ROOT = pathlib.Path(__file__).parents[3]
SUBMODULES = {"jax": "jax>=0.6", "torch": "torch>=2.10"}
NEEDED = {**SUBMODULES, "tvm_ffi": "apache-tvm-ffi>=0.1.15"}  # the names that pip uses


def said(code, **variables):
    environment = os.environ | variables
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_version():
    (version,) = re.findall(r"project\(normjit VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert normjit.__version__ == version == normjit.info()["version"]


@pytest.mark.parametrize("name", SUBMODULES)
def test_submodules_come_when_they_are_used(name):
    pytest.importorskip(name)
    code = f"import sys, normjit; assert not {{{name!r}, 'importlib.util'}} & set(sys.modules) - before; "
    code += f"assert {name!r} in dir(normjit); assert {name!r} not in sys.modules; "
    code += f"print(normjit.{name}.layer_norm.__module__)"
    assert said(f"import sys; before = set(sys.modules); {code}").startswith(f"normjit.{name}")


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("statement, error", [
    ("import normjit.{0}", "ModuleNotFoundError"), ("from normjit import {0}", "ModuleNotFoundError"),
    ("import normjit; normjit.{0}", "AttributeError"),
])
def test_missing_packages_are_named(name, statement, error):
    hide = f"import sys; sys.modules[{name!r}] = None"
    code = f"{hide}\ntry:\n    {statement.format(name)}\nexcept Exception as e:\n    print(type(e).__name__, e, sep=': ')"
    assert said(code) == f"{error}: normjit.{name} needs {NEEDED[name]}: pip install '{NEEDED[name]}'"
    assert said(f"{hide}; import normjit; print(hasattr(normjit, {name!r}), {name!r} in dir(normjit))") == "False False"


def test_unknown_attributes():
    assert not hasattr(normjit, "tensorflow")
    with pytest.raises(AttributeError, match="^module 'normjit' has no attribute 'tensorflow'$"):
        normjit.tensorflow


def test_a_broken_package_is_not_a_missing_one(tmp_path):
    (tmp_path / "torch.py").write_text("import no_such_module\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import normjit\n"
    code += "try:\n    normjit.torch\nexcept ModuleNotFoundError as e:\n    print(e)"
    assert said(code) == "No module named 'no_such_module'"


def test_an_error_may_name_a_file_that_is_not_unicode():
    code = "from normjit import _library\ntry:\n    _library.engine('cuda:0')\nexcept _library.Unavailable as e:\n"
    code += "    print(ascii(str(e)))"
    assert r"/nowhere/\ufffd: cannot open" in said(code, NORMJIT_CUDA_DRIVER=os.fsdecode(b"/nowhere/\xff"))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_the_library_destroys_once_is_not_copied(copied):
    with pytest.raises(TypeError, match="Engine: can be neither copied nor pickled"):
        copied(_library.engine("cpu"))
