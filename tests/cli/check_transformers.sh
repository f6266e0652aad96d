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

# Of a checkpoint of a run: what convert would make, or why it cannot.
check "$SAMPLES/torch_dist_c_dense_tp2pp2" 2>said | grep -E '^(model|verdict)'
cut -c 1-80 said
check "$SAMPLES/torch_dist_c_moe_ep2pp2" | grep -oE '^model .*no family fits it|^verdict.*'
refuses "a page" 2 'html has no page' check --html page.html model
