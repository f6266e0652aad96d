#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ranks_proof.sh - what reads a checkpoint is shared by several processes: the same answers, files and exit codes as
# of one, each message once.
need_mpi

# both N ARGUMENT... : what N processes say must be what one says, but for the bytes that were read (small reads come in
# larger ones where they follow one another, in each thread by itself) and the rank that met an error.
both() {
    local n=$1 status=0 wanted=0
    shift
    "$DCPKIT" "$@" >"$GOT/one" 2>"$GOT/err" || wanted=$?
    cat "$GOT/err" >>"$GOT/one"
    by_ranks "$n" "$@" >"$GOT/many" || status=$?
    sed -i -E "s/(, )[0-9.]+ [KMG]iB \\([0-9]+ bytes\\) read/\\1... read/; s/rank [0-9]+ of $n: //" "$GOT/one" "$GOT/many"
    if [ "$status" -ne "$wanted" ]; then
        echo "$1 by $n: exit $status, wanted $wanted"
    elif ! diff "$GOT/one" "$GOT/many"; then
        echo "$1 by $n: says something else"
    else
        echo "$1 by $n: exit $status, the same"
    fi
}

source=$SAMPLES/torch_dist_c_moe_ep2pp2
proof=(--check-input --verify --integrity --quiet)
for to in fsdp_dtensor torch_dist; do
    options=(--to "$to")
    [ "$to" = fsdp_dtensor ] || options+=(--target-mesh "tp=2,ep=2")
    "$DCPKIT" convert "${proof[@]}" "${options[@]}" --hashes "$to.hashes1" "$source" "${to}1" >"$GOT/out"
    by_ranks 3 convert "${proof[@]}" "${options[@]}" --hashes "$to.hashes3" "$source" "${to}3" >"$GOT/out"
    diff -r "${to}1" "${to}3" && cmp "$to.hashes1" "$to.hashes3" && echo "$to by 3: the same"
done

both 3 verify fsdp_dtensor1
both 2 verify --against "$source" torch_dist1
both 3 hash fsdp_dtensor1
both 3 hash --fingerprint fsdp_dtensor1
both 3 hash --check fsdp_dtensor.hashes1 fsdp_dtensor1
both 2 compare-two-checkpoint fsdp_dtensor1 torch_dist1
other=$SAMPLES/torch_dist_c_dense_tp2pp2
both 3 compare-two-checkpoint --rtol 0.1 "$other" "$source"
both 3 verify --against "$other" fsdp_dtensor1
both 3 hash --check fsdp_dtensor.hashes1 "$other"

# Damage is found by one of them; the other checks are made all the same.
sample torch_dist_c_dense_tp2pp2 damaged
"$MANGLE" flip damaged/iter_0000004/__1_0.distcp 300000
both 3 verify --against "$other" damaged
both 3 hash --check "$other/MANIFEST.iter_0000004.json" damaged
both 3 convert --check-input --to fsdp_dtensor damaged out
[ ! -e out ] || echo "something was left"
"$MANGLE" flip fsdp_dtensor1/iter_0000004/__0_0.distcp 300000
both 2 verify fsdp_dtensor1
both 2 verify --no-such fsdp_dtensor1

# Commands that cannot be shared are not done twice, and a process of a job may have one of its own.
by_ranks 2 modify-state-dict --op 'keep .*' "$other" out >"$GOT/out" || echo "modify by 2: exit $?"
[ ! -e out ] || echo "something was written"
DCPKIT_ALONE=1 by_ranks 2 inspect --json "$other" | grep -c '"version"'
