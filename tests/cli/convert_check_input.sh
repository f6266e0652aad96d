#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_check_input.sh - a damaged byte stops a conversion that checks its input, as --verify does, before anything is published; a
# report that cannot be written stops it before it begins; folders made on the way are gone after a failure.
sample torch_dist_c_dense_tp2pp2 damaged
"$MANGLE" flip damaged/iter_0000004/__1_0.distcp 300000
refuses "damaged input" 3 'CRC-32.*the file is damaged' \
    "$DCPKIT" convert --check-input --to fsdp_dtensor damaged a/b/out
refuses "damaged input, --verify" 3 'CRC-32.*the file is damaged' \
    "$DCPKIT" convert --verify --to fsdp_dtensor damaged a/b/out
refuses "damaged input of a sum" 3 "checking 'damaged/iter_0000004': .*CRC-32" \
    "$DCPKIT" merge --weights 0.5,0.5 --verify "$SAMPLES/torch_dist_c_dense_tp2pp2" damaged a/b/out
refuses "to check and not to check" 2 'exclude each other' \
    "$DCPKIT" convert --check-input --no-check-input --to fsdp_dtensor damaged a/b/out
"$DCPKIT" convert --verify --no-check-input --quiet --to fsdp_dtensor damaged kept || echo "--no-check-input: exit $?"
refuses "report in no folder" 4 "report 'nowhere/report.json' cannot be written" \
    "$DCPKIT" convert --report nowhere/report.json --to fsdp_dtensor damaged a/b/out
[ -e a ] && echo "folders were left behind"
sample torch_dist_c_dense_tp2pp2 whole
"$DCPKIT" convert --check-input --to fsdp_dtensor whole a/b/out >/dev/null || echo "a whole input was refused"
[ -e a/b/out/iter_0000004/.metadata ] || echo "nothing was written"
# The report says what was checked; safetensors stores no checksums.
checked() { sed -n 's/^  checked/checked/p'; }
"$DCPKIT" convert -v --verify --to torch_dist --target-mesh tp=1 whole checked | checked
"$DCPKIT" convert -v --verify --no-check-input --to torch_dist --target-mesh tp=1 whole unchecked | checked
"$DCPKIT" convert --quiet --to huggingface whole hf
"$DCPKIT" convert -v --verify --to torch_dist hf run | checked
