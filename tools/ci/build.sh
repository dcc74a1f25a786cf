#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh FOLDER TARGET [-DOPTION=...]: configures FOLDER with Ninja and builds TARGET in it, one such build at a time.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."

folder=$1
target=$2
shift 2

# Ninja does not notice another Ninja in its folder. The processes started here do not inherit the lock, so it ends with
# this script.
{ mkdir -p "$folder" && exec 9> "$folder/.lock"; } || { echo "build.sh: cannot write to the folder of the build, $folder" >&2 && exit 1; }
flock --nonblock 9 || { echo "build.sh: waits for another build in $folder" >&2 && flock 9; }
cmake -S . -B "$folder" -G Ninja --log-level=WARNING "$@" > /dev/null 9>&-
cmake --build "$folder" --target "$target" 9>&-
