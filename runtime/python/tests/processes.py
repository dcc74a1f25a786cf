# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in separate processes."""
import os
import subprocess
import sys
import tempfile

LIMIT_SECONDS = 240


def run(command, **variables):
    """Returns a subprocess.CompletedProcess. The output goes to files, because processes that the command leaves
    behind may keep a pipe open."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            command, stdout=output, stderr=errors, env={**os.environ, **variables}, timeout=LIMIT_SECONDS + 30
        )
        output.seek(0), errors.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, output.read(), errors.read())


def run_program(program, *words, **variables):
    """Runs a Python program. If it exceeds the time limit, it is ended, and prints to stderr where each of its threads
    was."""
    watched = f"import faulthandler; faulthandler.dump_traceback_later({LIMIT_SECONDS}, exit=True)\n{program}"
    return run([sys.executable, "-c", watched, *words], **variables)
