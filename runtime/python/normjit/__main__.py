# SPDX-License-Identifier: Apache-2.0
"""python -m normjit, and the command normjit."""
from __future__ import annotations

import ctypes
import sys

from normjit._library import library


def main() -> int:
    words = [b"normjit", *(word.encode(errors="surrogateescape") for word in sys.argv[1:])]
    sys.stdout.flush()
    exit_code: int = library.normjit_main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
