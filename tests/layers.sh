#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# layers.sh - check the house rules that show in the text: who may include whom, names, banned calls.
#
#   tests/layers.sh [ROOT]
#
# Prints one line a fault, file:line: what is wrong; exit 1 when there is one.
set -euo pipefail
export LC_ALL=C

root=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cd "$root"
faults=$(mktemp)
trap 'rm -f "$faults"' EXIT

mapfile -t sources < <(find lib formats kernels tools tests -name '*.[ch]' | sort)
mapfile -t scripts < <(find tools tests .ci -type f \( -name '*.sh' -o -name '*.bash' -o -name run \) | sort)
mapfile -t product < <(printf '%s\n' "${sources[@]}" | grep -E '^(lib|formats|kernels)/' || true)
[ "${#product[@]}" -gt 0 ] || {
    echo "$root: no sources found" >&2
    exit 1
}

# The table of STYLE.md section 2, as one regular expression over the included path for each folder.
may_include() {
    local base='lib/base' model='lib/(base|model)' ckpt='lib/(base|model|ckpt)'
    local device="$model|lib/exec/(device|transport)\.h"
    case "$1" in
    lib/base) echo "^$base/" ;;
    lib/model) echo "^$model/" ;;
    lib/ckpt) echo "^$ckpt/" ;;
    lib/rules) echo '^lib/(base|model|ckpt|rules)/' ;;
    lib/plan) echo '^lib/(base|model|ckpt|rules|plan)/' ;;
    lib/exec) echo '^lib/(base|model|ckpt|rules|plan|exec)/' ;;
    formats/torch_dist | formats/zarr) echo "^($ckpt|formats/dcp|formats/megatron|$1)/" ;;
    formats/fsdp_dtensor) echo "^($ckpt|formats/dcp|$1)/" ;;
    formats/megatron | formats/megatron/buckets) echo "^($ckpt|formats/megatron)/" ;;
    formats/*) echo "^($ckpt|$1)/" ;;
    formats) echo "^($ckpt|formats)/" ;;
    kernels/*) echo "^($device|$1/)" ;;
    kernels) echo "^($device|kernels/)" ;;
    tools | tests | tests/*) echo '.' ;;
    *) return 1 ;;
    esac
}

check_includes() {
    local file number path quote folder allowed
    declare -A rule=()
    for file in "${sources[@]}"; do
        folder=${file%/*}
        [ -z "${rule[$folder]:-}" ] || continue
        rule[$folder]=$(may_include "$folder") || {
            echo "$file:1: no folder of this name in the table of layers"
            rule[$folder]=.
        }
    done
    # One line an include, as file:number:mark:path, the mark being < or ".
    while IFS=: read -r file number quote path; do
        folder=${file%/*}
        allowed=${rule[$folder]}
        if [ "$quote" = '<' ]; then
            [ ! -e "$path" ] || echo "$file:$number: <$path> is ours: include it with quotes"
        elif [ ! -e "$path" ]; then
            echo "$file:$number: \"$path\" is not spelled from the root of the tree"
        elif ! [[ $path =~ $allowed ]]; then
            echo "$file:$number: $folder may not include $path"
        elif [[ $path == *_priv.h && ${path%/*} != "$folder" ]]; then
            echo "$file:$number: $path is private to its folder"
        fi
    done < <(grep -nEH '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' "${sources[@]}" |
        sed -E 's/^([^:]*:[0-9]+):[^"<]*(["<])([^">]*)[">].*$/\1:\2:\3/')
}

check_heads() {
    local file name first second
    for file in "${sources[@]}"; do
        name=${file##*/}
        { read -r first && read -r second; } <"$file" || true
        [ "$first" = '/* SPDX-License-Identifier: Apache-2.0 */' ] ||
            echo "$file:1: the first line is not the SPDX tag"
        [[ $second == "/* $name - "* ]] ||
            echo "$file:2: the second line does not give name and purpose: /* $name - ..."
    done
    for file in "${scripts[@]}"; do
        { read -r first && read -r second; } <"$file" || true
        [[ "$first"$'\n'"$second" == *'# SPDX-License-Identifier: Apache-2.0'* ]] ||
            echo "$file:2: no SPDX tag in the first two lines"
    done
}

check_names() {
    local name
    while read -r name; do
        echo "$(printf '%s\n' "${sources[@]}" | grep -F "/$name" | paste -sd ' '): one basename, twice"
    done < <(printf '%s\n' "${sources[@]}" | sed 's|.*/||' | sort | uniq -d)
}

# ban REGEX REASON FILE...: report each line that calls one of the functions.
ban() {
    local regex=$1 reason=$2
    shift 2
    [ "$#" -gt 0 ] || return 0
    { grep -nEH "(^|[^A-Za-z0-9_>.])($regex)[[:space:]]*\(" "$@" || true; } |
        sed -E "s/^([^:]*:[0-9]+):.*/\1: $reason/"
}

check_calls() {
    local -a others
    ban 'strcpy|strcat|sprintf|vsprintf|strtok|atoi|localtime|gets' 'a banned function' \
        "${sources[@]}"
    ban 'printf|fprintf|puts|putchar|fputs|perror|exit|_exit|abort' \
        'only tools print and exit' "${product[@]}"
    mapfile -t others < <(printf '%s\n' "${sources[@]}" | grep '^tools/' | grep -v '^tools/wrap\.c$')
    ban 'v?f?printf|v?dprintf|puts|fputs|putchar|putc|fputc|fwrite|perror|write|psignal|err|warnx?|error' \
        'what is printed goes through tools\/wrap.h' "${others[@]}"
    mapfile -t others < <(printf '%s\n' "${product[@]}" | grep -v '^lib/base/alloc\.c$')
    ban 'malloc|calloc|realloc|reallocarray|free|strdup|strndup|posix_memalign|aligned_alloc' \
        'allocation goes through lib\/base\/alloc.h' "${others[@]}"
    mapfile -t others < <(printf '%s\n' "${sources[@]}" | grep -v '^lib/exec/')
    ban 'pthread_create|thrd_create' 'threads start in lib\/exec only' "${others[@]}"
    { grep -nEH 'goto[[:space:]]+' "${product[@]}" | grep -vE 'goto out;' || true; } |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: the one exit label is out/'
}

{
    check_includes
    check_heads
    check_names
    check_calls
} >"$faults"
cat "$faults"
[ ! -s "$faults" ]
