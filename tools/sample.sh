#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up this machine, builds normjit and computes the gradients of the sample, tensors of a real training step.
# Compares them with the framework's own gradients and with double precision. Passes its arguments to `normjit run`.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

# LLVM generates code for CPUs without AVX-512.
if grep -q -w avx512f /proc/cpuinfo; then tools/ci/setup.sh; else tools/ci/setup.sh llvm; fi
tools/ci/build.sh build normjit
exec build/tools/normjit/normjit run --input tests/data/sample.safetensors --check "$@"
