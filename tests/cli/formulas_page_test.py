# SPDX-License-Identifier: Apache-2.0
"""compiler/FORMULAS.md: its formulas, commands and output. Runs the real program.

    formulas_page_test.py PROGRAM [unittest's arguments]
"""
import os
import pathlib
import re
import shlex

import program
from program import Case, normjit

PAGE = pathlib.Path(__file__).resolve().parents[2] / "compiler/FORMULAS.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


class Page(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "gated.norm").write_text(BLOCKS[0][1])

    def in_folder(self, line):
        result = normjit(*shlex.split(line)[1:], cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""), line)
        return result.stdout

    def test_commands(self):
        lines = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
        self.assertGreaterEqual(len(lines), 4)
        for line in lines:
            seconds = " --seconds 0.01" if line.split()[1] == "bench" else ""
            output = self.in_folder(line + seconds)
            if "--check" in line:
                self.assertRegex(output, r" right\n")

    def test_the_formula_in_one_line_is_the_same(self):
        line = BLOCKS[1][1].strip()
        plan = self.in_folder("normjit compile gated.norm 'cols=8 gamma=f32' --emit plan")
        self.assertEqual(plan, self.done("compile", line + " cols=8 gamma=f32", "--emit", "plan"))

    def test_a_file_and_keys_in_one_text(self):
        keys = "rows=3 cols=8 gamma=f32"
        two_words = self.in_folder(f"normjit compile gated.norm '{keys}' --emit plan")
        self.assertEqual(self.in_folder(f"normjit compile 'gated.norm {keys}' --emit plan"), two_words)
        self.in_folder(f"normjit bench 'gated.norm {keys}' 'gated.norm rows=3 cols=9' --seconds 0.01")
        shapes = self.folder / "shapes.txt"
        shapes.write_text(f"gated.norm {keys}  # ours\n\ngated.norm rows=3 cols=9\r\n")
        table = self.in_folder("normjit bench shapes.txt --seconds 0.01")
        self.assertEqual(table.count("norm gated(x[M,N]"), 2)
        shapes.write_text("softmax rows=3 cols=8\nmissing.norm rows=3 cols=8\n")
        self.refused(2, "shapes.txt:2: missing.norm: cannot be opened: No such file or directory", "bench", shapes)

    def test_output(self):
        command, _, output = next(text for _, text in BLOCKS if text.startswith("$ ")).partition("\n")
        self.assertEqual(self.in_folder(command[2:]), output)

    def test_a_mistake_in_a_file_is_found_by_its_line(self):
        text = BLOCKS[0][1].replace(" * sigmoid(z)", " *")
        self.refused(2, "bad.norm: formula: line 3, column 30: a value expected, not the end of the line",
                     "run", self.file(text.encode(), "bad.norm"), "rows=3 cols=8")

    def test_norms_of_the_library(self):
        numbers = {"dynamic_tanh": ["alpha=0.5"], "groupnorm": ["R=7"]}
        for norm in program.NORMS[2:]:
            has_groups = "M,N/" in (PAGE.parents[1] / f"templates/norms/{norm}.norm").read_text()
            for which in ("forward",) if has_groups else ("forward", "backward"):
                spec = [norm, f"pass={which}", "rows=20", f"cols={256 if has_groups else 70}", *numbers.get(norm, [])]
                self.assertRegex(self.done("run", *spec, "--check"), r" right\n")
                self.done("compile", *spec, "--target", "sm_90", "--emit", "cuda")


if __name__ == "__main__":
    program.main()
