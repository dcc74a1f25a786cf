# SPDX-License-Identifier: Apache-2.0
"""Checks that every promise in runtime/PROMISES.md names existing tests, as [file below tests/: name of the case]."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
page = (root / "runtime" / "PROMISES.md").read_text()
promises = re.findall(r"^- (.*?)(?=^- |^## |\Z)", page, re.MULTILINE | re.DOTALL)
wrong = []
named = 0
for promise in promises:
    text = " ".join(promise.split())
    tests = re.findall(r"\[([a-z_/]+\.(?:cpp|py)): ([^\]]+)\]", text)
    if not tests:
        wrong.append(f"no test is named: {text}")
    for file, name in tests:
        named += 1
        path = root / "tests" / file
        begin = f"def {name}(" if file.endswith(".py") else f'TEST_CASE("{name}"'
        source = path.read_text() if path.exists() else ""
        if begin not in re.sub(r'TEST_CASE\(\s+', "TEST_CASE(", source):
            wrong.append(f"tests/{file}: no test '{name}'")
print("\n".join(wrong) if wrong else f"{len(promises)} promises, {named} tests")
sys.exit(bool(wrong) or len(promises) < 20)
