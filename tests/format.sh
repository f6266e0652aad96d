#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh - conditional expressions are few, short and without calls that fail (choices.awk); comments and strings are in
# plain words (words.awk); the formatter would change nothing. Skipped (77) after the first parts without clang-format 14: other versions
# lay out the same style differently.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
faults=$(
    find lib formats kernels tools -name '*.[ch]' -print0 | sort -z | xargs -0 awk -v most=8 -f tests/choices.awk
    find lib formats kernels tools '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' -print0 | sort -z |
        xargs -0 awk -f tests/words.awk
)
if [ -n "$faults" ]; then
    echo "$faults"
    exit 1
fi
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$formatter" ] || ! "$formatter" --version | grep -q 'version 14\.'; then
    echo "format.sh: no clang-format 14 here; skipped"
    exit 77
fi
find lib formats kernels tools tests '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' -print0 | sort -z |
    xargs -0 "$formatter" --dry-run -Werror
