#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compare_lacking.sh - what only one side has is not counted as compared, and the verdict names it.
# The sample has 27 parameters, each with a weight, a master and two moments.
compare() { "$DCPKIT" compare-two-checkpoint "$@"; }
run=$SAMPLES/torch_dist_c_dense_tp2pp2
"$DCPKIT" convert --quiet --to huggingface "$run" hf
"$DCPKIT" convert --quiet --to fsdp_dtensor "$run" fsdp
"$DCPKIT" convert --quiet --to torch_dist --weights-only --target-mesh tp=2,pp=2 "$run" weights

# Weights against a run: nothing of the optimizer is compared, in either order.
compare --tensors-only "$run" hf | sed -n '/^[wmt].* compared/p; $p'
compare --tensors-only hf "$run" | sed -n '/^[wmt].* compared/p; $p'
compare --json --tensors-only "$run" hf >json
jq -c '[.verdict, .equal], (.parts | [.weights, .masters, .moments][] | [.n_compared, .n_different, .n_only_in_a, .n_only_in_b])' json
compare --tensors-only --html page.html "$run" hf >said
grep -c 'weights equal; B has no optimizer state' page.html
grep -o '<td[^>]*>masters</td>.*' page.html | head -n 1 | sed 's/<[^>]*>/ /g'
# A run without an optimizer is not the run; the verdict says why.
answers_no "no optimizer" '^verdict     DIFFERENT \([0-9]+\); B has no optimizer state' compare "$run" weights
# Between formats of a run: masters and moments of both, the rounded twins of one.
compare "$run" fsdp | grep -E '^(weights|masters|moments|verdict)'
# A switch that both have and that differs is shown.
compare "$run" fsdp | grep -E '^  args\.(use_megatron_fsdp|ckpt_format)'
# A moment that one side lacks is not among those compared.
"$DCPKIT" modify-state-dict --quiet --op 'remove ^optimizer.state.exp_avg.decoder.final_layernorm.weight$' "$run" less
compare --tensors-only "$run" less | grep -E "^(moments|verdict)"
# A file of objects holds no tensor.
compare --tensors-only "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g" "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g" | tail -n 1
