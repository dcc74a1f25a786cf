#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# llvm_later.sh FOLDER [-DOPTION=...]: checks that a build folder adapts when LLVM is installed or removed. It
# configures FOLDER as on a machine with another LLVM and without 19, then with 19, whose library must link and compile,
# then without it again, and leaves FOLDER configured with it. It does nothing, and says so, unless it runs as root,
# because only root can hide LLVM 19.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."

folder=$1
shift
llvm=/usr/lib/llvm-19
if [ ! -e $llvm/lib/cmake/llvm/LLVMConfig.cmake ]; then echo "skipped: no LLVM 19 in $llvm" && exit 0; fi
if ! unshare --mount mount -t tmpfs none $llvm 2> /dev/null; then echo "skipped: cannot hide $llvm" && exit 0; fi

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

configure() { # whether with LLVM 19, what CMake says then, command...
    "${@:3}" cmake -S . -B "$folder" -G Ninja "${options[@]}" > "$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
    grep -q "normjit: $2" "$work/log" || { cat "$work/log" >&2 && echo "$1 LLVM 19, CMake did not say: $2" >&2 && exit 1; }
    echo "$1 LLVM 19: $(grep -m 1 'normjit: ' "$work/log")"
}
without() { configure without "no LLVM back end" unshare --mount sh -c "mount -t tmpfs none $llvm && exec \"\$@\"" sh; }
with() { configure with "LLVM 19" env; }

options=("$@")
without
with
cmake --build "$folder" --target normjit > "$work/log" || { cat "$work/log" && exit 1; }
NORMJIT_CACHE_DIR=off "$folder/tools/normjit/normjit" compile "layernorm cols=77" --target x86-64-v3 --emit artifact -o "$work/code"
without
with
