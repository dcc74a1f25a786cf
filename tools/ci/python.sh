#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python.sh [none|small|all]: makes build/venv, the interpreter for the Python package's tests, and installs what they
# need. small (default): NumPy and pytest. all: every package that a test names, including PyTorch and JAX (6 GB). none:
# only the interpreter, which takes a moment and which CMake looks for. Returns at once if everything exists. Exits with
# 1 and the reason on failure (no network); tests whose packages are missing say so and are skipped.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."

case ${1:-small} in
    none) packages=() ;;
    small) packages=(pytest numpy) ;;
    all)
        mapfile -t packages < <(echo pytest && sed -n 's/^# needs: //p' runtime/python/tests/*_test.py | tr ' ' '\n' | sort -u)
        ;;
    *) echo "python.sh: unknown $1; there are none, small and all" >&2 && exit 2 ;;
esac
bin=build/venv/bin

missing_of() { # package...: prints those that build/venv lacks
    $bin/python -c 'import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))' "$@"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() { # what failed
    grep -v ^WARNING "$log" | tail -n 3 >&2
    echo "python.sh: could not $1" >&2
    exit 1
}
install() { # command...: calls it with the missing packages, by the names that PyPI has for them
    "$@" "${missing[@]/#tvm_ffi/apache-tvm-ffi}" >> "$log" 2>&1
}
# A venv is made again if its interpreter no longer exists.
if ! $bin/python -c '' 2> /dev/null; then
    tools/ci/setup.sh python
    mkdir -p build
    python3 -m venv --clear build/venv > "$log" 2>&1 || fail "make build/venv"
fi
read -r -a missing <<< "$(missing_of "${packages[@]}")"
[ ${#missing[@]} -gt 0 ] || exit 0

if [ ${#missing[@]} -gt 2 ]; then
    # uv is much faster; pip supports more kinds of package sources. Both compile the modules to bytecode: otherwise
    # every process of the tests would compile those of PyTorch again where PYTHONDONTWRITEBYTECODE is set.
    export UV_CACHE_DIR=build/uv
    if $bin/pip install -q uv > "$log" 2>&1 && install $bin/uv pip install -q --compile-bytecode -p $bin/python; then
        exit 0
    fi
fi
install $bin/pip install -q || fail "install ${missing[*]}"
