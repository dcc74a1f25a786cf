#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# oldest_torch.sh [pytest's arguments]: runs the tests of torch.compile and torch.export with the oldest torch that
# normjit supports, which traces code in other ways than the newest one. Needs build/python. Makes
# build/venv-oldest-torch (7 GB) once; without a network it says so and succeeds. Leaves out tests that wait for the C++
# compiler.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."

oldest=$(sed -n 's/^OLDEST_TORCH = (\([0-9]*\), \([0-9]*\))$/\1.\2/p' runtime/python/normjit/torch/_kernels.py)
venv=build/venv-oldest-torch
tests=(classes drop_in export formula_plans formulas formulas_modes formulas_transforms functional_compiled gated log
    rowwise rowwise_halves rowwise_results rowwise_several samples traps)
mapfile -t files < <(printf "runtime/python/tests/torch_%s_test.py\n" "${tests[@]}")
mapfile -t needed < <(echo pytest && sed -n 's/^# needs: //p' "${files[@]}" | tr ' ' '\n' | grep -vx torch | sort -u)

has_torch() {
    $venv/bin/python -c "import torch; assert torch.__version__.startswith('$oldest.')
$(printf 'import %s\n' "${needed[@]}")" 2> /dev/null
}
if ! has_torch; then
    mkdir -p build
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if ! { python3 -m venv --clear $venv && $venv/bin/pip install -q uv &&
        UV_CACHE_DIR=build/uv $venv/bin/uv pip install -q -p $venv/bin/python "torch==$oldest.*" "${needed[@]}"; } > "$log" 2>&1; then
        tail -n 3 "$log"
        echo "skipped: torch $oldest cannot be installed"
        exit 0
    fi
fi
PYTHONPATH=$PWD/build/python $venv/bin/python -m pytest -q -rs -p no:cacheprovider --show-capture=no \
    -k "(compile or export or symbol or attribute or methods or arrays) and not inductor and not outlive" \
    "${files[@]}" "$@"
