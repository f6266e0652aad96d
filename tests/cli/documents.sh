#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# documents.sh - every command line of README.md and tools/MANUAL.md ends well, one after the other, on samples.
ckpt=$TMP/ckpt
dcpkit() { "$DCPKIT" "$@"; }

# lines FILE: its indented lines that run dcpkit, without comments, on this machine's paths; the sample's vocabulary is smaller.
lines() {
    sed -n -E 's/^    ((mpirun .*)?dcpkit )/\1/p' "$TOOLS/../$1" |
        sed -E "s| +#.*||; s|/ckpt/|$ckpt/|g; s|\bIN OUT\b|$ckpt/run OUT|; s|50257|255|; s|mpirun |mpirun --allow-run-as-root --oversubscribe |"
}

for document in README.md tools/MANUAL.md; do
    mkdir "$ckpt" && ln -s "$SAMPLES/torch_dist_c_moe_ep2pp2" "$ckpt/run" && ln -s "$SAMPLES/torch_dist_a_dense_tp2pp2" "$ckpt/old"
    ln -s "$SAMPLES/torch_dist_c_moe_ep2pp2" "$ckpt/other"
    n=0
    while read -r line; do
        n=$((n + 1))
        if [[ $line == mpirun* ]]; then
            "$DCPKIT" --version | grep -q '^  mpi ' || continue
            line=${line/ dcpkit / \"\$DCPKIT\" }
        fi
        (eval "$line") >said 2>&1 </dev/null || echo "$document: $line: exit $?: $(head -c 1000 said)"
        rm -rf OUT hashes.json.old
    done < <(lines $document)
    [ "$n" -ge 5 ] || echo "$document: only $n commands found"
    rm -rf "$ckpt" ./*.json
done
