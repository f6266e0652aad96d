#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_stopped.sh - a run that is asked to stop names where it stood and what is saved, which is whole and can be resumed.
tiny=$TOOLS/train_tiny.json
"$DCPKIT" train --config "$tiny" --train-iters 200000 --save run --save-interval 3 --quiet 2>said &
child=$!
for ((i = 0; i < 600; i++)); do
    [ ! -e run/latest_checkpointed_iteration.txt ] || break
    sleep 0.1
done
kill -TERM $child
status=0
wait $child || status=$?
echo "exit $status: $(sed 's/[0-9][0-9]*/N/g' said)"
find run -name '*dcpkit*'
"$DCPKIT" verify run | tail -n 1
[ "$(sed "s/.* has iteration //" said)" = "$(cat run/latest_checkpointed_iteration.txt)" ] || cat said
last=$(($(cat run/latest_checkpointed_iteration.txt) + 2))
"$DCPKIT" train --config "$tiny" --train-iters 200000 --load run --exit-at $last --json --quiet | grep -c '"iteration"'
