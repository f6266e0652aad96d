#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_metadata.sh - a .metadata that parses but lies. Tensor tp.weight is (4, 6) in chunks of (2, 6).
tiny=tiny_generations/torch_dist_main_torch2.11

# lie NAME OLD NEW [NTH]: a copy of the sample with .metadata changed.
lie() {
    sample $tiny "$1"
    "$MANGLE" replace "$1/.metadata" "${@:2}"
}
lie overlap 'K\x02K\x06\x86' 'K\x03K\x06\x86' 1
lie gap 'K\x04K\x06\x86' 'K\x05K\x06\x86' 1
lie outside 'K\x04K\x06\x86' 'K\x03K\x06\x86' 1
lie overflow 'K\x04K\x06\x86' '\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40K\x06\x86' 1
lie negative 'K\x04K\x06\x86' 'J\xfc\xff\xff\xffK\x06\x86' 1
lie dtype bfloat16 bfloat17
lie climb '\x0c__0_0.distcp' '\x0d../0_0.distcp' 1
lie absolute __0_0.distcp /_0_0.distcp 1
lie class BytesStorageMetadata BytesStorageMetadatx
lie chunk_class ChunkStorageMetadata ChunkStorageMetadatx

for command in inspect hash verify "convert --to fsdp_dtensor"; do
    last=()
    [[ $command != convert* ]] || last=(out)
    # shellcheck disable=SC2086 # the words of a command
    run() { refuses "$command, $1" 3 "$2" "$DCPKIT" $command "$3" "${last[@]}"; }
    run "a chunk outside its tensor" 'tp\.weight' outside
    run "a shape that overflows" 'tp\.weight' overflow
    run "a negative shape" 'tp\.weight' negative
    run "unknown dtype" 'bfloat17' dtype
    run "a path out of the folder" '\.\./0_0\.distcp' climb
    run "an absolute path" '/_0_0\.distcp' absolute
    run "unknown class" 'BytesStorageMetadatx' class
    run "unknown class of a chunk" 'ChunkStorageMetadatx' chunk_class
    case $command in
    inspect) ;; # reads no chunk
    verify)
        answers_no "verify, overlapping chunks" 'cover.*FAILED.*tp\.weight' "$DCPKIT" verify overlap
        answers_no "verify, missing chunk" 'cover.*FAILED.*tp\.weight' "$DCPKIT" verify gap
        ;;
    *)
        run "overlapping chunks" 'tp\.weight' overlap
        run "missing chunk" 'tp\.weight' gap
        ;;
    esac
done
