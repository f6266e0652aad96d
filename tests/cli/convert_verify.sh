#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_verify.sh - what can be converted converts, verifies against its source, leaves the source alone.
for name in torch_dist_b_dense_tp2pp2 torch_dist_c_dense_tp2pp2 torch_dist_c_moe_ep2pp2 \
    v016_moe_ep2pp2 torch_dist_c_fp32_dp1; do
    sample $name in
    (cd in && find . -type f -print0 | sort -z | xargs -0 sha256sum) >before
    "$DCPKIT" convert --to fsdp_dtensor --report report.json in out >said 2>&1 ||
        echo "$name: convert: exit $?: $(cat said)"
    "$DCPKIT" verify --against in out >said 2>&1 || echo "$name: verify: exit $?: $(cat said)"
    "$DCPKIT" verify out >said 2>&1 || echo "$name: verify alone: exit $?: $(cat said)"
    "$DCPKIT" convert --to fsdp_dtensor in/iter_0000004 plain >said 2>&1 ||
        echo "$name: convert of the iteration: exit $?: $(cat said)"
    echo "$name: $(find out | sort | tr '\n' ' ')$(cat out/latest_checkpointed_iteration.txt)"
    diff -r out/iter_0000004 plain/iter_0000004 2>/dev/null || diff -r out/iter_0000004 plain
    (cd in && find . -type f -print0 | sort -z | xargs -0 sha256sum) | diff before - ||
        echo "$name: the source changed"
    rm -rf in out plain report.json
done
