#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_item.sh - torch.save archives in a .distcp file whose headers, directory, places or pickles lie. Zip: APPNOTE.TXT 4.3.
key=optimizer.state.param.embedding.word_embeddings.weight # fp32, 32 x 16: the first that a conversion reads
data=evil/__0_0.distcp

evil() {
    rm -rf evil
    sample torch_dist_c_tied/iter_0000004 evil
}
evil
place=$("$DCPKIT" inspect --json --chunks evil |
    awk -v key="\"$key\"" 'index($0, key) {found = 1} found && /offset_bytes/ {gsub(/[^0-9]/, ""); print; exit}')

# edit OLD NEW [NTH]: in the item of $key, counted from its start. In OLD "." is any byte to grep.
edit() {
    local before
    if [[ $1 == *\\x0a* ]]; then # found in lines that end with a NUL
        before=$(grep -obUaPz -- "$1" $data | tr '\n\0' ' \n' | awk -F: -v place="$place" '$1 < place' | wc -l)
    else
        before=$(grep -obUaP -- "$1" $data | awk -F: -v place="$place" '$1 < place' | wc -l)
    fi
    "$MANGLE" replace $data "$1" "$2" $((before + ${3:-1}))
}

# item LABEL REGEX: neither found right nor converted; the next one begins afresh.
item() {
    spoilt "$1" "$2" evil "convert --to fsdp_dtensor"
    evil
}

# The local header, the directory and the descriptor say the same, or none is believed.
edit archive/data.pkl archive/data.pkk && item "another name in the local header" 'local header at byte 0 and the directory disagree'
edit '\x56\x02\x00\x00archive/data/0' '\x56\x02\x00\x00archive/data/1' && item "another name in the directory" 'local header at byte 598 and the directory disagree'
edit 'PK\x03\x04\x00\x00\x08\x08\x00\x00' 'PK\x03\x04\x00\x00\x08\x08\x08\x00' && item "a packed local header" 'local header at byte 0 and the directory disagree'
edit 'PK\x01\x02\x00\x00\x00\x00\x08\x08\x00\x00' 'PK\x01\x02\x00\x00\x00\x00\x08\x08\x08\x00' && item "a packed record" 'compressed record \(method 8\)'
edit 'PK\x01\x02\x00\x00\x00\x00\x08\x08' 'PK\x01\x02\x00\x00\x00\x00\x09\x08' && item "an encrypted record" 'encrypted'
edit '\x00\x08\x00\x00\x00\x08\x00\x00' '\x00\x04\x00\x00\x00\x04\x00\x00' && item "another size in the descriptor" 'not its data descriptor'
edit '\x00\x08\x00\x00\x00\x08\x00\x00' '\x00\x04\x00\x00\x00\x04\x00\x00' 2 && item "a smaller size in the directory" 'not its data descriptor'
edit '\x00\x08\x00\x00\x00\x08\x00\x00' '\x00\x09\x00\x00\x00\x09\x00\x00' 2 && item "a record over the next one" 'records overlap'
edit '\x00\x08\x00\x00\x00\x08\x00\x00' '\x00\x08\x00\x00\x00\x09\x00\x00' 2 && item "a stored size that is not the size" 'of 2048 bytes that claims 2304'
edit '\x00\x08\x00\x00\x00\x08\x00\x00' '\xff\xff\xff\xff\xff\xff\xff\xff' 2 && item "a zip64 size without its field" 'zip64 field'
edit '\x56\x02\x00\x00archive/data/0' '\x00\x00\x00\x00archive/data/0' && item "two entries for one place" 'local header at byte 0 and the directory disagree'
edit '\x56\x02\x00\x00archive/data/0' '\x00\x00\x00\xffarchive/data/0' && item "an entry past the end" 'pass the end of the archive'
edit 'PK\x05\x06\x00\x00\x00\x00\x07\x00\x07\x00' 'PK\x05\x06\x00\x00\x00\x00\x08\x00\x08\x00' && item "end records that disagree" 'two end records disagree'
edit '\x07\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00' '\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f' &&
    item "2^63 - 1 records" 'end records disagree|records; 1 to'
edit 'PK\x06\x07\x00\x00\x00\x00' 'PK\x06\x07\x01\x00\x00\x00' && item "a zip64 locator of another disk" 'zip64 locator'
edit 'PK\x06\x06\x2c' 'PK\x06\x06\xff' && item "a zip64 end record of another size" 'no zip64 end record'

# Pickles with the right checksum, so that nothing but what they say is wrong.
sealed() {
    "$MANGLE" seal $data
    item "$1" "$2"
}
edit 'K K\x10\x86' 'K!K\x10\x86' && sealed "a row past the storage" 'outside its storage|\[33, 16\]|33'
edit 'K K\x10\x86' 'K\x1fK\x10\x86' && sealed "a row less than .metadata says" '\[31, 16\]|31'
edit 'K K\x10\x86' 'K\x10K \x86' && sealed "rows for columns" '16, 32'
edit 'K\x10K\x01\x86' 'K\xffK\x01\x86' && sealed "a stride past the storage" 'outside its storage of 512'
edit 'q\x05QK\x00' 'Q\x8a\x02\xff\xff' && sealed "an offset below zero" 'without a storage offset'
edit 'q\x05QK\x00' 'q\x05QK\x01' && sealed "an offset that pushes the end out" 'outside its storage of 512'
edit 'M\x00\x02t' 'M\x00\x7ft' && sealed "a storage larger than its record" 'its storage has 32512 elements'
edit 'ctorch\x0aFloatStorage' 'ctorch\x0aShortStorage' && sealed "another dtype" 'int16|its storage has 512'
edit 'ctorch\x0aFloatStorage' 'ctorch\x0aQuiltStorage' && sealed "a dtype nobody knows" 'QuiltStorage'
edit '_rebuild_tensor_v2' '_rebuild_sparse_te' && sealed "another kind of tensor" '_rebuild_sparse_te'
edit 'ctorch._utils\x0a_rebuild_tensor_v2\x0a' 'cposix\x0asystem\x0aK\x000N0N0N0N0N0N0N0N0' && sealed "a call" 'a posix\.system'
edit 'ccollections\x0aOrderedDict\x0a' 'cos\x0asystem\x0aN0N0N0N0N0N0N0' && sealed "a call among the hooks" 'argument 5 of _rebuild_tensor_v2 is more than'

# Places in .metadata.
places() {
    "$MANGLE" replace evil/.metadata "$2" "$3" 1
    attack "$1" 3 "$4" evil
    evil
}
places "an item below byte 0" '\x8c\x06offset\x94K\x00' '\x8c\x06offset\x94J\xff\xff\xff\xff' "offset|-1"
places "an item at byte 2^63 - 1" '\x8c\x06offset\x94K\x00' '\x8c\x06offset\x94\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f' "9223372036854775807"
places "an item at byte 2^64" '\x8c\x06offset\x94K\x00' '\x8c\x06offset\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01' "offset"
places "an item of less than nothing" '\x8c\x06length\x94M\xed\x04' '\x8c\x06length\x94J\xff\xff\xff\xff' "length|-1"
places "an item of 2^63 - 1 bytes" '\x8c\x06length\x94M\xed\x04' '\x8c\x06length\x94\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f' "9223372036854775807"
rm -rf evil
exit 0
