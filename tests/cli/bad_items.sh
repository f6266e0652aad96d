#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_items.sh - items of .distcp files whose bytes are not what the archive says.
tiny=tiny_generations/torch_dist_main_torch2.11

# flip NAME PLACE: one byte of the first data file inverted. It holds an object at 0, tp.weight's
# first half at 2966.
flip() {
    sample $tiny "$1"
    "$MANGLE" flip "$1/__0_0.distcp" "$2"
}
flip object_magic 0       # the first local header's magic number
flip object_name 31       # in the name of the first record
flip object_size 780      # its compressed size in the directory
flip object_descriptor 92 # its checksum in the data descriptor
flip object_pickle 80     # in the first record, data.pkl
flip tensor_magic 2966    # the same in the item of a tensor
flip tensor_end 4542      # the last byte of the end record
flip tensor_pickle 3046   # in its data.pkl
for name in object_magic object_name object_size object_descriptor object_pickle; do
    answers_no "verify, $name" 'FAILED.*obj/shard_0_2' "$DCPKIT" verify $name
done
for name in tensor_magic tensor_end tensor_pickle; do
    answers_no "verify, $name" 'FAILED.*tp\.weight' "$DCPKIT" verify $name
    refuses "hash, $name" 3 'tp\.weight' "$DCPKIT" hash $name
done

# A byte of a tensor: its checksum tells. tp.weight's second half is 12, 13, .. as float32.
sample $tiny element
"$MANGLE" replace element/__1_0.distcp '\x00\x00\x40\x41\x00\x00\x50\x41' \
    '\x00\x00\x40\x41\x00\x00\x51\x41' 1
answers_no "verify, an element" 'checksums.*FAILED.*tp\.weight' "$DCPKIT" verify element

# A call in the common state, under a right checksum (the two CRCs were computed by Python's zlib).
sample torch_dist_c_fp32_dp1/iter_0000004 call
"$MANGLE" replace call/__0_0.distcp 'signal\x0aSignals' 'subprocess\x0arun'
"$MANGLE" replace call/__0_0.distcp '\x75\x9c\x77\x74' '\xec\xb9\x79\x16'
answers_no "verify, a call" "pickles.*FAILED.*subprocess\.run" "$DCPKIT" verify call
