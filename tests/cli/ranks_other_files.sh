#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ranks_other_files.sh - ranks that find other files under the same names, as with folders of each node: no command that
# divides its work answers, trains or saves.
need_mpi
mkdir a b
# both COMMAND...: by two ranks, in folder a and in b.
both() {
    timeout -k 5 100 mpirun -n 1 -wdir "$PWD/a" "$DCPKIT" "$@" : -n 1 -wdir "$PWD/b" "$DCPKIT" "$@" >"$GOT/out" 2>"$GOT/all"
}
# apart WHAT COMMAND...: refused, with one sentence, without a result.
apart() {
    local what=$1 code=0
    shift
    both "$@" || code=$?
    echo "$1: exit $code, $(grep -c "^dcpkit: .*ranks 0 and 1 of 2 do not see the same $what" "$GOT/all") sentence, $(wc -c <"$GOT/out") bytes"
}
# The copy of rank 1 is damaged near an end, and has kept its time.
cp -rLp "$SAMPLES/torch_dist_c_dense_tp2pp2" a/run && cp -rLp a/run b/run && chmod -R u+w a b
file=run/iter_0000004/__1_0.distcp
printf '\377' | dd of=b/$file bs=1 seek=100 conv=notrunc 2>/dev/null
touch -r a/$file b/$file
cmp -s a/$file b/$file || echo "damaged"
apart checkpoint hash run
both verify run || echo "verify: exit $?, $(grep -c '^checksums .*do not see the same checkpoint' "$GOT/out"), $(tail -n 1 "$GOT/out")"
both verify ../a/run && echo "verify of one folder: exit 0"
apart checkpoint compare-two-checkpoint ../a/run run
"$DCPKIT" hash a/run >a/list && sed 's/^./x/' a/list >b/list
apart "list of hashes" hash --check list ../a/run

# Training: the configuration, the tokens, the checkpoint that is loaded.
sed 's/"lr": [0-9.e-]*/"lr": 0.25/' "$TOOLS/train_tiny.json" >b/config.json && cp "$TOOLS/train_tiny.json" a/config.json
apart configuration train --config config.json --exit-at 2 --save ../saved
cp -p a/config.json b/config.json
seq_length=$(sed -n 's/.*"seq_length": \([0-9]*\).*/\1/p' a/config.json)
head -c $((4 * (seq_length + 1) * 64)) /dev/zero >a/tokens && cp a/tokens b/tokens
both train --config config.json --exit-at 2 --token-file tokens --save ../saved && echo "copies of one file: exit 0"
printf '\1' | dd of=b/tokens conv=notrunc 2>/dev/null
apart "token file" train --config config.json --exit-at 2 --token-file tokens --save ../other
cp -rp saved a/from && cp -rp saved b/from && touch b/from/iter_0000002/*
apart checkpoint train --config config.json --exit-at 4 --token-file ../a/tokens --load from --save ../other
ls
