#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# manylinux.sh - the wheel for every Linux with glibc 2.28 (RHEL 8, Debian 10). To be run in an image of manylinux_2_28 (AlmaLinux 8).
#
#   tools/packaging/manylinux.sh SDIST SOURCES OUT     writes OUT/dcpkit-VERSION-py3-none-manylinux_2_28_x86_64.whl
#
#   apt-get source cjson c-blosc libarchive libdeflate libyaml libzstd lz4 openssl pcre2 xxhash zlib      in SOURCES, on Debian
#   podman run --rm -v "$PWD:/src" -v OUT:/out -v SOURCES:/sources IMAGE /src/tools/packaging/manylinux.sh /out/SDIST /sources /out
#
# SDIST comes from tools/release.sh; its THIRD-PARTY names the versions of SOURCES. AlmaLinux 8 has older ones, or no archives.
# It was never run in such an image. On Debian 12 all steps but dnf and pip were: they make a wheel (2_34 there) that converts a
# sample, and glibc 2.28 has every function that it calls, too.
set -euo pipefail

[ $# -eq 3 ] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
set -- "$(realpath "$1")" "$(realpath "$2")" "$(realpath "$3")"
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
if command -v dnf >/dev/null; then
    dnf install -y -q autoconf automake libtool perl-core pkgconf-pkg-config
    PATH=/opt/python/cp312-cp312/bin:$PATH # of the image
    pip install -q cmake ninja
fi
export CFLAGS="-O2 -fPIC" PKG_CONFIG_PATH=$prefix/lib/pkgconfig
cp -rL "$2" "$prefix/src" # some builds write to their sources
cd "$prefix/src"

for folder in libdeflate-* xxhash-* lz4-*/lib libzstd-*/lib; do
    make -s -j"$(nproc)" -C "$folder" install PREFIX="$prefix"
done
(cd zlib-*/ && ./configure --static --prefix="$prefix" && make -s install)
(cd libyaml-*/ && autoreconf -fi && ./configure --prefix="$prefix" --disable-shared && make -s install)
(cd pcre2-*/ && ./configure --prefix="$prefix" --disable-shared --enable-jit && make -s -j"$(nproc)" install)
(cd openssl-*/ && ./Configure --prefix="$prefix" --libdir=lib no-shared no-tests && make -s -j"$(nproc)" build_libs && make -s install_dev)
"$here/static_deps.sh" "$prefix" "$prefix/src"
# The time of the commit, which all files of a source distribution have.
SOURCE_DATE_EPOCH=$(date -u -d "$(TZ=UTC tar --full-time -tvzf "$1" | awk 'NR == 1 { print $4, $5 }')" +%s)
export SOURCE_DATE_EPOCH
"$here/wheel.sh" "$3" "$1"
