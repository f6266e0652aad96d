#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_force.sh - --dry-run writes nothing; --force replaces the iteration that is there, and only then, and only it.
convert=("$DCPKIT" convert --to fsdp_dtensor)
sample torch_dist_c_dense_tp2pp2 in
"${convert[@]}" --dry-run in out >said 2>&1 || echo "dry run: exit $?: $(cat said)"
ls
"${convert[@]}" in out >said 2>&1 || echo "first: exit $?: $(cat said)"
touch out/mine out/iter_0000004/old
refuses "again" 2 'out.*--force' "${convert[@]}" in out
"${convert[@]}" --force in out >said 2>&1 || echo "forced: exit $?: $(cat said)"
find out | sort
