#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# documents.sh - check what a program can check of the documents: files that they name, what sources and documents cite
# of them, source files that comments name, README's size, drawn figures, the table of compatibility; the last newline of all texts.
#
#   tests/documents.sh [ROOT]
#
# Prints one line a fault, file:line: what is wrong; exit 1 when there is one.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${1:-$here/..}
cd "$root"
faults=$(mktemp)
trap 'rm -f "$faults"' EXIT
mapfile -t documents < <(find . -name '*.md' -not -path './build*' -not -path './.git/*' | sed 's|^\./||' | sort)

# What a document calls a file of ours is there: `lib/...`, `tests/{a,b}.sh`, and links. Documents are citations, below.
# shellcheck disable=SC2016 # the backquotes are Markdown's
check_files() {
    local document number name folder
    while IFS=: read -r document number name; do
        folder=$(dirname "$document")
        # a sample may be kept packed
        compgen -G "$name" >/dev/null || compgen -G "$folder/$name" >/dev/null || compgen -G "$name.tar.*" >/dev/null ||
            echo "$document:$number: '$name' does not exist"
    done < <(grep -noHE '`(lib|formats|kernels|tools|tests|sample-data|\.ci)/[^` ]*`|\]\([^)#:]+\)' "${documents[@]}" |
        sed -E 's/^([^:]*:[0-9]+:)(`|\]\()(.*)(`|\))$/\1\3/' | grep -vE '<|NAME|\.\.\.|[A-Z]{2,}_\*|[^}]\.md$' | expand_braces)
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

# Documents and sections that sources and documents cite are there.
check_citations() {
    find lib formats kernels tools tests .ci CMakeLists.txt ./*.md -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.sh' \
        -o -name '*.bash' -o -name '*.py' -o -name '*.md' -o -name CMakeLists.txt -o -path '.ci/run' \) \
        ! -name citations_test.sh -print0 |
        sort -z | xargs -0 awk -v documents="$(IFS=: && echo "${documents[*]}")" -f "$here/citations.awk"
}

# Source files that comments name are there.
check_sources() {
    find lib formats kernels tools tests -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
        xargs -0 awk -v sources="$(find lib formats kernels tools tests -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.h.in' \) |
            sed 's/\.in$//' | paste -sd :)" -f "$here/sources.awk"
}

check_readme() {
    [ "$(wc -l <README.md)" -le 120 ] || echo "README.md:121: at most 120 lines"
    awk 'length > 120 { printf "README.md:%d: %d columns, at most 120\n", FNR, length }' README.md
}

check_drawings() {
    tests/interop/resumes.sh | cmp -s - tests/interop/resumes.svg ||
        echo "tests/interop/resumes.svg:1: not what resumes.sh draws of resumes.tsv"
}

check_compatibility() {
    tests/compatibility.sh | cmp -s - formats/COMPATIBILITY.md ||
        echo "formats/COMPATIBILITY.md:1: not what compatibility.sh computes of the tests' proofs (--write)"
}

# Texts end with a newline (POSIX); inputs of the fuzzer and archives do not.
check_last_lines() {
    find lib formats kernels tools tests .ci .github CMakeLists.txt ./*.md -type f -size +0 -not -path '*/corpus/*' ! -name '*.pt' -print0 |
        { xargs -0 grep -lIzP '[^\n]\z' || true; } | sed 's|$|: the last line has no newline|'
}

{
    check_last_lines
    check_files
    check_citations
    check_sources
    check_readme
    check_drawings
    check_compatibility
} >"$faults"
cat "$faults"
[ ! -s "$faults" ]
