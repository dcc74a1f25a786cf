# SPDX-License-Identifier: Apache-2.0
# needs: pytest
"""Compares the structs and numbers of normjit/_library.py with normjit.h, as a compiler sees it."""
import ctypes
import os
import pathlib
import re
import subprocess

from normjit import _library
import pytest

HEADER = pathlib.Path(__file__).parents[2] / "include" / "normjit" / "normjit.h"
STRUCTS = {
    "normjit_spec": _library.Spec,
    "normjit_engine_options": _library.EngineOptions,
    "normjit_prepare_options": _library.PrepareOptions,
    "normjit_argument": _library.Argument,
    "normjit_arguments": _library.Arguments,
    "normjit_parallel_for": _library._Hook,
    "normjit_log": _library._Hook,
    "normjit_allocator": _library._Allocator,
}


def fields_of(struct):
    """Returns the names in the header, in order."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.DOTALL)[1]
    return [
        re.search(r"\(\*(\w+)\)|(\w+)(\[\w+\])?$", line.strip()).group(1, 2) for line in body.split(";") if line.strip()
    ]


def evaluate(tmp_path, expressions):
    """Compiles C expressions that use normjit.h, and returns their values, which are integers."""
    program = tmp_path / "numbers"
    lines = "".join(f'    printf("%lld\\n", (long long)({each}));\n' for each in expressions)
    source = f'#include <normjit/normjit.h>\n#include <stdio.h>\nint main(void) {{\n{lines}    return 0;\n}}\n'
    subprocess.run([os.environ.get("CC", "cc"), "-x", "c++", "-", f"-I{HEADER.parents[1]}", "-o", program],
                   input=source.encode(), check=True)
    return [int(line) for line in subprocess.run([program], capture_output=True, check=True).stdout.split()]


@pytest.mark.parametrize("struct", STRUCTS)
def test_struct(struct, tmp_path):
    mirror = STRUCTS[struct]
    names = [a or b for a, b in fields_of(struct)]
    size = f"sizeof({struct})"
    if mirror is _library.EngineOptions:  # it has the first fields only; its size says so
        names, rest = names[: len(mirror._fields_)], names[len(mirror._fields_) :]
        size = f"offsetof({struct}, {rest[0]})"
    assert len(names) == len(mirror._fields_)
    if mirror is not _library._Hook:
        assert names == [name for name, _ in mirror._fields_]
    wanted = [size]
    for name in names:
        wanted += [f"offsetof({struct}, {name})", f"sizeof((({struct}*)0)->{name})"]
    got = [ctypes.sizeof(mirror)]
    for name, _ in mirror._fields_:
        got += [getattr(mirror, name).offset, getattr(mirror, name).size]
    assert got == evaluate(tmp_path, wanted)


def test_numbers(tmp_path):
    names = [f"NORMJIT_{name.upper()}" for name in _library.TENSORS + _library.DTYPES + _library.NORMS]
    names += [f"NORMJIT_ROUNDING_{name.upper()}" for name in _library.ROUNDINGS] + ["NORMJIT_FORWARD"]
    names += [
        "NORMJIT_TENSORS",
        "NORMJIT_NONE",
        "NORMJIT_INVALID_ARGUMENT",
        "NORMJIT_UNAVAILABLE",
        "NORMJIT_STATS_RECOMPUTE",
    ]
    numbers = [*range(len(_library.TENSORS)), *range(len(_library.DTYPES)), *range(len(_library.NORMS))]
    numbers += [*range(len(_library.ROUNDINGS)), 1]
    numbers += [_library.ROOM_FOR_TENSORS, _library.NO_DTYPE, 1, 2, 1]
    assert evaluate(tmp_path, names) == numbers
