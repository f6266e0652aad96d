#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_mp_rank.sh - files of Megatron's ranks whose args, tensors, groups and classes lie; the pickles have right checksums.
seeds=$TOOLS/../tests/fuzz/corpus/mp_rank # tests/fuzz/fuzz_mp_rank.c

# evil SEED N: the seed's files in the folders of N ranks.
evil() {
    local n
    n=$(od -An -tu4 -j1 -N4 "$seeds/$1" | tr -d ' ')
    rm -rf evil
    for rank in $(seq 0 $(($2 - 1))); do
        mkdir -p "evil/mp_rank_0$rank"
        tail -c +6 "$seeds/$1" | head -c "$n" >"evil/mp_rank_0$rank/model_optim_rng.pt"
        tail -c +$((6 + n)) "$seeds/$1" >"evil/mp_rank_0$rank/distrib_optim.pt"
        [ -s "evil/mp_rank_0$rank/distrib_optim.pt" ] || rm "evil/mp_rank_0$rank/distrib_optim.pt"
    done
}

# lie LABEL REGEX OLD NEW: in the file of the last of two ranks.
lie() {
    evil numbered_tp2 2
    "$MANGLE" replace evil/mp_rank_01/model_optim_rng.pt "$3" "$4" 1 && "$MANGLE" seal evil/mp_rank_01/model_optim_rng.pt
    attack "$1" 3 "$2" evil inspect verify hash
}

evil numbered_tp2 2 && "$DCPKIT" verify evil | tail -n 1 && "$DCPKIT" inspect evil | grep -c 'optimizer.state.exp_avg.'
lie "another size" 'mp_rank_01/model_optim_rng.pt.*args.tensor_model_parallel_size is 7, and that of rank 0 2' 'tensor_model_parallel_sizeq\x05K\x02' 'tensor_model_parallel_sizeq\x05K\x07'
lie "another iteration" 'its iteration is not that of rank 0' 'iterationq\x0fK\x02' 'iterationq\x0fK\x03'
lie "another shape" "'embedding.word_embeddings.weight': another rank has it with another dtype or shape" 'K\x02K\x02\x86' 'K\x01K\x02\x86'
lie "a layer too many" "'decoder.layers.9.input_layernorm.weight': args give the rank 1 layers" 'layers.0.input' 'layers.9.input'
lie "a class to make" "it holds 'argparse.Namespacf'" 'argparse\x0aNamespace' 'argparse\x0aNamespacf'
lie "a function to call" "it holds 'torch._utils._rebuild_tensor_w2'" '_rebuild_tensor_v2' '_rebuild_tensor_w2'
evil numbered_tp2 1 && attack "a rank that is not there" 3 "no 'mp_rank_01/model_optim_rng.pt'" evil inspect verify hash
evil numbered_tp1 2 && attack "a rank too many" 3 "'mp_rank_01' is no folder of a run" evil inspect verify hash
evil writer 2 && attack "the file of another rank" 3 "mp_rank_00/model_optim_rng.pt': it is the file of another folder: by its args rank 1 wrote it" evil inspect verify hash
evil before_core 1 && attack "a model from before core" 3 'language_model.*--loader legacy --saver core' evil inspect verify hash
evil distributed 1 && rm evil/mp_rank_00/distrib_optim.pt && attack "no optimizer" 3 "no 'mp_rank_00/distrib_optim.pt'" evil inspect verify hash
evil distributed 1 && head -c 900 evil/mp_rank_00/distrib_optim.pt >short && mv short evil/mp_rank_00/distrib_optim.pt &&
    attack "a cut optimizer" 3 "mp_rank_00/distrib_optim.pt" evil inspect verify hash
evil distributed 1 && attack "masters that are not the weights'" 3 'is 1 as a weight|no known order|decoding' evil "convert --to torch_dist"

# Of numbers: the weights can be read.
spare() {
    evil numbered_tp1 1
    "$MANGLE" replace evil/mp_rank_00/model_optim_rng.pt "$2" "$3" 1 && "$MANGLE" seal evil/mp_rank_00/model_optim_rng.pt
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    $BOUNDED "$DCPKIT" inspect evil 2>said >listed && grep -qE "the optimizer is not read: .*$1" said && grep -c '^tensors  *4 ' listed
}
spare 'has state for a parameter that is in no group' 'stateq:}q;(K\x00}' 'stateq:}q;(K\x09}'
