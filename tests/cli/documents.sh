#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# documents.sh - every command line of README.md, tools/MANUAL.md, tools/SKILL.md and the guides of tools/topics ends well, one after the other, on samples.
ckpt=$TMP/ckpt
export TMPDIR=$TMP # of view
ln -s "$TOOLS" tools
dcpkit() { "$DCPKIT" "$@"; }

# lines FILE: its indented lines that run dcpkit, without comments, on this machine's paths; the sample's vocabulary is smaller.
lines() {
    sed -n -E 's/^    ((mpirun .*)?dcpkit )/\1/p' "$TOOLS/../$1" |
        sed -E "s| +#.*||; s|/ckpt/|$ckpt/|g; s|\bIN OUT\b|$ckpt/run OUT|; s|50257|255|"
}

for document in README.md tools/MANUAL.md tools/SKILL.md $(cd "$TOOLS/.." && echo tools/topics/*.txt); do
    mkdir "$ckpt" && ln -s "$SAMPLES/torch_dist_c_moe_ep2pp2" "$ckpt/run" && ln -s "$SAMPLES/torch_dist_a_dense_tp2pp2" "$ckpt/old"
    ln -s "$SAMPLES/torch_dist_c_dense_tp2pp2" "$ckpt/llama"
    [ "$document" = README.md ] || ln -s "$SAMPLES/torch_dist_c_moe_ep2pp2" "$ckpt/other" # README trains its own
    n=0
    while read -r line; do
        n=$((n + 1))
        code=0
        [[ $line != mpirun* ]] || line="need_mpi; ${line/ dcpkit / \"\$DCPKIT\" }"
        (eval "$line") >said 2>&1 </dev/null || code=$?
        [ "$code" -eq 0 ] || [[ $code -eq 77 && $line == need_mpi* ]] || [[ $code -eq 1 && $line == "dcpkit diff "* ]] ||
            echo "$document: $line: exit $code: $(head -c 1000 said)"
        rm -rf OUT hashes.json.old
    done < <(lines "$document")
    [ "$n" -ge 5 ] || [[ $document == */topics/* ]] || echo "$document: only $n commands found"
    rm -rf "$ckpt" ./*.json
done
