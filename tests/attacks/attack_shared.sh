#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_shared.sh - one item under many keys, and lists with holes: what is printed is bounded by what is stored, the
# rest of the work is done once. Opcodes: CPython's pickletools; .metadata: torch/distributed/checkpoint/metadata.py.
sample torch_dist_c_tied/iter_0000004 c
sample torch_dist_b_dense_tp2pp2/iter_0000004 b
head -c 1261 c/__0_0.distcp >none # the item of an extra state: [None]
torch=torch.distributed.checkpoint

# folder NAME N ITEM PLACE: a folder of N keys k00000, ... for one item; PLACE 1: the planner_data of a key i is
# (key, N), a list with N holes; 0: there is none.
folder() {
    local i keys=() length index
    mkdir "$1"
    cp "$3" "$1/__0_0.distcp"
    length=$(printf '%08x' "$(stat -c %s "$3")" | sed -E 's/(..)(..)(..)(..)/\\x\4\\x\3\\x\2\\x\1/')
    index=$(printf 'M\\x%02x\\x%02x' $(($2 % 256)) $(($2 / 256)))
    for ((i = 0; i < $2; i++)); do printf -v "keys[i]" '\\x8c\\x06k%05d' "$i"; done
    {
        printf '\x80\x04c%s.metadata\nMetadata\n)\x81}(\x8c\x13state_dict_metadata}(' $torch
        printf '%b' "${keys[0]}c$torch.metadata\\nBytesStorageMetadata\\n)\\x81q\\x01"
        for key in "${keys[@]:1}"; do printf '%b' "${key}h\\x01"; done
        printf 'u\x8c\x0cplanner_data}('
        for key in "${keys[@]:0:$2*$4}"; do printf '%b' "$key$key$index\\x86"; done
        printf 'u\x8c\x0cstorage_data}(c%s.metadata\nMetadataIndex\nq\x02)\x81}(\x8c\x03fqnq\x03%b' $torch "${keys[0]}"
        printf '\x8c\x06offsetq\x05N\x8c\x05indexq\x06Nubc%s.filesystem\n_StorageInfo\n)\x81}(' $torch
        printf '\x8c\x0drelative_path\x8c\x0c__0_0.distcp\x8c\x06offsetK\0\x8c\x06lengthJ%bubq\x04' "$length"
        for key in "${keys[@]:1}"; do printf '%b' "h\\x02)\\x81}(h\\x03${key}h\\x05Nh\\x06Nubh\\x04"; done
        printf 'uub.'
    } >"$1/.metadata"
}

# runs LABEL WORD...: ends well, within the bounds.
runs() {
    local label=$1 status=0
    shift
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    $BOUNDED "$DCPKIT" "$@" >"$GOT/out" 2>&1 || status=$?
    echo "$label: exit $status"
    [ $status -eq 0 ] || head -c 1000 "$GOT/out"
}

folder few 3 none 1
runs "three lists of four" print-torch-dcp-in-json --dry-run few
cat "$GOT/out"
folder holes 3000 none 1
# shellcheck disable=SC2086
refuses "3000 lists of 3000 holes" 3 'leave holes in their lists, so often' $BOUNDED "$DCPKIT" print-torch-dcp-in-json --dry-run holes
folder many 3000 b/common.pt 0
# shellcheck disable=SC2086
refuses "args under 3000 keys, as JSON" 3 'share their items' $BOUNDED "$DCPKIT" print-torch-dcp-in-json --dry-run many
runs "args under 3000 keys, verify" verify many
runs "args under 3000 keys, hash" hash many
runs "args under 3000 keys, compare" compare-two-checkpoint many many
exit 0
