#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_around.sh - what stands around a command instead of in its input: closed descriptors, strange names, limits
# of the process, other processes that want the same. Each ends with its answer or with one message, IN is as it was,
# and OUT is whole or not there.
#
# DCPK_ROUNDS=N: N rounds of the races (default 2), and every limit instead of a few from 10 on.
rounds=${DCPK_ROUNDS:-2}
dense=torch_dist_b_dense_tp2pp2
tree() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }

sample $dense in
sample ${dense}_p2g groups
"$DCPKIT" convert --quiet --to fsdp_dtensor in right
wanted=$(tree right)
input=$(tree in)

# whole LABEL PATH: it is what an undisturbed run writes.
whole() { [ "$(tree "$2" 2>&1)" = "$wanted" ] || echo "$1: other bytes in $2: $(ls -A "$2" 2>&1)"; }

# ends LABEL CODE CODES: it is one of the codes, and a failure has one message without a raw control byte.
ends() {
    [[ " $3 " == *" $2 "* ]] || echo "$1: exit $2, wanted $3: $(head -c 300 err)"
    [ "$2" -eq 0 ] || [ ! -s err ] || [ "$(grep -vc ': note: ' err)" -eq 1 ] || echo "$1: messages: $(head -c 600 err)"
    ! LC_ALL=C grep -q '[[:cntrl:]]' err || echo "$1: control bytes: $(head -c 300 err | od -c | head -n 5)"
}

# Any of 0 to 2 closed, every command: what it would have answered, or 4 where there is no stdout for it; never
# an answer into a file that it opened later.
closings=('' '<&-' '>&-' '2>&-' '<&- >&-' '<&- 2>&-' '>&- 2>&-' '<&- >&- 2>&-')
# timeless: standard input without the time that a command took.
timeless() {
    sed -e '/^  time /d' -e 's/ in [^ ]* s$//'
}
closed() {
    local label=$1 code closing
    shift
    "$DCPKIT" "$@" 2>err </dev/null | timeless >usual
    rm -rf made
    for closing in "${closings[@]}"; do
        code=0
        : >printed
        : >err
        eval "\"\$DCPKIT\" \"\$@\" >printed 2>err </dev/null $closing" || code=$?
        if [[ $closing == *'>&-'* && $closing != '2>&-' && $closing != '<&- 2>&-' ]]; then
            ends "$label, $closing" "$code" 4
            [ ! -e made ] || echo "$label, $closing: published all the same"
        else
            ends "$label, $closing" "$code" 0
            diff usual <(timeless <printed) >different || echo "$label, $closing: $(head -n 3 different)"
            [ ! -e made ] || [ "$label" = modify ] || whole "$label, $closing" made
        fi
        rm -rf made
    done
}
closed inspect inspect in
closed hash hash in
closed verify verify --against in right
closed check check in
closed compare compare-two-checkpoint in right
closed print-tensor print-tensor in args.lr
closed print-json print-torch-dcp-in-json --dry-run groups
closed convert convert --to fsdp_dtensor in made
closed modify modify-state-dict --op 'remove ^optimizer' right made
echo "descriptors: 9 commands, 8 ways"

# Names are bytes: for the system, for messages and for nothing else.
long=$(printf '%0255d' 0)
# shellcheck disable=SC2016 # that nobody expands them is the point
names=($'new\nline' '-dash' '--to' '%s%n%99999d' $'\xff\xfe\x80' 'a b' '...' '.hidden' '*' '$(touch touched)' '`touch touched`'
    $'quote\'"' $'\e]0;title\a\e[2J' $'\u009b31m' 'a:b' 'run.tar:x' 'x.dcpkit-partial' "${long:0:200}" "$long")
for name in "${names[@]}"; do
    label=$(printf '%.40q' "$name")
    code=0
    "$DCPKIT" convert --quiet --to fsdp_dtensor -- in "$name" 2>err || code=$?
    ends "OUT $label" "$code" "0 2"
    [ "$code" -ne 0 ] || whole "OUT $label" "./$name"
    [ "$code" -eq 0 ] || [ ! -e "./$name" ] || echo "OUT $label: left"
    rm -rf -- "./$name"
    mv in "./$name"
    "$DCPKIT" convert --quiet --to fsdp_dtensor -- "$name" out 2>err || ends "IN $label" $? 0
    whole "IN $label" out
    mv "./$name" in
    rm -rf out
done
for name in . .. / '' ./. in/.. out/.. in in/ in/. ./in//iter_0000004; do
    "$DCPKIT" convert --quiet --force --to fsdp_dtensor in "$name" 2>err && echo "OUT '$name': done"
    ends "OUT '$name'" $? "2"
done
"$DCPKIT" convert --quiet --to fsdp_dtensor in "deep/$long/${long}0/out" 2>err
ends "a name that is too long" $? "4"
for name in out/ out// ./out out/. deep/../out; do
    mkdir -p deep
    "$DCPKIT" convert --quiet --to fsdp_dtensor in "$name" 2>err || ends "OUT $name" $? 0
    whole "OUT $name" out
    rm -rf out deep
done
[ ! -e touched ] || echo "a shell ran"
echo "names: ${#names[@]}"

# Limits of the process.
limited() {
    local option=$1 limit=$2 code=0
    # the loader, a sanitizer and the program itself need some of it to start
    { (ulimit -S "$option" "$limit" && exec "$DCPKIT" --version) >/dev/null 2>&1; } 2>/dev/null || return 0
    rm -rf out
    (ulimit -S "$option" "$limit" && exec "$DCPKIT" convert --quiet -j4 --to zarr in out) 2>err || code=$?
    ends "ulimit $option $limit" "$code" "0 4"
    [ "$code" -eq 0 ] || [ ! -e out/iter_0000004 ] || echo "ulimit $option $limit: left $(ls out)"
    n_limited=$((n_limited + 1))
}
n_limited=0
step=4
[ "$rounds" -lt 10 ] || step=1
for ((n = 3; n < 40; n += step)); do limited -n $n; done
for ((n = 0; n < 200; n += 9 * step)); do limited -f $n; done
for ((n = 60; n < 240; n += 9 * step)); do limited -v $((n * 1000)); done
for ((n = 1; n < 40; n += 3 * step)); do limited -d $((n * 1000)); done
for ((n = 256; n < 1500; n += 60 * step)); do limited -s $n; done
for n in 0 1 2 5; do limited -u $n; done
[ "$n_limited" -gt 20 ] && echo "limits"
rm -rf out

# Others that want the same, at the same time.
race() {
    local label=$1 codes_meant=$2 i code codes=
    shift 2
    rm -rf out
    for i in 1 2 3 4 5 6; do
        { code=0; "$DCPKIT" convert --quiet --to fsdp_dtensor "$@" in out 2>err.$i || code=$?; echo $code >code.$i; } &
    done
    wait
    for i in 1 2 3 4 5 6; do
        cp err.$i err
        ends "$label" "$(cat code.$i)" "$codes_meant"
        codes+=$(cat code.$i)
    done
    [[ $codes == *0* ]] || echo "$label: none succeeded: $codes"
    whole "$label" out
    [ "$(ls -A out)" = "$(ls -A right)" ] || echo "$label: left $(ls -A out)"
}
for ((round = 0; round < rounds; round++)); do
    race plain "0 2"
    race --resume "0 2" --resume
    # what one of them has just published another may replace before it has its last name: then it has failed
    race --force "0 2 4" --force
    race "--force --resume" "0 2 4" --force --resume
done
echo "races"
[ "$(tree in)" = "$input" ] || echo "IN has changed"
