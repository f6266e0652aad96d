#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_same_bytes.sh - the output depends on neither threads nor memory nor the place it is written to.
for name in torch_dist_c_moe_ep2pp2 torch_dist_b_dense_tp2pp2; do
    first=
    for options in "--threads 1" "--threads 2" "--threads 7" "--memory 16M" "--memory 1G"; do
        out=$name.${options//[ -]/_}
        # shellcheck disable=SC2086 # an option and its value
        "$DCPKIT" convert --to fsdp_dtensor $options "$SAMPLES/$name" "$out" >said 2>&1 ||
            echo "$options: exit $?: $(cat said)"
        [ -z "$first" ] || diff -r "$first" "$out" || echo "$name: $options differs"
        first=${first:-$out}
    done
done
