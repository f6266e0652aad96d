#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# subproject.sh - another project takes dcpkit in by add_subdirectory, links a layer of it, and gets none of its tests.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v cmake >/dev/null || exit 77

# run COMMAND...: what it says is shown when it fails.
run() {
    "$@" >"$work/said" 2>&1 || {
        cat "$work/said"
        exit 1
    }
}

cat >"$work/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.22)
project(another LANGUAGES C)
add_subdirectory($here dcpkit)
add_executable(another main.c)
target_link_libraries(another PRIVATE dcpk_tensor)
EOF
cat >"$work/main.c" <<'EOF'
#include <stdio.h>
#include "lib/tensor/dtype.h"
int main(void)
{
    puts(dcpk_dtype_name(DCPK_BF16));
    return 0;
}
EOF
run cmake -S "$work" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DDCPK_CUDA=OFF
run cmake --build "$work/build" --target another
said=$("$work/build/another")
[ "$said" = bfloat16 ] || {
    echo "it said '$said'"
    exit 1
}
[ ! -e "$work/build/dcpkit/tests" ] || {
    echo "its tests are configured too"
    exit 1
}
