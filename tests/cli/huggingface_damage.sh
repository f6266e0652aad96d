#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# huggingface_damage.sh - verify --against and compare-two-checkpoint between a model's folder and the checkpoint of a run: a
# byte, a name, a tensor, a setting that is another is found, whichever of the two has it.
modify() { "$DCPKIT" modify-state-dict --quiet "$@"; }
sample safetensors_qwen3 model
for format in torch_dist zarr fsdp_dtensor; do
    "$DCPKIT" convert --quiet --to $format model run_$format
done
"$DCPKIT" convert --quiet --to huggingface run_zarr whole # in one file

# found LABEL REGEX DAMAGED OTHER...: verify says no and why, with either as the source; compare-two-checkpoint says no, or
# cannot compare and why.
found() {
    local label=$1 regex=$2 damaged=$3 other status said
    shift 3
    for other in "$@"; do
        answers_no "$label" "against +FAILED .*$regex" "$DCPKIT" verify --quiet --against "$other" "$damaged"
        answers_no "$label" "against +FAILED .*$regex" "$DCPKIT" verify --quiet --against "$damaged" "$other"
        status=0
        said=$("$DCPKIT" compare-two-checkpoint --quiet "$damaged" "$other" 2>&1) || status=$?
        [[ $status = 1 || ($status = 3 && $said =~ $regex) ]] || echo "$label: compare: exit $status: $said"
    done | uniq -c | sed 's/^ *//'
}

# flip ITERATION KEY BYTE: all bits of a byte of the tensor's data.
flip() {
    local file at
    IFS=$'\t' read -r file at < <("$DCPKIT" inspect --quiet --chunks --keys "^$2\$" "$1" | awk -F'\t' '/\t/ { print $(NF - 2) "\t" $(NF - 1); exit }')
    "$MANGLE" flip "$1/$file" $((at + $3))
}

# Byte 77 is element 6 in row 1 of v, and row 37 of linear_qkv: in a group 24 rows of q, 12 of k, 12 of v, of 32 elements.
cp -r whole byte && flip byte model.layers.1.self_attn.v_proj.weight 77
found "a byte" "'decoder.layers.1.self_attention.linear_qkv.weight': 1 elements of the weight differ, the first is number 1190$" byte run_* model
modify --op 'rename (layers)\.0\.(self_attn) \1.x.\2' --op 'rename (layers)\.1\.(self_attn) \1.0.\2' --op 'rename \.x\. .1.' model layers
found "layers" "8 differences from .*, the first: 'decoder.layers.0.self_attention" layers run_*
modify --op 'rename 2\.mlp\.gate_proj x' --op 'rename 2\.mlp\.up_proj 2.mlp.gate_proj' --op 'rename x 2.mlp.up_proj' model halves
found "gate and up" "1 differences from .*: 'decoder.layers.2.mlp.linear_fc1.weight': 2[0-9]* elements" halves run_zarr
modify --op 'remove layers.2.mlp.up_proj' model less
found "a tensor" "in 1 places: 'model.layers.2.mlp.up_proj.weight' is missing" less run_*
# What config.json has, and what args make of it.
while read -r key value arg; do
    rm -rf other && cp -r whole other
    sed -i "s/\"$key\": [^,]*/\"$key\": $value/" other/config.json
    found "$key" "[0-9] differences? from .*first: args.$arg differs" other run_zarr
done <<END
rms_norm_eps 0.0001 norm_epsilon
rope_theta 500.5 rotary_base
max_position_embeddings 63 max_position_embeddings
initializer_range 0.5 init_method_std
END
cp -r whole tied && sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tied/config.json
found "tie_word_embeddings" "'lm_head.weight' differs from 'model.embed_tokens.weight', with which it is tied" tied run_zarr

# The damage is in the run's checkpoint: element 2500 of layers of 1536. A record of torch_dist has 704 bytes before its data.
cp -r run_torch_dist byte_t && flip byte_t/release decoder.layers.self_attention.linear_proj.weight 5704
cp -r run_zarr byte_z && flip byte_z/release decoder.layers.self_attention.linear_proj.weight 5000
found "a byte of a run" "'decoder.layers.1.self_attention.linear_proj.weight': 1 elements of the weight differ, the first is number 964$" whole byte_t byte_z
modify --op 'remove layers.1.self_attention.q_layernorm' run_fsdp_dtensor less_f
found "a tensor of a run" "layers.1.self_attention.q_layernorm.weight" whole less_f
