#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hash_objects.sh - objects, the common state and the whole: what is lost or changed there does not pass, whichever of text and
# JSON recorded it; the whole is made again here by coreutils.
hash() { "$DCPKIT" hash "$@"; }
for name in torch_dist_b_dense_tp2pp2 torch_dist_c_dense_tp2pp2 zarr_dense_tp2dp2 fsdp_dtensor_native_dp2; do
    hash "$SAMPLES/$name" >text
    hash --json "$SAMPLES/$name" >json
    for record in text json; do
        hash --check "$record" "$SAMPLES/$name" | sed "s/^/$name, $record: /"
    done
    # key, kind, dtype, shape and hash: a NUL behind each, a newline at the end; in the order of keys, then kinds.
    awk -v json=json 'BEGIN {
        while ((getline line <json) > 0) {
            if (line ~ /^    "/) { key = line; sub(/^    "/, "", key); sub(/": .*/, "", key) }
            else if (line ~ /^      "dtype"/) { split(line, part, "\""); dtype[key] = part[4] }
            else if (line ~ /^      "shape"/) { inside = 1; line = substr(line, 15) }
            if (inside) { sizes = sizes line; if (line ~ /\]/) { gsub(/[^0-9,]/, "", sizes); sub(/,$/, "", sizes); shape[key] = sizes; sizes = ""; inside = 0 } }
        }
    }
    length($1) == 32 {
        key = substr($0, 35); kind = substr($0, 34, 1)
        if (kind == "+") printf "%ccommon%c%c%c%s\n", 0, 0, 0, 0, $1
        else if (kind == "*") printf "%s%cobject%c%c%c%s\n", key, 0, 0, 0, 0, $1
        else printf "%s%ctensor%c%s%c%s%c%s\n", key, 0, 0, dtype[key], 0, shape[key], 0, $1
    }' text >lines
    [ "$(sha256sum <lines | cut -d' ' -f1)  the whole checkpoint" = "$(tail -n 1 text)" ] || echo "$name: another whole"
    grep -q "\"sha256\": \"$(sha256sum <lines | cut -d' ' -f1)\"" json || echo "$name: another whole in JSON"
done
# The same values in other files, chunks and pickles: one hash (args say the target's mesh, so both have one).
"$DCPKIT" convert --to fsdp_dtensor --target-dp 2,tp=2,bucket=1000 --hashes first.json "$SAMPLES/torch_dist_c_dense_tp2pp2" first >said 2>&1 || cat said
"$DCPKIT" convert --to fsdp_dtensor --target-dp 2,tp=2 "$SAMPLES/torch_dist_c_dense_tp2pp2" second >said 2>&1 || cat said
cmp -s first/iter_0000004/.metadata second/iter_0000004/.metadata && echo "no other chunks"
[ "$(hash first | tail -n 1)" = "$(hash second | tail -n 1)" ] && echo "other chunks: one whole"
hash --check first.json second | tail -n 1

sample torch_dist_b_dense_tp2pp2 b
hash b >b.text
hash --json b >b.json
"$MANGLE" replace b/iter_0000004/common.pt 'swiglu' 'swigly'
"$MANGLE" seal b/iter_0000004/common.pt
for record in b.text b.json; do
    answers_no "another value in common.pt, $record" '^differs +common state$' "$DCPKIT" hash --check $record b
done
answers_no "the same in JSON" '"common state": \{' "$DCPKIT" hash --json --check b.json b
rm b/iter_0000004/common.pt
answers_no "no common.pt" '^lost +there is neither' "$DCPKIT" hash --check b.text b
jq '{tensors}' b.json >tensors.json # as a manifest of another program
answers_no "no common.pt, tensors recorded alone" '^lost +there is neither' "$DCPKIT" hash --check tensors.json b
hash --check tensors.json "$SAMPLES/torch_dist_b_dense_tp2pp2"
sample torch_dist_c_dense_tp2pp2 c
hash c >c.text
rm c/iter_0000004/metadata.json
answers_no "no metadata.json" '^lost +there is the key' "$DCPKIT" hash --check c.text c/iter_0000004
# Text has no shapes; the whole knows them.
sample torch_dist_c_dense_tp2pp2 c2
sed -i 's/^\([0-9a-f]*\)  the whole/0\1  the whole/; s/^0\([0-9a-f]\{63\}\)[0-9a-f]  the whole/0\1  the whole/' c.text
answers_no "another whole" '^differs +the whole' "$DCPKIT" hash --check c.text c2
hash c2 | sed '$d' >bad
refuses "text without its last line" 3 "cut short" "$DCPKIT" hash --check bad c2
echo "0123  key" >bad
refuses "no such lines" 3 "neither JSON nor lines" "$DCPKIT" hash --check bad c2
cat c.text c.text >bad
refuses "keys twice" 3 "is there twice" "$DCPKIT" hash --check bad c2
