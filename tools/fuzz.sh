#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [MINUTES] [TARGET...]: builds the fuzz targets of tests/fuzz with clang++ and runs them for MINUTES in all
# (1). It starts from the seeds in tests/fuzz/corpus and the results of earlier runs in build-fuzz/corpus. It keeps an
# input that breaks an oracle in build-fuzz/found, prints the command that runs it again, and exits with 1.
# BUILD=build-clang uses that folder instead of build-fuzz.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

minutes=${1:-1}
targets=("${@:2}")
build=${BUILD:-build-fuzz}

programs=("${targets[@]/#/normjit_fuzz_}")
if [ ${#targets[@]} = 0 ]; then
    for seeds in tests/fuzz/corpus/*; do targets+=("${seeds##*/}"); done
    programs=(normjit_fuzz)
fi
for program in "${programs[@]}"; do
    tools/ci/build.sh $build "$program" -DCMAKE_CXX_COMPILER="${CXX:-clang++-19}" -DNORMJIT_SANITIZE=ON -DNORMJIT_FUZZ=ON
done
seconds=$((minutes * 60 / ${#targets[@]}))
mkdir -p $build/found

failed=0
printf '%-12s  %12s  %8s  %s\n' target runs seconds found
for target in "${targets[@]}"; do
    program=$build/tests/normjit_fuzz_$target
    mkdir -p "$build/corpus/$target"
    before=$(find $build/found -name "$target-*" | wc -l)
    log=$build/found/log-$target
    ASAN_OPTIONS=allocator_may_return_null=1:handle_segv=1 "$program" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 \
        -artifact_prefix="$build/found/$target-" -print_final_stats=1 \
        "$build/corpus/$target" "tests/fuzz/corpus/$target" > "$log" 2>&1 || failed=1
    found=$(($(find $build/found -name "$target-*" | wc -l) - before))
    runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
    printf '%-12s  %12s  %8s  %s\n' "$target" "${runs:-?}" "$seconds" "$found"
    if [ $found != 0 ]; then
        grep -m 3 -E 'ERROR|runtime error|SUMMARY' "$log" || true
        find $build/found -name "$target-*" -newer "$build/corpus" -printf "  replay: $program %p\n" | tail -3
    fi
done
exit $failed
