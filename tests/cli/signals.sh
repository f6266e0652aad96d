#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# signals.sh - a command that is stopped ends by the signal, so that a shell's loop ends with it; SIGUSR1 asks for a line
# of progress.
header='{"x":{"dtype":"U8","shape":[1073741824],"data_offsets":[0,1073741824]}}'
mkdir big
printf '%016x' ${#header} | sed 's/\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)/\\x\8\\x\7\\x\6\\x\5\\x\4\\x\3\\x\2\\x\1/' |
    xargs -0 printf '%b' >big/model.safetensors
printf '%s' "$header" >>big/model.safetensors
truncate -s $((8 + ${#header} + 1073741824)) big/model.safetensors

# stopped SIGNAL: how a command ends that gets it.
stopped() {
    env --default-signal=INT "$DCPKIT" hash --threads 1 big >out 2>said &
    child=$!
    while kill "-$1" $child 2>/dev/null; do sleep 0.1; done
    status=0
    wait $child || status=$?
    echo "$1: exit $status"
}
stopped TERM
stopped INT

# It is ignored until the program has its handler.
trap '' USR1
"$DCPKIT" hash --threads 1 big >out 2>said &
child=$!
while kill -USR1 $child 2>/dev/null; do sleep 0.01; done
wait $child && echo "done"
grep -q '^dcpkit: hashing: .* of 1.00 GiB' said && echo "a line when asked"
rm -rf big out said
