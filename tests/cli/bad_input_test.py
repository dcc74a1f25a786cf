# SPDX-License-Identifier: Apache-2.0
"""Every bad input gets one clear line and the exit code of its kind, and leaves nothing behind. Runs the real program.

    bad_input_test.py PROGRAM [unittest's arguments]
"""
import os
import random
import struct
import subprocess
import unittest

import program
from program import COMMANDS, NORMS, Case, f32, normjit, small_problem, tensor_file


class BadSpec(Case):
    def refused_by_all(self, message, text):
        for command in COMMANDS:
            self.refused(2, message, command, text)

    def test_keys_and_values(self):
        self.refused_by_all(
            "spec: unknown key 'colour'; allowed: pass slices rows cols out accumulate per_slice source stats rounding eps"
            " gamma_offset invariant x dy dresidual residual gamma beta rowscale y h dx dresidual_in dgamma dbeta amax",
            "layernorm rows=4 cols=8 colour=red",
        )
        self.refused_by_all("spec: x=q4: allowed: f32 bf16 f16 f64", "layernorm rows=4 cols=8 x=q4")
        self.refused_by_all("spec: cols=0: must be at least 1", "layernorm rows=4 cols=0")
        self.refused_by_all("spec: cols=-1: must be at least 1", "layernorm rows=4 cols=-1")
        self.refused_by_all(f"spec: norm 'batchnorm': allowed: {' '.join(NORMS)}", "batchnorm rows=4 cols=8")

    def test_what_cannot_be_combined(self):
        self.refused_by_all("spec: dy=f32: must be f64, as x is", "layernorm rows=4 cols=8 x=f64 dy=f32")
        self.refused_by_all(
            "spec: gamma=none: out has dgamma, the gradient of a gamma", "rmsnorm rows=4 cols=8 gamma=none out=dgamma"
        )

    def test_words_that_the_shell_has_split(self):
        self.refused_by_all_split("spec: x=q4: allowed: f32 bf16 f16 f64", "layernorm rows=4 cols=8 x=q4")

    def refused_by_all_split(self, message, text):
        for command in COMMANDS:
            self.refused(2, message, command, *text.split())

    def test_rows_are_needed_to_run(self):
        for command in ["run", "bench"]:
            self.refused(2, "spec: rows is missing: the number of rows to make, at least 0", command, "layernorm cols=8")

    def test_schedule(self):
        spec, schedule = "layernorm rows=4 cols=8", ["--schedule", "cpu row_block=100"]
        for command, prefix in [("run", ""), ("compile", ""), ("bench", spec + ": ")]:
            self.refused(2, prefix + "schedule: row_block=100: must be 1 to 64", command, spec, *schedule)
            self.refused(2, "schedule: the text is empty", command, spec, "--schedule", " ")

    def test_artifact(self):
        spec = "rmsnorm rows=4 cols=8"
        self.refused(2, "k: cannot be opened: No such file or directory", "run", spec, "--artifact", self.folder / "k")
        self.refused(2, "k: artifact: version: does not start with 'normjit-artifact 1'", "run", spec, "--artifact", self.file(b"", "k"))
        self.refused(
            2, "--artifact has a schedule: --schedule is not allowed", "run", spec, "--artifact", "k", "--schedule", "cpu"
        )

    def test_more_memory_than_there_is(self):
        result = normjit("run", "layernorm rows=1000000000 cols=1000000")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(
            result.stderr, r"^error: the tensors of rows=1000000000 cols=1000000 take 10.7 PiB; this machine has .*iB\n$"
        )


class BadFile(Case):
    def refused_file(self, message, content, *words):
        self.refused(2, message, "run", "--input", self.file(content), *words)

    def refused_with(self, message, changes, *words, **options):
        tensors = {name: tensor for name, tensor in (small_problem() | changes).items() if tensor}
        self.refused_file("t.safetensors: " + message, tensor_file(tensors, **options), *words)

    def test_no_file(self):
        self.refused(2, "no.file: cannot be opened: No such file or directory", "run", "--input", "no.file")
        self.refused(2, "/: is a folder, not a safetensors file", "run", "--input", "/")

    def test_header(self):
        self.refused_file("t.safetensors: 3 bytes are too few for a safetensors file", b"abc")
        self.refused_file(
            "t.safetensors: announces a header of 8319104478870335331 bytes, but 12 follow: truncated, or not a safetensors file",
            b"compress" + b"ed nonsense!",
        )
        self.refused_file("t.safetensors: the header is not valid JSON at its byte 3", struct.pack("<Q", 2) + b"{ ")
        huge = b'{"x":1e999}'
        self.refused_file(
            "t.safetensors: the header has a number beyond the range of a double", struct.pack("<Q", len(huge)) + huge
        )
        whole = tensor_file(small_problem())
        self.refused_file(
            't.safetensors: tensor "rstd": its data ends at byte 56, the file ends at 55: truncated?', whole[:-1]
        )

    def test_header_that_lies(self):
        edits = lambda **edit: {"header_edits": {"dy": edit}}
        self.refused_with('tensor "dy": its shape takes 32 bytes, its offsets span 16', {}, **edits(shape=[4, 2]))
        self.refused_with('tensor "x": its data overlaps another tensor\'s', {}, **edits(data_offsets=[0, 16]))
        self.refused_with('tensor "dy": dtype "F33" is not one of the format', {}, **edits(dtype="F33"))
        self.refused_with(
            'tensor "dy": its shape has more elements than any file can have', {}, **edits(shape=[1 << 40, 1 << 40])
        )

    def test_tensors_that_do_not_fit(self):
        four = f32(1, 2, 3, 4)
        self.refused_with(
            'tensor "dy": shape [1, 1, 4] must be that of x, [1, 2, 2]', {"dy": ("F32", [1, 1, 4], four)}
        )
        self.refused_with('tensor "gamma": shape [4] must be [2], the columns of x', {"gamma": ("F32", [4], four)})
        self.refused_with('tensor "rstd": shape [4] must have 2 elements, the rows of x', {"rstd": ("F32", [4], four)})
        self.refused_with('tensor "mean": has stats=bf16, not f32', {"mean": ("BF16", [2], four[:4])})
        self.refused_with('tensor "x": dtype I32 is not one of F64, F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0, I8', {"x": ("I32", [1, 2, 2], four)})
        self.refused_with('tensor "x": shape [2, 0] has no columns', {"x": ("F32", [2, 0], b"")})

    def test_tensors_that_are_missing(self):
        problem = "has no problem: a problem is a tensor dy with x, xhat or y, named so or <name>.dy, <name>.x; "
        problem += "with pass=forward a tensor x"
        self.refused_with(problem, {"dy": None})
        self.refused_with(problem, {"x": None})
        self.refused_with('source=y: there is no tensor "y"', {}, "source=y")
        self.refused_with('dresidual=f32: there is no tensor "dresidual"', {}, "dresidual=f32")
        self.refused_with('stats=saved: there is no tensor "rstd"', {"rstd": None}, "stats=saved")
        self.refused_with(
            "no mean tensor says that this is a layernorm: add norm=layernorm or norm=rmsnorm", {"mean": None}
        )

    def test_words(self):
        self.refused_with('tensor "x": has x=f32, not bf16', {}, "x=bf16")
        self.refused_with('tensor "x": has rows=2, not 5', {}, "rows=5")
        self.refused_with("spec: dgamma=q4: allowed: f32 bf16 f16 f64", {}, "dgamma=q4")
        self.refused_with(f"spec: norm 'colour': allowed: {' '.join(NORMS)}", {}, "colour")
        self.refused_with(f"spec: norm 'layernrom': allowed: {' '.join(NORMS)}; did you mean 'layernorm'?", {}, "norm=layernrom")
        twice = tensor_file(small_problem())
        self.refused_file("spec: 'colour' is not of the form key=value", twice, "rmsnorm", "colour")
        self.refused_file("spec: eps=2: eps was given before as 1", twice, "eps=1", "eps=2")
        self.refused_with(
            'metadata "spec": norm=rmsnorm: the norm is given twice', {}, metadata={"spec": "rmsnorm norm=rmsnorm"}
        )

    def test_a_message_is_one_line_whatever_a_name_holds(self):
        result = normjit("run", "--input", self.file(tensor_file({"a\nb\x1b": ("F31", [1], f32(1))})))
        self.assertEqual(result.returncode, 2)
        self.assertTrue(result.stderr.endswith('tensor "a\\x0ab\\x1b": dtype "F31" is not one of the format\n'))

    def test_the_name_of_a_problem_is_printed_on_one_line(self):
        problem = {f"a\nb\x1b.{name}": tensor for name, tensor in small_problem().items()}
        result = normjit("run", "--input", self.file(tensor_file(problem)))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[0], "a\\x0ab\\x1b")

    def test_no_bytes_end_in_a_crash(self):
        generator = random.Random(20)
        whole = tensor_file(small_problem(), {"spec": "layernorm eps=1e-5"})
        for _ in range(150):
            content = bytearray(whole)
            for _ in range(generator.randint(1, 3)):
                at = generator.randrange(len(content))
                edit = generator.randrange(3)
                if edit == 0:
                    content[at] = generator.choice(b'{}[]",:0123456789.-xyF')
                elif edit == 1:
                    content[at] = generator.randrange(256)
                else:
                    del content[at : at + generator.randint(1, 3)]
            result = normjit("run", "--input", self.file(content))
            self.assertIn(result.returncode, [0, 2], content)
            if result.returncode == 2:
                self.assertRegex(result.stderr, r"^error: [^\n]+\n$")


class BadOutput(Case):
    def test_nothing_is_left_behind(self):
        problem = self.file(tensor_file(small_problem()))
        run = ["run", "--input", problem, "--output"]
        self.refused(2, "no/g: cannot be written: No such file or directory", *run, self.folder / "no" / "g")
        self.refused(2, "t.safetensors/g: cannot be written: Not a directory", *run, problem / "g")
        (self.folder / "folder").mkdir()
        self.refused(2, "folder: cannot be written: it is a folder", *run, self.folder / "folder")
        compile_to = ["compile", "rmsnorm cols=8", "--emit", "ir", "-o", self.folder / "no" / "k"]
        self.refused(2, "no/k: cannot be written: No such file or directory", *compile_to)
        bench_to = ["bench", "rmsnorm rows=4 cols=8", "--json", self.folder / "no" / "j"]
        self.refused(2, "no/j: cannot be written: No such file or directory", *bench_to)

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_folder_without_permission(self):
        problem = self.file(tensor_file(small_problem()))
        locked = self.folder / "locked"
        locked.mkdir(0o555)
        arguments = ["run", "--input", problem, "--output", locked / "g"]
        self.refused(2, "locked/g: cannot be written: Permission denied", *arguments)

    def test_a_pipe_gets_the_output(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        problem = self.file(tensor_file(small_problem()))
        for writes in [["run", "--input", problem, "--output", pipe], ["bench", "rmsnorm rows=4 cols=8", "--json", pipe]]:
            with subprocess.Popen(["timeout", "60", "cat", pipe], stdout=subprocess.PIPE) as reader:
                result = normjit(*writes)
                output, _ = reader.communicate()
            self.assertEqual((result.returncode, b"dgamma" in output or b"planned" in output), (0, True), result.stderr)

    def test_output_without_input(self):
        message = "--output needs --input: generated data is not written"
        self.refused(2, message, "run", "layernorm rows=4 cols=8", "--output", self.folder / "g")

class BadDevice(Case):
    def test_names(self):
        for command in ["run", "bench"]:
            for device in ["tpu", "CUDA:0", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999"]:
                result = normjit(command, "layernorm rows=4 cols=8", "--device", device)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, rf"^error: --device {device}: must be cpu or cuda:<number>; available: cpu")

    def test_what_else_is_wrong_is_told(self):
        result = normjit("bench", "layernorm rows=4 cols=8", "--device", "cuda:0", env=os.environ | {"NORMJIT_THREADS": "x"})
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, "^error: --device cuda:0: [^;]*NORMJIT_THREADS")


class Unavailable(Case):
    def test_devices(self):
        for command in ["run", "bench"]:
            for device in ["cuda", "cuda:0"]:
                result = normjit(command, "layernorm rows=4 cols=8", "--device", device)
                if result.returncode != 0:  # this build or machine does not have it
                    self.assertEqual(result.returncode, 3)
                    self.assertRegex(result.stderr, rf"^error: --device {device}: [^\n]+; available: cpu\n$")

    def test_no_disassembler(self):
        if program.has_llvm():
            self.skipTest("LLVM disassembles")
        arguments = ["compile", "rmsnorm cols=8", "--target", "x86-64-avx512", "--emit", "asm"]
        message = "--emit asm needs objdump (binutils): No such file or directory"
        self.refused(3, message, *arguments, env={"PATH": "/nowhere"})


if __name__ == "__main__":
    program.main()
