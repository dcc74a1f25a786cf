#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh [--check]: formats all sources, including uncommitted ones. With --check it lists the sources that are not
# formatted, and fails if there are any. Exits with 3 if it cannot run: without clang-format-19, or outside a
# repository.
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
    if [ -f "$source" ]; then sources+=("$source"); fi  # git lists a deleted file until the deletion is committed
done <<< "$listed"
if [ "${1:-}" = --check ]; then
    clang-format-19 --dry-run -Werror "${sources[@]}"
else
    clang-format-19 -i "${sources[@]}"
fi
