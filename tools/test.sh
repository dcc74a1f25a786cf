#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up this machine, builds everything and runs all tests, including the Python package's tests that need NumPy; with
# --python also its tests that need PyTorch, JAX and other packages (6 GB). Passes other arguments to ctest:
# tools/test.sh -L quick
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

packages=small
arguments=()
for argument in "$@"; do
    if [ "$argument" = --python ]; then packages=all; else arguments+=("$argument"); fi
done

# Lets Python keep compiled modules, so that each is compiled only once, when it is first imported. The tests'
# environment is not shared with other packages.
unset PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH

tools/ci/setup.sh llvm python
# CMake needs the interpreter; the packages are installed while everything is built.
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
