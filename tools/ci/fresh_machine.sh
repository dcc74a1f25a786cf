#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fresh_machine.sh [--suite NAME] [--mirror URL] [--other "PACKAGE ..."] [--folder DIR] [--keep] [--ccache DIR] [bare|other ...]
# Runs the README's two commands in order on fresh machines: a minimal Debian (bookworm, or another suite; an Ubuntu
# suite with its mirror) in a folder, with a clone of this repository's HEAD. `bare` has nothing else; `other` has other
# packages installed before, by default the suite's own Clang and LLVM. Prints a table; exits with 1 if a command
# failed. Needs root and the network (exits with 3 otherwise), 5 GB in DIR (a new folder in /var/tmp, removed without
# --keep), and ten minutes per machine on two cores, less with the ccache that an earlier machine left in
# root/.cache/ccache. Packages come from the sources of this machine's apt-get.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
repository=$PWD
commit=$(git rev-parse HEAD)

suite=bookworm mirror="" other="clang llvm-dev" folder="" keep=0 ccache="" machines=()
while [ $# -gt 0 ]; do
    case $1 in
        --suite) suite=$2 && shift ;;
        --mirror) mirror=$2 && shift ;;
        --other) other=$2 && shift ;;
        --folder) folder=$2 && shift ;;
        --keep) keep=1 ;;
        --ccache) ccache=$2 && shift ;;
        bare | other) machines+=("$1") ;;
        *) echo "fresh_machine: unknown $1" >&2 && exit 2 ;;
    esac
    shift
done
[ ${#machines[@]} -gt 0 ] || machines=(bare other)
cannot() { echo "fresh_machine: $1" >&2 && exit 3; }

[ "$(id -u)" = 0 ] || cannot "needs root"
command -v apt-get > /dev/null || cannot "needs apt-get, which says where packages come from"
unshare --mount true 2> /dev/null || cannot "may not mount file systems here"
command -v debootstrap > /dev/null || apt-get install -y -qq --no-install-recommends debootstrap > /dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends debootstrap > /dev/null; } || cannot "needs debootstrap"

# Finds the archive of this system itself, without additions: the one whose label is the name of its origin.
# shellcheck disable=SC2016
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)' |
    awk -F'|' '$1 == $2 && $3 == "main" && ($1 == "Debian" || $1 == "Ubuntu") { print $4; exit }')
[ -n "$mirror" ] || cannot "apt-get here has no archive of Debian's or Ubuntu's; name one with --mirror"
proxy=""
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "$proxy" ] || export http_proxy=$proxy

given=$folder
[ -n "$folder" ] || folder=$(mktemp -d /var/tmp/fresh_machine.XXXXXX)
mkdir -p "$folder"
folder=$(realpath "$folder")
logs=$folder/logs
mkdir -p "$logs"
# Every mount is in a namespace that ends with its command, so nothing is mounted below a folder when it is removed.
remove() { # folder below $folder
    if grep -qF " $1/" /proc/self/mounts; then echo "fresh_machine: something is mounted below $1; it stays" >&2 && return; fi
    rm -rf --one-file-system "$1"
}
clean_up() {
    [ $keep = 0 ] || { echo "kept: $folder" && return; }
    for part in base "${machines[@]}" logs; do remove "$folder/$part"; done
    [ -n "$given" ] || rmdir "$folder"
}
trap clean_up EXIT

# Gives a machine what it needs to reach the network: name servers, settings of apt and pip, and this machine's trusted
# certificates, under a file name that no package in the machine writes.
certificates=/etc/ssl/certs/ca-certificates.crt
trusted=/etc/fresh_machine.crt
connect() { # root
    local file
    apt-config dump | grep -E '^Acquire::(http|https|Retries|Check|ForceIPv4)' > "$1/etc/apt/apt.conf.d/90host" || true
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
        if [ -e $file ]; then cp -L $file "$1$file"; fi
    done
    if [ -e $certificates ]; then
        cp -L $certificates "$1$trusted"
        echo "Acquire::https::CaInfo \"$trusted\";" >> "$1/etc/apt/apt.conf.d/90host"
    fi
}
inside() { # root, command...
    local passed=()
    mapfile -t passed < <(env | grep -E '^(PIP_|UV_|[A-Za-z]+_(proxy|PROXY)=)' | grep -vE '^PIP_(CERT|FIND_LINKS)=')
    if [ -e "$1$trusted" ]; then passed+=("PIP_CERT=$trusted" "SSL_CERT_FILE=$trusted"); fi
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        root=$1 && shift
        mount -t proc proc "$root/proc"
        mount --bind /dev "$root/dev"
        mount -t devpts devpts "$root/dev/pts"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount -t sysfs -o ro sysfs "$root/sys"
        exec chroot "$root" env -i "$@"' bash "$1" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "${passed[@]}" "${@:2}" < /dev/null
}

table=()
failed=0
step() { # machine, name, a pattern of the most informative line of its log, command...
    local start=$SECONDS result=passed log
    log=$logs/$1-$(basename "$2").log
    echo "== $1: $2" >&2
    "${@:4}" > "$log" 2>&1 || { result="failed ($?)" failed=1 && tail -n 40 "$log" >&2; }
    table+=("$1|$2|$result|$((SECONDS - start))|$(grep -E "$3" "$log" | tail -n 2 | paste -sd ';' | cut -c 1-200 || true)")
    [ "$result" = passed ]
}
make_base() {
    local components=main
    # If debootstrap is older than the suite, it has no script with that name; later suites are made in the same way as
    # these two.
    local script=sid
    case $mirror in *ubuntu*) components=main,universe script=gutsy ;; esac
    [ ! -e "/usr/share/debootstrap/scripts/$suite" ] || script=""
    unshare --mount debootstrap --variant=minbase --components=$components "$suite" "$folder/base" "$mirror" $script &&
        connect "$folder/base"
}
add_other() { # root
    # shellcheck disable=SC2086
    inside "$1" sh -c "apt-get update -qq && apt-get install -y -qq --no-install-recommends $other && llvm-config --version"
}

[ ! -e "$folder/base" ] || remove "$folder/base"
step base debootstrap 'installed successfully' make_base || cannot "no $suite from $mirror"
for machine in "${machines[@]}"; do
    root=$folder/$machine
    [ ! -e "$root" ] || remove "$root"
    cp -a "$folder/base" "$root"
    if [ -n "$ccache" ]; then mkdir -p "$root/root/.cache" && cp -a "$ccache" "$root/root/.cache/ccache"; fi
    git clone -q --no-hardlinks --no-checkout "$repository" "$root/root/normjit"
    git -C "$root/root/normjit" checkout -q --detach "$commit"
    if [ "$machine" = other ] && ! step other "install $other" '^[0-9.]+$' add_other "$root"; then continue; fi
    step "$machine" tools/sample.sh 'ulp.*(matches|right|wrong)' inside "$root" /root/normjit/tools/sample.sh || true
    step "$machine" tools/test.sh 'tests passed|skipped: |nothing skipped' inside "$root" /root/normjit/tools/test.sh || true
    [ $keep = 1 ] || remove "$root"
done

printf '%s of %s, at %s:\n' "$suite" "$mirror" "${commit:0:10}"
printf '%-8s  %-24s  %-10s  %7s  %s\n' machine step result seconds "what it said"
for row in "${table[@]}"; do
    IFS='|' read -r machine name result seconds said <<< "$row"
    printf '%-8s  %-24s  %-10s  %7s  %s\n' "$machine" "$name" "$result" "$seconds" "$said"
done
exit $failed
