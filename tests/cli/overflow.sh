#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# overflow.sh - finite weights that float16 cannot hold are counted and named, and refused unless they are allowed.
# The first finite bfloat16 that rounds past float16's largest, 65504, is 65536 (code 0x4780); 65280 (0x477f) fits.
"$DCPKIT" convert --quiet --to huggingface "$SAMPLES/torch_dist_c_dense_tp2pp2" model
weight=model.layers.0.mlp.down_proj.weight file=model/model.safetensors
header=$(od -A n -t u8 -N 8 $file | tr -d ' ')
at=$((8 + header + $(head -c $((8 + header)) $file | tail -c +9 | jq ".\"$weight\".data_offsets[0]")))
# 65536 three times, -65536, 65280, Inf, NaN
printf '\x80\x47\x80\x47\x80\x47\x80\xc7\x7f\x47\x80\x7f\xc0\x7f' |
    dd of=$file bs=1 seek=$at conv=notrunc status=none
"$DCPKIT" convert --quiet --to torch_dist model run

refuses "past the range" 1 "4 finite elements would become infinite in float16: '$weight' \(4\) \(--allow-overflow" \
    "$DCPKIT" convert --to huggingface --dtype float16 run half
refuses "past the range, --verify" 1 "'$weight' \(4\)" "$DCPKIT" convert --verify --to huggingface --dtype float16 run half
refuses "of a sum" 1 "'$weight' \(4\)" \
    "$DCPKIT" merge --weights 0.5,0.5 --to huggingface --dtype float16 run run half
"$DCPKIT" convert --verify --report report.json --to huggingface --dtype float16 --allow-overflow run half >said
sed -n 's/^  note *\(4 finite.*\)/\1/p' said
grep -o '[0-9]* elements NaN[^;]*source' said
jq -c '[.overflow.n_elements, .overflow.n_tensors, .verified.n_not_finite, .verified.n_overflowed]' report.json
"$DCPKIT" verify --against run half 2>said | grep -o '[0-9]* elements NaN[^;]*source'
"$DCPKIT" inspect --stats --json half | jq -c "[.stats_totals.n_inf, .stats_totals.n_nan]"
# What fits, and what was infinite before, is no overflow.
"$DCPKIT" convert --verify --to huggingface --dtype bfloat16 run same | grep -oE '(all|[0-9]+) elements [^;]*'
