#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mp_rank.sh - Megatron's formats torch (mp_rank folders) and torch_dcp: the same state as torch_dist of the same values, and damage.
inspect() { "$DCPKIT" inspect --quiet "$@"; }
convert() { "$DCPKIT" convert --quiet "$@"; }
same() { "$DCPKIT" compare-two-checkpoint --tensors-only "$@" | grep -E '^(weights|masters|moments|verdict)'; }
tied=$SAMPLES/mp_rank_tied_tp2pp2 moe=$SAMPLES/mp_rank_moe_shared dcp=$SAMPLES/torch_dcp_tied

# Megatron saved the same values as torch_dist: each sample holds what that one does, and so does every conversion of it.
inspect "$tied" | sed -n '2p;4,6p' && same "$tied" "$SAMPLES/torch_dist_c_tied"
inspect "$moe" | sed -n '2p;4,6p' && same "$moe" "$SAMPLES/torch_dist_c_moe_shared"
inspect "$dcp" | sed -n '2p;6p' && same "$dcp" "$SAMPLES/torch_dist_c_tied"
for to in torch_dist fsdp_dtensor zarr; do
    convert --verify --to $to "$tied" "tied_$to" && same "tied_$to" "$SAMPLES/torch_dist_c_tied" | tail -n 1
done
convert --verify --to torch_dist --target-mesh tp=1 "$moe" moe && same moe "$SAMPLES/torch_dist_c_moe_shared" | tail -n 1
convert --verify --to fsdp_dtensor "$moe" moe_fsdp && same moe_fsdp moe | tail -n 1
gdn=$SAMPLES/torch_dist_c_gdn # whose DeltaNet's norm has the key of attention's
convert --verify --to torch "$gdn" gdn && same gdn "$gdn" | tail -n 1
convert --verify --to torch_dist "$dcp" dcp && same dcp "$dcp" | tail -n 1
convert --verify --weights-only --to torch_dist "$dcp" weights && same weights "$SAMPLES/torch_dist_c_tied" | head -n 1
"$DCPKIT" verify "$tied" | tail -n 1 && "$DCPKIT" verify "$dcp" | tail -n 1 && "$DCPKIT" hash "$moe" | grep -c 'optimizer.state.fp32_param'
for folder in "$tied" "$dcp"; do
    "$DCPKIT" check --quiet "$folder" | tr -s ' \n' ' ' | grep -o 'cover ok .*OUT. makes a folder that loads in core 0.15.*' | sed "s,$SAMPLES/,,; s/ \$//"
done
"$DCPKIT" check --quiet --json "$moe" | jq -c '[.ok, (.checks[] | .name)]'
refuses "check of a release" 3 "this is torch: the requests of its loaders are not known" "$DCPKIT" check --loads-in core-0.19 "$moe"
refuses "a page of it" 2 "--html cannot show the check of torch" "$DCPKIT" check --html page.html "$moe"

# Damage: a rank's file, all of its folder, another run's folder, another save's file, a cut and a changed file.
damage() { rm -rf bad && sample mp_rank_tied_tp2pp2 bad && cd bad/iter_0000004 && eval "$1" && cd ../..; }
damaged() { refuses "$1" 3 "$2" "$DCPKIT" convert --verify --to torch_dist bad out; }
damage 'rm mp_rank_01_001/model_optim_rng.pt'
damaged "no file of a rank" "no 'mp_rank_01_001/model_optim_rng.pt', and by args .*tensor 2, pipeline 2.*copy the folders of all"
damage 'rm -r mp_rank_01_000'
damaged "no folder of a rank" "no 'mp_rank_01_000/model_optim_rng.pt'"
damage 'rm mp_rank_01_000/distrib_optim.pt'
damaged "no optimizer of a rank" "no 'mp_rank_01_000/distrib_optim.pt'"
damage 'rm -r mp_rank_00_000'
damaged "no first rank" "the first one or its model_optim_rng.pt is missing"
damage 'cp -r mp_rank_01_001 mp_rank_02_001'
damaged "a rank too many" "'mp_rank_02_001' is no folder of a run of tensor 2, pipeline 2.*remove the folders of one of two runs"
damage 'cp -r mp_rank_01_001 mp_rank_01'
damaged "a rank of another name" "'mp_rank_01' is no folder of a run of tensor 2"
damage 'cp mp_rank_00_000/model_optim_rng.pt mp_rank_00_001'
damaged "the file of another stage" "element 0 of 'decoder.layers.1.input_layernorm.weight' .* is -1.61719 as a weight"
"$DCPKIT" check --quiet bad | grep '^verdict'
# shellcheck disable=SC2016 # damage expands it
damage 'cp "$SAMPLES"/mp_rank_moe_shared/iter_0000004/mp_rank_00_000/model_optim_rng.pt mp_rank_01_000'
damaged "two runs" "reading 'mp_rank_01_000/model_optim_rng.pt': its args.pipeline_model_parallel_size is 1, and that of rank 0 2"
damage 'truncate -s -4000 mp_rank_01_000/model_optim_rng.pt'
damaged "a file cut off" "mp_rank_01_000/model_optim_rng.pt"
damage 'truncate -s -4000 mp_rank_01_000/distrib_optim.pt'
damaged "an optimizer cut off" "mp_rank_01_000/distrib_optim.pt"
# shellcheck disable=SC2016
damage 'printf x | dd of=mp_rank_01_000/model_optim_rng.pt bs=1 seek=$(($(grep -abo data/0 mp_rank_01_000/model_optim_rng.pt | head -n 1 | cut -d: -f1) + 256)) conv=notrunc status=none'
damaged "a changed byte" "bytes at byte 13184 of 'mp_rank_01_000/model_optim_rng.pt' have CRC-32"
refuses "one rank" 3 "it is the folder of one rank of Megatron's format torch: give the folder above it" "$DCPKIT" inspect "$tied/iter_0000004/mp_rank_00_000"

# Written: the ranks that the source had, or others; back it is the same. A rank has the names of its own modules.
for of in "$tied" "$moe" "$SAMPLES/torch_dist_c_mla_moe" "$SAMPLES/torch_dist_c_fp32_dp1"; do
    name=$(basename "$of")
    case $of in *mp_rank*) convert --to torch_dist "$of" "td_$name" && of=td_$name ;; esac
    convert --verify --to torch "$of" "$name" && same "$name" "$of" | tail -n 1
    (cd "$name" && find . -name '*.pt' | sort)
    "$DCPKIT" verify --quiet "$name" | tail -n 1
done
convert --to torch --target-mesh tp=1,pp=2 "$tied" one.tar && same one.tar "$tied" | tail -n 1
convert --verify --to torch --weights-only --target-mesh tp=2 "$moe" weights_alone
find weights_alone -name '*.pt' | sort && same weights_alone "$moe" | head -n 1
convert --verify --to torch --target-mesh tp=2,pp=3 "$SAMPLES/safetensors_qwen3" hf && find hf -name '*.pt' | sort
