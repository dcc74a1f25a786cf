# SPDX-License-Identifier: Apache-2.0
"""Tests the last line of tools/test.sh, on results in the form in which CTest writes them."""
import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/ci"))
import left_out  # noqa: E402


def case(name, output, mark=""):
    """Returns one test in a file of results. `mark` is the XML element that says that the test was skipped or
    failed."""
    return f'<testcase name="{name}">{mark}<system-out>{output}</system-out></testcase>'


def line(*cases):
    """The closing line for some tests."""
    return left_out.summary(xml.etree.ElementTree.fromstring(f"<testsuite>{''.join(cases)}</testsuite>"))


class LeftOut(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(line(case("a", "all is well"), case("b", "0 tests were skipped")), "nothing skipped")

    def test_skipped_by_reason(self):
        skipped = '<skipped message="SKIP_RETURN_CODE=3"/>'
        self.assertEqual(
            line(case("a", "skipped: no wheels [torch, jax]\n", skipped), case("b", "skipped: no GPU", skipped),
                 case("c", "skipped: no wheels [torch]", skipped), case("d", "", skipped), case("e", "\nno card\n1\n", skipped)),
            "5 skipped: 2 no wheels (jax, torch), 1 no GPU, 1 no card, 1 no reason given (d)")

    def test_long(self):
        self.assertEqual(line(case("a", "skipped: " + "word " * 50)), "1 skipped in part: 1 " + "word " * 23 + "...")

    def test_in_part(self):
        """Reads doctest's messages and pytest's summary. A test counts once for each reason."""
        self.assertEqual(
            line(case("a", "x_test.cpp:34: MESSAGE: skipped: cuda: no driver\nx_test.cpp:34: MESSAGE: skipped: cuda: no driver"),
                 case("b", "..s\nSKIPPED [2] tests/torch_test.py:237: no GPU\n3 passed, 2 skipped in 0.1s")),
            "2 skipped in part: 1 cuda: no driver, 1 no GPU")

    def test_failed(self):
        """A failed test does not count as left out."""
        self.assertEqual(line(case("a", "skipped: no GPU", '<failure message=""/>')), "nothing skipped")


if __name__ == "__main__":
    unittest.main()
