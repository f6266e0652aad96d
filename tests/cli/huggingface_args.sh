#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# huggingface_args.sh - models of Hugging Face's from args that no parser of Megatron's made, and with what a user asks for
# beside them: config.json fits the tensors, or nothing is written.
convert() { "$DCPKIT" convert --quiet "$@"; }
equal() { "$DCPKIT" compare-two-checkpoint "$@" | grep '^verdict'; }
sample safetensors_qwen3 model
convert --to fsdp_dtensor model run
"$DCPKIT" modify-state-dict --quiet --op 'remove ^args$' run bare
"$DCPKIT" print-tensor --json run args >args.json

# A configuration, as Megatron-Bridge writes it: the number of groups without the parser's switch.
sed '/"group_query_attention"/d' args.json >bridge.json
! cmp -s args.json bridge.json || echo "bridge.json: args did not change"
convert --args-from bridge.json --to huggingface bare of_bridge
grep num_key_value_heads of_bridge/config.json
convert --to torch_dist of_bridge back && equal run back
# Of the parser the switch counts: without it each head is a group, which these rows are not.
sed 's/\("group_query_attention": \)true/\1false/' args.json >none.json
refuses "groups that are switched off" 3 "linear_qkv.weight' would be \[144, 32\], and is \[96, 32\]" convert --args-from none.json --to huggingface bare none

# The given config.json is the model's own, or has nothing that args do not: what it keeps would be another model's.
# edit NAME FILTER: model/config.json, changed.
edit() { sed "$2" model/config.json >"$1.json" && ! cmp -s model/config.json "$1.json" || echo "$1.json: config.json did not change"; }
convert --hf-config model/config.json --to huggingface run based && equal run based
edit share 's/"pad_token_id"/"partial_rotary_factor": 0.5, &/'
refuses "a share of the head" 3 "'partial_rotary_factor' is 0.5, .* family 'qwen3' has 1" \
    convert --hf-config share.json --to huggingface run none
edit inner 's/"rope_theta"/"partial_rotary_factor": 0.5, &/'
refuses "a share of the head, in rope_parameters" 3 "'partial_rotary_factor' is 0.5" convert --hf-config inner.json --to huggingface run none
edit window 's/"full_attention"/"sliding_attention"/; s/"sliding_window": null/"sliding_window": 16/'
refuses "a window" 3 "'layer_types' has .sliding_attention. in layer 0" convert --hf-config window.json --to huggingface run none

# A vocabulary holds the 99 tokens of args; rows behind them are left out, and said to be no more than that.
refuses "fewer rows than tokens" 3 "a vocabulary of 50 would cut into the 99 tokens" convert --vocab-size 50 --to huggingface run none
edit fewer 's/"vocab_size": 99/"vocab_size": 98/'
refuses "fewer rows than tokens in config.json" 3 "a vocabulary of 98 would cut into the 99 tokens" \
    convert --hf-config fewer.json --to huggingface run none
"$DCPKIT" convert --vocab-size 120 --to huggingface run more | grep rows
edit more 's/"vocab_size": 99/"vocab_size": 120/'
edit text 's/"vocab_size": 99/"vocab_size": "99"/'
refuses "two sizes of the vocabulary" 2 "of 99 is asked for, and 'vocab_size' of the given config.json is 120" \
    convert --vocab-size 99 --hf-config more.json --to huggingface run none
refuses "a size that is no number" 3 "'vocab_size' of the given config.json is not a number of rows" \
    convert --hf-config text.json --to huggingface run none

# What differs from the given config.json, and what is not known, is said of a key.
edit other 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.5/; s/"rope_theta": [^,]*/"rope_theta": 500.5/; s/"eos_token_id"/"auto_map": {}, &/'
"$DCPKIT" convert --json --hf-config other.json --to huggingface run other >report.json
grep -oE '"[a-z_]+: is .*"' report.json
sed '/"vocab_size"/d' args.json >unknown.json
"$DCPKIT" convert --args-from unknown.json --to huggingface bare unknown | grep 'is not known'
