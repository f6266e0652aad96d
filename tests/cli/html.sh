#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# html.sh - pages of the four commands: one file that needs nothing else, what stdout holds does not change; where
# a page cannot stand; no page of a run that failed.
dense=$SAMPLES/torch_dist_c_dense_tp2pp2
mkdir p

# page NAME WORD...: it stands alone, and holds each word
page() {
    local name=$1 word hash
    shift
    [ "$(head -c 15 "p/$name.html")" = '<!doctype html>' ] && [ "$(tail -n 1 "p/$name.html")" = '</html>' ] ||
        echo "$name: not a whole page"
    ! grep -nE '(https?:)?//|src=|<script[^>]|@import|url\(' "p/$name.html" || echo "$name: needs something else"
    # its one script is the one that its policy lets run
    [ "$(grep -o '<script' "p/$name.html" | wc -l)" = 1 ] || echo "$name: scripts"
    sed -n '/^<script>/,/^<\/script>/p' "p/$name.html" | sed 's/^<script>//; /^<\/script>/d' >script
    # shellcheck disable=SC2059 # the format is the bytes of the hash
    hash=$(printf "$(sha256sum <script | cut -c 1-64 | sed 's/../\\x&/g')" | base64)
    grep -qF "script-src 'sha256-$hash'" "p/$name.html" ||
        echo "$name: its policy refuses its script"
    [ "$(wc -c <script)" -le 4096 ] || echo "$name: the script has $(wc -c <script) bytes"
    [ "$(grep -c '<link' "p/$name.html")" = 1 ] && grep -q '<link rel="icon" href="data:,">' "p/$name.html" ||
        echo "$name: links"
    for word in "$@"; do
        grep -qF -- "$word" "p/$name.html" || echo "$name: '$word' is not in it"
    done
    [ "$(stat -c %a "p/$name.html")" = 644 ] || echo "$name: mode $(stat -c %a "p/$name.html")"
}
# same NAME COMMAND...: stdout and exit code with a page are those without
same() {
    local name=$1 with=0 without=0
    shift
    "$DCPKIT" "$@" >out.0 2>&1 || without=$?
    "$DCPKIT" "$@" --html "p/$name.html" >out.1 2>&1 || with=$?
    [ "$with" = "$without" ] || echo "$name: exit $with, without a page $without"
    diff out.0 out.1 || echo "$name: stdout changed"
}
umask 022
"$DCPKIT" convert --quiet --to fsdp_dtensor "$dense" one
"$DCPKIT" modify-state-dict --quiet --op 'remove word_embeddings' "$dense" two

same inspect inspect "$dense"
page inspect 'class="treemap"' 'title="moments, layer 3, mlp.linear_fc1.weight: exp_avg: ' 'bytes by rank and layer' '<tr><th>rank 3<td ' \
    'class="figures"' 'class="stack"' 'parameters</p>' 'class="map" open' 'rank 3' '__0_0.distcp' '<svg' 'linear_fc1' '</details>'
same stats inspect --stats --keys linear_fc1 "$dense"
page stats 'root mean square of masters' '<tr><th>mlp.<wbr>linear_fc1.<wbr>weight<td>' 'linear_fc1'
same check check "$dense"
page check 'class="badge good">ok' 'class="good">ok' 'loads in' '<strong>core 0.19</strong> loads' \
    '<strong>main since 2026-08-25</strong> with --no-load-rng' \
    'class="bad" title="common.pt is not there' '<strong>core 0.18</strong> does not load'
same equal compare-two-checkpoint "$dense" one
page equal 'class="stack"' 'class="badge good">equal' 'weights'
same compare compare-two-checkpoint "$dense" two
page compare 'class="badge bad">DIFFERENT' 'only in A' 'word_embeddings' 'class="num bad"'
"$DCPKIT" convert --to fsdp_dtensor --html p/convert.html --quiet "$dense" out
page convert 'torch_dist' 'fsdp_dtensor' 'embedding.<wbr>word_embeddings.<wbr>weight' 'replaced by its fp32 master' \
    'pipeline parallel</td><td class="key">2</td><td class="key">1</td>' 'ranks</td><td class="key">4</td><td class="key">2</td>'
[ "$(find p -type f | wc -l)" = 6 ] || ls p

# the ranks of a planned layout, which files do not show: with the layers of their stage alone, a half of each cut tensor
"$DCPKIT" convert --dry-run --to torch_dist --target-mesh tp=2,pp=2 --html p/plan.html "$dense" planned >/dev/null
page plan 'bytes by rank of one data-parallel replica, and layer' 'TP 2 · PP 2'
grep -o '<tr><th>pp .*' p/plan.html | sed 's/<tr><th>/ /; s/<td colspan="2">/, none, none/g; s/<td class="s[0-9]" title="\([^"]*\)">/, \1/g; s/<.*//'
rm p/plan.html

# so do chunks of a checkpoint in one file; SwiGLU's gate and up are each cut, as in Megatron's files of rank tp + 2 pp
"$DCPKIT" convert --quiet --to torch_dist --target-mesh tp=2,pp=2 "$dense" planned
"$DCPKIT" inspect --html p/mesh.html planned >/dev/null
page mesh 'layers: 0 to 4</text>' 'axis 1: 0 to 192</text>' 'pp 1 tp 1: 4 chunks</li>'
grep -o '<title>pp [^ ]* tp [^ ]* \[3:4, [^ ]* 0:64\] in' p/mesh.html | sort -u
grep -o '<tr><th>pp .*' p/mesh.html | sed 's/<tr><th>/ /; s/<td colspan="2">/, none, none/g; s/<td class="s[0-9]" title="\([^"]*\)">/, \1/g; s/<.*//'
# without the cuts nothing is said of ranks, nor of buckets, which parameters share
"$DCPKIT" convert --quiet --to torch_dist one uncut
"$DCPKIT" inspect --html p/mesh.html uncut >/dev/null
grep -c 'by rank' p/mesh.html
"$DCPKIT" convert --dry-run --to torch_dist --target-mesh tp=2,pp=2 --target-optimizer dp_reshardable --html p/mesh.html "$dense" new >/dev/null
grep -c 'by rank' p/mesh.html
rm -r p/mesh.html planned uncut

# a page may be asked for with --json as well; a path may hold what HTML means otherwise
mkdir '<b>&' && ln -s "$dense" '<b>&/<i>'
"$DCPKIT" inspect --json --html p/odd.html '<b>&/<i>' | jq -r .format
page odd '&lt;b&gt;&amp;/&lt;i&gt;'
! grep -qF '<b>' p/odd.html || echo "a path is markup"

# a page takes the place of one that is there, of no other file
"$DCPKIT" check --html p/odd.html "$dense" >/dev/null
page odd 'loads in'
printf '<!doctype html>\n<!-- mine -->\n%0100d\n' 0 >p/other

# where it cannot stand
cp -RL --no-preserve=mode "$dense" in
for command in inspect check "compare-two-checkpoint one"; do
    read -ra words <<<"$command"
    refuses "$command, not a page" 2 "'p/other' is not a page of dcpkit" "$DCPKIT" "${words[@]}" --html p/other in
    refuses "$command, into IN" 2 "in/iter_0000004/p.html' .*in" \
        "$DCPKIT" "${words[@]}" --html in/iter_0000004/p.html in
    refuses "$command, no folder" 4 "the page 'none/p.html' cannot be written" \
        "$DCPKIT" "${words[@]}" --html none/p.html in
done
refuses "convert, not a page" 2 "the page 'p/other' exists" \
    "$DCPKIT" convert --to fsdp_dtensor --html p/other in new
refuses "convert, into IN" 2 "in/p.html' .*in" "$DCPKIT" convert --to fsdp_dtensor --html in/p.html in new
refuses "convert, into OUT" 2 "the page 'new/p.html' would be inside the output" \
    "$DCPKIT" convert --to fsdp_dtensor --html new/p.html in new
refuses "convert, the report as well" 2 "two of the report, the page and the list of hashes are 'r'" \
    "$DCPKIT" convert --to fsdp_dtensor --html r --report r in new
"$DCPKIT" convert --quiet --to fsdp_dtensor --html p/odd.html in second
page odd 'fsdp_dtensor'
"$DCPKIT" convert --quiet --force --to fsdp_dtensor --html p/other in out
page_of_other=$(head -c 15 p/other) && [ "$page_of_other" = '<!doctype html>' ] && ! grep -q mine p/other ||
    echo "--force did not replace a file"

# a run that fails leaves no page
rm in/iter_0000004/__3_0.distcp
for command in "inspect --stats" "compare-two-checkpoint one" "convert --to fsdp_dtensor"; do
    read -ra words <<<"$command"
    out=
    [ "${words[0]}" != convert ] || out=new
    # shellcheck disable=SC2086 # out: none, or one word
    "$DCPKIT" "${words[@]}" --html p/failed.html in $out >/dev/null 2>&1 && echo "$command: passed"
    [ "$(find p -type f | wc -l)" = 8 ] || echo "$command: left $(ls p)"
done
