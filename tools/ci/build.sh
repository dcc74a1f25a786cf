#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh FOLDER TARGET [-DOPTION=...]: configures FOLDER with Ninja and builds TARGET in it.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$1
target=$2
shift 2
cmake -S . -B "$folder" -G Ninja --log-level=WARNING "$@" > /dev/null
cmake --build "$folder" --target "$target"
