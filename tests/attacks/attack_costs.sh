#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_costs.sh - a megabyte of text that asks for much more memory or time: what tests/attacks/README.md bounds.

sample tiny_generations/torch_dist_main_torch2.11 tiny
# costly LABEL CODE REGEX ARGUMENT... : dcpkit refuses within the bounds
costly() {
    local label=$1 code=$2 regex=$3
    shift 3
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    refuses "$label" "$code" "$regex" $BOUNDED "$DCPKIT" "$@"
}

# yaml LABEL REGEX: as arguments of a run, on stdin
yaml() {
    cat >evil.yaml
    costly "yaml: $1" 3 "$2|not built in.*libyaml" convert --to fsdp_dtensor --args-from evil.yaml tiny out
}
{ printf 'a: ' && head -c 1000000 /dev/zero | tr '\0' '['; } | yaml "lists a million deep" "nested deeper than 64"
{ printf 'a: ' && head -c 1000000 /dev/zero | tr '\0' '{'; } | yaml "mappings a million deep" "nested deeper than 64"
yes '?' | head -n 500000 | tr '\n' ' ' | yaml "keys that are keys" "nested deeper than 64"
{ printf 'a: [' && yes '1,' | head -n 500000 | tr -d '\n' && printf ']'; } | yaml "half a million numbers" "more than 100000 values"
seq 60000 | sed 's/.*/k&: \&k& 1/' | yaml "60000 anchors" "more than 1000 anchors"
{ echo 'a: &a [1]' && yes 'b: *a' | head -n 150000; } | yaml "150000 aliases" "more than 100000 values"
exit 0
