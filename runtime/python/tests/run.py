# SPDX-License-Identifier: Apache-2.0
"""run.py FILE...: runs the tests of files in one process, with pytest. A file may say `# needs: numpy torch`. If this
interpreter lacks one of the packages, the file is skipped with a message; exit code 3 if all files are.
tools/ci/python.sh reads that line as well."""
import importlib.util
import os
import pathlib
import re
import sys


def missing(file):
    """Returns the packages that a file needs and this interpreter lacks."""
    needed = re.search(r"^# needs: (.*)$", pathlib.Path(file).read_text(), re.MULTILINE)
    return [name for name in dict.fromkeys(["pytest", *needed[1].split()]) if importlib.util.find_spec(name) is None]


def main(files):
    lacking = {file: missing(file) for file in files}
    names = sorted({name for each in lacking.values() for name in each})
    if names:
        print(f"skipped: for want of packages, which tools/test.sh --python installs [{', '.join(names)}]")
    files = [file for file in files if not lacking[file]]
    if not files:
        return 3
    # Each process that compiles would first try, in further processes, which instruction sets work here.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    import pytest

    return pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "-W", "error::pytest.PytestUnraisableExceptionWarning", *files])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
