#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_disk_full.sh - a disk that fills up while a run saves: what was saved before stays whole, nothing else is there.
# shellcheck disable=SC2016 # the inner shell expands
unshare -rm bash -c 'mount -t tmpfs -o size=64k none "$1"' - "$TMP" 2>/dev/null || exit 77
mkdir disk
# shellcheck disable=SC2016
unshare -rm bash -uc '
    mount -t tmpfs -o size=1200k none disk
    status=0
    "$DCPKIT" train --config "$TOOLS/train_tiny.json" --save disk/run --save-interval 4 --log run.jsonl --quiet 2>said || status=$?
    echo "exit $status: $(sed "s/[0-9][0-9]*/N/g" said)"
    find disk -name "*dcpkit*"
    "$DCPKIT" verify disk/run | tail -n 1
    [ "$(sed "s/.* has iteration //" said)" = "$(cat disk/run/latest_checkpointed_iteration.txt)" ] || cat said
'
