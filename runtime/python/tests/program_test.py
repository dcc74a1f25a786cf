# SPDX-License-Identifier: Apache-2.0
# needs: pytest
"""The program inside the package, and the start of the package."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import normjit
import pytest

SPEC = "rmsnorm cols=768 x=bf16"


def run(*words, **options):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)


def test_program():
    done = run("-m", "normjit", "info", SPEC)
    assert done.returncode == 0 and done.stdout.startswith("spec      rmsnorm cols=768 x=bf16")
    wrong = run("-m", "normjit", "info", "rmsnorm cols=0")
    assert wrong.returncode == 2 and "cols=0: must be at least 1" in wrong.stderr and not wrong.stdout
    assert run("-m", "normjit", "info", "rmsnorm cols=\udcff").returncode == 2  # bytes that are not UTF-8


def test_checked_run():
    done = run("-m", "normjit", "run", "layernorm rows=64 cols=100", "--check")
    assert done.returncode == 0, done.stderr


def test_info():
    facts = normjit.info()
    assert facts["version"] and any(device["name"] == "cpu" for device in facts["devices"])
    if facts["nvrtc"]["available"]:
        assert normjit.info(SPEC, target="sm_90")["backend"] == "cuda"
    else:
        with pytest.raises(normjit.Unavailable, match="NVRTC"):
            normjit.info(SPEC, target="sm_90")
    with pytest.raises(normjit.InvalidArgument, match="must be at least 1"):
        normjit.info("rmsnorm cols=0")
    for word in ("--help", "-x", "--"):  # not options of the program
        with pytest.raises(normjit.InvalidArgument, match=f"spec: norm '{word}'"):
            normjit.info(word)


@pytest.mark.parametrize("executable", [None, "", "/nowhere/python"])
def test_a_program_that_embeds_python(executable, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", executable)
    for call in (normjit.info, lambda: normjit.tune(tmp_path / "shapes.txt", tmp_path / "records.jsonl")):
        with pytest.raises(normjit.Unavailable, match=f"sys.executable is {executable!r}; must be the Python to start there"):
            call()


def test_compile():
    code = normjit.compile(SPEC, "x86-64-avx512")
    assert SPEC.encode() in code
    assert normjit.compile(SPEC, "x86-64-avx512") == code
    assert normjit.compile(SPEC) != b""
    with pytest.raises(normjit.InvalidArgument, match="z80"):
        normjit.compile(SPEC, "z80")
    with pytest.raises(normjit.InvalidArgument, match="must be at least 1"):
        normjit.compile("rmsnorm cols=0")


@pytest.mark.parametrize("call, message", [
    (lambda: normjit.compile("layernorm cols=64\0x"), r"spec: 'layernorm cols=64\x00x'; must not contain a NUL"),
    (lambda: normjit.compile(SPEC, "sm_90\0x"), r"target: 'sm_90\x00x'; must not contain a NUL"),
    (lambda: normjit.compile(SPEC, schedule="a\0"), r"schedule: 'a\x00'; must not contain a NUL"),
    (lambda: normjit.compile("layernorm \ud800"), r"spec: 'layernorm \ud800'; must be Unicode"),
    (lambda: normjit.compile(None), "spec: is NoneType; must be a str"),
    (lambda: normjit.compile(SPEC.encode()), "spec: is bytes; must be a str"),
    (lambda: normjit.compile(SPEC, None), "target: is NoneType; must be a str"),
    (lambda: normjit.compile(SPEC, schedule=3), "schedule: is int; must be a str"),
    (lambda: normjit.info(0), "spec: is int; must be a str"),
    (lambda: normjit.tune(None, "r"), "shapes: is NoneType; must be a path"),
    (lambda: normjit.tune("a", 3), "output: is int; must be a path"),
    (lambda: normjit.tune("a", "r", device=None), "device: is NoneType; must be a str"),
    (lambda: normjit.tune("a", "r", budget=10), "budget: is int; must be a str"),
    (lambda: normjit.info("layernorm\0"), r"spec: 'layernorm\x00'; must not contain a NUL"),
    (lambda: normjit.info(SPEC, target="\0"), r"target: '\x00'; must not contain a NUL"),
    (lambda: normjit.tune("a\0", "r"), r"shapes: 'a\x00'; must not contain a NUL"),
    (lambda: normjit.tune("a", b"r\0"), r"output: 'r\x00'; must not contain a NUL"),
    (lambda: normjit.tune("a", "r", device="cpu\0"), r"device: 'cpu\x00'; must not contain a NUL"),
    (lambda: normjit.tune("a", "r", budget="1\0s"), r"budget: '1\x00s'; must not contain a NUL"),
])
def test_texts(call, message):
    with pytest.raises(normjit.InvalidArgument) as raised:
        call()
    assert str(raised.value) == message


def test_tune(tmp_path):
    shapes, records = tmp_path / "shapes.txt", tmp_path / "records.jsonl"
    shapes.write_text("rmsnorm rows=8 cols=64\n")
    normjit.tune(shapes, records, budget="1s")
    assert '"rmsnorm rows=8 cols=64"' in records.read_text()
    with pytest.raises(normjit.InvalidArgument) as raised:
        normjit.tune(tmp_path / "none.txt", records)
    assert str(raised.value) == f"{tmp_path / 'none.txt'}: cannot be opened: No such file or directory"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_tune_shows_its_messages(tmp_path, is_terminal):
    """Messages are shown as they arrive; progress only on a terminal. The exception has the reason in either case."""
    (tmp_path / "shapes.txt").write_text("rmsnorm rows=8 cols=64\n")
    code = "import normjit; normjit.tune('shapes.txt', 'r.jsonl', budget='1s'); normjit.tune('none.txt', 'r.jsonl')"
    read, write = os.openpty() if is_terminal else os.pipe()
    plain = {**os.environ, "NO_COLOR": "1"}  # for the traceback, which Python 3.13 colours on a terminal
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=write, env=plain)
    os.close(write)
    said = b""
    with contextlib.suppress(OSError):  # a terminal ends this way
        while part := os.read(read, 4096):
            said += part
    os.close(read)
    assert process.wait() == 1 and bool(re.search(rb"\r\x1b\[K +\d+ %  ", said)) == is_terminal
    reason = b"none.txt: cannot be opened: No such file or directory"
    assert b"error: " + reason in said and b"InvalidArgument: " + reason in said


def test_import_takes_few_modules():
    """The import takes milliseconds, because numpy, torch and the modules for processes are imported when first
    used."""
    done = run("-c", "import sys, normjit; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert not {"numpy", "torch", "json", "subprocess", "typing", "inspect", "pathlib"} & set(done.stdout.split())


def test_not_built(tmp_path):
    """Sources without libraries say what is missing."""
    shutil.copytree(pathlib.Path(normjit.__file__).parent, tmp_path / "normjit", ignore=shutil.ignore_patterns("*.so"))
    done = run("-S", "-c", "import normjit", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})  # -S: no other package
                                                                                               # either
    assert "ImportError: normjit is not built" in done.stderr


def test_libraries_in_another_folder(tmp_path):
    """`pip install -e` gives the package two folders: one with the sources, and one with the libraries."""
    from normjit import _library

    sources = tmp_path / "normjit"
    shutil.copytree(pathlib.Path(normjit.__file__).parent, sources, ignore=shutil.ignore_patterns("*.so"))
    code = f"""if True:
        import importlib.util, sys
        folders = {[str(sources), _library.FOLDER]!r}
        start = folders[0] + "/__init__.py"
        spec = importlib.util.spec_from_file_location("normjit", start, submodule_search_locations=folders)
        sys.modules["normjit"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["normjit"])
        import normjit
        print(normjit.__file__, normjit.__version__)"""
    done = run("-c", code)
    assert done.stdout.split() == [str(sources / "__init__.py"), normjit.__version__], done.stderr


def test_kernels_wheel(tmp_path):
    """Compiled kernels can be a separate package: pip installs it next to normjit, and the library finds it."""
    tool = str(pathlib.Path(__file__).parents[3] / "tools/kernels_wheel.py")
    specs = run(tool, "specs").stdout.splitlines()
    assert len(specs) == len(set(specs)) > 200 and "rmsnorm rows=~4096 cols=4096 x=bf16" in specs
    (tmp_path / "specs.txt").write_text("\n".join(specs[:20]))
    pack, site = str(tmp_path / "x86-64:4.pack"), tmp_path / "site"
    for words in (["cache", "fill", str(tmp_path / "specs.txt")], ["cache", "pack", "-o", pack]):
        done = run("-m", "normjit", *words, "--dir", str(tmp_path / "warm"))
        assert done.returncode == 0, done.stderr
    wheel = run(tool, "wheel", pack, "-o", str(tmp_path)).stdout.split(":")[0]
    done = run("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site), wheel)
    if "No module named pip" in done.stderr:
        pytest.skip("no pip")
    assert done.returncode == 0, done.stderr
    installed = site / "normjit_kernels/x86_64_4.pack"
    assert installed.read_bytes() == pathlib.Path(pack).read_bytes()
    told = f"import os; from normjit import _library; _library.name_packs({str(site / 'normjit_kernels')!r}); " \
        "print(os.environ.get('NORMJIT_CACHE_PACKS'))"
    assert run("-c", told).stdout.strip() == str(installed)
    named = run("-c", told, env={**os.environ, "NORMJIT_CACHE_PACKS": "mine.pack"})
    assert named.stdout.strip() == "mine.pack"
