#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quickstart.sh - from a fresh clone to a converted checkpoint: install, build, convert a sample, verify it.
#
#   tools/quickstart.sh [--install] [FOLDER]
#
# The converted checkpoint and its report, as JSON and as a page, go to FOLDER, which must not exist (default: a new one
# under the system's folder for temporary files). --install also installs dcpkit to ~/.local. The last line that is
# printed puts dcpkit on the PATH.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
is_installed=
case "${1:-}" in
-h | --help)
    sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
--install)
    is_installed=yes
    shift
    ;;
-*)
    echo "quickstart: unknown option '$1'; there is --install" >&2
    exit 2
    ;;
esac
if [ "$#" -gt 0 ]; then
    [ ! -e "$1" ] || {
        echo "quickstart: $1 exists; give a folder that does not" >&2
        exit 2
    }
    mkdir -p "$1"
    out=$(cd "$1" && pwd)
else
    out=$(mktemp -d "${TMPDIR:-/tmp}/dcpkit-quickstart.XXXXXX")
fi
build=$root/build-release
sample=$root/sample-data/torch_dist_c_dense_tp2pp2

# say TEXT: a headline, with the seconds since the start.
say() {
    printf '\n[%3d s] %s\n' "$SECONDS" "$1"
}

say "install what a build needs and is missing"
"$root/tools/deps.sh" build

say "build dcpkit, optimised, without tests"
build_release() {
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDCPK_TESTS=OFF &&
        cmake --build "$build" --parallel
}
build_release >"$out/build.log" 2>&1 || {
    cat "$out/build.log" >&2
    exit 1
}

say "convert a checkpoint of Megatron core 0.19 (torch_dist, TP2 PP2) to fsdp_dtensor"
set -x
"$build/dcpkit" convert --to fsdp_dtensor --report "$out/report.json" --html "$out/report.html" "$sample" "$out/fsdp_dtensor"
{ set +x; } 2>/dev/null

say "prove it: every tensor against its source, through the conversion rules"
set -x
"$build/dcpkit" verify --against "$sample" "$out/fsdp_dtensor"
{ set +x; } 2>/dev/null

bin=$build
if [ -n "$is_installed" ]; then
    say "install to $HOME/.local"
    cmake --install "$build" --prefix "$HOME/.local" >"$out/install.log"
    bin=$HOME/.local/bin
fi

say "done"
echo "program:    $bin/dcpkit"
echo "checkpoint: $out/fsdp_dtensor"
echo "report:     $out/report.json"
echo "its page:   file://${out// /%20}/report.html"
command -v mpirun >/dev/null || echo "for mpirun: apt-get install libopenmpi-dev openmpi-bin, then this script again"
echo "to call it by its name:"
echo "    export PATH=\"$bin:\$PATH\""
