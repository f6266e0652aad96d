#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_source.sh - what is not a checkpoint at all, or lost part of its files.
tiny=tiny_generations/torch_dist_main_torch2.11

mkdir empty
echo text >file
sample $tiny no_metadata && rm no_metadata/.metadata
sample $tiny no_data && rm no_data/__1_0.distcp
sample $tiny folder_data && rm folder_data/__1_0.distcp && mkdir folder_data/__1_0.distcp
sample $tiny short_data && "$MANGLE" truncate short_data/__1_0.distcp -1
sample $tiny no_bytes && "$MANGLE" truncate no_bytes/.metadata 0
sample $tiny head_only && "$MANGLE" truncate head_only/.metadata 100
sample $tiny no_stop && "$MANGLE" truncate no_stop/.metadata -1
sample $tiny bad_json && echo '{"sharded_backend": "torch_' >bad_json/metadata.json
sample $tiny other_backend && echo '{"sharded_backend": "zarr"}' >other_backend/metadata.json
mkdir lost_run && printf 7 >lost_run/latest_checkpointed_iteration.txt
mkdir bad_run && printf seven >bad_run/latest_checkpointed_iteration.txt

for command in inspect hash verify "convert --to fsdp_dtensor"; do
    last=()
    [[ $command != convert* ]] || last=(out)
    # shellcheck disable=SC2086 # the words of a command
    run() { refuses "$command, $1" "$2" "$3" "$DCPKIT" $command "$4" "${last[@]}"; }
    run "missing folder" 4 'nowhere' nowhere
    run "empty folder" 3 'empty' empty
    run "a file" 3 "'file'" file
    run "without .metadata" 3 "\.metadata': there is no such file: a copy of" no_metadata
    run "without a data file" 3 "reading '\.metadata'.*'__1_0\.distcp' is missing in 'no_data'; copy" no_data
    run "a folder for a data file" 3 "'__1_0\.distcp' is not a plain file" folder_data
    run "a data file too short" 3 '__1_0\.distcp' short_data
    run "empty .metadata" 3 'no_bytes.*\.metadata' no_bytes
    run "truncated .metadata" 3 'head_only.*\.metadata' head_only
    run ".metadata without its end" 3 'no_stop.*\.metadata' no_stop
    run "metadata.json cut short" 3 'metadata\.json' bad_json
    run "a run without its iteration" 3 "names 'lost_run/iter_0000007', but .*; copy it there" lost_run
    run "a tracker that is no number" 3 'seven' bad_run
done
refuses "zarr" 3 'zarr' "$DCPKIT" convert --to fsdp_dtensor other_backend out
for file in .metadata __0_0.distcp metadata.json; do
    refuses "$file" 2 "is a file of a checkpoint: give its folder" "$DCPKIT" inspect "$SAMPLES/torch_dist_c_dense_tp2pp2/iter_0000004/$file"
done
