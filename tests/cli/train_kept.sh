#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_kept.sh - a weight that the checkpoint lacks keeps its initial values where the strictness lets it.
tiny=$TOOLS/train_tiny.json
sed '/untie_embeddings/s/true/false/' "$tiny" >tied.json

# At rate 0 a tied run saves initial values, of all but the output layer: one that begins with them is a fresh one.
"$DCPKIT" train --config tied.json --lr 0 --min-lr 0 --exit-at 1 --save tied --quiet
"$DCPKIT" train --config "$tiny" --exit-at 3 --log fresh.jsonl --quiet
for strictness in log_all return_all log_unexpected return_unexpected ignore_all; do
    "$DCPKIT" train --config "$tiny" --exit-at 3 --load tied --finetune --dist-ckpt-strictness $strictness \
        --log $strictness.jsonl --quiet
    "$DCPKIT" losscmp fresh.jsonl $strictness.jsonl | tail -n 1
done
"$DCPKIT" train --config "$tiny" --exit-at 3 --load tied --finetune --no-strict-fsdp-dtensor-load --log off.jsonl --quiet
"$DCPKIT" losscmp fresh.jsonl off.jsonl | tail -n 1
