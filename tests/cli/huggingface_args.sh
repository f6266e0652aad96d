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
refuses "groups that are switched off" 3 "linear_qkv.weight': its weight has not the 144 rows" convert --args-from none.json --to huggingface bare none
