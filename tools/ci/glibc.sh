#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# glibc.sh FILE...: checks that programs and libraries start with glibc 2.34 (RHEL 9, Ubuntu 22.04, Debian 12).
set -euo pipefail

newest=2.34
for file in "$@"; do
    needed=$(objdump -T "$file" | sed -n 's/.*[( ]GLIBC_\([0-9.]*\)[) ].*/\1/p' | sort -Vu)
    [ -n "$needed" ] || { echo "$file: no symbols of glibc" >&2 && exit 2; }
    latest=$(tail -n 1 <<< "$needed")
    if [ "$(printf '%s\n' "$newest" "$latest" | sort -V | tail -n 1)" != "$newest" ]; then
        echo "$file needs glibc $latest; must run with $newest:" >&2
        objdump -T "$file" | grep -F "GLIBC_$latest" >&2
        exit 1
    fi
    echo "$file: glibc $latest"
done
