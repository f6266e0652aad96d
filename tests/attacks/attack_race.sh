#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_race.sh - several runs want one OUT at once: one wins, the others end with exit 2 and one line, and OUT is whole.
sample torch_dist_c_tied/iter_0000004 in
"$DCPKIT" convert --quiet --to fsdp_dtensor in want/iter_0000004

# races LABEL WINNERS OPTION...: WINNERS: how many may end with 0, as a pattern.
races() {
    local label=$1 winners=$2 fault='' i
    shift 2
    for round in 1 2 3 4; do
        rm -rf out
        [[ $* != *--force* ]] || mkdir -p out/iter_0000004
        for i in 1 2 3 4 5; do
            {
                status=0
                "$DCPKIT" convert --quiet "$@" --to fsdp_dtensor in out/iter_0000004 2>"$GOT/err.$i" || status=$?
                echo "$status" >"$GOT/code.$i"
            } &
        done
        wait
        # shellcheck disable=SC2053 # a pattern
        [[ $(cat "$GOT"/code.* | grep -c '^0$') == $winners ]] || fault="winners: $(cat "$GOT"/code.* | tr '\n' ' ')"
        for i in 1 2 3 4 5; do
            case $(cat "$GOT/code.$i") in
            0) [ ! -s "$GOT/err.$i" ] || fault="a winner says: $(cat "$GOT/err.$i")" ;;
            2) [ "$(wc -l <"$GOT/err.$i")" -eq 1 ] || fault="a loser says: $(cat "$GOT/err.$i")" ;;
            *) fault="exit $(cat "$GOT/code.$i"): $(cat "$GOT/err.$i")" ;;
            esac
        done
        diff -r want out >"$GOT/diff" || fault="round $round: $(head -n 3 "$GOT/diff")"
        [ -z "$fault" ] || break
    done
    echo "$label: ${fault:-held}"
}

races "no option" 1
races "--force" '[1-5]' --force
races "--resume" '[1-5]' --resume
races "--force --resume" '[1-5]' --force --resume
exit 0
