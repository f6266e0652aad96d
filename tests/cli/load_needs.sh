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

# The target's mesh in args, by validate_args of megatron/training/arguments.py: world_size is tp x pp x cp x dp, a pipeline
# of one stage is not cut, weights are cut into tp shards (resolve_tensor_parallel_weight_shards). What is not given is kept, and said.
# mesh LABEL IN OPTIONS...
mesh() {
    local label=$1 in=$2
    shift 2
    "$DCPKIT" convert --force --verify --report report.json "$@" "$in" out >said 2>err || echo "exit $?: $(cat err)"
    "$DCPKIT" compare-two-checkpoint "$in" out >verdict || true
    echo "$label: $(tail -n 1 verdict)"
    args | jq -r '(.value.args // .value) | to_entries[] | select(.key | test("^((tensor|pipeline|expert(_tensor)?|context|virtual_pipeline|transformer_pipeline)_.*parallel_(size|num_weight_shards)|data_parallel_size|world_size|num_distributed_optimizer_instances|num_virtual_stages_per_pipeline_rank)$")) | "\(.key)=\(.value)"' | sort | paste -sd " " | fold -s -w 120 | sed "s/^/    /; s/ *$//"
    args | jq -e '(.value.args // .value) | .world_size == .tensor_model_parallel_size * .pipeline_model_parallel_size * .context_parallel_size * .data_parallel_size' >said.world ||
        echo "    world_size is not tp x pp x cp x dp"
    jq -r '.notes[] | select(startswith("args keep")) | "    " + .' report.json
    [ "$(grep -c '^  note       args keep' said)" = "$(jq '[.notes[] | select(startswith("args keep"))] | length' report.json)" ] || echo "other notes in text"
}
mesh "hsdp" "$dense" --to fsdp_dtensor --target-dp 8,tp=2,hsdp=2
mesh "experts" "$moe" --to fsdp_dtensor --target-dp 4,ep=4
mesh "no mesh" "$dense" --to fsdp_dtensor
mesh "a part of a mesh" "$dense" --to torch_dist --target-mesh tp=4
mesh "fewer than the source's ranks" "$dense" --to torch_dist --target-mesh tp=1
mesh "more than the source's ranks" "$dense" --to torch_dist --target-mesh tp=4,pp=4
mesh "experts on more ranks" "$moe" --to torch_dist --target-mesh tp=1,ep=4,cp=3
mesh "a whole mesh" "$dense" --to torch_dist --target-mesh tp=2,pp=2,dp=3,cp=2,vpp=2
# A source of two chunks a stage, and of two context-parallel ranks: the pipeline is uncut, dp is what cp leaves.
echo '{"virtual_pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2, "context_parallel_size": 2, "world_size": 8}' >more.json
"$DCPKIT" convert --force --args-from more.json --to zarr "$dense" cut >said
mesh "chunks, and context parallelism" cut --to fsdp_dtensor --target-dp 4,tp=2
mesh "no multiple of it" cut --to fsdp_dtensor --target-dp 3
# One rank is what every run has: nothing to say.
"$DCPKIT" convert --force --to zarr "$SAMPLES/torch_dist_c_fp32_dp1" out | grep 'args keep'
rm -rf out fsdp cut said said.world err report.json more.json verdict
