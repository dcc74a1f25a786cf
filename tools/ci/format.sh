#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh [--check]: formats the sources, those not yet committed as well; with --check names those that are not and fails.
# Exits with 3 where it cannot: without clang-format-19, or outside a repository.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
if ! command -v clang-format-19 > /dev/null; then
    echo "skipped: no clang-format-19"
    exit 3
fi
if ! listed=$(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cuh' 2> /dev/null); then
    echo "skipped: the format is checked in a git repository alone"
    exit 3
fi
sources=()
while IFS= read -r source; do
    if [ -f "$source" ]; then sources+=("$source"); fi  # a deleted file is listed until that is committed
done <<< "$listed"
if [ "${1:-}" = --check ]; then
    clang-format-19 --dry-run -Werror "${sources[@]}"
else
    clang-format-19 -i "${sources[@]}"
fi
