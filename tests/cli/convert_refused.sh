#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_refused.sh - layouts that this release does not convert are refused by name, with the way out.
# States that one parameter lost and others have: nothing is made up for them, the weights alone convert.
for state in exp_avg exp_avg_sq param; do
    "$DCPKIT" modify-state-dict -q --op "remove ^optimizer.state.$state.decoder.layers.mlp.linear_fc1.weight\$" \
        "$SAMPLES/torch_dist_c_dense_tp2pp2" "no_$state"
    refuses "one $state lost" 3 "linear_fc1.weight' has .*exp_avg(_sq)? but no (exp_avg|exp_avg_sq|fp32 master, which 23 other)" \
        "$DCPKIT" convert --to fsdp_dtensor "no_$state" out
    "$DCPKIT" convert -q --weights-only --verify --to fsdp_dtensor "no_$state" "weights_$state" || echo "exit $?"
done
refuses "no args" 3 'args' \
    "$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/tiny_generations/torch_dist_main_torch2.11" out
refuses "an MSC address" 2 'msc://' "$DCPKIT" convert --to fsdp_dtensor msc://bucket/in out
