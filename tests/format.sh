#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh - the formatter would change nothing. Skipped (77) without clang-format 14, because
# other versions lay out the same style differently.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$formatter" ] || ! "$formatter" --version | grep -q 'version 14\.'; then
    echo "format.sh: no clang-format 14 here; skipped"
    exit 77
fi
find lib formats kernels tools tests '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' -print0 | sort -z |
    xargs -0 "$formatter" --dry-run -Werror
