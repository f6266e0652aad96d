#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# strangers.sh - folders that people take for a checkpoint: the message says what they are and the way on.
inspect() { "$DCPKIT" inspect "$@"; }
mkdir above && sample torch_dist_c_dense_tp2pp2 above/run
mkdir -p legacy/iter_0000010/mp_rank_00 cut/iter_0000004.dcpkit-partial hf pickled
touch legacy/iter_0000010/mp_rank_00/model_optim_rng.pt hf/config.json hf/model-00001-of-00002.safetensors \
    pickled/pytorch_model-00001-of-00002.bin
printf 10 >legacy/latest_checkpointed_iteration.txt
mkdir star && cp above/run/iter_0000004/*.distcp star
sample tiny_generations/zarr_0.12.0_torch2.5 bare_zarr && rm bare_zarr/metadata.json

refuses "the folder above" 3 "; give a folder in it, such as 'run'" inspect above
refuses "Megatron's old format, run" 3 "--ckpt-convert-format torch_dist" inspect legacy
refuses "Megatron's old format, rank" 3 "--ckpt-convert-format torch_dist" inspect legacy/iter_0000010/mp_rank_00
refuses "Hugging Face without its index" 3 "; its files have lost their model.safetensors.index.json" inspect hf
refuses "Hugging Face in pickles" 3 "; it is a Hugging Face model in pickles" inspect pickled
refuses "copied with a star" 3 "lost their .metadata: a copy of 'FOLDER/\*'" inspect star
refuses "a conversion cut short" 3 "; a conversion to it was cut short and can be resumed" inspect cut
refuses "zarr without its metadata.json" 3 "is an array in zarr, so a metadata.json is missing" inspect bare_zarr

# Another format than is asked for, by name or by a command that reads one alone.
in=$SAMPLES/fsdp_dtensor_native_dp2
refuses "--from" 3 'it is of the format fsdp_dtensor, not torch_dist$' inspect --from torch_dist "$in"
refuses "--format, its old name" 3 'it is of the format fsdp_dtensor, not torch_dist$' inspect --format torch_dist "$in"
refuses "the Python tool's command" 3 'it is of the format fsdp_dtensor, not torch_dist$' \
    "$DCPKIT" convert-torch-dist-to-fsdp-dtensor "$in" out
refuses "objects of zarr" 3 'it is of the format zarr, not dcp$' "$DCPKIT" print-torch-dcp-in-json "$SAMPLES/zarr_dense_tp2dp2"

# Without its common state the generation is not known, and that is said.
sample torch_dist_b_dense_tp2pp2 headless && rm headless/iter_0000004/common.pt
inspect headless 2>said | grep ^format && cat said
