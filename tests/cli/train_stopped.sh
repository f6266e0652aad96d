#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_stopped.sh - a run that is asked to stop names where it stood and what is saved, which is whole and can be resumed.
tiny=$TOOLS/train_tiny.json
"$DCPKIT" train --config "$tiny" --train-iters 200000 --save run --save-interval 3 --quiet --html page.html 2>said &
child=$!
for ((i = 0; i < 600; i++)); do
    [ ! -e run/latest_checkpointed_iteration.txt ] || break
    sleep 0.1
done
kill -TERM $child
status=0
wait $child || status=$?
# a save that was under way says where it stood by itself
echo "exit $status: $(sed -E 's/[0-9]+/N/g; s/saving (iteration N): .*(stopped on request)/\2 after \1/' said)"
grep -c 'badge bad">.*stopped on request' page.html
find run -name '*dcpkit*'
"$DCPKIT" verify run | tail -n 1
[ "$(sed "s/.* has iteration //" said)" = "$(cat run/latest_checkpointed_iteration.txt)" ] || cat said
last=$(($(cat run/latest_checkpointed_iteration.txt) + 2))
"$DCPKIT" train --config "$tiny" --train-iters 200000 --load run --exit-at $last --json --quiet | grep -c '"iteration"'

# the run from noisy weights, which comes first and logs nothing, stops as well
: >noisy
"$DCPKIT" train --config "$tiny" ddp.check_for_nan_in_grad=false --train-iters 200000 --noise-floor 2>>noisy >/dev/null &
child=$!
for ((i = 0; i < 600; i++)); do
    ! grep -q note noisy || break
    sleep 0.1
done
kill -TERM $child
for ((i = 0; i < 300; i++)); do
    kill -0 $child 2>/dev/null || break
    sleep 0.1
done
kill -KILL $child 2>/dev/null && echo "it did not stop"
status=0
wait $child || status=$?
echo "exit $status: $(grep -v note noisy | sed 's/[0-9][0-9]*/N/g')"
