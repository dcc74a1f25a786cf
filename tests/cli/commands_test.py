# SPDX-License-Identifier: Apache-2.0
"""What help, versions, usage errors and normjit info print. Runs the real program.

    commands_test.py PROGRAM [unittest's arguments]
"""
import json

import program
from program import COMMANDS, Case


class Help(Case):
    def test_every_command_has_help_with_examples(self):
        for name in [*COMMANDS, "cache"]:
            self.assertRegex(self.done("--help"), rf"\n  {name}  +\S")
            text = self.done(name, "--help")
            self.assertIn(f"Examples:\n  normjit {name}", text)
            self.assertIn("--json", text)
        self.assertIn("Exit codes: 0 done; 1 it ran and failed; 2 bad input or usage; 3", self.done("--help"))

    def test_version(self):
        self.assertRegex(self.done("--version"), r"^normjit \d+\.\d+\.\d+\n$")

    def test_usage_errors(self):
        commands = "allowed: run compile bench tune cache info (see normjit --help)"
        self.refused(2, f"no command; {commands}")
        self.refused(2, f"unknown command 'paint'; {commands}", "paint")
        self.refused(2, "The following argument was not expected: --colour (see normjit run --help)", "run", "--colour")
        self.refused(2, "--threads: Value 0 not in range 1 to 1024 (see normjit run --help)", "run", "--threads", "0")
        self.refused(2, "nothing to run: give --input FILE or a spec (see normjit run --help)", "run")
        self.refused(2, "nothing to compile: give a spec (see normjit compile --help)", "compile")
        self.refused(2, "nothing to measure: give a shapes file or a spec (see normjit bench --help)", "bench")


class Info(Case):
    def test_program(self):
        facts = json.loads(self.done("info", "--json"))
        names = ",".join(device["name"] for device in facts["devices"])
        self.assertRegex(names, r"^cpu(,cuda|(,cuda:\d+)+)$")
        self.assertIn("available", facts["nvrtc"])
        self.assertIn("environment", self.done("info"))

    def test_spec(self):
        facts = json.loads(self.done("info", "rmsnorm rows=10 cols=8 gamma=none", "--json"))
        self.assertEqual(facts["bytes_moved"], 3 * 10 * 8 * 4 + 10 * 4)
        self.assertIn("schedule", self.done("info", "rmsnorm cols=8", "--target", "x86-64-avx512"))


if __name__ == "__main__":
    program.main()
