#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# documents.sh - check what a program can check of the documents: files that they name, README's size, drawn figures.
#
#   tests/documents.sh [ROOT]
#
# Prints one line a fault, file:line: what is wrong; exit 1 when there is one.
set -euo pipefail
export LC_ALL=C

root=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cd "$root"
faults=$(mktemp)
trap 'rm -f "$faults"' EXIT
mapfile -t documents < <(find . -name '*.md' -not -path './build*' -not -path './.git/*' | sed 's|^\./||' | sort)

# What a document calls a file of ours is there: `lib/...`, `tests/{a,b}.sh`, `*.md` beside it, and links.
# shellcheck disable=SC2016 # the backquotes are Markdown's
check_files() {
    local document number name folder
    while IFS=: read -r document number name; do
        folder=$(dirname "$document")
        # FORMAT.md: of any format; a sample may be kept packed
        compgen -G "$name" >/dev/null || compgen -G "$folder/$name" >/dev/null || compgen -G "$name.tar.*" >/dev/null ||
            [ "$name" = FORMAT.md ] || echo "$document:$number: '$name' does not exist"
    done < <(grep -noHE '`(lib|formats|kernels|tools|tests|sample-data|\.ci)/[^` ]*`|\]\([^)#:]+\)|`[A-Za-z_]+\.md`' "${documents[@]}" |
        sed -E 's/^([^:]*:[0-9]+:)(`|\]\()(.*)(`|\))$/\1\3/' | grep -vE '<|NAME|\.\.\.|[A-Z]{2,}_\*' | expand_braces)
}

# file:line:a{b,c} -> file:line:ab and file:line:ac
expand_braces() {
    local document number name part
    while IFS=: read -r document number name; do
        if [[ $name == *'{'*','*'}'* ]]; then
            for part in $(tr ',' ' ' <<<"${name#*\{}" | sed 's/}.*//'); do
                echo "$document:$number:${name%%\{*}$part${name#*\}}"
            done
        else
            echo "$document:$number:$name"
        fi
    done
}

check_readme() {
    [ "$(wc -l <README.md)" -le 130 ] || echo "README.md:131: at most 130 lines"
    awk 'length > 120 { printf "README.md:%d: %d columns, at most 120\n", FNR, length }' README.md
}

check_drawings() {
    tests/interop/resumes.sh | cmp -s - tests/interop/resumes.svg ||
        echo "tests/interop/resumes.svg:1: not what resumes.sh draws of resumes.tsv"
}

{
    check_files
    check_readme
    check_drawings
} >"$faults"
cat "$faults"
[ ! -s "$faults" ]
