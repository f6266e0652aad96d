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
"$DCPKIT" hash plain | sed -E 's/  model\.module\./  weights./;
    s/  optimizer\.state\.module\.module\.module\./  moments./' | sort -k 2 >want
"$DCPKIT" hash prefixed | sort -k 2 >got
diff want got && echo "prefixes: the same tensors under other names"

refuses "an MSC address" 2 'msc://bucket' "$DCPKIT" $tool msc://bucket/in other
refuses "an MSC address to write to" 2 'msc://bucket' "$DCPKIT" $tool "$source" msc://bucket/out
refuses "--no-swiglu against args" 3 'swiglu' "$DCPKIT" $tool --no-swiglu "$source" other
sed 's/decoder\.layers\.0\.mlp\.linear_fc1\.weight/decoder.layers.9.mlp.linear_fc1.weight/' \
    "$map" >other.json
refuses "a map that lacks a parameter" 3 "lacks 'decoder\.layers\.0\.mlp\.linear_fc1\.weight'" \
    "$DCPKIT" $tool --param-to-param-group-map-json other.json "$source" other
echo '{"a": ' >broken.json
refuses "a broken map" 3 "group map 'broken.json': JSON.*byte 7" \
    "$DCPKIT" $tool --param-to-param-group-map-json broken.json "$source" other
refuses "a missing map" 4 'nowhere\.json' \
    "$DCPKIT" $tool --param-to-param-group-map-json nowhere.json "$source" other
