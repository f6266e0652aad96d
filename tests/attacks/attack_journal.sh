#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_journal.sh - what lies where a conversion left its partial folder and journal: links, pipes, holes, another's words.
sample torch_dist_c_tied/iter_0000004 in
partial=out/iter_0000004.dcpkit-partial
journal=$partial/.dcpkit-journal
mkdir kept && printf kept >kept/file
kept=$(sha256sum kept/file)

# resumes LABEL REGEX: --resume either begins anew and converts, or refuses with REGEX; what links lead to stays.
resumes() {
    local status=0
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    $BOUNDED "$DCPKIT" convert --resume --quiet --to fsdp_dtensor in out/iter_0000004 >"$GOT/out" 2>"$GOT/err" || status=$?
    if [ "$(sha256sum kept/file)" != "$kept" ] || [ "$(ls kept)" != file ]; then
        echo "$1: changed what a link leads to"
    elif [ "$status" -eq 0 ]; then
        "$DCPKIT" verify --against in out/iter_0000004 >"$GOT/verified" && echo "$1: begun anew"
    elif grep -qE -- "$2" "$GOT/err"; then
        echo "$1: refused"
    else
        echo "$1: exit $status: $(cat "$GOT/err")"
    fi
    rm -rf out
    mkdir -p $partial
}
mkdir -p $partial

mkfifo $journal && resumes "a pipe as journal" "\.dcpkit-journal' is not a plain file of this user's alone"
ln -s "$TMP/kept/file" $journal && resumes "a link as journal" "\.dcpkit-journal' is not a plain file"
ln -s /dev/zero $journal && resumes "a device as journal" "\.dcpkit-journal' is not a plain file"
mkdir $journal && resumes "a folder as journal" "\.dcpkit-journal' is not a plain file"
ln kept/file $journal && resumes "a hard link as journal" "\.dcpkit-journal' is not a plain file"
truncate -s 1T $journal && resumes "a TiB of nothing as journal" none
head -c 1000000 /dev/urandom >$journal && resumes "noise as journal" none
{ printf dcpkjrn1 && head -c 36 /dev/zero; } >$journal && resumes "a header with a wrong checksum" none
{ printf dcpkjrn9 && head -c 32 /dev/zero && printf '\x0a\x0d\x02\x71'; } >$journal && resumes "another version" "version|none"
head -c 44 /dev/zero >$journal && ln -s "$TMP/kept" $partial/folder && resumes "a link to a folder in the partial one" none
rmdir $partial && ln -s "$TMP/kept" $partial && resumes "a link as partial folder" "dcpkit-partial'.*(Not a directory|symbolic links)"
rmdir $partial && mkfifo $partial && resumes "a pipe as partial folder" "dcpkit-partial'.*Not a directory"

# A journal in IN, of a run that was killed at its end or of another hand, is no journal of ours.
rm -rf out
sample torch_dist_c_tied/iter_0000004 with
printf stray >with/.dcpkit-journal
"$DCPKIT" modify-state-dict --quiet --op 'remove ^optimizer' with out/iter_0000004 >"$GOT/out" 2>"$GOT/err"
[ ! -e out/iter_0000004/.dcpkit-journal ] && [ "$(cat with/.dcpkit-journal)" = stray ] && echo "a journal in IN, keys removed: not carried over"
rm -rf out
"$DCPKIT" modify-state-dict --quiet --op 'cast exp_avg bfloat16' with out/iter_0000004 >"$GOT/out" 2>"$GOT/err"
[ ! -e out/iter_0000004/.dcpkit-journal ] && echo "a journal in IN, tensors cast: not carried over"
rm -rf out
"$DCPKIT" convert --quiet --to zarr with out/iter_0000004
[ ! -e out/iter_0000004/.dcpkit-journal ] && echo "a journal in IN, converted: not carried over"
exit 0
