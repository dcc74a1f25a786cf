#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# aarch64_check.sh [BUILD]: compiles kernels for AArch64 with the program and the LLVM of BUILD [build], runs them in a
# program for AArch64 under QEMU, and compares the results with double precision. It also checks that the project builds
# there without LLVM. Needs Debian's g++-aarch64-linux-gnu and qemu-user, which it installs if it is root. Exits with 1
# if a gradient is wrong.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
here=${1:-build}/tools/normjit/normjit
there=build-aarch64

if ! command -v aarch64-linux-gnu-g++ qemu-aarch64 > /dev/null; then
    apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu qemu-user > /dev/null
fi
# fmt's CMake files are in a folder for this machine's architecture; fmt's headers are the same for all.
tools/ci/build.sh "$there" normjit -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -Dfmt_DIR="/usr/lib/$(g++ -dumpmachine)/cmake/fmt" \
    -DNORMJIT_LLVM=OFF -DNORMJIT_PORTABLE=ON -DNORMJIT_PCH=ON -DNORMJIT_UNITY=32

run() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$there/tools/normjit/normjit" run "$@" --check --threads 2; }
artifact=$(mktemp)
trap 'rm -f "$artifact"' EXIT
kernels=0 wrong=0
check() { # rows, spec without rows, schedule
    local spec="${2%% *} rows=$1 ${2#* }"
    "$here" compile "$2" --target aarch64 --backend llvm --schedule "$3" --emit artifact -o "$artifact"
    kernels=$((kernels + 1))
    if ! run "$spec" --artifact "$artifact" > "$artifact.log" 2>&1; then
        wrong=$((wrong + 1))
        echo "WRONG: $spec, $3"
        cat "$artifact.log"
    fi
    rm -f "$artifact.log"
}

for schedule in "cpu row_groups=1" "cpu row_groups=3 row_block=4 strip=2 unroll=2" \
    "cpu row_groups=2 row_block=2 split_rows=64 column_ranges=3 prefetch=2"; do
    for types in "" "x=bf16" "x=f16 gamma=f32" "x=f64" "x=f32 dy=bf16 dx=f16"; do
        for norm in layernorm rmsnorm; do
            check 37 "$norm cols=515 $types" "$schedule"
            check 5 "$norm cols=3 $types stats=recompute" "$schedule"
        done
    done
    check 3 "layernorm cols=9003 stats=recompute" "$schedule" # wide enough for stages of row sums
    check 3 "rmsnorm cols=9003 x=bf16" "$schedule"
    check 20 "layernorm cols=200 source=y" "$schedule"
    check 20 "rmsnorm cols=200 x=bf16 dresidual=bf16 gamma_offset=1" "$schedule"
done
for types in "" "x=bf16" "x=f64"; do
    check 9 "layernorm cols=9003 $types" "cpu row_groups=2 row_block=2 strip=2 unroll=2 overlap=1"
done
run "layernorm rows=20 cols=200 x=bf16" > /dev/null # what that build can do by itself: the portable path
echo "$((kernels - wrong)) of $kernels kernels for AArch64 are right"
[ $wrong = 0 ]
