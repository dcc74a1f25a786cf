# SPDX-License-Identifier: Apache-2.0
"""Programs of Python in processes of their own."""
import os
import subprocess
import sys
import tempfile

LIMIT_SECONDS = 240


def run_program(program, *words, **variables):
    """A subprocess.CompletedProcess. A program that takes longer than the limit ends then, and says on stderr where
    each of its threads was. Its output goes to files: processes that it leaves behind may keep a pipe open."""
    watched = f"import faulthandler; faulthandler.dump_traceback_later({LIMIT_SECONDS}, exit=True)\n{program}"
    command = [sys.executable, "-c", watched, *words]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(command, stdout=output, stderr=errors, env={**os.environ, **variables})
        output.seek(0), errors.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, output.read(), errors.read())
