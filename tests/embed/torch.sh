#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torch.sh BUILD: builds embed/torch.cpp, a program with libtorch and without Python, and runs it. It uses the libtorch
# of BUILD/venv, or the one in NORMJIT_TORCH, the folder "torch" of its wheel. Without libtorch it says so and exits
# with 3. This is not a CMake target, because CI installs torch while it builds.
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
for torch in "${NORMJIT_TORCH:-}" "$build"/venv/lib/python3*/site-packages/torch; do
    if [ -e "$torch/lib/libtorch_cpu.so" ]; then break; fi
    torch=
done
[ -n "${torch:-}" ] || { echo "skipped: for want of packages, which tools/test.sh --python installs [torch]"; exit 3; }

compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
program=$build/tests/normjit_torch_program
# Includes only torch's headers for tensors; these alone take half a minute to compile.
if [ ! "$program" -nt "$source/tests/embed/torch.cpp" ] || [ ! "$program" -nt "$source/runtime/include/normjit/torch.h" ]; then
    "$compiler" -std=c++20 -O1 -isystem "$torch/include" -I"$source/runtime/include" "$source/tests/embed/torch.cpp" \
        -L"$build/runtime" -lnormjit_torch -L"$torch/lib" -ltorch_cpu -lc10 -Wl,--unresolved-symbols=ignore-in-shared-libs \
        -Wl,-rpath,"$build/runtime:$torch/lib" -o "$program"
fi
NORMJIT_CACHE_DIR=off "$program"
