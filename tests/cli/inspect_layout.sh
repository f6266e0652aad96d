#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inspect_layout.sh - what args say of the layout, and beside it what the chunks show: of runs that Megatron saved, of what
# is written for a mesh (whose sizes are asked for here), and of conversions that no rank cut.
layout() {
    echo "== $1"
    "$DCPKIT" inspect "$2" | grep -A 1 '^parallel'
    "$DCPKIT" inspect --json "$2" | tr -d ' \n' | grep -oE '"layout_by_chunks":\{[^}]*\}'
}

layout "zarr, TP2 DP2" "$SAMPLES/zarr_dense_tp2dp2"
layout "torch_dist, TP2 PP2" "$SAMPLES/torch_dist_c_dense_tp2pp2"
layout "fsdp_dtensor, EP2 DP4" "$SAMPLES/fsdp_dtensor_native_moe_ep2dp4"
layout "no args, TP2 DP2" "$SAMPLES/fsdp_dtensor_telike_tp2dp2/iter_0000004"
# shellcheck disable=SC2034 # named by the list below
dense=$SAMPLES/torch_dist_c_dense_tp2pp2 moe=$SAMPLES/torch_dist_c_moe_ep2pp2
while read -r sample format option mesh; do
    "$DCPKIT" convert --to "$format" ${option:+"$option" "$mesh"} "${!sample}" out >said 2>&1 || cat said
    echo "$sample to $format $option $mesh: $("$DCPKIT" inspect out | grep -oE 'by chunks  [^;]*(; [^;]*optim[^;]*)?')"
    rm -r out
done <<'END'
dense fsdp_dtensor
dense fsdp_dtensor --target-dp 8
dense fsdp_dtensor --target-dp 8,hsdp=2
dense fsdp_dtensor --target-dp 4,tp=2
moe fsdp_dtensor --target-dp 8,ep=2
dense torch_dist --target-generation B
dense torch_dist --target-mesh tp=4
moe torch_dist --target-mesh tp=2,ep=2
dense zarr --target-mesh tp=4
END

# A conversion leaves the strategy in args as it was: it is told as theirs.
"$DCPKIT" convert --quiet --to fsdp_dtensor "$SAMPLES/torch_dist_b_dense_tp2pp2" sharded
"$DCPKIT" inspect sharded | grep -o 'Megatron-FSDP, no_shard.*'
