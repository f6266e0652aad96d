#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_transformers.sh - does a class of transformers load it: folders that fit, that lie, checkpoints of a run.
check() { "$DCPKIT" check --loads-in transformers "$@"; }
sample safetensors_qwen3 model
model() { check "$1" 2>said | sed -n 's/^\(model .*\|verdict .*\)/\1/p'; }

model model
"$DCPKIT" check model 2>said | sed -n 's/^\(model .*\|verdict .*\)/\1/p'
tar czf model.tar.gz model && "$DCPKIT" check --quiet model.tar.gz | tail -n 1
check --json model 2>said | jq -c '[.ok, .format, (.checks | map(.name))]'
"$DCPKIT" modify-state-dict --op 'remove layers\.1\.self_attn\.q_norm' --op 'remove layers\.2\.mlp.up_proj' \
    --op 'rename ^model\.norm\.weight model.last_norm.weight' model less >said
model less
for change in 's/"num_key_value_heads": 2/"num_key_value_heads": 4/' 's/"hidden_size": 32/"hidden_size": 48/' \
    's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 4/' 's/"hidden_act": "silu"/"hidden_act": "gelu"/'; do
    rm -rf bad && cp -rL model bad && chmod -R u+w bad && sed -i "$change" bad/config.json
    ! cmp -s model/config.json bad/config.json || echo "$change: nothing changed"
    echo "$change" && model bad | cut -c 1-300
done

# What the class stops at in config.json, and values next to it that it takes (transformers 5.23, from_pretrained).
config() { # config JQ: of the model's config.json
    rm -rf bad && cp -rL model bad && chmod -R u+w bad && jq "$1" model/config.json >bad/config.json
    echo "$1: $(check bad 2>said | sed -nE 's/^config +(ok|FAILED) +(transformers 5.23 stops at config.json: )?/\1: /p')"
}
config '.rms_norm_eps = 1 | .tie_word_embeddings = null | .num_key_value_heads = true'
sed 's/"num_hidden_layers": 3/"num_hidden_layers": 3.0/' model/config.json >layers.json # jq prints 3
rm -rf bad && cp -rL model bad && chmod -R u+w bad && cp layers.json bad/config.json
check bad 2>said | grep -oE "^config .*'num_hidden_layers' is 3.0, not int"
config '.torch_dtype = "torch.float32" | del(.dtype)'
config '.torch_dtype = "float32" | del(.dtype)'
config '.pad_token_id = .vocab_size'
config '.pad_token_id = .vocab_size - 1'
config '.pad_token_id = -1 | .num_key_value_heads = null'
config '.head_dim = 9'
config '.head_dim = 9 | .rope_parameters.partial_rotary_factor = 0.5'
config 'del(.model_type)'
config '.model_type = "llama" | .hidden_size = 30 | .initializer_range = 1.5'
config '.model_type = "mistral" | .num_key_value_heads = null'

# Of a checkpoint of a run: what convert would make, or why it cannot.
check "$SAMPLES/torch_dist_c_dense_tp2pp2" 2>said | grep -E '^(model|verdict)'
cut -c 1-80 said
check "$SAMPLES/torch_dist_c_moe_ep2pp2" | grep -oE '^model .*no family fits it|^verdict.*'
refuses "a page" 2 'html cannot show' check --html page.html model
