#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_items.sh - items of .distcp files whose bytes are not what the archive says.
tiny=tiny_generations/torch_dist_main_torch2.11

# flip NAME PLACE: one byte of the first data file inverted.
flip() {
    sample $tiny "$1"
    "$MANGLE" flip "$1/__0_0.distcp" "$2"
}
flip local_head 0   # the first local header's magic number
flip local_name 31  # in the name of the first record
flip record_size 18 # the compressed size in the local header
flip pickle 80      # in the first record, data.pkl
for name in local_head local_name record_size pickle; do
    refuses "verify, $name" 3 '__0_0\.distcp' "$DCPKIT" verify $name
done

# A byte of a tensor: its checksum tells. tp.weight's second half is 12..23, as float32 "\0\0@A" is 12.
sample $tiny element
"$MANGLE" replace element/__1_0.distcp '\x00\x00\x40\x41\x00\x00\x50\x41' \
    '\x00\x00\x40\x41\x00\x00\x51\x41' 1
refuses "verify, an element" 3 'tp\.weight.*CRC|CRC.*tp\.weight' "$DCPKIT" verify element
refuses "convert, an element" 3 'tp\.weight|CRC' "$DCPKIT" convert --to fsdp_dtensor element out
