#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""left_out.py RESULTS: prints one line that says which tests were skipped and why, from the results of `ctest
--output-junit RESULTS`. A test's output says why: `skipped: REASON`, `skipped: REASON [DETAIL, ...]` or pytest's `SKIPPED
[2] FILE: REASON`; otherwise the first line of a skipped test's output counts. Reasons that differ only in details count
as one. A test that passes although it printed such a line was skipped in part."""
import collections
import re
import sys
import textwrap
import xml.etree.ElementTree

MARK = re.compile(r"(?:^|[ :])skipped: (.*)|^SKIPPED \[\d+\] \S+: (.*)", re.MULTILINE)
LONGEST = 120  # characters of a reason


def reasons_of(case):
    """Returns the (reason, details) pairs in the output of a test, without duplicates."""
    output = (case.findtext("system-out") or "").strip()
    found = {next(filter(None, match.groups())).strip() for match in MARK.finditer(output)}
    if not found and output and case.find("skipped") is not None:
        found = {output.splitlines()[0]}
    found = {textwrap.shorten(text, LONGEST, placeholder=" ...") for text in found}
    return [text.removesuffix("]").partition(" [")[::2] for text in sorted(found)]


def listed(groups):
    """Returns `12 REASON (DETAIL, ...), 5 REASON`, the most frequent first; groups: reason -> each test's set of details."""
    parts = []
    for reason, tests in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        details = sorted({detail for test in tests for detail in test if detail})
        parts.append(f"{len(tests)} {reason}" + (f" ({', '.join(details)})" if details else ""))
    return ", ".join(parts)


def summary(results):
    """Returns the line for a parsed file of results."""
    skipped, partly = collections.defaultdict(list), collections.defaultdict(list)
    counts = collections.Counter()
    for case in results.iter("testcase"):
        whole = case.find("skipped") is not None
        reasons = reasons_of(case) or ([("no reason given", case.get("name"))] if whole else [])
        if not reasons or case.find("failure") is not None:
            continue
        counts[whole] += 1
        for reason in {reason for reason, _ in reasons}:
            details = {word for name, detail in reasons if name == reason for word in detail.split(", ")}
            (skipped if whole else partly)[reason].append(details)
    lines = []
    if skipped:
        lines.append(f"{counts[True]} skipped: {listed(skipped)}")
    if partly:
        lines.append(f"{counts[False]} skipped in part: {listed(partly)}")
    return "; ".join(lines) or "nothing skipped"


if __name__ == "__main__":
    print(summary(xml.etree.ElementTree.parse(sys.argv[1]).getroot()))
