#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# card.sh - card claims what the proofs of tests/compatibility.sh are, each with its best level and its releases, and nothing else.
command -v jq >/dev/null || exit 77
"$DCPKIT" card --json >card.json
jq -r '.claims[] | select(.level != "no" and .level != "not tried") | "\(.name)\t\(.what)\t\(.level)\t\(if .releases == [] then "-" else .releases[] end)"' card.json | sort >claimed
"$TOOLS/../tests/compatibility.sh" --proofs | awk -F '\t' -v OFS='\t' '
    BEGIN { split("read\nbit-equal\nCPU loader\nGPU run", name, "\n"); for (i in name) level[name[i]] = i }
    { at = $1 OFS $2; if (level[$3] > best[at]) best[at] = level[$3]; proof[NR] = at; of[NR] = level[$3]; releases[NR] = $4 }
    END {
        for (i = 1; i <= NR; i++)
            if (of[i] == best[proof[i]]) {
                n = split(releases[i], release, ", ")
                for (k = 1; k <= n; k++) print proof[i], name[of[i]], release[k]
                shown[proof[i]] += n
            }
        for (at in best) if (!shown[at]) print at, name[best[at]], "-"
    }' | sort -u >proven
[ "$(wc -l <proven)" -gt 60 ] || echo "only $(wc -l <proven) proofs"
diff proven claimed | head
# the text has the same claims
"$DCPKIT" card | sed -n '/^Formats/,$s/^  //p' | wc -l | grep -qx "$(jq '.claims | length' card.json)" || echo "the text has other claims"
"$DCPKIT" card | grep -x '  torch_dist A, convert to: CPU loader (0.14.0, 0.15.3)'
jq -r '.levels[].level' card.json
refuses "an argument" 2 . "$DCPKIT" card x
