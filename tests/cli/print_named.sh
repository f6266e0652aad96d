#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# print_named.sh - args, iteration, ...: one spelling in every format, as JSON that jq takes; inspect lists the names.
command -v jq >/dev/null || exit 77
print() { "$DCPKIT" print-tensor "$@"; }
b=$SAMPLES/torch_dist_b_dense_tp2pp2 c=$SAMPLES/torch_dist_c_dense_tp2pp2
zarr=$SAMPLES/zarr_dense_tp2dp2 fsdp=$SAMPLES/fsdp_dtensor_native_dp2

# As PROVENANCE.txt of the samples has the runs.
for name in "$b" "$c" "$zarr" "$fsdp"; do
    for key in iteration common.iteration args.num_layers common.args.lr opt_param_scheduler.lr_decay_style args.none; do
        if ! print --json "$name" $key >said 2>err; then cut -d '(' -f 1 err; fi
        jq -c '[.key, .value, .version]' said
    done
    # A part is what the whole has there.
    for key in args opt_param_scheduler checkpoint_version; do
        print --json "$name" $key | jq -cS .value >part
        print --json "$name" common | jq -cS ".value.$key" | diff - part
    done
    "$DCPKIT" inspect --json "$name" | jq -r '.state[]' | while read -r key; do
        print "$name" "$key" >said || echo "$key: not there"
        jq . said >/dev/null || echo "$key: no JSON"
        "$DCPKIT" inspect "$name" | sed -n '/^state /,/^$/p' | grep -q "[ ,]$key\(,\|$\)" || echo "$key: not listed"
    done
done
print "$fsdp" opt_param_scheduler.max_lr
print --json "$c" optimizer.optimizer.param_groups.0.betas.1 | jq -c .value
print --json "$c" optimizer.optimizer.param_groups.0.betas.2 2>&1 | head -n 1
print --json "$fsdp" 'optimizer.param_to_group_meta.module.module.module.output_layer.weight' | jq -c '.value.weight // .value | [.lr, .wd_mult]'
# Numbers that JSON has not, in all that prints JSON: text.
print "$c" common | grep -c ': NaN\|: -\?Infinity'
refuses "a slip in a part" 2 "there is no 'lrr' in 'args' \\(but there is 'lr'\\)" print "$c" args.lrr
refuses "a slip in the first part" 2 "no tensor or object 'itertion' \\(but there is 'iteration'\\)" print "$c" itertion
refuses "nothing behind a number" 2 "no 'x' in 'iteration'" print "$fsdp" iteration.x
refuses "nothing behind a dot" 2 "no tensor or object|no ''" print "$fsdp" rng_state.
refuses "an end without a beginning" 2 "no tensor or object" print "$fsdp" 'x]'
refuses "nothing" 2 "no tensor or object ''" print "$c" ''
