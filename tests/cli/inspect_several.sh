# SPDX-License-Identifier: Apache-2.0
# inspect_several.sh - several folders one after the other, the current one by default; what is known of model and training.
# shellcheck shell=bash
facts() { grep -E '^(checkpoint|format|model|training|parallel|optimizer)'; }
"$DCPKIT" inspect "$SAMPLES/torch_dist_c_dense_tp2pp2" "$SAMPLES/safetensors_qwen3" | facts
(cd "$SAMPLES/torch_dist_c_tied" && "$DCPKIT" ls | facts)
"$DCPKIT" inspect --json "$SAMPLES/safetensors_qwen3" | jq -c '.model, .training'
"$DCPKIT" inspect --json "$SAMPLES/torch_dist_c_dense_tp2pp2" | jq -c .training
mkdir empty
"$DCPKIT" inspect empty "$SAMPLES/torch_dist_c_tied" 2>err | facts | head -n 1
echo "exit ${PIPESTATUS[0]}, $(wc -l <err) sentence"
refuses "two in JSON" 2 'take one DIR, not 2' "$DCPKIT" inspect --json "$SAMPLES/torch_dist_c_tied" "$SAMPLES/zarr_dense_tp2dp2"
