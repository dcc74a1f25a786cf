#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# downstream.sh BUILD: installs a build of normjit in a temporary folder, then builds and runs projects that use it,
# each in a different way.
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export NORMJIT_CACHE_DIR=off

# Uses the generator and the compilers of the build, since others may not be installed.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
export CMAKE_GENERATOR CXX CC
CMAKE_GENERATOR=$(cached CMAKE_GENERATOR)
PATH=$PATH:$(dirname "$(cached CMAKE_MAKE_PROGRAM)")
CXX=$(cached CMAKE_CXX_COMPILER)
CC=$(dirname "$CXX")/$(basename "$CXX" | sed 's/clang++/clang/; s/g++/gcc/; s/c++/cc/')
command -v "$CC" > /dev/null || CC=cc

quiet() { "$@" > log 2>&1 || { cat log >&2; exit 1; }; }
run_tests() { ctest --test-dir "$1" --output-on-failure | tail -n 20; }

echo "== install"
quiet cmake --install "$build" --prefix "$work/prefix"
mv prefix moved # nothing may depend on the old place
prefix=$work/moved
(cd moved && find . -type f -o -type l | sort)

echo "== no library names the folder of the sources, except for debuggers"
for file in "$prefix"/bin/* "$(find "$prefix" -name libnormjit.so)" $(find "$prefix" -name 'libnormjit_*.so'); do
    strip -o stripped "$file"
    if grep -qF "$source" stripped; then echo "$file does"; exit 1; fi
done

echo "== the pages that headers name are there"
for page in $(grep -rhoE '[A-Z]+\.md' "$prefix/include" | sort -u); do
    [ -n "$(find "$prefix" -name "$page")" ] || { echo "no $page"; exit 1; }
done

echo "== only the C interface leaves the shared library"
library=$(find "$prefix" -name libnormjit.so)
other=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^normjit_' || true)
[ -z "$other" ] || { echo "also exported: $other"; exit 1; }
[ "$(nm -D --defined-only "$library" | grep -c ' T normjit_')" = \
    "$(grep -c '^NORMJIT_API' "$prefix/include/normjit/normjit.h")" ]

llvm=$(find "$prefix" -name 'libnormjit_llvm-*.so')
if [ -n "$llvm" ]; then
    echo "== LLVM's library has one function, is found beside normjit's, and must be of the same build"
    [ "$(nm -D --defined-only "$llvm" | awk '{print $3}')" = normjit_llvm ]
    compile() { "$prefix/bin/normjit" compile "layernorm cols=77" --target x86-64-v3 --emit artifact -o made; }
    fails_with() { # text
        if compile > log 2>&1; then echo "compiled"; exit 1; fi
        grep -qF "$1" log || { cat log; exit 1; }
    }
    quiet compile
    mkdir other
    fingerprint=$(sed -n 's/.*fingerprint = "\(.*\)";/\1/p' "$build/compiler/fingerprint.cpp")
    sed "s/$fingerprint/${fingerprint//[0-9]/x}/g" "$llvm" > "other/$(basename "$llvm")"
    LD_LIBRARY_PATH=$PWD/other fails_with "built from other sources"
    mkdir broken
    echo "no library" > "broken/$(basename "$llvm")"
    LD_LIBRARY_PATH=$PWD/broken fails_with "broken/$(basename "$llvm"): file too short"
    mv "$llvm" away
    fails_with "belongs next to its library"
    mv away "$llvm"

    "$CC" -std=gnu11 -D_GNU_SOURCE -I"$prefix/include" -x c - -ldl -o opens << 'EOF'
#include <dlfcn.h>
#include <normjit/normjit.h>
#include <stdio.h>
#include <string.h>

static const char* compiles(void* library) {
    if (library == NULL) return dlerror();
    __typeof__(&normjit_spec_parse) parse = dlsym(library, "normjit_spec_parse");
    __typeof__(&normjit_compile) compile = dlsym(library, "normjit_compile");
    __typeof__(&normjit_last_error) last_error = dlsym(library, "normjit_last_error");
    normjit_spec spec = {.size = sizeof spec};
    normjit_artifact* artifact = NULL;
    if (parse("layernorm cols=77", &spec) != NORMJIT_OK) return last_error();
    return compile("x86-64-v3", &spec, NULL, &artifact) == NORMJIT_OK ? NULL : last_error();
}

int main(int count, char** arguments) {
    const int flags = RTLD_NOW | RTLD_LOCAL, apart = strcmp(arguments[1], "apart") == 0;
    for (int i = 2; i < count; ++i) {
        const char* error = compiles(apart ? dlmopen(LM_ID_NEWLM, arguments[i], flags) : dlopen(arguments[i], flags));
        if (error != NULL) return puts(error);
    }
    return 0;
}
EOF
    echo "== a library in a namespace of its own (dlmopen) opens LLVM's"
    ./opens apart "$library"

    echo "== two builds in one process each open their own LLVM library"
    sed "s/$fingerprint/${fingerprint//[0-9]/x}/g" "$library" > other/libnormjit.so
    ./opens together "$library" "$PWD/other/libnormjit.so"
    ./opens together "$PWD/other/libnormjit.so" "$library"

    echo "== a surrounding project says where libraries go, and how debug builds are named; programs still find LLVM's"
    mkdir around
    cat > around/CMakeLists.txt << 'EOF'
cmake_minimum_required(VERSION 3.22)
project(around LANGUAGES CXX)
add_subdirectory(${SOURCE} normjit)
set(options $<TARGET_GENEX_EVAL:normjit_static,$<TARGET_PROPERTY:normjit_static,INTERFACE_LINK_OPTIONS>>)
set(rpath $<TARGET_GENEX_EVAL:normjit_shared,$<TARGET_PROPERTY:normjit_shared,BUILD_RPATH>>)
file(GENERATE OUTPUT where.txt CONTENT "${options}\n${rpath}\n$<TARGET_FILE_NAME:normjit_llvm>\n")
EOF
    quiet cmake -S around -B around/build -DSOURCE="$source" -DNORMJIT_LLVM=ON -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$work/libraries" \
        -DCMAKE_BUILD_TYPE=Debug -DCMAKE_DEBUG_POSTFIX=_debug
    printf '%s\n' "LINKER:-rpath,$work/libraries" "$work/libraries" "$(basename "$llvm")" | diff - around/build/where.txt
fi

echo "== find_package"
quiet cmake -S "$source/tests/embed/downstream" -B found -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
quiet cmake --build found
run_tests found

echo "== a project in C alone"
mkdir c_alone
cat > c_alone/CMakeLists.txt << 'EOF'
cmake_minimum_required(VERSION 3.10)
project(c_alone LANGUAGES C)
find_package(normjit REQUIRED)
enable_testing()
foreach(library shared static normjit)
  add_executable(${library} ${SOURCE})
  target_link_libraries(${library} PRIVATE normjit::${library} m)
  add_test(NAME ${library} COMMAND ${library})
  set_tests_properties(${library} PROPERTIES SKIP_RETURN_CODE 3)
endforeach()
EOF
quiet cmake -S c_alone -B c_alone/build -DCMAKE_PREFIX_PATH="$prefix" -DSOURCE="$source/tests/embed/example.c"
quiet cmake --build c_alone/build
run_tests c_alone/build

echo "== the program of README.md, by its lines of CMake"
block() { # language: the README's block of it
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$source/README.md" | sed '/^```/d'
}
mkdir readme
block cpp > readme/app.cpp
{ printf 'cmake_minimum_required(VERSION 3.22)\nproject(app LANGUAGES CXX)\n' && block cmake; } > readme/CMakeLists.txt
quiet cmake -S readme -B readme/build -DCMAKE_PREFIX_PATH="$prefix"
quiet cmake --build readme/build
code=0
readme/build/app || code=$?
[ $code = 0 ] || [ $code = 3 ]

if command -v pkg-config > /dev/null; then
    echo "== pkg-config"
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name normjit.pc)")
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046
    "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror "$source/tests/embed/example.c" $(pkg-config --cflags --libs normjit) -lm -o by_hand
    code=0
    LD_LIBRARY_PATH=$(dirname "$library") ./by_hand || code=$?
    [ $code = 0 ] || [ $code = 3 ]
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$source/tests/embed/example.c" $(pkg-config --cflags --libs normjit-static) -o by_hand
    # shellcheck disable=SC2046
    "$CXX" -std=c++20 "$source/tests/embed/example.cpp" $(pkg-config --cflags --libs normjit-static) -o static_by_hand
    for program in by_hand static_by_hand; do
        code=0
        ./$program || code=$?
        [ $code = 0 ] || [ $code = 3 ]
    done
    echo "== pkg-config --static, where only the static library is installed"
    cp -r "$prefix" archive
    find archive -name 'libnormjit.so*' -delete
    PKG_CONFIG_PATH=$(dirname "$(find "$PWD/archive" -name normjit.pc)") pkg-config --static --cflags --libs normjit > flags
    for how in "" -static -static-pie; do
        # shellcheck disable=SC2046,SC2086
        if ! "$CC" -std=c11 $how "$source/tests/embed/example.c" $(cat flags) -o by_hand 2> log; then
            [ -n "$how" ] || { cat log; exit 1; }
            continue # it needs archives of other libraries, which may not be installed
        fi
        NORMJIT_ISA=portable ./by_hand
    done
    if grep -F rpath flags; then exit 1; fi # a -static-pie program must have no RUNPATH

    echo "== a program whose standard classes have another layout does not link"
    # shellcheck disable=SC2046
    if "$CXX" -std=c++20 -D_GLIBCXX_DEBUG "$source/tests/embed/example.cpp" $(pkg-config --cflags --libs normjit-static) -o by_hand 2> log; then
        exit 1
    fi
    grep -qF same_layout log
    # shellcheck disable=SC2046
    if [ -n "$llvm" ] && "$CC" -static "$source/tests/embed/example.c" $(pkg-config --cflags --libs normjit-static) -o by_hand 2> log; then
        echo "== a program that is linked with -static, which cannot open LLVM's library"
        code=0
        LD_LIBRARY_PATH=$(dirname "$library") NORMJIT_ISA=sse ./by_hand 2> log || code=$?
        [ $code = 3 ] && grep -qF -- "-static" log
        NORMJIT_ISA=portable ./by_hand
    fi
    if [ -n "$llvm" ] && "$CC" -fsanitize=address -x c - -o sanitized <<< 'int main(void) { return 0; }' 2> log && ./sanitized; then
        echo "== a program with AddressSanitizer, which calls dlopen() in place of the library"
        # shellcheck disable=SC2046
        "$CC" -std=c11 -fsanitize=address "$source/tests/embed/example.c" $(pkg-config --cflags --libs normjit) -lm \
            "-Wl,-rpath,$(dirname "$library")" -o sanitized
        NORMJIT_ISA=sse ./sanitized
        # shellcheck disable=SC2046
        "$CC" -std=c11 -fsanitize=address "$source/tests/embed/example.c" $(pkg-config --cflags --libs normjit-static) -o sanitized
        NORMJIT_ISA=sse ./sanitized
    fi

    echo "== pkg-config, where the folders of libraries and headers have full paths, as packagers give them"
    quiet cmake -S "$source" -B configured -DNORMJIT_TESTS=OFF -DNORMJIT_TOOLS=OFF -DNORMJIT_LLVM=OFF \
        -DCMAKE_INSTALL_LIBDIR="$work/full/lib" -DCMAKE_INSTALL_INCLUDEDIR="$work/full/headers"
    mkdir -p full/lib/pkgconfig full/headers
    cp configured/normjit.pc full/lib/pkgconfig
    for variable in libdir=lib includedir=headers; do
        [ "$(realpath "$(PKG_CONFIG_PATH=full/lib/pkgconfig pkg-config --variable=${variable%=*} normjit)")" = \
            "$(realpath full/${variable#*=})" ]
    done
else
    echo "== pkg-config: skipped, there is none"
fi

echo "== a ccache that can write nowhere"
without=(env CCACHE_DIR=/dev/null/none)
quiet "${without[@]}" cmake -S "$source" -B uncached -DNORMJIT_TESTS=OFF -DNORMJIT_TOOLS=OFF -DNORMJIT_LLVM=OFF
quiet "${without[@]}" cmake --build uncached --target normjit_templates

echo "== one message names all packages that are missing"
if cmake -S "$source" -B lacking -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON > log 2>&1; then
    exit 1
fi
tr '\n' ' ' < log | grep -q 'libfmt-dev.*libcli11-dev'

echo "== FetchContent, and a build without LLVM"
# The folder is kept for the next run. The builds do not optimise, because that would take most of the time.
quiet cmake -S "$source/tests/embed/downstream" -B "$build/fetched" -DNORMJIT_SOURCE="$source" \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O0 -ffast-math" -DNORMJIT_LLVM=OFF -DNORMJIT_PCH=ON -DNORMJIT_UNITY=32
quiet cmake --build "$build/fetched"
run_tests "$build/fetched"
