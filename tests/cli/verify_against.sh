#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify_against.sh - the proof of a conversion fails where one byte, one key or the source is another.
sample torch_dist_c_dense_tp2pp2 in
"$DCPKIT" convert --to fsdp_dtensor in out >said 2>&1 || echo "exit $?: $(cat said)"
"$DCPKIT" verify --against in out >said 2>&1 || echo "exit $?: $(cat said)"
tail -n 1 said

answers_no "another training run" 'against.*FAILED' \
    "$DCPKIT" verify --against "$SAMPLES/torch_dist_b_dense_tp2pp2" out
cp -r out flipped
# A byte in the middle of the data of the largest tensor; its CRC tells too.
"$MANGLE" flip flipped/iter_0000004/__0_0.distcp 1000000
answers_no "one byte" 'against.*FAILED' "$DCPKIT" verify --against in flipped
cp -r out renamed
"$MANGLE" replace renamed/iter_0000004/.metadata layers.3.mlp.linear_fc2.weight \
    layers.3.mlp.linear_fc9.weight
answers_no "one parameter's name" 'against.*FAILED.*layers\.3\.mlp\.linear_fc[29]' \
    "$DCPKIT" verify --against in renamed
refuses "no source" 4 'nowhere' "$DCPKIT" verify --against nowhere out
