#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# modify.sh - keys renamed and removed without a byte of data moved; casts; what is refused.
modify() { "$DCPKIT" modify-state-dict "$@"; }
compare() { "$DCPKIT" compare-two-checkpoint --as-stored "$@"; }
sample torch_dist_b_dense_tp2pp2 in
(cd in && find . -type f -print0 | sort -z | xargs -0 sha256sum) >before

modify --dry-run --op 'remove ^optimizer' --op 'rename \.linear_fc([12])\. .fc\1.' in out |
    grep -cE ' -> .*\.fc[12]\.|removed by'
[ ! -e out ] || echo "--dry-run wrote something"
modify --op 'remove ^optimizer' --op 'rename \.linear_fc([12])\. .fc\1.' in out
"$DCPKIT" verify out | tail -n 1
cmp in/iter_0000004/common.pt out/iter_0000004/common.pt
cmp in/iter_0000004/metadata.json out/iter_0000004/metadata.json
for file in in/iter_0000004/*.distcp; do
    [ "$file" -ef "out/iter_0000004/${file##*/}" ] || echo "$file is not linked"
done
echo "tracker $(cat out/latest_checkpointed_iteration.txt)"
compare --top 100 --tensors-only in out | grep -cE '[^0-9] only in [AB]'
"$DCPKIT" print-tensor out 'decoder.layers.mlp.fc1.weight[0, :2, :3]' | tail -n +2 >got
"$DCPKIT" print-tensor in 'decoder.layers.mlp.linear_fc1.weight[0, :2, :3]' | tail -n +2 | diff - got
# There and back: equal in all.
modify --op 'rename decoder encoder' in there >said && modify --op 'rename encoder decoder' there/iter_0000004 back >said
compare in back | tail -n 1
modify --op 'cast ^decoder.*weight float32' --op 'keep ^decoder.*weight' in wide | tail -n 2
"$DCPKIT" verify wide | tail -n 1
# Aliases stay aliases.
"$DCPKIT" convert --to fsdp_dtensor in fsdp >said
modify --op 'rename ^model\.module model.renamed' fsdp other >said
"$DCPKIT" inspect other | grep -c '^tensors .*([1-9][0-9]* of them aliases)'
diff <("$DCPKIT" inspect fsdp | grep '^tensors  ') <("$DCPKIT" inspect other | grep '^tensors  ')
(cd in && find . -type f -print0 | sort -z | xargs -0 sha256sum) | diff before - || echo "IN changed"

refuses "no operation" 2 '\-\-op is missing' modify in new
refuses "no match" 2 "'remove nowhere': no key matches" modify --op 'remove nowhere' in new
refuses "two become one" 2 'would both become' modify --op 'rename fc[12] fc' in new
refuses "unknown operation" 2 'must begin with' modify --op 'delete x' in new
refuses "OUT exists" 2 'exists \(--force' modify --op 'remove ^optimizer' in out
refuses "OUT in IN" 2 'is inside' modify --op 'remove ^optimizer' in in/new
modify --force --op 'keep decoder' in out | tail -n 2

# Patterns as users of Python's re write them.
modify --dry-run --op 'keep \.(?:linear_fc|fc)\d\.weight\b' --op 'rename (?P<which>fc\d)\. \g<which>_x.' in new |
    grep -cE '_x\.weight'
modify --dry-run --op 'rename ^(optimizer\.state\.\w+?)\.(.*)$ \g<2>.\g<1>' in new | grep -m 1 ' -> '
refuses "a broken pattern" 2 "operation 'remove fc\(1': the regular expression 'fc\(1', byte 4" modify --op 'remove fc(1' in new
refuses "a group that is not there" 2 "replacement 'x.1', byte 1: group 1, but" modify --op 'rename fc x\1' in new
# shellcheck disable=SC2086 # BOUNDED is a command with its arguments
refuses "a pattern without end" 2 'needs more than [0-9]* steps' $BOUNDED "$DCPKIT" \
    modify-state-dict --op 'remove ^(\w+\.?)+[!?]$' in new

# Removed tensors stay in linked files; --compact writes files without them, of the same elements.
modify --op 'remove ^optimizer' in linked | grep '^unused'
modify --compact --op 'remove ^optimizer' in compact | grep -E '^(unused|data)'
compare linked compact | tail -n 1
"$DCPKIT" verify compact | tail -n 1
stored() { find "$1" -name '*.distcp' -printf '%s\n' | paste -sd+ | bc; }
[ "$(stored compact)" -lt $(($(stored linked) / 4)) ] || echo "compact: $(stored compact) of $(stored linked) bytes"
modify --compact --op 'remove ^optimizer' "$SAMPLES/zarr_dense_tp2dp2" zarr | grep -E '^(unused|data)'

# One of two names of the same bytes leaves nothing unused; the second one does.
fc1=model.module.decoder.layers.1.mlp.experts
"$DCPKIT" convert -q --to fsdp_dtensor "$SAMPLES/torch_dist_c_moe_ep2pp2" named
modify --op "remove ^$fc1.linear_fc1.weight2_w\$" named one_name | grep -c '^unused'
modify --op "remove ^$fc1.local_experts.2.linear_fc1.weight_w\$" one_name no_name 2>said | grep '^unused'
