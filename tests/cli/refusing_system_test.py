# SPDX-License-Identifier: Apache-2.0
"""Runs the program on systems that allow less than usual: no executable memory, few threads, standard streams that
refuse writes; and as another user's program.

    refusing_system_test.py PROGRAM [unittest's arguments]
"""
import errno
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import program
from program import COMMANDS, Case, normjit

SPEC = "rmsnorm rows=64 cols=48"


def refusing(**what):
    """Returns the environment of a program to which the system refuses this."""
    names = {f"REFUSE_{key.upper()}": str(value) for key, value in what.items()}
    sanitized = {"ASAN_OPTIONS": "verify_asan_link_order=0"}
    return os.environ | sanitized | names | {"LD_PRELOAD": os.environ["REFUSE_LIBRARY"]}


class NoMachineCode(Case):
    def test_formulas_are_evaluated_with_one_note(self):
        result = normjit("run", SPEC, "--check", env=refusing(code=errno.EACCES))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(
            result.stderr,
            r"^note: engine: this process may not run machine code that it makes \(mprotect: Permission denied\); "
            r"formulas are evaluated, many times slower; NORMJIT_ISA=portable asks for that\n$",
        )

    def test_a_filter_of_system_calls_may_refuse_with_any_error(self):
        for error in [errno.EPERM, errno.ENOSYS, errno.EINVAL]:
            result = normjit("run", SPEC, "--check", env=refusing(code=error))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"(mprotect: {os.strerror(error)}); formulas are evaluated", result.stderr)

    def test_no_note_when_that_was_asked_for(self):
        self.done("run", SPEC, "--check", env=refusing(code=errno.EACCES) | {"NORMJIT_ISA": "portable"})

    def test_a_back_end_that_was_asked_for_is_not_replaced(self):
        result = normjit("run", SPEC, "--backend", "x64", env=refusing(code=errno.EACCES))
        if "no back end" in result.stderr:
            self.skipTest("a machine without AVX-512")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stderr, r"^error: [^\n]*mprotect: Permission denied[^\n]*NORMJIT_ISA=portable[^\n]*\n$")


    def test_info_says_what_will_be_used(self):
        usual, refused = (normjit("info", "--json", env=env) for env in [os.environ | {}, refusing(code=errno.EACCES)])
        self.assertNotEqual(json.loads(usual.stdout)["backend"], "portable")
        self.assertEqual(json.loads(refused.stdout)["backend"], "portable", refused.stderr)
        self.assertIn("backend=portable", json.loads(refused.stdout)["target"])
        self.assertRegex(self.done("info", env=refusing(code=errno.EACCES)), r"backend +portable: formulas are evaluated")


class FewThreads(Case):
    def test_an_engine_goes_on_with_the_threads_that_started(self):
        result = normjit("run", SPEC, "--check", "--threads", 8, env=refusing(threads=2))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(
            result.stderr, r"^note: engine: 3 of 8 threads: the system refuses more \(Resource temporarily unavailable\)\n$"
        )
        self.assertIn("3 threads", result.stdout)

    def test_a_caller_alone_is_enough(self):
        result = normjit("run", SPEC, "--check", "--threads", 8, env=refusing(threads=0))
        self.assertEqual((result.returncode, "1 thread" in result.stdout), (0, True), result.stdout)


class NoAffinity(Case):
    def test_an_engine_uses_all_processors(self):
        everywhere = os.sched_getaffinity(0)
        if len(everywhere) < os.cpu_count():
            self.skipTest("these tests may not use all processors")
        target = lambda env: json.loads(normjit("info", "--json", env=env).stdout)["target"]
        self.assertEqual(target(refusing(affinity=1)), target(os.environ | {}))


class StreamsThatTakeNothing(Case):
    def code(self, redirection, *arguments, **variables):
        line = ["bash", "-c", f'exec "$@" {redirection}', "bash", program.PROGRAM, *arguments]
        environment = os.environ | variables
        return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, env=environment)

    def test_a_message_that_nobody_takes_changes_no_exit_code(self):
        lines = [[command, "bogus"] for command in COMMANDS] + [["nosuch"], [], ["cache", "list", "bogus"]]
        for redirection in ["2>/dev/full", "2>&-"]:
            for line in lines:
                self.assertEqual(self.code(redirection, *line).returncode, 2, (redirection, line))

    def test_help_and_results_that_nobody_takes_are_an_error(self):
        for line in [["--help"], ["--version"], ["info"], ["run", "--help"], ["info", SPEC]]:
            self.assertEqual(self.code("", *line).returncode, 0, line)
            for redirection in [">/dev/full", ">&-"]:
                self.assertEqual(self.code(redirection, *line).returncode, 1, (redirection, line))

    def test_a_note_that_nobody_takes_stops_nothing(self):
        variables = {"NORMJIT_CACHE_DIR": "/etc/passwd", "NORMJIT_CACHE_EVERYTHING": "1"}
        self.assertIn(b"note: ", self.code("", "run", SPEC, **variables).stderr)
        for redirection in ["2>/dev/full", "2>&-"]:
            result = self.code(redirection, "run", SPEC, **variables)
            self.assertEqual((result.returncode, result.stdout != b""), (0, True), redirection)

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        kept = self.folder / "k"
        result = self.code("2>&- <&-", "compile", "rmsnorm cols=64", "--emit", "ir", "-o", str(kept))
        self.assertEqual(result.returncode, 0)
        self.assertTrue(kept.read_text().startswith("norm cols=64"))
        self.assertEqual(self.code(">&-", "info").returncode, 1)


class Privileges(Case):
    def privileged(self):
        """A copy of the program that does not run as its caller's user."""
        if os.geteuid() != 0:
            self.skipTest("only root can give a program to another user")
        folder = pathlib.Path(tempfile.mkdtemp(dir=pathlib.Path(program.PROGRAM).parent))
        self.addCleanup(shutil.rmtree, folder)
        folder.chmod(0o755)
        copy = folder / "normjit"
        shutil.copy(program.PROGRAM, copy)
        os.chown(copy, 65534, 65534)
        copy.chmod(0o4755)
        return copy

    def test_variables_of_the_caller_are_not_read(self):
        copy = self.privileged()
        cache = self.folder / "cache"
        capture = self.folder / "capture"
        for path in [self.folder, cache]:
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
        variables = {
            "NORMJIT_CACHE_DIR": str(cache),
            "NORMJIT_CACHE_EVERYTHING": "1",
            "NORMJIT_CAPTURE": str(capture),
            "NORMJIT_ISA": "nonsense",
            "HOME": str(self.folder),
        }
        environment = os.environ | variables
        try:
            result = subprocess.run([copy, "run", SPEC], capture_output=True, text=True, timeout=300, env=environment)
        except PermissionError:
            self.skipTest("the program cannot be run as another user here")
        if "NORMJIT_ISA=nonsense" in result.stderr and "nosuid" in self.mount_of(copy):
            self.skipTest("the folder of the build is mounted nosuid")
        # A program with LeakSanitizer traces itself at its end, which the system does not allow a process of another
        # user.
        if "LeakSanitizer has encountered a fatal error" not in result.stderr:
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("median of", result.stdout)
        self.assertEqual((list(cache.iterdir()), capture.exists()), ([], False))

    def mount_of(self, path):
        return subprocess.run(["findmnt", "-T", path, "-no", "OPTIONS"], capture_output=True, text=True).stdout


if __name__ == "__main__":
    program.main()
