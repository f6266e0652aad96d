#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python_tool_flags.sh - the flags of Megatron's Python tool: honoured, or named in one line where they mean nothing.
tool=convert-torch-dist-to-fsdp-dtensor
source=$SAMPLES/torch_dist_b_dense_tp2pp2
map=$SAMPLES/torch_dist_b_dense_tp2pp2_p2g/param_to_param_group_map.json

# notes FLAG: converts, and says one note that names the flag.
notes() {
    "$DCPKIT" $tool "$1" "$source" "out$1" >said 2>err || echo "$1: exit $?: $(cat err)"
    diff -r "out$1" plain
    [ "$(grep -c -- "^dcpkit: $tool: note: .*$1" err)" -eq 1 ] || echo "$1: said $(cat err)"
}
"$DCPKIT" $tool "$source" plain >said 2>&1 || echo "plain: exit $?: $(cat said)"
notes --oom-traceback
notes --enable-msc
"$DCPKIT" $tool --swiglu --param-to-param-group-map-json "$map" "$source" mapped >said 2>&1 ||
    echo "with map: exit $?: $(cat said)"
diff -r mapped plain && echo "the map of this run says what the derived groups say"

# Prefixes: the same number of keys, under other names.
"$DCPKIT" $tool --output-model-weight-prefix weights --output-optimizer-state-prefix moments \
    "$source" prefixed >said 2>&1 || echo "prefixes: exit $?: $(cat said)"
"$DCPKIT" hash plain | grep -v "  the whole" | sed -E 's/  model\.module\./  weights./;
    s/  optimizer\.state\.module\.module\.module\./  moments./' | sort -k 2 >want
"$DCPKIT" hash prefixed | grep -v "  the whole" | sort -k 2 >got
diff want got && echo "prefixes: the same tensors under other names"

refuses "an MSC address" 2 'msc://bucket' "$DCPKIT" $tool msc://bucket/in other
refuses "an MSC address to write to" 2 'msc://bucket' "$DCPKIT" $tool "$source" msc://bucket/out
refuses "--no-swiglu against args" 3 'swiglu' "$DCPKIT" $tool --no-swiglu "$source" other
refuses "modules that hold no fc1" 3 "is not in a module that is split, but args have" \
    "$DCPKIT" $tool --swiglu-modules decodr "$source" other
refuses "one of two modules that hold no fc1" 3 "no fc1 is in a module 'decodr'" \
    "$DCPKIT" $tool --swiglu-modules mlp,decodr "$source" other
refuses "no modules" 3 'swiglu=True' "$DCPKIT" $tool --swiglu-modules '' "$source" other
for modules in mlp decoder model.module.decoder linear_fc1; do
    "$DCPKIT" $tool --swiglu-modules $modules "$source" other >said 2>&1 || echo "$modules: exit $?: $(cat said)"
    diff -r other plain && echo "modules $modules: as by default"
    rm -rf other
done
sed 's/decoder\.layers\.0\.mlp\.linear_fc1\.weight/decoder.layers.9.mlp.linear_fc1.weight/' \
    "$map" >other.json
refuses "a map that lacks a parameter" 3 "lacks 'decoder\.layers\.0\.mlp\.linear_fc1\.weight'" \
    "$DCPKIT" $tool --param-to-param-group-map-json other.json "$source" other
echo '{"a": ' >broken.json
refuses "a broken map" 3 "group map 'broken.json': JSON.*byte 7" \
    "$DCPKIT" $tool --param-to-param-group-map-json broken.json "$source" other
refuses "a missing map" 4 'nowhere\.json' \
    "$DCPKIT" $tool --param-to-param-group-map-json nowhere.json "$source" other

# parses WORD...: the command line makes sense except for its arguments, which are missing; inspect then takes the current folder.
parses() {
    local status=0
    "$DCPKIT" "$@" >said 2>err || status=$?
    [ "$1" != inspect ] || [ "$status" -ne 3 ] || ! grep -q "a checkpoint in '\.'" err || return 0
    [ "$status" -eq 2 ] && grep -q ': an argument is missing' err || echo "$*: exit $status: $(cat said err)"
}
# Every flag of four releases, on every subcommand that has it there; as many arguments.
rows=0
while read -r releases command flag value; do
    rows=$((rows + 1))
    if [ "$value" = - ]; then
        arguments=()
        for ((i = 1; i < flag; i++)); do arguments+=(a); done
        parses "$command" "${arguments[@]}"
        [ "$command" != inspect ] || continue # which takes more than one
        refuses "$command with one argument more" 2 'unexpected argument' "$DCPKIT" "$command" "${arguments[@]}" a b >line
        grep -q ': refused$' line || echo "$releases: $(cat line)"
        continue
    fi
    "$DCPKIT" "$command" --help | grep -qE -- "^      $flag( |$)" || echo "$releases: $command --help does not name $flag"
    if [ "$value" = yes ]; then
        parses "$command" "$flag" text
        parses "$command" "$flag=text"
    else
        parses "$command" "$flag"
        refuses "$flag" 2 'takes no argument' "$DCPKIT" "$command" "$flag=text" >line
        grep -q ': refused$' line || echo "$releases: $(cat line)"
    fi
done < <(grep -v '^#' "${BASH_SOURCE[0]%.sh}.txt")
[ "$rows" -eq 19 ] && echo "every flag of checkpoint_inspector.py"

# What a flag without meaning changes: a note.
"$DCPKIT" inspect "$source" >want
"$DCPKIT" inspect --enable-msc --not-ignore-param-to-group-meta "$source" 2>err | diff want - && cat err
"$DCPKIT" compare-two-checkpoint --enable-msc "$source" "$source" 2>err | tail -n 1 && cat err
"$DCPKIT" modify-state-dict --enable-msc --op 'remove ^optimizer' "$source" modified 2>err | tail -n 2 && cat err
"$DCPKIT" inspect --enable-msc --quiet "$source" | diff want -
"$DCPKIT" inspect --not-ignore-param-to-group-meta plain | grep -c 'param_to_group_meta'
# The way back by the name that belongs to it.
back=convert-fsdp-dtensor-to-torch-dist
"$DCPKIT" convert --to torch_dist plain want_back >said 2>&1
"$DCPKIT" $back --enable-msc --oom-traceback plain back 2>err | head -n 1 | cut -d " " -f 1,2
diff -r want_back back && cat err
refuses "the way back of what it is not" 3 'fsdp_dtensor' "$DCPKIT" $back "$source" other
for command in inspect print-torch-dcp-in-json hash verify; do
    refuses "an MSC address for $command" 2 'msc://bucket' "$DCPKIT" $command msc://bucket/in
done
for command in compare-two-checkpoint "modify-state-dict --op remove"; do
    # shellcheck disable=SC2086 # a command with its options
    refuses "an MSC address for ${command%% *}" 2 'msc://bucket' "$DCPKIT" $command "$source" msc://bucket/in
done
