#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_sandbox.sh - code that got into a command when it read its first byte of a checkpoint: it reaches nothing else.
torch_dist=torch_dist_c_dense_tp2pp2

"$DCPKIT" --version | grep '^sandbox: ' >sandbox
grep -q 'Landlock ABI .*, seccomp' sandbox || {
    echo "the kernel has not both: $(cat sandbox)"
    exit 77
}
# A sanitizer wants to be the first library; and it wants to look for leaks in what was not freed.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

refused="read: Permission denied, write: Permission denied, network: Operation not permitted, run: Operation not permitted"

# captive LABEL ARGUMENT...: the command must do its work, and the code in it nothing. Prints "LABEL: held", or what
# went wrong and what that code could do.
captive() {
    local label=$1 status=0
    shift
    rm -f "$GOT/captive"
    CAPTIVE_REPORT=$GOT/captive CAPTIVE_READ=$TMP/else/secret CAPTIVE_WRITE=$TMP/else/new LD_PRELOAD=$CAPTIVE \
        "$DCPKIT" "$@" >"$GOT/out" 2>"$GOT/err" || status=$?
    paste -sd, "$GOT/captive" | sed 's/,/, /g' >"$GOT/could"
    if [ "$status" -eq 0 ] && [ "$(cat "$GOT/could")" = "$refused" ]; then
        echo "$label: held"
    else
        echo "$label: exit $status, $(cat "$GOT/could")"
    fi
}

mkdir else room
echo secret >else/secret
sample $torch_dist run
"$DCPKIT" convert -q --to fsdp_dtensor run converted

captive inspect inspect run
captive "inspect --stats" inspect --stats run
captive hash hash run
captive verify verify run
captive "verify --write-integrity" verify --write-integrity run
captive "verify --against" verify --against run converted
captive check check run
captive compare compare-two-checkpoint run converted
TMPDIR=$TMP/room captive view view run
captive print-tensor print-tensor run 'args.lr'
captive "print-tensor --npy" print-tensor --npy room/x.npy run 'decoder.layers.mlp.linear_fc2.weight[0, 3:5, :8]'
sample torch_dist_b_dense_tp2pp2_p2g p2g
captive print-json print-torch-dcp-in-json p2g
captive "print-json -o" print-torch-dcp-in-json -o room/map.json p2g
captive modify modify-state-dict --op 'remove ^optimizer' run modified/run
find modified -name '*.distcp' -links 2 | wc -l # files of IN are still linked
captive convert convert --to fsdp_dtensor run out
captive "convert --force" convert --to fsdp_dtensor --force run out
captive "convert to an iteration" convert --to fsdp_dtensor run deep/in/iter_0000007
captive "convert with files" convert --to fsdp_dtensor --report room/report --hashes room/hashes run out2
captive "convert to a tar" convert --to fsdp_dtensor run room/out.tar
captive "convert --dry-run" convert --to fsdp_dtensor --dry-run run out3
[ ! -e out3 ] || echo "--dry-run made a folder"
tar -czf run.tar.gz run
TMPDIR=$TMP/room captive "convert from a packed archive" convert --to fsdp_dtensor run.tar.gz out4

# A run reads its checkpoint and its tokens, and writes where its knobs name.
dd if=/dev/zero of=tokens bs=4 count=850 status=none
"$DCPKIT" train --config "$TOOLS/train_tiny.json" --exit-at 1 --save tiny --log first.jsonl --quiet
trains=(train --use-checkpoint-args --load tiny --override-opt-param-scheduler --micro-batch-size 1 --train-iters 2 --quiet)
captive train "${trains[@]}" --save room/deep/run --log room/log.jsonl --token-file tokens
captive "train --explain-memory" "${trains[@]}" --explain-memory
captive losscmp losscmp first.jsonl first.jsonl
"$DCPKIT" verify room/deep/run | tail -n 1

# A staged checkpoint is a folder of links; what they lead to is read, what lies beside that is not.
mkdir -p staged/iter_0000004
cp run/latest_checkpointed_iteration.txt staged
ln -s "$TMP"/run/iter_0000004/.metadata "$TMP"/run/iter_0000004/* staged/iter_0000004
captive "convert a folder of links" convert --to fsdp_dtensor staged out5
ln -s "$TMP/run/iter_0000004" linked
captive "convert through a link" convert --to fsdp_dtensor linked out6
diff -r out/iter_0000004 out5/iter_0000004 && diff -r out/iter_0000004 out6/iter_0000004 && echo "the same bytes"

# What fails leaves no folder that was made for it.
: >run/iter_0000004/.metadata
captive "convert what is damaged" convert --to fsdp_dtensor run new/out
[ ! -e new ] || echo "a folder stayed"

captive "inspect --no-sandbox" inspect --no-sandbox converted
ls else
