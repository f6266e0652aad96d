#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# remap_ranks.sh - the ranks of a remap as processes, which map each other's memory or send messages.
need_mpi
dense=$SAMPLES/torch_dist_c_dense_tp2pp2

for transport in auto direct staged mpi; do
    by_ranks 2 remap --json --transport "$transport" --from tp=2 --to fsdp=2 "$dense" >answer.json || echo "exit $?"
    jq -r --arg way "$transport" '"\($way): \(.n_ranks) ranks, link \(.link.name), \(.ok)"' answer.json
done
by_ranks 2 remap --from tp=4 --to fsdp=2 "$dense" || echo "exit $?"
by_ranks 2 remap --ranks 4 --from tp=2 --to fsdp=2 "$dense" || echo "exit $?"
