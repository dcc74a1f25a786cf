# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share: it runs the program, and makes and reads tensor files without it."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "data" / "sample.safetensors"
NORMS_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "templates/norms"
LAYERS = ["layernorm", "rmsnorm"]
NORMS = [*LAYERS, *sorted(file.stem for file in NORMS_FOLDER.glob("*.norm") if file.stem not in LAYERS)]
COMMANDS = ["run", "compile", "bench", "tune", "info"]


def normjit(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


def has_llvm():
    """Returns whether the program was built with LLVM."""
    return "llvm" in normjit("compile", "--target", "aarch64", "--emit", "list").stdout.split()


def f32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def tensor_file(tensors, metadata=None, header_edits=None):
    """Returns the bytes of a safetensors file. tensors: name -> (dtype, shape, data)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, payload) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    for name, edit in (header_edits or {}).items():
        header[name] |= edit
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_tensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    payload = data[8 + length :]
    return {name: (t["dtype"], t["shape"], payload[slice(*t["data_offsets"])]) for name, t in header.items()}, metadata


def small_problem():
    """A layernorm of two rows whose gradients are known: the means are 2 and 0, and rstd is 1."""
    return {
        "x": ("F32", [1, 2, 2], f32(1, 3, -1, 1)),
        "dy": ("F32", [1, 2, 2], f32(1, 0, 0, 2)),
        "gamma": ("F32", [2], f32(1, 1)),
        "mean": ("F32", [1, 2], f32(2, 0)),
        "rstd": ("F32", [1, 2], f32(1, 1)),
    }


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, content, name="t.safetensors"):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def refused(self, code, message, *arguments, **options):
        """Checks that the program prints one line to stderr and nothing to stdout, and leaves nothing in the folder."""
        before = sorted(self.folder.iterdir())
        result = normjit(*arguments, **options)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual(result.stderr.replace(str(self.folder) + "/", ""), f"error: {message}\n")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def done(self, *arguments, **options):
        result = normjit(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout


def main():
    """Runs the tests of the script that calls it: SCRIPT PROGRAM [unittest's arguments]."""
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__")
