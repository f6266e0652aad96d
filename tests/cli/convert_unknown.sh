# SPDX-License-Identifier: Apache-2.0
# Tensors under keys that no rule knows: refused by name, unless they are left out on request; other prefixes of
# keys are found, told, converted back and proven. No tensor of the input is lost without a word.
# shellcheck shell=bash
native=$SAMPLES/fsdp_dtensor_native_dp2
fc2='decoder\.layers\.1\.mlp\.linear_fc2\.weight'

rekey() { "$DCPKIT" modify-state-dict -q "${@:2}" "$native" "$1"; }
rekey stray --op "rename ^model\\.module\\.$fc2\$ thing"
rekey misspelt --op "rename ^model\\.module\\.$fc2\$ model.modul.decoder.layers.1.mlp.linear_fc2.weight"
rekey moment --op "rename $fc2\\.exp_avg\$ decoder.layers.1.mlp.linear_fc2.weight.exp_avgg"
rekey two --op "rename ^model\\.module\\.decoder a.decoder" --op "rename ^model\\.module\\. b."
for to in torch_dist zarr "fsdp_dtensor --target-dp 2"; do
    # shellcheck disable=SC2086 # the format with its options
    refuses "a stray tensor, $to" 3 "1 of 129 tensors are not recognised: 'thing' .*--drop RE" \
        "$DCPKIT" convert --to $to --weights-only stray out
done
refuses "a misspelt key" 3 "not recognised: 'model.modul.decoder.*'model.modul', other weights do not .*modify-state-dict" \
    "$DCPKIT" convert --to torch_dist misspelt out
refuses "a misspelt moment" 3 'linear_fc2.weight. has the state exp_avg_sq but no exp_avg' \
    "$DCPKIT" convert --to torch_dist moment out
refuses "two prefixes" 3 "31 of 129 tensors are not recognised: 'b.embedding.word_embeddings.weight', .*, \.\.\.; their names have the prefix 'b' .convert --input-model-weight-prefix takes " \
    "$DCPKIT" convert --to torch_dist two out
refuses "a prefix that no key has" 3 '31 of 129 tensors are not recognised' \
    "$DCPKIT" convert --to torch_dist --input-model-weight-prefix nosuch "$native" out
refuses "a prefix of torch_dist" 2 'opened as torch_dist: keys of that format have no prefix' \
    "$DCPKIT" convert --to fsdp_dtensor --input-model-weight-prefix p "$SAMPLES/torch_dist_c_dense_tp2pp2" out
refuses "nothing to drop" 2 'nosuch.*no key matches' \
    "$DCPKIT" convert --to torch_dist --drop nosuch "$native" out
refuses "no expression" 2 'keys to leave out: .*missing closing parenthesis' "$DCPKIT" convert --to torch_dist --drop '(' "$native" out
refuses "all is dropped" 2 'leave no key' "$DCPKIT" convert --to torch_dist --drop . "$native" out
refuses "no tensor is left" 3 'would hold no tensor' \
    "$DCPKIT" convert --to fsdp_dtensor --target-dp 1 --drop '^model' --drop '^optimizer' "$native" out

echo "--- left out on request"
"$DCPKIT" convert -v --verify --to torch_dist --drop '^thing$' --drop "$fc2" stray dropped |
    sed -n -e 's/.*; \(all [0-9]\)/\1/p' -e '/please check/,$p'
"$DCPKIT" verify --against stray --drop '^thing$' --drop "$fc2" dropped | tail -n 1
answers_no "not dropped" "'thing' of the source is not recognised" "$DCPKIT" verify --against stray dropped
answers_no "unknown in the result" "'thing' of the checkpoint is not recognised" "$DCPKIT" verify --against "$native" stray
refuses "drop without a source" 2 'are for --against' "$DCPKIT" verify --drop x dropped

echo "--- other prefixes"
"$DCPKIT" convert -q --to fsdp_dtensor --output-model-weight-prefix net.x --output-optimizer-state-prefix opt \
    "$SAMPLES/torch_dist_c_dense_tp2pp2" prefixed
"$DCPKIT" inspect prefixed | sed -n 's/^format *//p'
"$DCPKIT" verify -q --against "$SAMPLES/torch_dist_c_dense_tp2pp2" prefixed | tail -n 1
"$DCPKIT" convert -q --verify --to fsdp_dtensor prefixed again
"$DCPKIT" convert -q --verify --to torch_dist --input-model-weight-prefix net.x --input-optimizer-state-prefix opt prefixed back
"$DCPKIT" convert -q --to fsdp_dtensor "$SAMPLES/torch_dist_c_dense_tp2pp2" direct
for dir in prefixed again; do "$DCPKIT" compare-two-checkpoint -q direct $dir | tail -n 1; done
"$DCPKIT" verify -q --against prefixed back | tail -n 1
"$DCPKIT" verify --against prefixed back 2>&1 | grep 'note:'

echo "--- compared"
answers_no "only one has it" "thing: only in" "$DCPKIT" compare-two-checkpoint stray misspelt
"$DCPKIT" compare-two-checkpoint stray stray | tail -n 1
