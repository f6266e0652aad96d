#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# view.sh - the page of a run in the temporary folder: its address; it is replaced, other files and links are not.
mkdir tmp run empty && export TMPDIR=$TMP/tmp
dense=$SAMPLES/torch_dist_c_dense_tp2pp2
for i in 2 4; do cp -RL --no-preserve=mode "$dense/iter_0000004" "run/iter_000000$i"; done
echo 4 >run/latest_checkpointed_iteration.txt

address=$("$DCPKIT" view run)
page=${address#file://}
[ "$address" = "file://$page" ] && [ "$(dirname "$page")" = "$TMP/tmp" ] && [ -f "$page" ] || echo "address: $address"
basename "$page" | sed 's/-[0-9a-f]\{8\}\././'
grep -c 'class="treemap"' "$page"
# all iterations of the run are on it
grep -o '<td>iter_000000[0-9]</td>' "$page"

# the same address for a new page
"$DCPKIT" view --stats run >again
[ "$(cat again)" = "$address" ] && grep -q 'root mean square of weights' "$page" || echo "not replaced"
[ "$(find tmp -type f | wc -l)" = 1 ] || ls tmp
(cd run && "$DCPKIT" view) | cmp - again

# nothing but a page is replaced
echo mine >"$page"
refuses "another file" 2 "is not a page of dcpkit" "$DCPKIT" view run
echo mine >kept && ln -sf "$TMP/kept" "$page"
refuses "a link" 2 "is not a file: it is not replaced" "$DCPKIT" view run
cat kept
rm "$page"

# a page is as private as its run; an address holds what a path may; failures leave nothing
chmod -R go= run && "$DCPKIT" view run >/dev/null && stat -c %a "$page"
mkdir 'tmp/a b%' && TMPDIR="$TMP/tmp/a b%" "$DCPKIT" view run | grep -o '/tmp/a.*/'
rm -r tmp/*
refuses "no checkpoint" 3 "neither a checkpoint" "$DCPKIT" view empty
TMPDIR=$TMP/none refuses "no temporary folder" 4 "the temporary folder '.*none' cannot be used" "$DCPKIT" view run
ls -A tmp
