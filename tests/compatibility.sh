#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compatibility.sh - formats/COMPATIBILITY.md with the cells of its tables computed from what the tests prove.
#
#   tests/compatibility.sh            print the page
#   tests/compatibility.sh --write    write it
#   tests/compatibility.sh --proofs   print the proofs: row, column, level, releases, where it comes from
#
# Computed are the tables behind a line "<!-- computed -->", and of those the columns that a proof can name. A row is
# called what its first cell says before ':' or ' ('. A cell holds the best level of its proofs and the releases that
# are proven so; without any "no", or "not tried" where the page has that. Exit 1 when a proof belongs to no cell, or names a file that does not exist.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=formats/COMPATIBILITY.md

# Samples of the repository as "name format generation".
samples() {
    tr -d '\n' <tests/golden/samples.h |
        grep -oE '\{((RUN|BARE|TINY)\("[^"]*"\)|BUCKETS [^}]*json"), *"[a-z_]+", *(NULL|"[A-Z]")' |
        sed -E 's/^\{TINY\("/&tiny_generations\//; s/^\{BUCKETS "/&torch_dist_c_dp_reshardable_moe_ep2pp2vpp2 /
            s/^[^"]*"([^" ]*)[^"]*".*, *"([a-z_]+)", *"?([A-Z]+)"?$/\1 \2 \3/'
}

# What CI shows: every sample is inspected, hashed and verified (read); the lists of golden tests are converted and
# compared bit by bit.
from_golden() {
    samples | awk -v OFS='\t' '
        function row(i) { return format[i] (generation[i] == "NULL" ? "" : " " (generation[i] == "V" ? "V2" : generation[i])) }
        FILENAME == "-" { n++; name[n] = $1; format[n] = $2; generation[n] = $3; next }
        match($0, /^    \{"[a-z0-9_]+/) {
            for (i = 1; i <= n; i++)
                if (name[i] == substr($0, RSTART + 6, RLENGTH - 6)) print row(i), "convert from", "bit-equal", "", FILENAME
        }
        END { for (i = 1; i <= n; i++) print row(i), "read", "read", "", "sample-data/" name[i] }
    ' - tests/golden/test_convert_golden.c tests/golden/test_reverse_golden.c
}

# Losses of runs that real Megatron resumed. A release writes one generation; convert writes torch_dist B unless told.
from_resumes() {
    awk -F '\t' -v OFS='\t' '
        function generation(core) { return core == "main" || core + 0 >= 0.19 ? "C" : "B" }
        function proof(row, column, core) { print row, column, "GPU run", core, "tests/interop/resumes.tsv" }
        NR == 1 || $3 ~ /^(whole|native)/ { next }
        {
            split($1, core, " in ")
            loads = core[2] == "" ? core[1] : core[2]
            source = $2 ~ /^FSDP/ ? "fsdp_dtensor B" : "torch_dist " generation(core[1])
            target = $3 ~ /^torch_dist C/ ? "torch_dist C" : $3 ~ /^torch_dist/ ? "torch_dist B" : "fsdp_dtensor B"
            proof(source, "convert from", core[1])
            proof(target, "convert to", loads)
            if ($3 ~ /and back/) proof("torch_dist B", "convert to", loads)
            if ($2 !~ /^FSDP/) proof($2 ~ /dp_reshardable/ ? "dp_reshardable" : "fully_reshardable", "convert from", core[1])
        }' tests/interop/resumes.tsv
}

# What was shown by hand, or with checkpoints that are not in the repository.
from_hand() {
    awk -F '\t' 'NR > 1' tests/interop/proofs.tsv
}

proofs() {
    { from_golden; from_resumes; from_hand; } | sort -u
}

print_page() {
    proofs | awk -F '\t' '
        function trim(text) { gsub(/^ +| +$/, "", text); return text }
        function key(cell) { gsub(/`/, "", cell); sub(/(:| \().*/, "", cell); return trim(cell) }
        # Numbers by value, "0.8 to 0.15" by its first, main last.
        function rank(release,    part) { split(release, part, /[. ]/); return release == "main" ? 1e9 : part[1] * 1e6 + part[2] * 1e3 + part[3] }
        function sorted(list,    n, i, j, item, held, text) {
            n = split(list, item, "\n")
            for (i = 2; i <= n; i++) {
                held = item[i]
                for (j = i - 1; j >= 1 && rank(item[j]) > rank(held); j--) item[j + 1] = item[j]
                item[j + 1] = held
            }
            for (i = 1; i <= n; i++) text = text (i == 1 ? "" : ", ") item[i]
            return text
        }
        function cell(at, old) {
            used[at] = 1
            if (!(at in best)) return old == "not tried" ? old : "no"
            return releases[at] == "" ? best[at] : best[at] " (" sorted(releases[at]) ")"
        }
        BEGIN { level["read"] = 1; level["bit-equal"] = 2; level["CPU loader"] = 3; level["GPU run"] = 4 }
        FILENAME == "-" {
            at = $1 SUBSEP $2
            columns[$2] = 1
            n = split($4, release, ", ")
            if (!(at in best) || level[$3] > level[best[at]]) { best[at] = $3; releases[at] = "" }
            if (level[$3] < level[best[at]]) next
            for (i = 1; i <= n; i++)
                if (index("\n" releases[at] "\n", "\n" release[i] "\n") == 0)
                    releases[at] = releases[at] (releases[at] == "" ? "" : "\n") release[i]
            next
        }
        /^<!-- computed -->/ { in_table = 1; n_columns = 0 }
        in_table && $0 == "" && n_columns > 0 { in_table = 0 }
        in_table && /^\|/ && n_columns == 0 {
            n_columns = split($0, head, "|")
            for (i in head) head[i] = key(head[i])
            print; next
        }
        in_table && /^\|/ && !/^\|-/ {
            split($0, field, "|")
            line = "|"
            for (i = 2; i < n_columns; i++)
                line = line (head[i] in columns ? " " cell(key(field[2]) SUBSEP head[i], trim(field[i])) " |" : field[i] "|")
            print line; next
        }
        { print }
        END {
            for (at in best)
                if (!(at in used)) {
                    split(at, part, SUBSEP)
                    printf "compatibility.sh: no cell for the proof of %s, %s\n", part[1], part[2] >"/dev/stderr"
                    status = 1
                }
            exit status
        }' - "$page"
}

check_proofs() {
    local level file status=0
    while IFS=$'\t' read -r level file; do
        case $level in
        read | bit-equal | 'CPU loader' | 'GPU run') ;;
        *) echo "compatibility.sh: '$level' is not a level of proof" >&2 && status=1 ;;
        esac
        compgen -G "${file%% *}*" >/dev/null || { echo "compatibility.sh: '${file%% *}' does not exist" >&2 && status=1; }
    done < <(proofs | cut -f 3,5 | sort -u)
    return "$status"
}

case ${1:-} in
--proofs) proofs ;;
--write)
    print_page >"$page.new"
    mv "$page.new" "$page"
    ;;
'') check_proofs && print_page ;;
*) sed -n '5,7s/^# *//p' "$0" >&2; exit 2 ;;
esac
