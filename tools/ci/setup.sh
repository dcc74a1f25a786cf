#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [PART...]: installs what the build needs on Debian and Ubuntu. The parts add packages. llvm: the optional
# LLVM (a download of 100 MB); python: for Python environments; clang: what .ci/run also needs; static: for
# tools/wheel.sh; aarch64: for its --arch aarch64. Prints nothing and returns at once if everything is installed.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."

# Each line has a probe that shows whether the package is installed (a command, a file below /usr/include or /usr, a
# Python module, or the interpreter's Python.h), then the package. A line may go on with others that serve as well; if
# none is installed, the first that the system offers is.
needed="
g++                      g++
cmake                    cmake
ninja                    ninja-build
ccache                   ccache
objdump                  binutils
pkg-config               pkg-config
python3                  python3
xbyak/xbyak.h            libxbyak-dev
fmt/format.h             libfmt-dev
doctest/doctest.h        doctest-dev
CLI/CLI.hpp              libcli11-dev
nlohmann/json.hpp        nlohmann-json3-dev
xxhash.h                 libxxhash-dev
"
# Optional, because old systems do not have them.
optional=""
for part in "$@"; do
    case $part in
        python) needed+="python3:ensurepip python3-venv"$'\n'"Python.h python3-dev"$'\n' ;;  # torch.compile includes Python.h
        aarch64) needed+="aarch64-linux-gnu-g++ g++-aarch64-linux-gnu"$'\n'"qemu-aarch64 qemu-user"$'\n' ;;
        static) needed+="zstd.h libzstd-dev"$'\n' ;;
        llvm)
            for major in $(sed -n 's/^set(normjit_llvm_majors \(.*\))$/\1/p' tools/cmake/llvm.cmake); do
                optional+="lib/llvm-$major/include/llvm/IR/IRBuilder.h llvm-$major-dev "
            done
            optional+=$'\n'
            ;;
        clang)
            optional+="clang++-19 clang-19"$'\n'
            optional+="lib/llvm-19/lib/clang/19/lib/linux libclang-rt-19-dev"$'\n'
            optional+="clang-format-19 clang-format-19"$'\n'
            ;;
        *) echo "setup: unknown part $part; there are llvm, python, clang, static and aarch64" >&2 && exit 2 ;;
    esac
done

is_there() { # probe
    case $1 in
        python3:*) python3 -c "import ${1#*:}" 2> /dev/null ;;
        Python.h) python3 -c 'import os, sysconfig; exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2> /dev/null ;;
        *) command -v "$1" > /dev/null || [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ] || [ -e "/usr/$1" ] ;;
    esac
}
# Prints the packages of a list whose probe fails, those that serve as well as in a|b.
missing_of() { # list
    local line packages
    while read -r -a line; do
        packages=""
        while [ ${#line[@]} -gt 0 ] && ! is_there "${line[0]}"; do
            packages+=${packages:+|}${line[1]}
            line=("${line[@]:2}")
        done
        if [ ${#line[@]} -eq 0 ] && [ -n "$packages" ]; then echo "$packages"; fi
    done <<< "$1"
}
mapfile -t missing < <(missing_of "$needed")
mapfile -t wished < <(missing_of "$optional")
[ $((${#missing[@]} + ${#wished[@]})) -gt 0 ] || exit 0

if ! command -v apt-get > /dev/null; then
    if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
    echo "setup: this system has no apt-get; install what Debian calls: ${missing[*]}" >&2
    exit 3
fi
# Prints the optional packages that this system offers, as far as its package lists have been fetched.
offered() {
    local package packages
    for packages in "${wished[@]}"; do
        for package in ${packages//|/ }; do
            if apt-cache show "$package" > /dev/null 2>&1; then echo "$package" && break; fi
        done
    done
}
if [ ${#missing[@]} -eq 0 ] && apt-cache show g++ > /dev/null 2>&1 && [ -z "$(offered)" ]; then exit 0; fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null; then
        if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
        echo "setup: run as root: apt-get update && apt-get install ${missing[*]}${wished[*]:+, and if there are: ${wished[*]//|/ or }}" >&2
        exit 3
    fi
    as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# apt-get does not wait for another apt-get that is fetching lists, as a system does by itself after its first start. If
# one list cannot be fetched (from another repository), the others are still used.
patience=$((SECONDS + 300))
until "${as_root[@]}" apt-get update -qq > "$log" 2>&1; do
    if [ $SECONDS -lt $patience ] && grep -qF /lists/lock "$log"; then sleep 2 && continue; fi
    cat "$log" >&2 && echo "setup: apt-get could not fetch all lists" >&2 && break
done
mapfile -t -O ${#missing[@]} missing < <(offered)
[ ${#missing[@]} -gt 0 ] || exit 0
echo "setup: installing ${missing[*]}" >&2
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" > "$log" 2>&1; then
    cat "$log" >&2
    echo "setup: apt-get could not install ${missing[*]}" >&2
    exit 1
fi
