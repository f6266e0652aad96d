#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_resume.sh - the disk gets full half way (of inodes, which are not foreseen): finished parts are kept, and --resume goes on with them, where it fits.
# shellcheck disable=SC2016 # the inner shell expands
unshare -rm bash -c 'mount -t tmpfs -o size=64k none "$1"' - "$TMP" 2>/dev/null || exit 77
unshare -rm bash -uc '
    mount -t tmpfs -o size=1g none "$TMP" && cd "$TMP" && mkdir disk && mount -t tmpfs -o size=400m,nr_inodes=80 none disk || exit
    build=$(dirname "$DCPKIT")
    "$build/tests/bench/make_checkpoint" --like "$SAMPLES/torch_dist_c_dense_tp2pp2/iter_0000004" \
        --layers 4 --hidden 512 --ffn 2048 --vocab 4000 in >/dev/null
    convert=("$DCPKIT" convert --to zarr)
    partial=disk/out/iter_0000004.dcpkit-partial

    # fails LABEL CODE REGEX CMD...: exit CODE and one line that REGEX finds; what is done stays as it is.
    fails() {
        local label=$1 code=$2 regex=$3 status=0
        shift 3
        "$@" >said 2>&1 || status=$?
        if [ "$status" -eq "$code" ] && [ "$(wc -l <said)" -eq 1 ] && grep -qE -- "$regex" said &&
            [ "$(ls -A disk/out)" = iter_0000004.dcpkit-partial ] && [ -s "$partial/.dcpkit-journal" ]; then
            echo "$label: refused, and kept"
        else
            echo "$label: exit $status: $(head -c 1000 said)"
            ls -AR disk | head -n 20
        fi
    }

    "${convert[@]}" --resume in want >said 2>&1 || echo "nothing to resume: exit $?: $(cat said)"
    fails "disk full" 4 "finished parts are kept\): .*No space left.*--resume .*--force " "${convert[@]}" in disk/out
    fails "neither option" 2 "dcpkit-partial. is left from a run.*--resume.*--force" "${convert[@]}" in disk/out
    fails "disk still full" 4 "finished parts are kept.*No space left" "${convert[@]}" --resume in disk/out
    fails "other options" 2 "begun with other options \(--force" "${convert[@]}" --resume --weights-only in disk/out
    fails "another format" 2 "begun with other options" "$DCPKIT" convert --to fsdp_dtensor --resume in disk/out
    data=in/iter_0000004/__1_0.distcp
    touch -r "$data" time && touch "$data"
    fails "changed input" 2 "its input has changed since \(--force" "${convert[@]}" --resume in disk/out
    cp -p "$data" kept && printf x | dd of="$data" conv=notrunc bs=1 seek=3000 2>/dev/null && touch -r time "$data"
    fails "changed, with its time kept" 2 "its input has changed since \(--force" "${convert[@]}" --resume in disk/out
    cp kept "$data" && touch -r time "$data"
    exec 9<"$partial" && flock 9
    fails "another process, resumed" 2 "another process is writing" "${convert[@]}" --resume in disk/out
    fails "another process, forced" 2 "another process is writing" "${convert[@]}" --force in disk/out
    exec 9<&-
    # What it has counts: 258 MiB are to be there, fewer are free.
    mount -o remount,size=280m,nr_inodes=1000 disk
    "${convert[@]}" --resume in disk/out >said 2>&1 || echo "resumed: exit $?: $(cat said)"
    grep -oE "resumed +[0-9.]+ MiB were written by an earlier run" said | sed "s/[0-9.]\+/N/"
    diff -r want disk/out && echo "the same bytes"
    [ "$(ls -A disk/out)" = "$(ls -A want)" ] || ls -A disk/out

    # What does not fit gives way to --force.
    rm -r disk/out && mount -o remount,size=400m,nr_inodes=80 disk
    fails "disk full again" 4 "finished parts are kept" "${convert[@]}" in disk/out
    rm -r want && "${convert[@]}" --weights-only in want >said 2>&1 || cat said
    "${convert[@]}" --force --resume --weights-only in disk/out >said 2>&1 || echo "forced: exit $?: $(cat said)"
    grep resumed said
    diff -r want disk/out && echo "begun anew"
    "${convert[@]}" --resume in out.tar >said 2>&1 || echo "an archive is not begun: $(cat said)"
'
