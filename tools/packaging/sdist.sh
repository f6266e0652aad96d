#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sdist.sh - the source distribution of the Python package: everything that a wheel is built from.
#
#   tools/packaging/sdist.sh OUT          writes OUT/dcpkit-VERSION.tar.gz, prints its path
#
# `pip install OUT/dcpkit-VERSION.tar.gz` builds it; DCPK_STATIC needs the archives of static_deps.sh on PKG_CONFIG_PATH. The files
# are those of the commit, pyproject.toml on top; the same commit gives the same bytes.
set -euo pipefail

[ $# -eq 1 ] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
out=$(realpath "$1")
version=$(sed -n 's/^project(dcpkit VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
name=dcpkit-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/$name"
git -C "$root" archive HEAD CMakeLists.txt README.md CHANGELOG.md LICENSE lib formats kernels tools | tar -x -C "$work/$name"
mv "$work/$name/tools/python/pyproject.toml" "$work/$name/"
"$root/tools/packaging/third_party.sh" >"$work/$name/THIRD-PARTY"
# What pip reads before it builds anything.
cat >"$work/$name/PKG-INFO" <<EOF
Metadata-Version: 2.1
Name: dcpkit
Version: $version
EOF
: "${SOURCE_DATE_EPOCH:=$(git -C "$root" log -1 --format=%ct)}"
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw "--mtime=@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" |
    gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
