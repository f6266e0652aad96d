#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_shards.sh - files of FSDP's ranks whose DTensors, meshes and placements lie; the pickles have right checksums.
seed=$TOOLS/../tests/fuzz/corpus/shards/optimizer # tests/fuzz/fuzz_shards.c
file=evil/model_world_size_2_rank_1.pt

evil() {
    local n
    n=$(od -An -tu4 -j1 -N4 "$seed" | tr -d ' ')
    rm -rf evil && mkdir evil
    for rank in 0 1; do
        tail -c +6 "$seed" | head -c "$n" >evil/model_world_size_2_rank_$rank.pt
        tail -c +$((6 + n)) "$seed" >evil/optim_world_size_2_rank_$rank.pt
    done
    echo '{"FSDP_version": 2, "world_size": 2}' >evil/fsdp_config.json
}

# lie LABEL REGEX OLD NEW: in the file of rank 1; the others agree.
lie() {
    evil
    "$MANGLE" replace $file "$3" "$4" 1 && "$MANGLE" seal $file
    attack "$1" 3 "$2" evil inspect verify hash
}

evil && "$DCPKIT" verify evil | tail -n 1 && "$DCPKIT" inspect evil | grep -c 'optimizer.state.a.exp_avg'
lie "another shape" 'rank_1.pt.*local tensor has the shape \[2, 3\], and its placements give the rank \[3, 3\]' 'K\x04K\x03\x86' 'K\x06K\x03\x86'
lie "an axis that is not there" 'a placement of it cuts no axis' 'dimqMK\x00' 'dimqMK\x07'
lie "a mesh past its ranks" 'its mesh is not one of 2 ranks' 'strideq.K\x01' 'strideq.K\x02'
lie "a mesh of no stride" 'its mesh is not one of 2 ranks' 'strideq.K\x01' 'strideq.K\x00'
lie "another class" "it holds 'torch.distributed.tensor.placement_types.Shart'" 'types\x0aShard' 'types\x0aShart'
lie "a function to call" "it holds 'torch._utils._rebuild_wrapper_subclasz'" 'wrapper_subclass' 'wrapper_subclasz'
lie "another name" "'b': rank 0 does not have it" 'X\x01\x00\x00\x00a' 'X\x01\x00\x00\x00b'
evil && head -c 1000 "$file" >short && mv short $file && attack "a cut file" 3 "reading 'model_world_size_2_rank_1.pt'" evil inspect verify hash
evil && echo '{"FSDP_version": 2, "world_size": 60000}' >evil/fsdp_config.json &&
    attack "more ranks than files" 3 "is of another world size than 60000" evil inspect verify hash
evil && echo '{"FSDP_version": 2, "world_size": -1}' >evil/fsdp_config.json && attack "no ranks" 3 "no world_size from 1" evil inspect verify hash

# Of the optimizer: the weights can be read.
spare() {
    file=evil/optim_world_size_2_rank_1.pt
    evil
    "$MANGLE" replace $file "$3" "$4" 1 && "$MANGLE" seal $file
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    $BOUNDED "$DCPKIT" inspect evil 2>said >listed && grep -qE "the optimizer is not read: .*$2" said && grep -c '^tensors  *1 ' listed
}
spare "another number" 'has state for a parameter that is in no group' '}q\x02K\x00}' '}q\x02K\x05}'
spare "another group" 'its parameter groups are not those of rank 0' 'lrq\x90G?P' 'lrq\x90G?Q'
spare "a class" "it holds 'torch.Siza'" 'torch\x0aSize' 'torch\x0aSiza'
