#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs on Debian and Ubuntu; `setup.sh llvm` also the optional LLVM (100 MB to fetch). Silent and
# instant when everything is there.
set -euo pipefail

# Each line: a command or a header that shows whether the package is there, then the package.
needed="
g++                      g++
cmake                    cmake
ninja                    ninja-build
ccache                   ccache
objdump                  binutils
pkg-config               pkg-config
xbyak/xbyak.h            libxbyak-dev
fmt/format.h             libfmt-dev
doctest/doctest.h        doctest-dev
CLI/CLI.hpp              libcli11-dev
nlohmann/json.hpp        nlohmann-json3-dev
xxhash.h                 libxxhash-dev
"

if [ "${1:-}" = llvm ]; then
    needed+="llvm-19/include/llvm/IR/IRBuilder.h llvm-19-dev"
fi

missing=()
while read -r probe package; do
    [ -n "$probe" ] || continue
    case $probe in
        llvm-*) [ -e "/usr/lib/$probe" ] || missing+=("$package") ;;
        *.h | *.hpp) [ -e "/usr/include/$probe" ] || [ -e "/usr/local/include/$probe" ] || missing+=("$package") ;;
        *) command -v "$probe" > /dev/null || missing+=("$package") ;;
    esac
done <<< "$needed"
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get > /dev/null; then
    echo "setup: this system has no apt-get; install what Debian calls: ${missing[*]}" >&2
    exit 3
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null; then
        echo "setup: run as root: apt-get install ${missing[*]}" >&2
        exit 3
    fi
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}" >&2
# Older systems have no LLVM 19: the build does without.
drop_unknown_llvm() {
    if [ "${missing[-1]}" = llvm-19-dev ] && ! apt-cache show llvm-19-dev > /dev/null 2>&1; then unset 'missing[-1]'; fi
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update -qq && drop_unknown_llvm &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
    > "$log" 2>&1; then
    cat "$log" >&2
    echo "setup: apt-get could not install ${missing[*]}" >&2
    exit 1
fi
