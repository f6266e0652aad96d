#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# third_party.sh - prints name, version and licences of every library whose archive is linked with DCPK_STATIC=ON.
#
#   tools/packaging/third_party.sh [--list] >THIRD-PARTY
#
# The texts are those of the distribution's packages. --list: a line each, "name version", for the bill of materials.
set -euo pipefail

packages=(libcjson-dev libxxhash-dev libdeflate-dev zlib1g-dev libzstd-dev libblosc-dev liblz4-dev libpcre2-dev libyaml-dev
    libarchive-dev libssl-dev)
for package in "${packages[@]}"; do
    read -r source version < <(dpkg-query -W -f='${source:Package} ${source:Version}\n' "$package")
    if [ "${1:-}" = --list ]; then
        echo "$source $version"
    else
        printf '%s\n%s %s\n\n' "$(printf '=%.0s' {1..80})" "$source" "$version"
        cat "/usr/share/doc/$package/copyright"
        echo
    fi
done
