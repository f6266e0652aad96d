#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inspect_stats.sh - statistics as numpy has them (float64), the same on any number of threads.
sample=$SAMPLES/torch_dist_c_dense_tp2pp2
"$DCPKIT" inspect --stats -j 1 "$sample" >one
"$DCPKIT" inspect --stats -j 5 --memory 16M "$sample" | diff one -
# min, max, mean, norm to 12 digits: the last ones depend on the order of additions.
sed -n '/^statistics/,$p' one | grep -P '^optimizer.state.param.decoder.final_layernorm.weight\t' |
    awk '{printf "%.12g %.12g %.12g %.12g %d %d %d %d\n", $2, $3, $4, $5, $6, $7, $8, $9}'
sed -n '/^statistics/,$p' one | tail -n +2 | wc -l
"$DCPKIT" inspect --stats --json "$sample" | grep -c '"n_nan": 0,'
"$DCPKIT" inspect --json "$sample" | grep -c '"stats"'
exit 0
