#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# llvm_later.sh FOLDER [-DOPTION=...]: checks that a build folder adapts when LLVM is installed or removed. It
# configures FOLDER as on a machine that has only an LLVM that we do not use, then with the one that we use, whose library
# must link and compile, then without it again, and leaves FOLDER configured with it. It does nothing, and says so, unless
# it runs as root, because only root can hide LLVM.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."

folder=$1
shift
used=()
for major in $(sed -n 's/^set(normjit_llvm_majors \(.*\))$/\1/p' tools/cmake/llvm.cmake); do
    if [ -e /usr/lib/llvm-$major/lib/cmake/llvm/LLVMConfig.cmake ]; then used+=("/usr/lib/llvm-$major"); fi
done
if [ ${#used[@]} -eq 0 ]; then echo "skipped: no LLVM in /usr/lib that is used" && exit 0; fi
if ! unshare --mount mount -t tmpfs none "${used[0]}" 2> /dev/null; then echo "skipped: cannot hide ${used[0]}" && exit 0; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# This folder comes first in PATH. Its llvm-config belongs to an LLVM without the functions that we call.
ar rc "$work/libLLVMOther.a"
cat > "$work/llvm-config" << END
#!/bin/sh
case " \$* " in *" --libfiles "*) echo $work/libLLVMOther.a ;; *) echo 14.0.6 ;; esac
END
chmod +x "$work/llvm-config"
export PATH=$work:$PATH

configure() { # whether with LLVM, what CMake says then, command...
    "${@:3}" cmake -S . -B "$folder" -G Ninja "${options[@]}" > "$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
    grep -q "normjit: $2" "$work/log" || { cat "$work/log" >&2 && echo "$1 LLVM, CMake did not say: $2" >&2 && exit 1; }
    echo "$1 LLVM: $(grep -m 1 'normjit: ' "$work/log")"
}
# shellcheck disable=SC2016
hide='for llvm in $LLVM_USED; do mount -t tmpfs none "$llvm" || exit 1; done; exec "$@"'
without() { configure without "no LLVM back end" env LLVM_USED="${used[*]}" unshare --mount sh -c "$hide" sh; }
with() { configure with "LLVM ${used[0]#*llvm-}" env; }

options=("$@")
without
with
cmake --build "$folder" --target normjit > "$work/log" || { cat "$work/log" && exit 1; }
NORMJIT_CACHE_DIR=off "$folder/tools/normjit/normjit" compile "layernorm cols=77" --target x86-64-v3 --emit artifact -o "$work/code"
without
with
