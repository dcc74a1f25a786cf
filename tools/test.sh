#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets this machine up, builds everything and runs all tests. Arguments go to ctest: tools/test.sh -L quick
set -euo pipefail
cd "$(dirname "$0")/.."

tools/ci/setup.sh llvm
tools/ci/build.sh build all
exec ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"
