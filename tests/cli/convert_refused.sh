#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_refused.sh - layouts that this release does not convert are refused by name, with the way out.
refuses "no args" 3 'args' \
    "$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/tiny_generations/torch_dist_main_torch2.11" out
refuses "an MSC address" 2 'msc://' "$DCPKIT" convert --to fsdp_dtensor msc://bucket/in out
