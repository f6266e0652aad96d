#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hash_json.sh - the JSON form holds the same hashes, with shape and dtype of PyTorch's manifest.
sample=$SAMPLES/torch_dist_c_dense_tp2pp2
"$DCPKIT" hash --json "$sample" >got.json || exit

# "key xxh3_128 dtype shape" of each tensor, from either document.
list() {
    tr -d ' \n' <"$1" | grep -oE '"[^"]+":\{[^{}]*"xxh3_128":"[0-9a-f]{32}"[^{}]*\}' |
        sed -E 's/"chunks":.*//' | grep '"dtype"' | while read -r line; do
        key=$(sed -E 's/^"([^"]+)".*/\1/' <<<"$line")
        for field in xxh3_128 dtype shape; do
            value=$(grep -oE "\"$field\":(\"[^\"]*\"|\[[^]]*\])" <<<"$line" | tr -d '"')
            key="$key $value"
        done
        echo "$key"
    done | sort
}
list got.json >got
list "$sample/MANIFEST.iter_0000004.json" >want
wc -l <want
diff want got
