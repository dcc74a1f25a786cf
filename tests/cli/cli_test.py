#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the program as a user does: exit codes, the exact line of every refusal, what it prints and writes.

    tests/cli/cli_test.py PATH/TO/normjit [unittest arguments]
"""
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "data" / "sample.safetensors"
COMMANDS = ["run", "compile", "bench", "info"]


def normjit(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


def f32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def tensor_file(tensors, metadata=None, header_edits=None):
    """The bytes of a safetensors file. tensors: name -> (dtype, shape, data)."""
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
    """layernorm of two rows whose gradients are known: mean 2 and 0, rstd 1."""
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
        """One line on stderr, nothing on stdout, nothing left in the folder."""
        before = sorted(self.folder.iterdir())
        result = normjit(*arguments, **options)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual(result.stderr.replace(str(self.folder) + "/", ""), f"error: {message}\n")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def done(self, *arguments, **options):
        result = normjit(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout


class Help(Case):
    def test_every_command_has_help_with_examples(self):
        for name in COMMANDS:
            self.assertRegex(self.done("--help"), rf"\n  {name}  +\S")
            text = self.done(name, "--help")
            self.assertIn(f"Examples:\n  normjit {name}", text)
            self.assertIn("--json", text)
        self.assertIn("Exit codes: 0 done; 1 it ran and failed; 2 bad input or usage; 3", self.done("--help"))

    def test_version(self):
        self.assertRegex(self.done("--version"), r"^normjit \d+\.\d+\.\d+\n$")

    def test_usage_errors(self):
        commands = "allowed: run compile bench info (see normjit --help)"
        self.refused(2, f"no command; {commands}")
        self.refused(2, f"unknown command 'paint'; {commands}", "paint")
        self.refused(2, "The following argument was not expected: --colour (see normjit run --help)", "run", "--colour")
        self.refused(2, "--threads: Value 0 not in range 1 to 1024 (see normjit run --help)", "run", "--threads", "0")
        self.refused(2, "nothing to run: give --input FILE or a spec (see normjit run --help)", "run")
        self.refused(2, "nothing to compile: give a spec (see normjit compile --help)", "compile")
        self.refused(2, "nothing to measure: give a shapes file or a spec (see normjit bench --help)", "bench")


class BadSpec(Case):
    def refused_by_all(self, message, text):
        for command in COMMANDS:
            self.refused(2, message, command, text)

    def test_keys_and_values(self):
        self.refused_by_all(
            "spec: unknown key 'colour'; allowed: rows cols x dy dresidual gamma beta dx dgamma dbeta out source stats eps"
            " gamma_offset",
            "layernorm rows=4 cols=8 colour=red",
        )
        self.refused_by_all("spec: x=q4: allowed: f32 bf16 f16 f64", "layernorm rows=4 cols=8 x=q4")
        self.refused_by_all("spec: cols=0: must be at least 1", "layernorm rows=4 cols=0")
        self.refused_by_all("spec: cols=-1: must be at least 1", "layernorm rows=4 cols=-1")
        self.refused_by_all("spec: norm 'batchnorm': allowed: layernorm rmsnorm", "batchnorm rows=4 cols=8")

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
            "t.safetensors: claims a header of 8319104478870335331 bytes, 12 follow: truncated, or no safetensors file",
            b"compress" + b"ed nonsense!",
        )
        self.refused_file("t.safetensors: the header is not valid JSON at its byte 3", struct.pack("<Q", 2) + b"{ ")
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
            'tensor "dy": its shape has more elements than any file can hold', {}, **edits(shape=[1 << 40, 1 << 40])
        )

    def test_tensors_that_do_not_fit(self):
        four = f32(1, 2, 3, 4)
        self.refused_with(
            'tensor "dy": shape [1, 1, 4] must be that of x, [1, 2, 2]', {"dy": ("F32", [1, 1, 4], four)}
        )
        self.refused_with('tensor "gamma": shape [4] must be [2], the columns of x', {"gamma": ("F32", [4], four)})
        self.refused_with('tensor "rstd": shape [4] must have 2 elements, the rows of x', {"rstd": ("F32", [4], four)})
        self.refused_with('tensor "mean": has stats=bf16, not f32', {"mean": ("BF16", [2], four[:4])})
        self.refused_with('tensor "x": dtype I32 is not one of F64, F32, F16, BF16', {"x": ("I32", [1, 2, 2], four)})
        self.refused_with('tensor "x": shape [2, 0] has no columns', {"x": ("F32", [2, 0], b"")})

    def test_tensors_that_are_missing(self):
        problem = "holds no problem: a problem is a tensor dy beside x, xhat or y, alone or as <group>.dy, <group>.x"
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
        self.refused_file('"colour" is not a key=value word', tensor_file(small_problem()), "colour")
        self.refused_with('metadata "spec": norm is given twice', {}, metadata={"spec": "rmsnorm norm=rmsnorm"})

    def test_a_message_is_one_line_whatever_a_name_holds(self):
        result = normjit("run", "--input", self.file(tensor_file({"a\nb\x1b": ("F31", [1], f32(1))})))
        self.assertEqual(result.returncode, 2)
        self.assertTrue(result.stderr.endswith('tensor "a\\x0ab\\x1b": dtype "F31" is not one of the format\n'))

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

    def test_output_without_input(self):
        message = "--output goes with --input: data made from a seed is not written"
        self.refused(2, message, "run", "layernorm rows=4 cols=8", "--output", self.folder / "g")


class Unavailable(Case):
    def test_devices(self):
        for command in ["run", "bench"]:
            for device in ["cuda", "cuda:0"]:
                result = normjit(command, "layernorm rows=4 cols=8", "--device", device)
                if result.returncode != 0:  # a build or a machine without it
                    self.assertEqual(result.returncode, 3)
                    self.assertRegex(result.stderr, rf"^error: --device {device}: [^\n]+; available: cpu\n$")
            message = "--device tpu: no such device; available: cpu"
            self.refused(3, message, command, "layernorm rows=4 cols=8", "--device", "tpu")

    def test_no_disassembler(self):
        arguments = ["compile", "rmsnorm cols=8", "--target", "x86-64-avx512", "--emit", "asm"]
        message = "--emit asm needs objdump (binutils): No such file or directory"
        self.refused(3, message, *arguments, env={"PATH": "/nowhere"})


def layernorm_gradients(x, dy, gamma, mean, rstd):
    """Plain lists of rows; the formula of the design."""
    cols = len(gamma)
    dx, dgamma, dbeta = [], [0.0] * cols, [0.0] * cols
    for x_row, dy_row, m, r in zip(x, dy, mean, rstd):
        xhat = [(value - m) * r for value in x_row]
        g = [d * scale for d, scale in zip(dy_row, gamma)]
        c1, c2 = sum(a * b for a, b in zip(g, xhat)) / cols, sum(g) / cols
        dx.append([r * (g[j] - xhat[j] * c1 - c2) for j in range(cols)])
        dgamma = [dgamma[j] + dy_row[j] * xhat[j] for j in range(cols)]
        dbeta = [dbeta[j] + dy_row[j] for j in range(cols)]
    return dx, dgamma, dbeta


class Run(Case):
    def gradients(self, tensors, *words, metadata=None):
        output = self.folder / "g.safetensors"
        self.done("run", "--input", self.file(tensor_file(tensors, metadata)), "--output", output, "--check", *words)
        return read_tensors(output)

    def test_gradients_of_a_file(self):
        dx, dgamma, dbeta = layernorm_gradients([[1, 3], [-1, 1]], [[1, 0], [0, 2]], [1, 1], [2, 0], [1, 1])
        tensors, metadata = self.gradients(small_problem())
        self.assertEqual(tensors["dx"], ("F32", [1, 2, 2], f32(*dx[0], *dx[1])))
        self.assertEqual(tensors["dgamma"], ("F32", [2], f32(*dgamma)))
        self.assertEqual(tensors["dbeta"], ("F32", [2], f32(*dbeta)))
        self.assertEqual(metadata["spec"], "layernorm rows=2 cols=2")

    def test_words_choose_outputs_and_types(self):
        tensors, _ = self.gradients(small_problem(), "out=dx,dgamma", "dgamma=bf16")
        self.assertEqual({name: tensor[0] for name, tensor in tensors.items()}, {"dx": "F32", "dgamma": "BF16"})

    def test_missing_statistics_are_computed(self):
        problem = small_problem()
        del problem["mean"], problem["rstd"]
        _, metadata = self.gradients(problem, "norm=layernorm", "eps=0.25")
        self.assertEqual(metadata["spec"], "layernorm rows=2 cols=2 stats=recompute eps=0.25")

    def test_groups_and_metadata(self):
        problem = small_problem()
        tensors = {f"a.b.{name}": tensor for name, tensor in problem.items()}
        tensors |= {f"c.{name}": problem[name] for name in ["x", "dy", "rstd"]}
        gradients, metadata = self.gradients(tensors, metadata={"c.spec": "norm=rmsnorm eps=1e-6"})
        self.assertEqual(sorted(gradients), ["a.b.dbeta", "a.b.dgamma", "a.b.dx", "c.dx"])
        self.assertEqual(metadata["c.spec"], "rmsnorm rows=2 cols=2 gamma=none")

    def test_no_rows(self):
        nothing = ("F32", [0, 2], b"")
        tensors, _ = self.gradients({"x": nothing, "dy": nothing, "gamma": ("F32", [2], f32(1, 1))}, "norm=rmsnorm")
        self.assertEqual(tensors["dx"], nothing)
        self.assertEqual(tensors["dgamma"], ("F32", [2], f32(0, 0)))

    def test_a_misspelt_tensor_is_noticed(self):
        tensors = small_problem()
        tensors["gama"] = tensors.pop("gamma")
        result = normjit("run", "--input", self.file(tensor_file(tensors)))
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, f'note: {self.folder}/t.safetensors: tensor "gama" is not used\n')

    def test_a_framework_that_differs_fails_the_check(self):
        tensors = small_problem() | {"expected.dbeta": ("F32", [2], f32(1, 2.5))}
        result = normjit("run", "--input", self.file(tensor_file(tensors)))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "error: 1 of 3 gradients are outside their tolerance, the first is dbeta\n")
        self.assertIn("DIFFERS", result.stdout)

    def test_an_output_is_replaced_whole(self):
        output = self.folder / "g.safetensors"
        output.write_bytes(b"something else" * 1000)
        self.done("run", "--input", self.file(tensor_file(small_problem())), "--output", output)
        self.assertEqual(sorted(read_tensors(output)[0]), ["dbeta", "dgamma", "dx"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["g.safetensors", "t.safetensors"])

    def test_made_data(self):
        for text in [
            "layernorm rows=33 cols=257 x=bf16 gamma=f32",
            "rmsnorm rows=5 cols=1000 x=f16 stats=recompute",
            "rmsnorm rows=7 cols=1 out=dx",
            "layernorm rows=0 cols=9",
        ]:
            self.assertIn("right", self.done("run", text, "--check", "--seed", "7"))
            result = json.loads(self.done("run", text, "--check", "--json"))["results"][0]
            self.assertTrue(all(output["ours"]["holds"] for output in result["outputs"].values()))


class Sample(Case):
    def test_matches_the_framework(self):
        text = self.done("run", "--input", SAMPLE, "--check")
        self.assertNotIn("WRONG", text)
        self.assertNotIn("DIFFERS", text)
        self.assertEqual(len(re.findall(r" matches( to bf16)?\n", text)), 15)

    def test_json(self):
        results = json.loads(self.done("run", "--input", SAMPLE, "--json"))["results"]
        self.assertEqual(len(results), 6)
        for result in results:
            self.assertGreater(result["median_seconds"], 0)
            for output in result["outputs"].values():
                self.assertTrue(output["ours"]["holds"] and output["framework"]["holds"])
                if output["ours"]["type"] == "bf16":
                    self.assertLess(output["ours"]["ulp"], 0.51)


class Compile(Case):
    SPEC = "layernorm cols=300 x=bf16 gamma=f32"
    TARGET = ["--target", "x86-64-avx512"]

    def test_every_stage(self):
        for stage in self.done("compile", "--emit", "list").split():
            if stage == "asm" and not shutil.which("objdump"):
                continue
            text = self.done("compile", self.SPEC, *self.TARGET, "--emit", stage)
            path = self.folder / "stage"
            self.assertEqual(self.done("compile", self.SPEC, *self.TARGET, "--emit", stage, "-o", path), "")
            self.assertEqual(path.read_text(), text)
            as_json = json.loads(self.done("compile", self.SPEC, *self.TARGET, "--emit", stage, "--json"))
            self.assertEqual(as_json, {"stage": stage, "text": text})

    def test_what_the_stages_show(self):
        emit = lambda stage: self.done("compile", self.SPEC, *self.TARGET, "--emit", stage)
        self.assertIn("row_mean(g * xhat)", emit("ir"))
        self.assertIn("partial_accumulate", emit("ir:split_column_sums"))
        self.assertIn("phase final_reduce", emit("plan"))
        self.assertRegex(emit("schedule"), r"^cpu row_groups=\d+")
        self.assertTrue(emit("artifact").startswith("normjit-artifact "))

    @unittest.skipUnless(shutil.which("objdump"), "no objdump")
    def test_assembly(self):
        text = self.done("compile", self.SPEC, *self.TARGET, "--emit", "asm")
        for label in ["rows:", "final_reduce:"]:
            self.assertIn(label, text.splitlines())
        self.assertRegex(text, r"vfn?madd\w+ +zmm")
        self.assertRegex(text, r"zmm\d+\{k\d\}")

    def test_unknown_stage(self):
        result = normjit("compile", self.SPEC, "--emit", "soup")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^error: --emit soup: allowed: list ir .* artifact\n$")

    def test_summary(self):
        facts = json.loads(self.done("compile", self.SPEC, *self.TARGET, "--json"))
        self.assertEqual(facts["spec"], self.SPEC)
        self.assertIn("rows", facts["entries"])
        self.assertIn("compile_seconds", json.loads(self.done("compile", self.SPEC, "--time", "--json")))


class Bench(Case):
    SPEC = "rmsnorm rows=64 cols=96"

    def test_shapes_file(self):
        shapes = self.file(f"# shapes\n\n{self.SPEC}  # narrow\nlayernorm rows=4 cols=300 x=bf16\n".encode(), "shapes.txt")
        results = json.loads(self.done("bench", shapes, "--seconds", "0.01", "--threads", "1,all", "--json", "-"))["results"]
        self.assertEqual([result["spec"] for result in results], [self.SPEC] * 2 + ["layernorm rows=4 cols=300 x=bf16"] * 2)
        self.assertEqual(results[0]["threads"], 1)
        self.assertEqual(results[0]["bytes"], 3 * 64 * 96 * 4)
        self.assertGreater(results[0]["share"], 0)

    def test_table_and_json_file(self):
        path = self.folder / "out.json"
        text = self.done("bench", self.SPEC, "--seconds", "0.01", "--json", path)
        self.assertEqual(text.split("\n")[0].split(), ["spec", "threads", "time", "GB/s", "ceiling", "share"])
        self.assertEqual(len(json.loads(path.read_text())["results"]), 1)

    def test_the_line_of_a_bad_shape_is_named(self):
        shapes = self.file(b"rmsnorm rows=4 cols=8\nrmsnorm rows=4\n", "shapes.txt")
        message = "shapes.txt:2: spec: cols is missing: the number of columns, at least 1"
        self.refused(2, message, "bench", shapes)
        self.refused(2, "--threads x: allowed: 1..1024, all", "bench", self.SPEC, "--threads", "1,x")


class Info(Case):
    def test_program(self):
        facts = json.loads(self.done("info", "--json"))
        self.assertEqual([device["name"] for device in facts["devices"]], ["cpu", "cuda"])
        self.assertIn("environment", self.done("info"))

    def test_spec(self):
        facts = json.loads(self.done("info", "rmsnorm rows=10 cols=8 gamma=none", "--json"))
        self.assertEqual(facts["bytes_moved"], 3 * 10 * 8 * 4 + 10 * 4)
        self.assertIn("schedule", self.done("info", "rmsnorm cols=8", "--target", "x86-64-avx512"))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
