#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hash_tiny.sh - one line a tensor in key order, objects ("*", "+") and the whole apart; .stdout was made from the
# MANIFEST files, not from us.
for folder in "$SAMPLES"/tiny_generations/*/; do
    basename "$folder"
    "$DCPKIT" hash "$folder" | grep -E '^[0-9a-f]{32}  '
done
