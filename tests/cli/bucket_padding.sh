#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bucket_padding.sh - optimizer state that real Megatron core 0.19.0 moved over the padding of DDP buckets (DP3) is named,
# refused and put back: `truth` is the same training in dp_reshardable, which the fault does not touch.
shifted=$SAMPLES/v019_shifted_dp3/shifted truth=$SAMPLES/v019_shifted_dp3/truth
fault="Megatron saved the optimizer's state at wrong places \(core 0.15 to 0.19.2, padding of DDP buckets: 16000 elements of each state were moved, 1280 of them are lost\)"
cd "$TMP" || exit

for to in fsdp_dtensor zarr huggingface; do
    refuses "to $to" 3 "$fault.*--repair bucket-padding" "$DCPKIT" convert --to $to "$shifted" out
done
refuses "into buckets" 3 "$fault" "$DCPKIT" convert --to torch_dist --target-optimizer dp_reshardable "$shifted" out
answers_no "check" "values *FAILED .*$fault" "$DCPKIT" check "$shifted"
"$DCPKIT" inspect "$shifted" 2>&1 >/dev/null | grep -oE "note: .*$fault" | grep -oE '^note: comparing masters|1280 of them are lost'
"$DCPKIT" check "$truth" | grep -E 'values|verdict'

# put back: everything but lost elements is that of the right save, masters all fit their weights
"$DCPKIT" convert --repair bucket-padding --verify --to torch_dist --report report.json "$shifted" repaired >/dev/null || exit
"$DCPKIT" verify repaired >/dev/null && echo "repaired: verified"
"$DCPKIT" verify --against "$shifted" --repair bucket-padding repaired >/dev/null && echo "repaired: verified against the source"
jq -c '.repaired | {n_moved, n_lost, sum: ([.lost[].n_lost] | add), first: .lost[0]}' report.json
"$DCPKIT" compare-two-checkpoint --json repaired "$truth" >compared.json
jq -r '[.differences[] | select(.kind == "elements")] | group_by(.part)[] | "\(.[0].part): \([.[].n_different] | add) elements differ"' compared.json

# a lost exp_avg is 0, a lost exp_avg_sq the mean of what is left, which then is that of all
read -r parameter at columns < <(jq -r '.differences[] | select(.part == "exp_avg" and .name == "embedding.word_embeddings.weight") | "\(.name) \(.first_different) 32"' compared.json)
for state in exp_avg exp_avg_sq; do
    key=optimizer.state.$state.$parameter
    row=$((at / columns)) column=$((at % columns))
    lost=$("$DCPKIT" print-tensor --json repaired "${key}[$row:$((row + 1)), $column:$((column + 1))]" | jq '[.values] | flatten | .[0]')
    mean=$("$DCPKIT" inspect --stats --json --keys "^$key\$" repaired | jq '.. | .mean? // empty' | head -n 1)
    awk -v state=$state -v lost="$lost" -v mean="$mean" 'BEGIN {
        if (state == "exp_avg") ok = lost == 0; else ok = mean > 0 && lost > mean * 0.9999 && lost < mean * 1.0001
        print state ": " (ok ? "as it should be" : "lost " lost ", mean " mean) }'
done
"$DCPKIT" convert --quiet --to fsdp_dtensor repaired dtensor && "$DCPKIT" check dtensor | tail -n 1

# other sources have nothing to be repaired
refuses "nothing moved" 2 "dp_reshardable, which the fault did not touch" "$DCPKIT" convert --repair bucket-padding --to fsdp_dtensor "$truth" out
refuses "another format" 2 "no optimizer state of fsdp_dtensor was moved" "$DCPKIT" convert --repair bucket-padding --to torch_dist dtensor out
refuses "repaired already" 3 "as they are stored they fit, so there is nothing to repair" "$DCPKIT" convert --repair bucket-padding --to zarr repaired out
refuses "another word" 2 "is not one of bucket-padding" "$DCPKIT" convert --repair everything --to zarr repaired out

# weights that were exchanged by hand: refused with the place, until one side is trusted
sample torch_dist_c_dense_tp2pp2/iter_0000004 right
"$DCPKIT" modify-state-dict --quiet --op 'rename ^output_layer.weight$ x' --op 'rename ^embedding.word_embeddings.weight$ output_layer.weight' \
    --op 'rename ^x$ embedding.word_embeddings.weight' right edited || exit
place="'embedding.word_embeddings.weight'\[0, 0\] is [-0-9.e]+, its master [-0-9.e]+; 2 of 27 parameters differ"
refuses "edited" 3 "$place.*--trust weights derives masters from weights" "$DCPKIT" convert --to fsdp_dtensor edited out
refuses "edited, a word" 2 "'both' is not one of weights, masters" "$DCPKIT" convert --trust both --to fsdp_dtensor edited out
answers_no "edited, check" "values *FAILED.*; 2 of 27 parameters differ: the weights were changed" "$DCPKIT" check edited
same() { # A B KIND: does every tensor of the kind agree?
    "$DCPKIT" compare-two-checkpoint "$1" "$2" | sed -n "s/^ *$3  *//p" | head -n 1
}
for side in weights masters; do
    "$DCPKIT" convert --quiet --trust $side --verify --to torch_dist --target-generation B edited trusted_$side || exit
    "$DCPKIT" convert --to fsdp_dtensor --dry-run trusted_$side out >/dev/null || exit
    "$DCPKIT" verify --against edited --trust $side trusted_$side >/dev/null && echo "trusted $side: verified"
    for kind in weights masters; do
        echo "$kind beside those before the exchange: $(same trusted_$side right $kind)"
    done
done
sample torch_dist_c_dp_reshardable_tp2dp2/iter_0000004 buckets
refuses "inferred masters" 2 "only masters that equal their weights prove it" "$DCPKIT" convert --trust weights --to fsdp_dtensor buckets out

# rows that no release agrees on
for arg in gtp_weight_remat_size expert_gtp_weight_remat_size tensor_parallel_num_weight_shards glu_interleave_size moe_mlp_glu_interleave_size; do
    echo "{\"$arg\": 4}" >gtp.json
    refuses "$arg" 3 "args.$arg is 4: .*#(7161|5366).*--accept-gtp" "$DCPKIT" convert --args-from gtp.json --to fsdp_dtensor right out
done
echo '{"gtp_weight_remat_size": 2}' >gtp.json
refuses "merge" 3 "args.gtp_weight_remat_size is 2" "$DCPKIT" merge --weights 0.5,0.5 --args-from gtp.json right right out
"$DCPKIT" convert --quiet --accept-gtp --args-from gtp.json --to fsdp_dtensor right gtp || exit
refuses "to huggingface" 3 "args.gtp_weight_remat_size is 2" "$DCPKIT" convert --to huggingface gtp out
refuses "remap" 3 "args.gtp_weight_remat_size is 2" "$DCPKIT" remap --from tp=1 --to tp=2 gtp
"$DCPKIT" inspect gtp 2>&1 >/dev/null | grep -o 'note: args.gtp_weight_remat_size is 2: with generalized'
"$DCPKIT" hash gtp >/dev/null && echo "hash: done"

# torch 2.15 pickles a sixth value of TensorProperties: everything is found all the same
cp -r "$SAMPLES/v019_torch215_td" "$TMP/newer" && chmod -R u+w newer
truncate -s 1361631 newer/iter_0000004/__0_0.distcp
truncate -s 1245470 newer/iter_0000004/__1_0.distcp
"$DCPKIT" inspect --json newer/iter_0000004 2>/dev/null | jq -S '.tensors | map_values({shape, dtype})' >got.json
jq -S '.tensors | map_values({shape, dtype})' newer/MANIFEST.iter_0000004.json >want.json
diff want.json got.json >difference && echo "torch 2.15: $(jq length want.json) tensors as torch lists them"
