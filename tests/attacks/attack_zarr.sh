#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_zarr.sh - a .zarray whose numbers overflow, chunks that swell, and what is no file in a chunk's place.
# zarray REGEX SHAPE CHUNKS [OTHER]: one array "w" of these.
zarray() {
    mkdir -p evil/w
    printf '{"sharded_backend": "zarr", "sharded_backend_version": 1}' >evil/metadata.json
    printf '{"zarr_format": 2, "dtype": "<f4", "order": "C", "filters": null, "fill_value": 0, "shape": %s, "chunks": %s, %s}' \
        "$1" "$2" "${3:-\"compressor\": null}" >evil/w/.zarray
}

zarray '[9223372036854775807, 9]' '[1, 9]'
attack "a shape past 2^63" 3 "'w/?|w/\.zarray" evil
zarray '[1e400]' '[1]'
attack "an infinite shape" 3 "w/\.zarray" evil
zarray '[NaN]' '[1]'
attack "a shape that is no number" 3 "w/\.zarray" evil
zarray '[-4]' '[2]'
attack "a negative shape" 3 "w/\.zarray" evil
zarray '[4]' '[0]'
attack "chunks of nothing" 3 "w/\.zarray|'w'" evil
zarray '[4]' '[2, 2]'
attack "more axes in chunks" 3 "w/\.zarray" evil
zarray '[1000000000000]' '[1]'
attack "10^12 chunks" 3 "'w'|w/" evil
zarray '[65536]' '[1]' && for i in {1..200}; do cp -r evil/w "evil/w$i"; done
attack "65536 chunks each in 201 arrays" 3 "more than 65[0-9]{3} chunks are missing in all arrays" evil
zarray '[1000000000000000]' '[1000000000000000]'
attack "an array of 4 PB without a file" 3 "describe 4000000000000000 bytes, its files hold [0-9]+" evil
zarray '[1099511627776]' '[1099511627776]' '"compressor": {"id": "zlib"}' && head -c 64 /dev/zero >evil/w/0
attack "a chunk of 4 TiB" 3 "describe 4398046511104 bytes|compressor 'zlib'" evil
zarray '[4]' '[4]' '"compressor": null, "shape": [8]'
attack "a key twice" 3 "w/" evil
zarray "$(head -c 50000 /dev/zero | tr '\0' '[')" '[4]'
attack "a shape 50000 deep" 3 "w/\.zarray" evil
zarray '[4]' '[4]' && mkfifo evil/w/0
attack "a pipe as a chunk" 4 "'w/0'.*not a plain file" evil
zarray '[4]' '[4]' && mkdir evil/w/0
attack "a folder as a chunk" 4 "'w/0'.*not a plain file" evil
zarray '[4]' '[4]' && head -c 15 /dev/zero >evil/w/0
attack "a chunk too short" 3 "'w/0'" evil

# packed LABEL REGEX CODEC [CHUNK]: the chunk on stdin, which should come to 4096 bytes (or CHUNK elements of 4), is
# neither hashed nor found right; opening alone reads no chunk. A codec that this build lacks is refused as well.
packed() {
    rm -rf evil
    zarray "[${4:-1024}]" "[${4:-1024}]" "\"compressor\": {\"id\": \"$3\"}"
    cat >evil/w/0
    spoilt "$1" "($2)|codec $3|compressor '$3'" evil hash
}

# le N BYTES: N in little-endian bytes, escaped for printf.
le() {
    local i
    for ((i = 0; i < $2; i++)); do
        printf '\\x%02x' $(($1 >> 8 * i & 255))
    done
}
swollen() { head -c "$1" /dev/zero | gzip -9n; }
swollen 300000000 | packed "gzip: 300 MB for 4 KiB" "'w/0' has [0-9]+ bytes, which cannot be" gzip
swollen 3000000 | packed "gzip: 3 MB for 4 KiB" "'w/0'.*holds more than the chunk's 4096" gzip
{ printf '\x78\xda' && swollen 3000000 | tail -c +11; } | packed "zlib: 3 MB for 4 KiB" "'w/0'.*holds more" zlib
head -c 100 /dev/zero | gzip -9n | packed "gzip: less than the chunk" "'w/0'.*holds less" gzip
{ head -c 4096 /dev/zero | gzip -9n && printf x; } | packed "gzip: bytes behind it" "'w/0'.*1 bytes after" gzip
printf '' | packed "an empty chunk file" "'w/0'" zlib
head -c 100 /dev/zero | packed "zlib: no stream" "'w/0'.*damaged" zlib
head -c 64 /dev/zero | packed "a chunk of 1 GiB" "1073741824 bytes.*raise --memory" zlib 268435456

# zstd CLAIMS BLOCKS: a frame (RFC 8878) that claims so many bytes, and blocks of 128 KiB of one byte each.
zstd_frame() {
    local i
    # shellcheck disable=SC2059 # the bytes are made here
    printf "\x28\xb5\x2f\xfd\xe0$(le "$1" 8)"
    for ((i = 1; i <= $2; i++)); do
        # shellcheck disable=SC2059
        printf "$(le $((131072 << 3 | 1 << 1 | (i == $2))) 3)\x00"
    done
}
zstd_frame $((131072 * 1000)) 1000 | packed "zstd: 131 MB for 4 KiB" "'w/0'.*zstd" zstd
zstd_frame 4096 1000 | packed "zstd: a size that lies" "'w/0'.*zstd" zstd
zstd_frame 9223372036854775807 1 | packed "zstd: 2^63 - 1 bytes" "'w/0'.*zstd" zstd

# blosc HEADER... : blosc 1's header: version, version of the codec, flags, size of an element; bytes, of a block, stored.
blosc() {
    # shellcheck disable=SC2059
    printf "\x02\x01$1$2$(le "$3" 4)$(le "$4" 4)$(le "$5" 4)"
    head -c $(($6 - 16)) /dev/zero | tr '\0' "${7:-\0}"
}
lie() { packed "blosc: $1" "'w/0'.*blosc" blosc; }
lied() { packed "blosc: $1" "'w/0'.*$2" blosc; }
blosc '\x01' '\x04' 2147483647 4096 64 64 | lied "2 GiB in 64 bytes" 'blosc|holds 2147483647'
blosc '\x01' '\x04' 4096 4096 1000000 64 | lie "more stored than there is"
blosc '\x01' '\x04' 4096 4096 16 64 | lie "less stored than there is"
blosc '\x01' '\x04' 4096 0 64 64 | lie "blocks of nothing"
blosc '\x01' '\x04' 4096 2147483647 64 64 | lie "a block larger than all"
blosc '\x01' '\x00' 4096 4096 64 64 | lie "elements of nothing"
blosc '\x01' '\x04' 4096 1 64 64 | lie "4096 blocks without room for their places"
blosc '\x01' '\x04' 4096 4096 64 64 '\377' | lie "a block in front of the buffer"
blosc '\x01' '\x04' 4096 4096 64 64 '\177' | lie "a block behind the buffer"
blosc '\xe1' '\x04' 4096 4096 64 64 | lie "a codec nobody has"
blosc '\x02' '\x04' 4096 4096 64 64 | lie "a copy that is shorter"
printf '\x02\x01' | lie "a header cut short"
exit 0
