#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# foreign.sh ARCHITECTURE FOLDER PACKAGE...: unpacks Debian's packages for another architecture (arm64), and the
# packages that they depend on, in FOLDER/root. FOLDER/run then starts a program from there under QEMU, and
# FOLDER/python starts Python. Needs no root rights, and leaves the system's packages as they are. Does nothing if it
# has already unpacked the same packages. Exits with 3 on systems without apt-get.
set -euo pipefail
architecture=$1
mkdir -p "$2"
folder=$(realpath "$2")
shift 2
command -v apt-get > /dev/null || { echo "foreign.sh: this system has no apt-get" >&2 && exit 3; }
if [ "$(cat "$folder/packages" 2> /dev/null)" = "$*" ]; then exit 0; fi

rm -rf "$folder"
mkdir -p "$folder"/{lists,archives}/partial "$folder"/root/usr/{bin,lib,sbin}
touch "$folder/status"
apt() {
    apt-get -qq "-oAPT::Architecture=$architecture" "-oAPT::Architectures=$architecture" "-oDir::State::Lists=$folder/lists" \
        "-oDir::State::status=$folder/status" "-oDir::Cache::archives=$folder/archives" -oDir::Cache::pkgcache= \
        -oDir::Cache::srcpkgcache= -oDebug::NoLocking=1 "$@" > "$folder/log" 2>&1
}
apt update || true # other repositories may not have this architecture
apt install -y --download-only --no-install-recommends "$@" || { tail -n 3 "$folder/log" >&2 && exit 1; }
for each in bin lib sbin; do ln -s "usr/$each" "$folder/root/$each"; done
for package in "$folder"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$folder/root" -f -
done
rm -r "$folder/archives" "$folder/lists"

case $architecture in
    arm64) machine=aarch64 ;;
    *) machine=$architecture ;;
esac
libraries=$folder/root/usr/lib/$machine-linux-gnu
cat > "$folder/run" << END
#!/bin/sh
export LD_LIBRARY_PATH=$libraries/blas:$libraries/lapack
exec qemu-$machine -L "$folder/root" "\$@"
END
# Python starts child interpreters through this script, because the system cannot run programs of the other
# architecture.
cat > "$folder/python" << END
#!/bin/sh
export PYTHONHOME="$folder/root/usr"
exec "$folder/run" -0 "$folder/python" "$folder/root/usr/bin/python3" "\$@"
END
chmod +x "$folder/run" "$folder/python"
echo "$*" > "$folder/packages"
