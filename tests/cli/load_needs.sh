#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# load_needs.sh - what a run has to be given to load what convert wrote: flags that Megatron's loaders need (load_checkpoint
# of megatron/training/checkpointing.py), expert parallelism (ChainedOptimizer.load_state_dict), and what args then say.
dense=$SAMPLES/torch_dist_c_dense_tp2pp2
moe=$SAMPLES/torch_dist_c_moe_ep2pp2

# convert LABEL IN OPTIONS...: the last lines that tell it, and the same in the report.
convert() {
    local label=$1 in=$2
    shift 2
    "$DCPKIT" convert --force --verify --report report.json "$@" "$in" out >said 2>err || echo "exit $?: $(cat err)"
    echo "$label:"
    sed -n '/^  to load /,$p' said
    sed -n '/^  "load"/,/^  }/p' report.json | grep -oE '"[a-z_]+": ("[^"]*"|true)' || true
}
# args: what those of out say of format and mesh.
args() {
    "$DCPKIT" print-tensor --json out common 2>/dev/null || "$DCPKIT" print-tensor --json out args
}
args_say() {
    args | grep -oE '"(ckpt_format|use_megatron_fsdp|(tensor|pipeline|expert)_model_parallel_size)": ("[^"]*"|[a-z0-9]+)' | sort | paste -sd ' '
}

convert "all is there" "$dense" --to fsdp_dtensor
args_say
convert "the source's tensor-parallel ranks" "$dense" --to fsdp_dtensor --target-dp 2,tp=2
convert "fewer tensor-parallel ranks" "$dense" --to fsdp_dtensor --target-dp 2,tp=1
args_say
convert "more tensor-parallel ranks" "$dense" --to fsdp_dtensor --target-dp 2,tp=4
args_say
convert "weights alone" "$dense" --to fsdp_dtensor --weights-only
"$DCPKIT" convert --force --to fsdp_dtensor --like-megatron-inspector --swiglu "$SAMPLES/torch_dist_b_dense_tp2pp2" out |
    sed -n '/^  to load /,$p'
convert "torch_dist, another TP" "$dense" --to torch_dist --target-mesh tp=4
args_say
convert "torch_dist, weights alone" "$dense" --to torch_dist --target-generation B --weights-only
convert "experts, by the source's EP" "$moe" --to torch_dist --target-generation B
convert "experts, at EP 1" "$moe" --to torch_dist --target-mesh ep=1
convert "experts, fsdp_dtensor" "$moe" --to fsdp_dtensor
args_say
mv out fsdp
convert "and back" fsdp --to torch_dist
args_say
rm -rf out fsdp said err report.json
