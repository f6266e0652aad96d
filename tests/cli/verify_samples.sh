#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify_samples.sh - every sample is sound, by run folder or by the checkpoint's own folder.
for folder in "$SAMPLES"/*/ "$SAMPLES"/tiny_generations/*/ "$SAMPLES"/*_reshardable_*/*_reshardable/ "$SAMPLES"/*_shifted_*/{shifted,truth}/; do
    name=$(basename "$folder")
    # Folders of several runs, and one of metadata alone.
    if [ "$name" = tiny_generations ] || [ "$name" = v019_torch215_td ] || [ -d "$folder/dp_reshardable" ] || [ -d "$folder/truth" ]; then
        continue
    fi
    # A run's folder without a tracker: its iteration by name.
    if [ -d "$folder/iter_0000004" ] && [ ! -e "$folder/latest_checkpointed_iteration.txt" ]; then
        folder=$folder/iter_0000004
    fi
    "$DCPKIT" verify "$folder" >out 2>err || echo "$name: exit $?: $(cat out err)"
    [ "$(tail -n 1 out)" = 'verdict     ok' ] || echo "$name: $(tail -n 1 out)"
done
