#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# told_at_end.sh - every command that writes: without a stdout nothing is written; what is in place when a result or a
# report cannot be written is named; no file of theirs goes into IN; a reader that left ends nothing by a signal.
sample torch_dist_b_dense_tp2pp2 in
sample torch_dist_b_dense_tp2pp2_p2g objects
mkdir w

# ends LABEL COMMAND...: the exit code, the message, and what is in w. With stdout as it is; said goes to 3.
ends() {
    local label=$1
    shift
    "$@" 2>err
    echo "$label: exit $?, $(grep -v ' note: ' err) [$(find w -mindepth 1 -maxdepth 1 -printf '%f ')$(cd in/iter_0000004 && ls integrity.json 2>/dev/null)]" >&3
    rm -rf w/* in/iter_0000004/integrity.json
}
exec 3>&1
# all LABEL: the commands that write a file or folder.
all() {
    ends "$1: convert" "$DCPKIT" convert --to zarr in w/out
    ends "$1: convert by name" "$DCPKIT" convert-torch-dist-to-fsdp-dtensor --json in w/out
    ends "$1: modify" "$DCPKIT" modify-state-dict --op 'remove ^optimizer' in w/out
    ends "$1: verify" "$DCPKIT" verify --write-integrity in
    ends "$1: npy" "$DCPKIT" print-tensor --cast --npy w/x.npy in output_layer.weight
    ends "$1: objects" "$DCPKIT" print-torch-dcp-in-json -o w/x.json objects
}
all closed >&-
all full >/dev/full
ends "quiet needs no stdout" "$DCPKIT" convert --quiet --to zarr in w/out >&-

# A report that cannot be written, found at its end: OUT is there, and that is said.
for option in --hashes --report; do
    ends "$option" "$DCPKIT" convert --quiet $option /dev/full --to zarr in w/out
done
# and before it where that can be seen
ends "no folder for hashes" "$DCPKIT" convert --quiet --hashes none/h --to zarr in w/out

refuses "npy over a file of IN" 2 "is inside the input" \
    "$DCPKIT" print-tensor --force --npy in/iter_0000004/__0_0.distcp in output_layer.weight
refuses "JSON over a file of DIR" 2 "is inside the input" \
    "$DCPKIT" print-torch-dcp-in-json --force -o objects/.metadata objects
ln -s target link
"$DCPKIT" print-tensor --cast --npy link in output_layer.weight
readlink link
"$DCPKIT" print-torch-dcp-in-json -o /dev/null objects | tail -n 1

# A pipe whose reader has gone: it has what it wanted, so only what was written is told.
mkfifo pipe
true <pipe &
exec 4>pipe
wait $!
for command in "inspect --chunks in" "hash in" "convert --progress --to zarr in w/out"; do
    # shellcheck disable=SC2086 # words
    "$DCPKIT" $command 2>err >&4 || echo "$command: exit $?, $(grep -v ' in .* s, ' err)"
done
ls w/out
# of messages alone
rm -rf w/out
"$DCPKIT" convert --progress --to zarr in w/out 2>&4 >said || echo "exit $?"
ls w/out

# Too few descriptors, or files that may not grow: told, and nothing is left.
for n in 8 16 24 31 32 40; do
    rm -rf w/out
    (ulimit -n $n && "$DCPKIT" convert --quiet --to zarr in w/out 2>err) || {
        [ "$?" = 4 ] && [ "$(wc -l <err)" = 1 ] && [ -z "$(ls -A w)" ] || echo "$n descriptors: $(cat err) $(ls -A w w/out)"
    }
done
(ulimit -n 31 && "$DCPKIT" hash in 2>&1)
echo "31 descriptors: exit $?"
rm -rf w/out
(ulimit -f 100 && "$DCPKIT" convert --quiet --to fsdp_dtensor in w/out 2>err)
echo "files of 100 KiB: exit $?, $(grep -c 'File too large' err) message, left: $(ls -A w)"
