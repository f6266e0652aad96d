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

mapfile -t sources < <(find lib formats kernels tools tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
mapfile -t scripts < <(find tools tests .ci -type f \( -name '*.sh' -o -name '*.bash' -o -name run \) | sort)
mapfile -t product < <(printf '%s\n' "${sources[@]}" | grep -E '^(lib|formats|kernels)/' || true)
[ "${#product[@]}" -gt 0 ] || {
    echo "$root: no sources found" >&2
    exit 1
}

# What a folder may include besides itself, from the bottom up; lib/README.md draws it. A folder of lib may include those
# before it in this row, and kernels those up to lib/device.
rooms=(base report io tensor place device ckpt model knobs rules plan exec write job train)
declare -A may=(
    [formats/torch]="lib"
    [formats/dcp]="lib formats/torch"
    [formats/megatron]="lib formats/megatron/buckets"
    [formats/megatron/buckets]="lib formats/megatron"
    [formats/torch_dist]="lib formats/torch formats/dcp formats/megatron"
    [formats/zarr]="lib formats/torch formats/dcp formats/megatron"
    [formats/fsdp_dtensor]="lib formats/torch formats/dcp"
    [formats/mp_rank]="lib formats/torch formats/megatron formats/megatron/buckets"
    [formats/fsdp_shards]="lib formats/torch"
    [formats/hub]="lib formats/torch formats/dcp formats/megatron formats/fsdp_shards formats/safetensors"
    [formats]="lib formats"
)
for room in "${rooms[@]}"; do
    may[lib/$room]=${below:=}
    below+=" lib/$room"
done

# The folders that a folder may include, as one regular expression over the included path.
may_include() {
    local folder=$1 allowed=''
    local -r to_device='lib/base lib/io lib/tensor lib/device' to_model="lib/base lib/io lib/tensor lib/place lib/ckpt lib/model"
    case $folder in
    tools | tests | tests/*) echo . && return ;;
    lib/api) echo '^(lib|formats/formats\.h|kernels/kernels\.h)' && return ;; # it joins the tables, as tools do
    kernels) allowed="$to_device kernels" ;;
    kernels/mpi/plugin) allowed="$to_device kernels/mpi" ;;
    kernels/nccl) allowed="$to_device kernels/cuda" ;;
    kernels/*) allowed=$to_device ;;
    formats/* | formats) allowed=${may[$folder]:-lib} ;;
    *)
        [ -n "${may[$folder]+known}" ] || return 1
        allowed=${may[$folder]}
        ;;
    esac
    allowed=" $allowed $folder "
    allowed=${allowed/ lib / $to_model }
    allowed=$(xargs <<<"$allowed")
    echo "^((${allowed// /|})/|${folder%%/*}/${folder%%/*}\.h$)" # kernels.h and formats.h declare all rows
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
        elif [ ! -e "$path" ] && [ ! -e "$path.in" ]; then
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
    while read -r name; do
        grep -nE "^$name \{" "${product[@]}" | sed -E "s/^([^:]*:[0-9]+):.*/\1: $name is defined more than once/"
    done < <(grep -hoE '^(struct|enum|union) dcpk_[a-z0-9_]+ \{' "${product[@]}" | sed 's/ {$//' | sort | uniq -d)
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
    mapfile -t others < <(printf '%s\n' "${sources[@]}" | grep -vE '^(lib/exec|tests/api)/') # a program of somebody else's
    ban 'pthread_create|thrd_create' 'threads start in lib\/exec only' "${others[@]}"
    { grep -nEH 'goto[[:space:]]+' "${product[@]}" | grep -vE 'goto out;' || true; } |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: the one exit label is out/'
}

# Options of other programs, which a message below tools/ may name: Megatron's, srun's, verl's and DeepSpeed's.
their_options='backend|ckpt-convert-format|ckpt-format|data-parallel-sharding-strategy|deterministic-mode'
their_options+='|dist-ckpt-optim-fully-reshardable|list|loader|local_dir|model-type|mpi|no-gradient-accumulation-fusion|no-load-optim|no-load-rng'
their_options+='|overlap-grad-reduce|overlap-param-gather|pipeline-model-parallel-size|safe_serialization|saver|target_dir'
their_options+='|tensor-model-parallel-size'
their_options+='|untie-embeddings-and-output-weights|use-legacy-models|use-megatron-fsdp|use-nccl-ub|use-torch-fsdp2'

# What mends an error is a value (enum dcpk_fix), which tools word as an option. A style sheet has properties.
check_options() {
    { grep -noEH '"([^"\\]|\\.)*"' "${product[@]}" || true; } | grep -v '^lib/report/html_style\.c:' |
        sed -E "s/--($their_options)([^a-z-]|\$)/\\2/g" |
        sed -nE 's/^([^:]*:[0-9]+):.*--[a-z].*/\1: an option of the command line in a string: let the error carry its fix/p'
}

# Functions that have more than six parameters: no other may, and one that was mended leaves the list.
over_six='dcpk_map_put'          # key and length, *existed and *found belong together: structs would be filled for one call
over_six+='|dcpk_name_spellings' # to mend: spellings and their number are a list
over_six+='|grow|builder_put_items|builder_put_pairs' # to mend: array, number and capacity are one thing

# A definition begins at the margin and ends before the line "{"; parameters are what commas part.
check_parameters() {
    awk -v "known=^($over_six)\$" '
        FNR == 1 || /^$/ || /^[}#\/* ]/ && head == "" { head = "" }
        head != "" || /^[a-z].*\(/ {
            if (head == "")
                line = FNR
            head = head $0
            if (/;$/)
                head = ""
        }
        $0 == "{" {
            name = head
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
            n = gsub(/,/, ",", head) + 1
            if (n > 6 && name !~ known)
                printf "%s:%d: %s has %d parameters, at most 6 fit a call: make them a struct\n", FILENAME, line, name, n
            head = ""
        }' "$@"
}

# A profile and a stack show a static function without its file: one name, one file of a folder.
check_statics() {
    awk '/^static [^=;]*[ *][A-Za-z0-9_]+\(/ {
            folder = FILENAME
            sub(/\/[^\/]*$/, "", folder)
            name = $0
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
            if ((folder, name) in first && first[folder, name] != FILENAME)
                printf "%s:%d: static %s is also in %s: name it by its noun\n", FILENAME, FNR, name, first[folder, name]
            first[folder, name] = FILENAME
        }' "$@"
}

{
    check_includes
    check_heads
    check_names
    check_calls
    check_options
    mapfile -t programs < <(printf '%s\n' "${sources[@]}" | grep -E '^(lib|formats|kernels|tools)/.*\.c$' || true)
    check_parameters "${programs[@]}"
    check_statics "${programs[@]}"
} >"$faults"
cat "$faults"
[ ! -s "$faults" ]
