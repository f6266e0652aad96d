#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# help_examples.sh - every command has --help, and the example that it shows works as it stands.
export COLUMNS=100 # as in a pipe without it
mkdir checkpoints dumps logs
echo '{"iteration": 1, "loss": 5.5}' | tee logs/run.jsonl >logs/resumed.jsonl
printf '%s\n' 'model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 16}' \
    'train: {micro_batch_size: 2, train_iters: 30}' >logs/tiny.yaml
ln -s "$SAMPLES" sample-data
cp -RL --no-preserve=mode "$SAMPLES/torch_dist_c_dense_tp2pp2" checkpoints/run
cp -RL --no-preserve=mode "$SAMPLES/fsdp_dtensor_native_dp2" checkpoints/fsdp
cp -RL --no-preserve=mode "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g" dumps/param_groups
rm dumps/param_groups/param_to_param_group_map.json
"$DCPKIT" delta --quiet checkpoints/run checkpoints/fsdp checkpoints/delta
mkdir bin && ln -s "$DCPKIT" bin/dcpkit
PATH=$TMP/bin:$PATH
export TMPDIR=$TMP # of view

dcpkit --help >help || exit
grep -q '^usage: dcpkit ' help || echo "--help: no usage line"
commands=$(sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' help)
for command in $commands ''; do
    # shellcheck disable=SC2086 # '' is dcpkit's own help
    dcpkit $command --help >help 2>err || echo "$command --help: exit $?"
    [ ! -s err ] || echo "$command --help: $(cat err)"
    awk -v "of=$command --help" 'length > 100 { print of ": more than 100 columns: " $0 }' help
    existing='any other FILE is not' # what becomes of a page that is there
    ! grep -q '^ *--force ' help || existing='any other FILE only with --force'
    ! grep -q '^ *--html ' help || tr -s ' \n' ' ' <help | grep -q "an existing page is replaced, $existing" ||
        echo "$command --help: --html does not say: an existing page is replaced, $existing"
    example=$(sed -n '/^example:/{n;s/^  //p;}' help)
    case $example in
    dcpkit\ *) eval "$example" >out 2>err || echo "$example: exit $?: $(cat err)" ;;
    *) echo "$command --help: no example" ;;
    esac
    rm -rf converted
done
for command in apply card check delta convert inspect hash verify print-torch-dcp-in-json \
    convert-torch-dist-to-fsdp-dtensor convert-fsdp-dtensor-to-torch-dist compare-two-checkpoint print-tensor \
    merge migrate modify-state-dict remap losscmp train view doctor; do
    grep -qx "$command" <<<"$commands" || echo "$command: not listed by dcpkit --help"
done
dcpkit --version | head -n 1 | grep -qE '^dcpkit [0-9]+\.[0-9]+\.[0-9]+$' || echo "no version"
dcpkit --version | sed -n 's/^  \([a-z_]*\) .*(no target of convert)$/not written by convert: \1/p'
