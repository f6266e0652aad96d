# SPDX-License-Identifier: Apache-2.0
# Megatron-FSDP v2: what its own save_checkpoint wrote is read, and what is written for it has its names. It saved the
# state that torch_dist_c_tied holds, without args.
# shellcheck shell=bash
native=$SAMPLES/fsdp_dtensor_v2_tied_dp2
other=$SAMPLES/torch_dist_c_tied

echo "--- read"
"$DCPKIT" inspect "$native" | sed -n -e '/^format/p' -e '/^parallel/p' -e '/^optimizer/p'
refuses "nothing says what fc1 is" 2 'fc1 is SwiGLU .give --swiglu, .*; --args-from takes ' "$DCPKIT" convert --to torch_dist "$native" out
"$DCPKIT" convert -v --to torch_dist --args-from "$other" "$native" read | sed -n -e 's/^\(converted.*\), .*/\1/p' -e '/stores no iteration/p' -e '/left out (/,$p'
# What v2 does not keep is all that differs: FLOPs, scheduler, RNG.
"$DCPKIT" compare-two-checkpoint "$other" read | sed -n -e 's/: only in A.*/: only in A/p' -e '/compared/p'
# Megatron's torch_dcp (--ckpt-format torch_dcp of core 0.19) has the same keys, but numbers instead of names in optimizer.state.
"$DCPKIT" modify-state-dict -q --op 'rename ^optimizer\.state\.decoder.final_layernorm.weight\. optimizer.state.0.' "$native" numbered >said
"$DCPKIT" inspect numbered 2>&1 | sed -n '/^format/p'
refuses "numbered" 3 "naming the optimizer's state: the parameters of group 0 are not numbered once each.*--weights-only leaves" \
    "$DCPKIT" convert --to torch_dist --args-from "$other" --swiglu numbered out

echo "--- written"
"$DCPKIT" convert -q --to fsdp_dtensor --target-generation V2 --target-impl local "$other" written
"$DCPKIT" inspect written | sed -n '/^format/p'
# Every tensor and object by its key, a tensor with its shape.
items() {
    "$DCPKIT" inspect --json "$1" | jq -r '(.tensors | to_entries[] | "\(.key) \(.value.shape)"), (.objects | keys[])' | sort
}
items "$native" >native_items
items written >written_items
echo "of $(wc -l <native_items) items that v2 wrote these are missing:"
comm -23 native_items written_items
"$DCPKIT" verify -q --against "$other" written | tail -n 1
"$DCPKIT" convert -q --to torch_dist --target-impl local written back && "$DCPKIT" compare-two-checkpoint "$other" back | tail -n 1
"$DCPKIT" convert -q --to fsdp_dtensor --target-generation V2 --weights-only "$SAMPLES/torch_dist_c_moe_ep2pp2" weights
items weights 2>/dev/null | grep -E '^model.*layers\.[01]\.mlp.*linear_fc1.weight'

refuses "not for torch_dist" 2 'is for --to fsdp_dtensor, not for torch_dist' \
    "$DCPKIT" convert --to torch_dist --target-generation V2 "$other" out
refuses "its layout is another" 2 'V2 excludes --target-dp' \
    "$DCPKIT" convert --to fsdp_dtensor --target-generation V2 --target-dp 2 "$other" out

echo "--- asked for"
# Training with it stops at SwiGLU and loads no optimizer (tests/golden/requests, main.fsdp_dtensor.v2_*).
asked() { "$DCPKIT" check --loads-in main "$@" | sed -n -e '/^weights/p' -e '/^moments/p' -e '/^not in/p' -e '/^verdict/p'; }
asked --no-load-rng written
asked --no-load-rng --megatron-fsdp-version 1 written
refuses "a version that is none" 2 "'3' is neither 1 nor 2" "$DCPKIT" check --megatron-fsdp-version 3 written
