#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - install what is missing, build with gcc and warnings as errors, run all tests.
#
#   tests/run.sh [more arguments for ctest]
#
# Builds in build/ of the repository, or in $DCPK_BUILD. Its last lines are ctest's summary, its exit
# status is ctest's.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${DCPK_BUILD:-$root/build}

"$root/tools/deps.sh" tests
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_C_COMPILER=gcc -DDCPK_WERROR=ON >"$build.log" 2>&1 || {
    cat "$build.log" >&2
    exit 1
}
rm -f "$build.log"
cmake --build "$build" --parallel 2
exec ctest --test-dir "$build" --output-on-failure -j3 "$@"
