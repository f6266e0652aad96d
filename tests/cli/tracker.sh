#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tracker.sh - a run folder's tracker never moves back by itself, and what becomes of it is said: --tracker.
sample torch_dist_c_dense_tp2pp2 in
tracker=latest_checkpointed_iteration.txt

# run NAME [OPTION...]: convert iteration 4 into NAME; what the tracker says then, the warning, the line "to".
run() {
    local out=$1
    shift
    "$DCPKIT" convert --to fsdp_dtensor "$@" in "$out" >said 2>err || echo "exit $?: $(cat err)"
    echo "${out%/iter_*}: tracker '$(cat "${out%/iter_*}/$tracker")'"
    sed 's/^/  /' err
    grep '^  to' said
}
# with NAME TEXT [FOLDER...]: a run folder whose tracker says TEXT, with these iterations in it.
with() {
    local name=$1 text=$2
    shift 2
    mkdir "$name"
    printf %s "$text" >"$name/$tracker"
    for folder in "$@"; do mkdir "$name/$folder"; done
}

with newer 8 iter_0000008 && run newer
with set 8 iter_0000008 && run set --tracker set
with kept 3 iter_0000003 && run kept --tracker keep
with older 3 iter_0000003 && run older
with gone 8 && run gone
with words latest iter_0000008 && run words
with words_set latest && run words_set --tracker set
with from_release release release && run from_release
with beside 3 iter_0000003 && run beside/iter_0000004
with beside_newest 3 iter_0000003 && run beside_newest/iter_0000004 --tracker newest
run nothing --tracker keep
run nothing --force
with quiet 8 iter_0000008 && run quiet --quiet
with json 8 iter_0000008
"$DCPKIT" convert --to fsdp_dtensor --json --dry-run in json 2>err | grep -A 5 '"tracker"' | grep -v '"version"'
"$DCPKIT" modify-state-dict --op 'remove ^optimizer' in json 2>&1 | grep tracker
echo "json: tracker '$(cat json/$tracker)'"
"$DCPKIT" modify-state-dict --op 'remove ^optimizer' --tracker set --force --json in json 2>&1 |
    grep -A 5 '"tracker"' | grep -v '"version"'
echo "json: tracker '$(cat json/$tracker)'"
# A dry run writes none: it says what is there.
# planned COMMAND... OUT: names, was and written.
planned() {
    echo "${*: -1}, $1: $("$DCPKIT" "$@" --dry-run --json 2>/dev/null | jq -c '[.tracker.names, .tracker.was, .tracker.written]')"
}
with planned 3 iter_0000003
for out in planned fresh; do
    planned convert --to fsdp_dtensor in $out
    planned merge --weights 0.5,0.5 in in $out
    planned modify-state-dict --op 'keep .' in $out
done
# 'release', a converted model from which a run began, is older than what the run wrote.
mv in/iter_0000004 in/release && printf release >in/$tracker
with started 8 iter_0000008 && run started
refuses "no such word" 2 "'never' is not one of newest, set, keep" \
    "$DCPKIT" convert --to fsdp_dtensor --tracker never in new
