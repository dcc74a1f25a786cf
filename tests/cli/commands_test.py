# SPDX-License-Identifier: Apache-2.0
"""Tests the output of help, versions, usage errors and normjit info. Runs the real program.

    commands_test.py PROGRAM [unittest's arguments]
"""
import json
import os

import program
from program import COMMANDS, Case


class Help(Case):
    def test_every_command_has_help_with_examples(self):
        for name in [*COMMANDS, "cache"]:
            self.assertRegex(self.done("--help"), rf"\n  {name}  +\S")
            text = self.done(name, "--help")
            self.assertIn(f"Examples:\n  normjit {name}", text)
            self.assertIn("--json", text)
        filling = self.done("cache", "fill", "--help")
        for option in ["--dir TEXT", "--json", "--device TEXT"]:  # two options are those of every action
            self.assertRegex(filling, rf"\n  {option}")
        self.assertEqual(filling.count("--help"), 1)
        self.assertIn("Exit codes: 0 done; 1 it ran and failed; 2 bad input or usage; 3", self.done("--help"))

    def test_version(self):
        self.assertRegex(self.done("--version"), r"^normjit \d+\.\d+\.\d+\n$")

    def test_usage_errors(self):
        commands = "allowed: run compile bench tune cache info (see normjit --help)"
        self.refused(2, f"no command; {commands}")
        actions = "allowed: list verify gc fill pack (see normjit cache --help)"
        self.refused(2, f"unknown command 'lsit'; {actions}", "cache", "lsit")
        self.refused(2, f"unknown command 'lsit'; {actions}", "cache", "--json", "lsit")
        self.refused(2, f"no command; {actions}", "cache")
        self.refused(2, f"unknown command '--bogus'; {actions}", "cache", "--bogus")
        self.refused(2, f"unknown command '--json'; {commands}", "--json", "info")
        self.refused(2, f"unknown command 'paint'; {commands}", "paint")
        self.refused(2, "unknown option '--colour' (see normjit run --help)", "run", "--colour")
        self.refused(2, "unknown option '--chekc'; did you mean '--check'? (see normjit run --help)",
                     "run", "rmsnorm rows=4 cols=8", "--chekc=true")
        self.refused(2, "unknown option '--siz'; did you mean '--size'? (see normjit cache gc --help)", "cache", "gc", "--siz", "1")
        self.refused(2, "'extra' is not expected (see normjit cache gc --help)", "cache", "gc", "extra")
        self.refused(2, "--seed: is given twice (see normjit run --help)", "run", "--seed", "1", "--seed", "2")
        self.refused(2, "--seed: its value is missing (see normjit run --help)", "run", "--seed", "1", "--seed")
        self.refused(2, "--dir: its value is missing (see normjit cache list --help)", "cache", "list", "--dir")
        self.refused(2, "--output is required (see normjit cache pack --help)", "cache", "pack")
        self.refused(2, "--backend: lvm: allowed: automatic x64 llvm portable; did you mean 'llvm'? (see normjit run --help)",
                     "run", "--backend", "lvm")
        self.refused(2, "--check: maybe: must be true or false (see normjit run --help)", "run", "rmsnorm", "--check=maybe")
        self.refused(2, "--target needs a spec", "info", "--target", "host")
        for command in ("compile", "info"):
            self.refused(2, "target: kind 'hosts': allowed: host x86-64-avx512 x86-64-v3 x86-64 aarch64 sm_90, or another "
                         "sm_ number; did you mean 'host'?", command, "rmsnorm cols=8", "--target", "hosts")
            host = json.loads(self.done("info", "rmsnorm cols=8", "--target", " host ", "--json"))["target"]
            self.refused(2, f"target: host has no keys; give the target that it stands for, '{host}', with other values",
                         command, "rmsnorm cols=8", "--target", "host cores=2")
        self.refused(2, "--device needs a spec", "info", "--device", "gpu")
        self.refused(2, "target: sm_9999: the number must be at most 999", "compile", "--target", "sm_9999", "--emit", "cuda")
        self.refused(2, "--time measures a whole compilation: --emit is not allowed",
                     "compile", "rmsnorm cols=8", "--emit", "ir", "--time")
        self.refused(2, "--artifact has code: --backend is not allowed",
                     "run", "rmsnorm rows=4 cols=8", "--artifact", "a", "--backend", "llvm")
        formula = "norm f(x[M,N]) -> y[M,N] {{ y={} }} cols=8 rows=2"
        self.refused(2, "spec: formula: line 1, column 31: a value expected, not '-'", "run", formula.format("--x"))
        self.refused(2, "spec: formula: line 1, column 32: 1e999 is beyond the range of a double", "run", formula.format("x+1e999"))
        self.refused(2, "nothing to run: give --input FILE or a spec (see normjit run --help)", "run")
        self.refused(2, "nothing to compile: give a spec (see normjit compile --help)", "compile")
        self.refused(2, "nothing to measure: give a shapes file or a spec (see normjit bench --help)", "bench")

    def test_numbers_are_read_as_in_a_spec(self):
        for command, option, word, message in [
            ("run", "--threads", "0", "0: must be 1 to 1024"),
            ("run", "--threads", "0x2", "0x2: must be a whole number"),
            ("run", "--threads", "4294967296", "4294967296: must be 1 to 1024"),
            ("run", "--threads", "-99999999999999999999", "-99999999999999999999: must be 1 to 1024"),
            ("run", "--seed", "-1", "-1: must be at least 0"),
            ("run", "--seed", "18446744073709551616", "18446744073709551616: must be at most 9223372036854775807"),
            ("bench", "--seconds", "nan", "nan: must be finite"),
            ("bench", "--seconds", "0,5", "0,5: must be a number"),
            ("tune", "--timeout", "0", "0: must be 0.1 to 3600"),
        ]:
            self.refused(2, f"{option}: {message} (see normjit {command} --help)", command, option, word)
        facts = json.loads(self.done("run", "rmsnorm rows=4 cols=8", "--threads", "010", "--json"))
        self.assertEqual(facts["results"][0]["threads"], 10)

    def test_an_empty_value_is_not_the_default(self):
        for line in ["run --output", "run --schedule", "compile --emit", "bench --json", "tune --budget", "cache gc --dir"]:
            command, _, option = line.rpartition(" ")
            self.refused(2, f"{option}: must not be empty (see normjit {command} --help)", *line.split(), "")


class Info(Case):
    def test_program(self):
        facts = json.loads(self.done("info", "--json"))
        names = ",".join(device["name"] for device in facts["devices"])
        self.assertRegex(names, r"^cpu(,cuda|(,cuda:\d+)+)$")
        self.assertRegex(facts["target"], rf"\bcores={facts['threads'].partition(',')[0]}\b")
        self.assertIn("available", facts["nvrtc"])
        self.assertIsInstance(facts["nvtx"], str)
        self.assertIn("environment", self.done("info"))

    def test_a_misspelt_variable_is_shown(self):
        shown = self.done("info", env=os.environ | {"NORMJIT_RECORD": "r.jsonl"})
        self.assertRegex(shown, r"NORMJIT_RECORD +r.jsonl +not read by this program; did you mean 'NORMJIT_RECORDS'\?")

    def test_spec(self):
        facts = json.loads(self.done("info", "rmsnorm rows=10 cols=8 gamma=none", "--json"))
        self.assertEqual(facts["bytes_moved"], 3 * 10 * 8 * 4 + 10 * 4)
        self.assertIn("schedule", self.done("info", "rmsnorm cols=8", "--target", "x86-64-avx512"))


if __name__ == "__main__":
    program.main()
