#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_metadata_json.sh - which releases take a metadata.json: what verify_checkpoint_and_load_strategy (core 0.15, 0.16)
# and verify_checkpoint (0.17 to main d98e8a64) said to the same files, each run on its own tree.
"$DCPKIT" convert --quiet --to torch_dist --target-generation B "$SAMPLES/torch_dist_c_dense_tp2pp2" run
"$DCPKIT" convert --quiet --to zarr run z

# first_of RUN: the oldest release that loads it.
first_of() {
    "$DCPKIT" check --no-load-rng --json "$1" 2>said |
        jq -r '.loads.loads_in | to_entries | sort_by(.key) | map(select(.value == "yes").key) | first'
}
# with RUN FIELDS: the folder's metadata.json with these fields.
with() {
    jq -c ". + $2" "$1/iter_0000004/metadata.json" >json && cp json "$1/iter_0000004/metadata.json"
    echo "$1 $2: since $(first_of "$1")"
    cp "$1.json" "$1/iter_0000004/metadata.json"
}
for name in run z; do cp $name/iter_0000004/metadata.json $name.json; done

echo '{"sharded_backend": "torch_dist"}' >run/iter_0000004/metadata.json
echo "one field: since $(first_of run)"
echo '{"sharded_backend": "torch_dist", "sharded_backend_version": 1.0}' >run/iter_0000004/metadata.json
echo "1.0: since $(first_of run)"
for fields in '{}' '{"sharded_backend_version": "1"}' '{"sharded_backend_version": null}' \
    '{"sharded_backend_version": true}' '{"common_backend": "x"}' \
    '{"common_backend": null}' '{"common_backend_version": 9}' '{"common_backend_version": "1"}' \
    '{"common_backend_version": true}' '{"unknown_key": 1}'; do
    with run "$fields"
done
for fields in '{}' '{"common_backend": "x"}' '{"unknown_key": 1}'; do with z "$fields"; done

jq -c '.unknown_key = 1' run.json >run/iter_0000004/metadata.json
answers_no "a key too many" 'metadata.json.unknown_key is a field that stops releases up to core 0.18' \
    "$DCPKIT" check --loads-in core-0.18 run
jq -c '.sharded_backend_version = 2' run.json >run/iter_0000004/metadata.json
refuses "a version that is not read" 3 'sharded_backend_version 2, known is 1' "$DCPKIT" check run
