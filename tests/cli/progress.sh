#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# progress.sh - a bar on a terminal, lines where they are asked for, nothing with --quiet or for a short run in a log.
command -v script >/dev/null || exit 77
sample=$SAMPLES/torch_dist_c_dense_tp2pp2

# on_terminal CMD...: run it on a terminal of its own; what it said there, control characters made visible.
on_terminal() {
    local words
    printf -v words '%q ' "$@"
    script -qec "$words" /dev/null </dev/null | sed 's/\x1b\[K/<clear>/g' | tr '\r' '\n' | grep '<clear>'
}

echo "on a terminal:"
on_terminal "$DCPKIT" hash "$sample" | tail -n 2 |
    sed -E 's/[0-9.]+ [KM]iB in [0-9]+ s, [0-9.]+ GB\/s/SIZE in TIME, SPEED/; s/<clear>[0-9a-f]{32}.*/<clear>/'
on_terminal "$DCPKIT" hash --quiet "$sample" || echo "nothing with --quiet"
# What a command has to say begins where the bar was.
for command in "convert --to fsdp_dtensor" "modify-state-dict --op 'cast ^optimizer float64'"; do
    on_terminal bash -c "$DCPKIT $command $sample there" | sed -n 's/^<clear>\(converted\|wrote\) .*/\1/p'
    rm -r there
done

echo "in a log:"
"$DCPKIT" hash "$sample" 2>said >/dev/null
"$DCPKIT" hash --quiet --progress "$sample" 2>>said >/dev/null
cat said
"$DCPKIT" convert --progress --check-input --to fsdp_dtensor "$sample" out 2>&1 >/dev/null |
    sed -E 's/[0-9.]+ [KM]iB in [0-9]+ s, [0-9.]+ GB\/s/SIZE in TIME, SPEED/'

echo "notes:"
"$DCPKIT" convert --rename-mtp-keys --dry-run --to fsdp_dtensor "$sample" a 2>&1 >/dev/null | cut -d' ' -f1-4
"$DCPKIT" convert --quiet --rename-mtp-keys --dry-run --to fsdp_dtensor "$sample" a >/dev/null 2>said
cat said
refuses "errors all the same" 4 "nowhere" "$DCPKIT" convert --quiet --to fsdp_dtensor nowhere a
