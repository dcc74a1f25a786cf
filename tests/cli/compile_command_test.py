# SPDX-License-Identifier: Apache-2.0
"""normjit compile: its output for every stage and every processor. Runs the real program.

    compile_command_test.py PROGRAM [unittest's arguments]
"""
import json
import pathlib
import os
import shutil

import program
from program import Case, has_llvm, normjit


class Compile(Case):
    SPEC = "layernorm cols=300 x=bf16 gamma=f32"
    TARGET = ["--target", "x86-64-avx512"]

    def test_every_stage(self):
        stages = self.done("compile", *self.TARGET, "--emit", "list").split()
        self.assertEqual(json.loads(self.done("compile", *self.TARGET, "--emit", "list", "--json")), {"stages": stages})
        for stage in stages:
            if stage == "artifact" or (stage == "asm" and not shutil.which("objdump")):
                continue  # an artifact is not text
            text = self.done("compile", self.SPEC, *self.TARGET, "--emit", stage)
            path = self.folder / "stage"
            self.assertEqual(self.done("compile", self.SPEC, *self.TARGET, "--emit", stage, "-o", path), "")
            self.assertEqual(path.read_text(), text)
            as_json = json.loads(self.done("compile", self.SPEC, *self.TARGET, "--emit", stage, "--json"))
            self.assertEqual(as_json, {"stage": stage, "text": text})

    def test_stages_of_a_gpu(self):
        target = ["--target", "sm_90"]
        stages = self.done("compile", *target, "--emit", "list").split()
        self.assertEqual([s for s in stages if s in ("asm", "cuda", "ptx", "sass")], ["cuda", "ptx", "sass"])
        source = self.done("compile", self.SPEC, *target, "--emit", "cuda")
        self.assertIn('extern "C" __global__', source)
        self.assertIn("// " + self.SPEC, source)

    def test_what_the_stages_show(self):
        emit = lambda stage: self.done("compile", self.SPEC, *self.TARGET, "--emit", stage)
        self.assertIn("row_mean(dxhat * xhat)", emit("ir"))
        self.assertIn("partial_accumulate", emit("ir:split_reductions"))
        self.assertIn("phase final_reduce", emit("plan"))
        self.assertRegex(emit("schedule"), r"^cpu row_groups=\d+")
        self.assertRegex(emit("reasons"), r"^row_block, prefetch, cache_columns: ")
        self.done("compile", self.SPEC, *self.TARGET, "--emit", "artifact", "-o", self.folder / "k")
        self.assertTrue((self.folder / "k").read_bytes().startswith(b"normjit-artifact 1\n"))
        message = "--emit artifact: writes bytes, which --json cannot show"
        self.refused(2, message, "compile", self.SPEC, *self.TARGET, "--emit", "artifact", "--json")

    def test_assembly(self):
        text = self.done("compile", self.SPEC, *self.TARGET, "--emit", "asm")
        for label in ["rows:", "final_reduce:"]:
            self.assertIn(label, text.splitlines())
        self.assertRegex(text, r"vfn?madd\w+\s+zmm")
        self.assertRegex(text, r"zmm\d+ ?\{k\d\}")

    def test_other_processors(self):
        if not has_llvm():
            return
        expected = {"x86-64-v3": r"vfmadd\w+\s+ymm", "x86-64": r"mulps\s+xmm", "aarch64": r"fmla\s+v"}
        for target, instruction in expected.items():
            arguments = ["compile", "rmsnorm cols=1000 x=f32", "--target", target, "--emit"]
            self.assertRegex(self.done(*arguments, "asm"), instruction)
            self.assertRegex(self.done(*arguments, "llvm"), r"define void @rows\(ptr %task\)")

    def test_back_ends(self):
        for backend in ["portable", "llvm"] if has_llvm() else ["portable"]:
            text = self.done("run", "layernorm rows=9 cols=33 x=bf16", "--backend", backend, "--check", "--threads", "1")
            self.assertRegex(text, rf"\d launches, 1 thread, {backend}")
            self.assertIn("right", text)

    def test_caps(self):
        for cap in ["avx512", "avx2", "sse", "portable"]:
            env = {**os.environ, "NORMJIT_ISA": cap}
            self.assertIn("right", self.done("run", "rmsnorm rows=9 cols=33 x=f16", "--check", env=env))
        message = "NORMJIT_ISA=mmx: allowed: machine avx512 avx2 sse portable"
        self.refused(2, message, "run", "rmsnorm rows=9 cols=33", env={**os.environ, "NORMJIT_ISA": "mmx"})

    def test_unknown_stage(self):
        result = normjit("compile", self.SPEC, "--emit", "soup")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^error: --emit soup: allowed for --target host: list ir .* artifact\n$")

    def test_the_formula_is_not_replaced(self):
        text = b"norm twice(x[M,N]) -> y[M,N]\n    y = x + x\n"
        path = self.file(text, "twice.norm")
        self.refused(2, "twice.norm: is already used by this command, and would be lost",
                     "compile", path, "cols=8", "-o", path)
        self.assertEqual(pathlib.Path(path).read_bytes(), text)

    def test_summary(self):
        facts = json.loads(self.done("compile", self.SPEC, *self.TARGET, "--json"))
        self.assertEqual(facts["spec"], self.SPEC)
        self.assertIn("rows", facts["entries"])
        self.assertIn("compile_seconds", json.loads(self.done("compile", self.SPEC, "--time", "--json")))


if __name__ == "__main__":
    program.main()
