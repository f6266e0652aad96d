#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# static_deps.sh - static archives of the libraries that the distribution has as shared ones alone, or with too much in them.
#
#   tools/packaging/static_deps.sh PREFIX [SOURCES]
#
# cJSON has no archive on Debian; libarchive's needs eleven further libraries, and blosc's is C++ through snappy. Builds the three
# from Debian's or Ubuntu's own source packages: libarchive reads tar and zip with gzip and zstd; blosc has lz4, zlib and zstd.
# The other archives come with the -dev packages that tools/deps.sh release installs. Does nothing where PREFIX is complete.
# SOURCES: a folder where `apt-get source` has unpacked the three; nothing is downloaded then.
set -euo pipefail

[ $# -eq 1 ] || [ $# -eq 2 ] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
mkdir -p "$1"
prefix=$(realpath "$1")
[ ! -e "$prefix/complete" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# download: the sources of the same release and mirror as the packages that are installed, with the distribution's patches.
download() {
    local list apt
    mkdir -p "$work/parts" "$work/lists/partial" "$sources"
    for list in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$list" ] || sed 's/^Types: deb$/Types: deb-src/' "$list" >"$work/parts/${list##*/}"
    done
    [ ! -e /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$work/parts/main.list"
    apt=(apt-get -q -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists"
        -o APT::Sandbox::User=root)
    "${apt[@]}" update && cd "$sources" && "${apt[@]}" source cjson c-blosc libarchive
}
sources=${2:-$work/src}
[ $# -eq 2 ] || (download) >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }

# build PACKAGE OPTION...: builds and installs what OPTION says.
build() {
    local package=$1 folder
    shift
    folder=$(echo "$sources/$package"-[0-9]*/)
    {
        cmake -S "$folder" -B "$work/$package" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
            -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF "$@" &&
            cmake --build "$work/$package" && cmake --install "$work/$package"
    } >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2 && return 1; }
}
build cjson -DENABLE_CJSON_TEST=OFF
build c-blosc -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DBUILD_FUZZERS=OFF -DBUILD_BENCHMARKS=OFF -DDEACTIVATE_SNAPPY=ON \
    -DPREFER_EXTERNAL_LZ4=ON -DPREFER_EXTERNAL_ZLIB=ON -DPREFER_EXTERNAL_ZSTD=ON
off=()
for part in OPENSSL MBEDTLS NETTLE LIBB2 LZ4 LZO LZMA BZip2 LIBXML2 EXPAT PCREPOSIX LIBGCC CNG TAR CPIO CAT UNZIP XATTR ACL ICONV TEST; do
    off+=("-DENABLE_$part=OFF")
done
build libarchive "${off[@]}" -DENABLE_ZSTD=ON -DENABLE_ZLIB=ON
touch "$prefix/complete"
