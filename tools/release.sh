#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# release.sh - makes what a release ships, from the commit that is checked out. The same commit gives the same bytes.
#
#   tools/release.sh OUT
#
# OUT gets the tarball, .deb and .rpm packages, the wheel, the source distribution, recipes for Spack and conda that build it, a bill of
# materials (SPDX 2.3) and SHA256SUMS.
# Needs what tools/deps.sh release installs, and the network for source packages and Python's build tools. DCPK_STATIC_PREFIX keeps
# the static archives between runs. About three minutes on two processors.
set -euo pipefail

[ $# -eq 1 ] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
out=$(realpath "$1")
[ -z "$(ls -A "$out")" ] || { echo "release.sh: $out is not empty" >&2 && exit 2; }
[ -z "$(git -C "$root" status --porcelain)" ] || { echo "release.sh: the checkout has changes that are not committed" >&2 && exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
DCPK_COMMIT=$(git -C "$root" rev-parse --short=12 HEAD)
export SOURCE_DATE_EPOCH DCPK_COMMIT TZ=UTC LC_ALL=C
umask 022 # modes of files are part of the packages
version=$(sed -n 's/^project(dcpkit VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")

prefix=${DCPK_STATIC_PREFIX:-$work/static}
"$root/tools/packaging/static_deps.sh" "$prefix"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

# Built from the files of the commit, not from those next to them; pip's are put on top.
"$root/tools/packaging/sdist.sh" "$out" >/dev/null
mkdir "$work/source"
git -C "$root" archive HEAD | tar -x -C "$work/source"
tar -xzf "$out/dcpkit-$version.tar.gz" -C "$work/source" --strip-components=1
{
    cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDCPK_TESTS=OFF -DDCPK_STATIC=ON \
        -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib "-DDCPK_COMMIT=$DCPK_COMMIT" &&
        cmake --build "$work/build" && (cd "$work/build" && cpack)
} >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2 && exit 1; }
mv "$work"/build/dcpkit*.{tar.gz,deb} "$out/"
mv "$work"/build/dcpkit*.rpm "$out/" 2>/dev/null || echo "release.sh: no rpmbuild here, no .rpm made" >&2
"$root/tools/packaging/wheel.sh" "$out" "$work/source" "$work/build" >/dev/null # what is built stays
recipe=("-es/@VERSION@/$version/" "-es/@SHA256@/$(sha256sum "$out/dcpkit-$version.tar.gz" | cut -d' ' -f1)/")
sed "${recipe[@]}" "$root/tools/packaging/spack/package.py" >"$out/dcpkit-$version.spack.py"
sed "${recipe[@]}" "$root/tools/packaging/conda/recipe.yaml" >"$out/dcpkit-$version.conda.yaml"

"$root/tools/packaging/third_party.sh" --list |
    jq -R -s --arg version "$version" --arg commit "$(git -C "$root" rev-parse HEAD)" --argjson at "$SOURCE_DATE_EPOCH" '
    def package($name; $version; $license): {SPDXID: "SPDXRef-\($name)", name: $name, versionInfo: $version,
        downloadLocation: "NOASSERTION", licenseConcluded: $license, licenseDeclared: $license, copyrightText: "NOASSERTION"};
    [split("\n")[] | select(. != "") | split(" ")] as $inside |
    {spdxVersion: "SPDX-2.3", dataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", name: "dcpkit-\($version)",
     documentNamespace: "https://spdx.org/spdxdocs/dcpkit-\($version)-\($commit)",
     creationInfo: {created: ($at | todate), creators: ["Tool: tools/release.sh"]},
     packages: [package("dcpkit"; $version; "Apache-2.0"), ($inside[] | package(.[0]; .[1]; "NOASSERTION"))],
     relationships: [{spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: "SPDXRef-dcpkit"},
        ($inside[] | {spdxElementId: "SPDXRef-dcpkit", relationshipType: "STATIC_LINK", relatedSpdxElement: "SPDXRef-\(.[0])"})]}
    ' >"$out/dcpkit-$version.spdx.json"
(cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
cat "$out/SHA256SUMS"
