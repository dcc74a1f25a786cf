# SPDX-License-Identifier: Apache-2.0
"""How many random problems a test tries."""
import os


def rounds(usual):
    """Returns `usual`, or the fewer that NORMJIT_TEST_ROUNDS says: a number, or a share such as 25%; at least 1."""
    number, is_share, _ = os.environ.get("NORMJIT_TEST_ROUNDS", str(usual)).partition("%")
    return min(max(usual * int(number) // 100 if is_share else int(number), 1), usual)
