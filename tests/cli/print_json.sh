#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# print_json.sh - param_to_param_group_map.json is byte for byte what Megatron's tool wrote.
for name in torch_dist_b_dense_tp2pp2_p2g torch_dist_c_moe_ep2pp2_p2g; do
    sample $name
    mv $name/param_to_param_group_map.json want.json
    (cd $name && "$DCPKIT" print-torch-dcp-in-json . >../said 2>&1) ||
        echo "$name: exit $?: $(cat said)"
    cmp want.json $name/param_to_param_group_map.json && echo "$name: equal"
done
