# SPDX-License-Identifier: Apache-2.0
"""python -m normjit, and the command normjit."""
import ctypes
import sys

from normjit._library import library


def main():
    words = [b"normjit", *(word.encode(errors="surrogateescape") for word in sys.argv[1:])]
    sys.stdout.flush()
    return library.normjit_main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))


if __name__ == "__main__":
    sys.exit(main())
