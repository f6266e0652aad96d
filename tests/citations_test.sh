#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# citations_test.sh - citations.awk and sources.awk find each kind of fault, and none in what is right or not ours.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p lib formats/zarr

printf '%s\n' '# zarr' '## 1. A folder' '### 1.1 Keys' '## 2. Chunks' >formats/zarr/FORMAT.md
printf '%s\n' '# dcpkit' >README.md
cat >lib/good.c <<'END'
/* formats/zarr/FORMAT.md 1 and 1.1, 2; FORMAT.md and README.md of any folder; `formats/zarr/FORMAT.md` 2. */
/* spec.md@v1 3, $DIR/spec.md, *.md, <format>/FORMAT.md, README.md. It goes on: formats/zarr/FORMAT.md
 * 1.1. */
END
printf '%s\n' '/* FORMAT.md 2, ../../README.md */' >formats/zarr/zarr.c
cat >lib/bad.c <<'END'
/* spec.md 4.2 */
/* formats/zarr/FORMAT.md 1.2 */
/* formats/zarr/FORMAT.md 1 and 3 to 4 */
/* FORMAT.md 1 */
/* README.md 1; it goes on: formats/zarr/FORMAT.md
 * 9. */
END
cat >formats/zarr/more.md <<'END'
[spec](../lib/spec.md), `formats/zarr/FORMAT.md` 5
END

awk -v documents=README.md:formats/zarr/FORMAT.md:formats/zarr/more.md -f "$here/citations.awk" \
    lib/good.c formats/zarr/zarr.c lib/bad.c formats/zarr/more.md >found
diff - found <<'END'
lib/bad.c:1: 'spec.md' does not exist
lib/bad.c:2: 'formats/zarr/FORMAT.md' has no section 1.2
lib/bad.c:3: 'formats/zarr/FORMAT.md' has no section 3
lib/bad.c:3: 'formats/zarr/FORMAT.md' has no section 4
lib/bad.c:4: 'FORMAT.md' does not exist
lib/bad.c:5: 'README.md' has no section 1
lib/bad.c:5: 'formats/zarr/FORMAT.md' has no section 9
formats/zarr/more.md:1: '../lib/spec.md' does not exist
formats/zarr/more.md:1: 'formats/zarr/FORMAT.md' has no section 5
END

# Source files in comments.
cat >lib/box.c <<'END'
/* box.h, tensor/box.h and lib/tensor/box.h; csrc/x.cu@v1, csrc/y.cu, <stdio.h>, cmd_<name>.c, compare_*.c,
 * box.hpp. */
const char *text = "nowhere.h"; // gone.cuh
/* tensor/box.c and lib/box.h, but not "box.h" in "gone.h",
 * gone.h: */ int gone_h; /* bax.c */
END
awk -v sources=lib/tensor/box.h:lib/cmd.c -f "$here/sources.awk" lib/box.c >found
diff - found <<'END'
lib/box.c:3: 'gone.cuh' does not exist
lib/box.c:4: 'tensor/box.c' does not exist
lib/box.c:4: 'lib/box.h' does not exist
lib/box.c:4: 'gone.h' does not exist
lib/box.c:5: 'gone.h' does not exist
lib/box.c:5: 'bax.c' does not exist
END
