#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hash_files.sh - the files of a folder recorded before a copy: as sha256sum does, as Megatron's integrity.json does.
sample torch_dist_b_dense_tp2pp2 in
sample zarr_dense_tp2dp2 zarr
for folder in in/iter_0000004 zarr/iter_0000004; do
    "$DCPKIT" hash --files "$folder" >sums
    (cd "$folder" && sha256sum --check --quiet -) <sums && echo "sha256sum agrees"
    [ "$(wc -l <sums)" -eq "$(find "$folder" -type f | wc -l)" ] || echo "not every file"
    "$DCPKIT" hash --files --json "$folder" >sums.json
    (cd "$folder" && find . -type f -exec sha256sum {} +) >by_others
    for record in sums sums.json by_others; do
        cp -r "$folder" copy
        "$DCPKIT" hash --check $record copy | sed "s/^/$record: /"
        rm -r copy
    done
done
for what in 'rm copy/metadata.json' 'touch copy/run_config.yaml' "truncate -s 4000 copy/common.pt"; do
    cp -r in/iter_0000004 copy && "$DCPKIT" hash --files copy >sums
    $what
    answers_no "after ${what##*/}" '^(missing|new|differs) +(metadata.json|run_config.yaml|common.pt)$' "$DCPKIT" hash --check sums copy
    rm -r copy
done

"$DCPKIT" verify --write-integrity in | grep -E '^(written|verdict)'
(cd in/iter_0000004 && sed -n 's/^    "\(.*\)": "\([0-9a-f]*\)",*$/\2  \1/p' integrity.json | sha256sum --check --quiet -) && echo "the list is right"
"$DCPKIT" verify in | grep -E '^(integrity|verdict)'
refuses "there is one" 2 "has an 'integrity.json'" "$DCPKIT" verify --write-integrity in
refuses "--force alone" 2 "is for --write-integrity" "$DCPKIT" verify --force in
printf '\n' >>in/iter_0000004/metadata.json
answers_no "a changed file" "^integrity +FAILED" "$DCPKIT" verify in
"$DCPKIT" verify --write-integrity --force in | grep '^verdict'
"$DCPKIT" verify in | grep '^verdict'
"$MANGLE" flip in/iter_0000004/__0_0.distcp 30000
answers_no "nothing is vouched for that is not sound" '^checksums +FAILED' "$DCPKIT" verify --write-integrity --force in
tar -cf in.tar in
refuses "an archive" 2 "is not a folder on disk" "$DCPKIT" verify --write-integrity in.tar
refuses "of zarr" 2 "each tensor in a folder" "$DCPKIT" verify --write-integrity zarr
