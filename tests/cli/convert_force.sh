#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_force.sh - --dry-run writes nothing and plans for ranks; --force replaces the iteration that is there, and only then, and only it.
convert=("$DCPKIT" convert --to fsdp_dtensor)
sample torch_dist_c_dense_tp2pp2 in
"${convert[@]}" --dry-run in out >said 2>&1 || echo "dry run: exit $?: $(cat said)"
ls
# The shares of one rank are what a run reads and writes (zarr has no frames around its elements); those of more add up.
sample zarr_dense_tp2dp2 zarr
[ "$("${convert[@]}" --dry-run --ranks 1 --json zarr new | jq .ranks.most_read_bytes)" = \
    "$("${convert[@]}" --json zarr new | jq .read_bytes)" ] || echo "another share"
rm -r new zarr
"$DCPKIT" convert --to fsdp_dtensor --dry-run --ranks 3 --json in out |
    jq -c '.ranks as $r | [$r.n, $r.least_written_bytes * 3 <= .tensor_bytes, $r.most_written_bytes * 3 >= .tensor_bytes,
        $r.least_read_bytes * 3 <= $r.read_bytes, $r.most_read_bytes * 3 >= $r.read_bytes]'
refuses "ranks without dry run" 2 "start dcpkit N times by mpirun or srun" "${convert[@]}" --ranks 3 in out
"${convert[@]}" in out >said 2>&1 || echo "first: exit $?: $(cat said)"
touch out/mine out/iter_0000004/old
refuses "again" 2 'out.*--force' "${convert[@]}" in out
"${convert[@]}" --force in out >said 2>&1 || echo "forced: exit $?: $(cat said)"
find out | sort
