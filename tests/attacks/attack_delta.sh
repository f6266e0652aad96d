#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_delta.sh - deltas made by hand, their hashes right: names that lead elsewhere, sizes that lie, places that are none,
# blocks that unpack to more. Each is refused, and nothing is left of it.
mkdir base
header='{"x":{"dtype":"U8","shape":[200000],"data_offsets":[0,200000]}}'
{ printf '%b' "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0$header" && seq 100000 | head -c 200000; } >base/model.safetensors
n=$((8 + ${#header} + 200000))
cp -r base next && printf changed | dd of=next/model.safetensors bs=1 seek=100000 conv=notrunc status=none
"$DCPKIT" delta --quiet base next good

# u16, u32, u64 N: little-endian.
u() {
    local text='' v=$2
    for ((i = 0; i < $1; i++)); do
        text+=$(printf '\\x%02x' $((v >> 8 * i & 255)))
    done
    printf '%b' "$text"
}
u16() { u 2 "$1"; }
u32() { u 4 "$1"; }
u64() { u 8 "$1"; }
# xxh3: the hash of stdin, which is that of a tensor of these bytes.
xxh3() {
    local n header
    rm -rf probe && mkdir probe && cat >probe_bytes
    n=$(stat -c %s probe_bytes)
    header=$(printf '{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' "$n" "$n")
    { printf '%b' "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0$header" && cat probe_bytes; } >probe/model.safetensors
    "$DCPKIT" hash probe | grep -oE '[0-9a-f]{32}' | head -n 1 | tr -d '\n' | sed 's/../\\x&/g' | xargs -0 printf '%b'
    rm -r probe probe_bytes
}
# record N BASE AT STORED METHOD [FILE]: the hash is that of FILE, else of nothing.
record() {
    u32 "$1" && u32 "$2" && u64 "$3" && u32 "$4" && u32 "$5" && xxh3 <"${6:-/dev/null}"
}
seen=$(head -c 72 good/delta.index | tail -c 16 | od -An -v -tx1 | tr -d ' \n' | sed 's/../\\x&/g') # the identity of BASE's one file
# seal PARTS NAME BYTES [BASE_NAME]: a delta around `records`, `stored`, for one file of that name and length.
seal() {
    local base_name=${4:-model.safetensors}
    rm -rf bad && mkdir bad
    { u64 $(($(stat -c %s records) / 40)) && cat records stored; } >bad/part.000000
    {
        printf 'dcpkit delta 1\n\0' && u64 "$1" && xxh3 <records
        u64 1 && u64 "$n" && printf '%b' "$seen" && u16 ${#base_name} && printf %s "$base_name"
        u64 1 && u64 "$3" && u16 ${#2} && printf %s "$2"
    } >body
    { cat body && xxh3 <body; } >bad/delta.index
    rm body
}
none=$((0xffffffff))
# hostile LABEL REGEX [CODE]: apply refuses the delta.
hostile() {
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    refuses "$1" "${3:-3}" "$2" $BOUNDED "$DCPKIT" apply base bad out
}
head -c 1000 base/model.safetensors >thousand && : >stored
record 1000 0 0 0 0 thousand >records

seal 1 made.safetensors 1000 && "$DCPKIT" apply --quiet base bad out && cmp thousand out/made.safetensors && echo "one that is right: applied"
rm -r out
for name in ../escaped /tmp/escaped a/../../escaped .. . a/b/c a//b '' .dcpkit-journal; do
    seal 1 "$name" 1000 && hostile "the name '$name'" "name|escaped|'\.'|'\.\.'|folder|empty"
done
for name in ../next/model.safetensors "$TMP/next/model.safetensors" .. model.safetensors/.; do
    seal 1 made 1000 "$name" && hostile "BASE's '${name#"$TMP"}'" "it has no file|leaves the folder"
done
seal 1 made 1001 && hostile "too few bytes" "no record has byte 1000 of 'made'"
seal 1 made 999 && hostile "too many bytes" "record 0: method 0, 1000 bytes"
seal 1 made $((1 << 62)) && hostile "4 EiB" "no record has byte 1000"
seal 2 made 1000 && hostile "a part that is missing" "'part.000001': the delta lacks this file"
seal 9223372036854775807 made 1000 && hostile "2^63 parts" "'part.000001': the delta lacks this file"
seal 0 made 0 && hostile "records that no part has" "hash of the records differs"
# row LABEL REGEX RECORD...: a delta of one record
row() {
    local label=$1 regex=$2
    shift 2
    record "$@" >records && seal 1 made "$1" && hostile "$label" "$regex"
}
row "a file of BASE that is none" "byte 0 of the base's file 1 is no place" 1000 1 0 0 0 thousand
row "a place past the end" "is no place" 1000 0 $((n - 999)) 0 0 thousand
row "a place that overflows" "is no place" 1000 0 -1 0 0 thousand
row "a copy of nothing" "is no place" 1000 $none 0 0 0 thousand
row "stored, and from BASE" "is no place" 1000 0 0 1000 1 thousand
row "an unknown method" "method 7, 1000 bytes" 1000 0 0 0 7 thousand
row "a record larger than a span" "method 0, 1048577 bytes" 1048577 0 0 0 0
row "an empty record" "method 0, 0 bytes|more records than files" 0 0 0 0 0
row "stored bytes that are not there" "it has 48 bytes, its records need 1048" 1000 $none 0 1000 1 thousand
row "the wrong hash of a copy" "'base' is not the base of this delta: .* differs from it in 1000 bytes at byte 0" 1000 0 0 0 0
echo more >stored
row "bytes that no record has" "it has 53 bytes, its records need 48" 1000 0 0 0 0 thousand
head -c 1000 /dev/zero >stored
row "the wrong hash of stored bytes" "the delta is damaged: the hash of 1000 bytes at byte 0 of 'made' differs" 1000 $none 0 1000 1 thousand
# a frame of 128 KiB of zeros, for 1000 bytes (RFC 8878: 0xa0 a size of 4 bytes, one block of type 1)
{ printf '\x28\xb5\x2f\xfd\xa0' && u32 131072 && printf '\x03\x00\x10\x00'; } >stored
row "a frame that unpacks to more" "the delta's block for byte 0 of 'made': zstd" 1000 $none 0 13 2 thousand
printf noise >stored
row "no frame" "the delta's block for byte 0 of 'made': zstd" 1000 0 0 5 3 thousand
: >stored
record 1000 0 0 0 0 thousand >records && seal 1 made 1000
u64 $((1 << 40)) | dd of=bad/part.000000 conv=notrunc status=none && hostile "2^40 records" "1099511627776 records, the limit is"
seal 1 made 1000 && truncate -s 30 bad/part.000000 && hostile "a part that is cut" "part.000000.*(passes|end)"
seal 1 made 1000 && rm bad/part.000000 && mkfifo bad/part.000000 && hostile "a pipe as part" "the delta lacks this file"
seal 1 made 1000 && truncate -s -1 bad/delta.index && hostile "an index that is cut" "it is damaged: its hash differs"
seal 1 made 1000 && "$MANGLE" flip bad/delta.index 70 && hostile "an index with another byte" "it is damaged"
{ printf 'dcpkit delta 1\n\0' && u64 1 && xxh3 <records && u64 $((1 << 61)); } >body
{ cat body && xxh3 <body; } >bad/delta.index && hostile "2^61 files" "a list of .* files passes the end"
rm -rf bad/delta.index body && truncate -s 2G bad/delta.index && hostile "an index of 2 GiB" "delta.index.*(limit|larger|than)"
# 16384 copies of 200 000 bytes: a GiB is free, the rest is more than 1000 times the bytes of both
head -c 200000 base/model.safetensors >most && record 200000 0 0 0 0 most >records
for ((i = 0; i < 14; i++)); do cat records records >records.twice && mv records.twice records; done
seal 1 made $((200000 << 14)) && hostile "3 GB of copies" "claims files of 3276800000 bytes, made from .*: more than 1000 times as many"
"$MANGLE" flip base/model.safetensors 150000 && cp -r good bad2 && rm -r bad && mv bad2 bad &&
    hostile "a base with another byte" "is not the base of this delta"
ls -d out* ../escaped /tmp/escaped 2>/dev/null || echo "nothing is left"
