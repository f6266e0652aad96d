#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# layers_test.sh - layers.sh finds each kind of fault, and no fault where there is none.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
tag='/* SPDX-License-Identifier: Apache-2.0 */'

# reset: a small tree without a fault.
reset() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree"/{lib/base,lib/tensor,formats/dcp,formats/safetensors,kernels/cpu,tools,tests,.ci}
    put lib/base/error.h
    put lib/tensor/box.h '#include "lib/base/error.h"'
    put lib/tensor/box.c '#include <stdint.h>' '#include "lib/tensor/box.h"'
    put formats/dcp/dcp_priv.h
    put formats/dcp/dcp.c '#include "formats/dcp/dcp_priv.h"' '#include "lib/tensor/box.h"'
}

# put FILE [LINE...]: a source with a right head and these lines.
put() {
    printf '%s\n' "$tag" "/* $(basename "$1") - for the test. */" "${@:2}" >"$tree/$1"
}

failed=0
# finds LABEL TEXT: layers.sh fails and says TEXT; then the tree is made good again.
finds() {
    local said
    if said=$("$here/layers.sh" "$tree"); then
        echo "$1: not found"
        failed=1
    elif [[ $said != *"$2"* ]]; then
        echo "$1: wanted '$2', got: $said"
        failed=1
    fi
    reset
}

reset
"$here/layers.sh" "$tree" || failed=1
put lib/base/map.c '#include "lib/tensor/box.h"'
finds "upward include" 'lib/base/map.c:3: lib/base may not include lib/tensor/box.h'
put lib/tensor/piece.c '#include "formats/dcp/dcp_priv.h"'
finds "lib includes a format" 'lib/tensor may not include formats/dcp/dcp_priv.h'
put formats/safetensors/zarr.c '#include "formats/dcp/dcp_priv.h"'
finds "a format includes another" 'formats/safetensors may not include'
put tools/main.c '#include "formats/dcp/dcp_priv.h"'
finds "private header from outside" 'private to its folder'
put lib/tensor/piece.c '#include "box.h"'
finds "not from the root" 'not spelled from the root'
put lib/tensor/piece.c '#include <lib/tensor/box.h>'
finds "angle brackets" 'include it with quotes'
put formats/safetensors/box.c
finds "basename twice" 'one basename, twice'
put lib/tensor/piece.h 'struct dcpk_piece {'
put kernels/cpu/cpu.h 'struct dcpk_piece {'
finds "a struct's name twice" 'lib/tensor/piece.h:3: struct dcpk_piece is defined more than once'
printf '/* piece.c - no tag. */\n' >"$tree/lib/tensor/piece.c"
finds "no SPDX tag" 'the first line is not the SPDX tag'
printf '%s\nint x;\n' "$tag" >"$tree/lib/tensor/piece.c"
finds "no purpose" 'name and purpose'
put lib/tensor/piece.c '    strcpy(a, b);'
finds "banned function" 'lib/tensor/piece.c:3: a banned function'
put lib/tensor/piece.c '    printf("x");'
finds "lib prints" 'only tools print and exit'
put tools/cmd_hash.c '    fprintf(stderr, "%s", key);'
finds "a tool prints by itself" 'what is printed goes through tools/wrap.h'
put tools/wrap.c '    fwrite(text, 1, n, to);'
"$here/layers.sh" "$tree" || failed=1
reset
put lib/tensor/piece.c '    p = malloc(3);'
finds "malloc" 'allocation goes through'
put lib/tensor/piece.c '    pthread_create(&t, NULL, f, NULL);'
finds "thread" 'threads start in lib/exec only'
put lib/tensor/piece.c '        goto fail;'
finds "another label" 'the one exit label is out'
put lib/tensor/piece.c '    return dcpk_fail(err, "\"%s\" exists: --force replaces it");'
finds "an option of ours" 'lib/tensor/piece.c:3: an option of the command line'
put lib/tensor/piece.c '    return "load with --no-load-optim"; /* "a" --b "c" */'
"$here/layers.sh" "$tree" || failed=1
put lib/tensor/piece.c 'static int move(int a, int b, int c,' '                int d, int e, int f, int g)' '{' '}'
finds "seven parameters" 'lib/tensor/piece.c:3: move has 7 parameters'
put lib/tensor/piece.c 'static int move(int a, int b, int c, int d, int e, int f)' '{' '    return put(a, b, c, d, e, f, 7, 8);' '}'
"$here/layers.sh" "$tree" || failed=1
put lib/tensor/piece.c 'static bool find(const char *a,' '                 int b)' '{' '}'
put lib/tensor/slice.c 'static int find(void);' 'static char *find(void)' '{' '}'
finds "one static, two files" 'lib/tensor/slice.c:3: static find is also in lib/tensor/piece.c'
put lib/tensor/piece.c 'static int find(void)' '{' '}'
put lib/base/slice.c 'static int find(void)' '{' '}'
put lib/base/twice.c 'static int seek(int a' 'static int seek(int a, int b)' 'static const int find = 3;'
"$here/layers.sh" "$tree" || failed=1
reset
mkdir "$tree/lib/extra" && put lib/extra/x.c
finds "a folder without a layer" 'no folder of this name'
exit "$failed"
