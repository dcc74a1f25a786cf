#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# soak.sh [MINUTES] [BUILD]: builds tests/stress in the folder BUILD (build), and runs its soak for MINUTES (1): a
# random mix of prepares, launches, faults and refusals, during which memory, mappings, descriptors and threads must not
# grow. Another NORMJIT_TEST_SEED gives another mix.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

minutes=${1:-1}
build=${2:-build}
tools/ci/build.sh "$build" normjit_stress_tests
NORMJIT_STRESS_SECONDS=$((minutes * 60)) "$build/tests/normjit_stress_tests" --source-file='*soak_test.cpp'
