#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets this machine up, builds everything and runs all tests, those of the Python package with NumPy. With --python also
# those that need PyTorch, JAX or another package of 6 GB in all. The other arguments go to ctest: tools/test.sh -L quick
set -euo pipefail
cd "$(dirname "$0")/.."

packages=small
arguments=()
for argument in "$@"; do
    if [ "$argument" = --python ]; then packages=all; else arguments+=("$argument"); fi
done

# Of the packages' sources only what is imported is compiled, then, and once.
unset PYTHONDONTWRITEBYTECODE

tools/ci/setup.sh llvm python
# The interpreter first, which CMake looks for; its packages while all is built.
tools/ci/python.sh none || packages=none
tools/ci/python.sh $packages > build/python.log 2>&1 &
python=$!
trap 'kill $python 2> /dev/null || true' EXIT
tools/ci/build.sh build all
wait $python || cat build/python.log
trap - EXIT

results=$PWD/build/tests.xml
rm -f "$results"
code=0
ctest --test-dir build --output-on-failure -j "$(nproc)" \
    --output-junit "$results" --test-output-size-passed 65536 "${arguments[@]}" || code=$?
if [ -e "$results" ]; then python3 tools/ci/left_out.py "$results"; fi
exit $code
