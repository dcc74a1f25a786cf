# SPDX-License-Identifier: Apache-2.0
"""run.py FILE: runs the tests of a file with pytest. Exit code 3, and one line, if this interpreter lacks a package
that the file names: `# needs: numpy torch`. tools/ci/python.sh reads that line as well."""
import importlib.util
import pathlib
import re
import sys


def main(file):
    needed = re.search(r"^# needs: (.*)$", pathlib.Path(file).read_text(), re.MULTILINE)
    missing = [name for name in dict.fromkeys(["pytest", *needed[1].split()]) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: for want of packages, which tools/test.sh --python installs [{', '.join(missing)}]")
        return 3
    import pytest

    return pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "-W", "error::pytest.PytestUnraisableExceptionWarning", file])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
