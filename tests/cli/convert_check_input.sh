#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_check_input.sh - a damaged byte stops a conversion that checks its input, before anything is published; a
# report that cannot be written stops it before it begins; folders made on the way are gone after a failure.
sample torch_dist_c_dense_tp2pp2 damaged
"$MANGLE" flip damaged/iter_0000004/__1_0.distcp 300000
refuses "damaged input" 3 'CRC-32.*the file is damaged' \
    "$DCPKIT" convert --check-input --to fsdp_dtensor damaged a/b/out
refuses "report in no folder" 4 "report 'nowhere/report.json' cannot be written" \
    "$DCPKIT" convert --report nowhere/report.json --to fsdp_dtensor damaged a/b/out
[ -e a ] && echo "folders were left behind"
sample torch_dist_c_dense_tp2pp2 whole
"$DCPKIT" convert --check-input --to fsdp_dtensor whole a/b/out >/dev/null || echo "a whole input was refused"
[ -e a/b/out/iter_0000004/.metadata ] || echo "nothing was written"
