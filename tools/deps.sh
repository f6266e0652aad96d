#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deps.sh - install the Debian packages that a build needs and that are missing.
#
#   tools/deps.sh build|tests|ci|release|browser|hosts
#
# build: to build dcpkit; tests: to build and run the tests as well; ci: also clang, lld, shellcheck, codespell;
# release: what tools/release.sh needs; browser: a headless one that opens pages;
# hosts: what tests/hosts needs, Slurm among it.
# Installs only what is missing; where nothing is, it needs neither apt nor root.
set -euo pipefail

build=(gcc libc6-dev cmake ninja-build pkg-config libcjson-dev libxxhash-dev libdeflate-dev
    libpcre2-dev libssl-dev zlib1g-dev libzstd-dev libblosc-dev libarchive-dev libyaml-dev)
tests=(libcmocka-dev jq zip zstd libopenmpi-dev openmpi-bin)
ci=(clang lld clang-format libclang-rt-dev shellcheck codespell python3-venv)
release=(libopenmpi-dev openmpi-bin liblz4-dev dpkg-dev rpm cpio lintian rpmlint patchelf jq git python3-venv python3-yaml)
browser=(chromium)
hosts=(iproute2 openmpi-bin slurmctld slurmd slurm-client munge sshfs openssh-sftp-server)

case "${1:-}" in
build) wanted=("${build[@]}") ;;
tests) wanted=("${build[@]}" "${tests[@]}") ;;
ci) wanted=("${build[@]}" "${tests[@]}" "${ci[@]}") ;;
release) wanted=("${build[@]}" "${release[@]}") ;;
browser) wanted=("${browser[@]}") ;;
hosts) wanted=("${hosts[@]}") ;;
*)
    echo "usage: tools/deps.sh build|tests|ci|release|browser|hosts" >&2
    exit 2
    ;;
esac

# A package counts as there when dpkg says so, or when another one stands in for it.
has_package() {
    dpkg-query -W -f='${Status}\n' "$1" 2>/dev/null | grep -q '^install ok installed'
}

# Without dpkg: is what the packages bring there?
has_without_dpkg() {
    local program
    for program in cc cmake ninja pkg-config; do
        command -v "$program" >/dev/null || return 1
    done
    pkg-config --exists libcjson libxxhash libdeflate libpcre2-8 libcrypto zlib || return 1
    [ "$1" = build ] || pkg-config --exists cmocka
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    if has_without_dpkg "$1"; then
        exit 0
    fi
    echo "deps.sh: this system has no apt-get; install what these Debian packages hold:" >&2
    echo "  ${wanted[*]}" >&2
    exit 1
fi

missing=()
for package in "${wanted[@]}"; do
    has_package "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps.sh: missing ${missing[*]}, and neither root nor sudo to install them" >&2
        exit 1
    fi
    as_root=(sudo)
fi
install_missing() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}"
}
echo "deps.sh: installing ${missing[*]}"
# The lists may be there and fresh enough; fetch them only where they are not.
if ! install_missing >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q
    install_missing
fi
