#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# modify_zarr.sh - arrays of zarr under other keys and dtypes: only what is cast is written anew.
modify() { "$DCPKIT" modify-state-dict "$@"; }
sample zarr_dense_tp2dp2 in
(cd in && find . -type f -print0 | sort -z | xargs -0 sha256sum) >before

modify --op 'rename \.linear_fc([12])\. .fc\1.' --op 'remove exp_avg_sq' in out | tail -n 2
"$DCPKIT" verify out | tail -n 1
for old in decoder.layers.mlp.linear_fc1.weight/{.zarray,0.0.0} decoder.layers.mlp.linear_fc2._extra_state/shard_0_4.pt; do
    [ "in/iter_0000004/$old" -ef "out/iter_0000004/${old/linear_/}" ] || echo "$old is not linked"
done
[ ! "in/iter_0000004/common.pt" -ef "out/iter_0000004/common.pt" ] || echo "common.pt is linked"
# There and back: the same files, but for the locks.
modify --op 'rename decoder encoder' in there >said && modify --op 'rename encoder decoder' there back >said
diff -r -x '*.sync' -x 'MANIFEST*' -x PROVENANCE.txt in back
modify --op 'cast ^decoder.*weight float32' --op 'keep ^decoder|^rng' in wide | tail -n 1
"$DCPKIT" verify wide | tail -n 1
"$DCPKIT" compare-two-checkpoint --as-stored --tensors-only --cast in wide | grep -v '^      ' | grep -vcE '[^0-9] only in A'
(cd in && find . -type f -print0 | sort -z | xargs -0 sha256sum) | diff before - || echo "IN changed"

refuses "a key with a slash" 2 "'a/b' cannot be a key in zarr" modify --op 'rename ^decoder.final_layernorm.weight$ a/b' in new
refuses "a file's name" 2 "'common.pt' cannot be" modify --op 'rename ^decoder.final_layernorm.weight$ common.pt' in new
refuses "an object's key" 2 "not 'x/y/shard_0.0_1.2'" modify --op 'rename ^rng_state x/y' in new
refuses "an array's folder" 2 'would hold an array, too' \
    modify --op 'rename ^rng_state decoder.final_layernorm.weight' in new
refuses "a dtype that zarr lacks" 3 'zarr has no dtype for float8_e5m2' modify --op 'cast exp_avg float8_e5m2' in new
