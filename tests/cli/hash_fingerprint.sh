#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hash_fingerprint.sh - fingerprints of tensors (their numbers: tests/golden/test_hash_golden.c, tests/interop/test_hash.py)
# are the same in another layout and by several processes; a recorded list holds, a flipped bit does not pass.
sample torch_dist_c_dense_tp2pp2 c
"$DCPKIT" hash --fingerprint c >c.txt
"$DCPKIT" hash --fingerprint --json --threads 3 c >c.json
jq -r '.tensors | to_entries[] | .value.fingerprint + "  " + .key' c.json | diff c.txt - && wc -l <c.txt
"$DCPKIT" convert --quiet --to torch_dist --target-mesh tp=4 c tp4
"$DCPKIT" hash --fingerprint tp4 | diff c.txt - && echo "another layout: the same"
"$DCPKIT" hash --check c.txt tp4
"$DCPKIT" hash --check c.json --fingerprint tp4

"$MANGLE" flip c/iter_0000004/__1_0.distcp 300000
answers_no "a flipped bit" '^verdict +NOT ok: tensors NOT ok .36 recorded, 36 found, 1 differ' "$DCPKIT" hash --check c.json c
answers_no "a flipped bit, as JSON" '"fingerprint": ' "$DCPKIT" hash --json --check c.txt c
"$DCPKIT" hash --json c >hashes.json
refuses "a list of hashes" 2 "hashes.json'.*no fingerprints" "$DCPKIT" hash --fingerprint --check hashes.json c
refuses "two kinds" 2 "choose one" "$DCPKIT" hash --fingerprint --files c
