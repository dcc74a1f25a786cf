# SPDX-License-Identifier: Apache-2.0
# needs: scikit_build_core hatch_fancy_pypi_readme
"""A wheel's metadata, made without building the wheel."""
import email
import pathlib
import re
import subprocess
import sys
import tarfile

import normjit
import pytest

ROOT = pathlib.Path(__file__).parents[3]
MAKE = "import sys; from scikit_build_core.build import prepare_metadata_for_build_wheel as make; print(make(sys.argv[1]))"


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metadata")
    done = subprocess.run([sys.executable, "-c", MAKE, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return email.message_from_string((folder / done.stdout.split()[-1] / "METADATA").read_text())


def test_version(metadata):
    assert metadata["Version"] == normjit.__version__


def test_description_stands_alone(metadata):
    """The description has the whole text, but no picture and no link into the repository, to which the reader may have
    no access."""
    text = metadata.get_payload()
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == [] and "](" not in re.sub(r"\]\(https?:", "", text)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert text.count("normjit.torch.enable()") >= 1 and "# Changes" in text and f"## {normjit.__version__}" in text


def test_what_an_index_sorts_by(metadata):
    assert metadata["Summary"] and metadata["Keywords"] and "Typing :: Typed" in metadata.get_all("Classifier")
    assert {"cuda", "jax", "torch"} <= set(metadata.get_all("Provides-Extra"))


def test_source_archive(tmp_path):
    """It has the whole project, except for the measurements, most of its bytes."""
    make = "import sys; from scikit_build_core.build import build_sdist as make; print(make(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", make, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CMakeLists.txt", "compiler/compile.cpp", "tests/CMakeLists.txt", "tools/test.sh", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tools/lab/results/", "build"))]
