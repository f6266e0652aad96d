#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# browser.sh - the pages of --html in a real browser, headless: each on a phone and on a desk, light and dark.
#
#   browser.sh DCPKIT SAMPLES FOLDER
#
# Checks: no message on the console, nothing wider than the window with every part unfolded, the colours that the
# reader prefers; search, sorting and keys to copy. Screenshots stay in FOLDER, for a person to look at. Exit 77 where
# there is no browser.
set -euo pipefail
export LC_ALL=C

if [ $# -ne 3 ]; then
    echo "usage: browser.sh DCPKIT SAMPLES FOLDER" >&2
    exit 2
fi
dcpkit=$(realpath "$1")
samples=$(realpath "$2")
mkdir -p "$3"
folder=$(realpath "$3")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "browser.sh: no chromium or google-chrome: the pages of --html are not looked at"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# browse SCHEME WIDTH HEIGHT ARGUMENT... : scheme 0: dark, 1: light. The page and its frame are files of one folder,
# which only this browser may let look into each other. Its own sandbox needs what containers do not have.
browse() {
    local scheme=$1 width=$2 height=$3
    shift 3
    HOME=$work timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --disable-dev-shm-usage --user-data-dir="$work/profile" --allow-file-access-from-files \
        --blink-settings=preferredColorScheme="$scheme" --enable-logging=stderr \
        --window-size="$width,$height" "$@" 2>"$work/log"
}

# A window cannot be as narrow as a phone, a frame can. It unfolds all, and writes down what it measures. Then it
# does what a reader does, and counts what does not come of it.
frame() {
    cat <<EOF
<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>body{margin:0}iframe{display:block;border:0;width:$2px;height:$3px}</style>
<iframe src="$1.html"></iframe><pre id="measured"></pre>
<script>
onload = () => {
    const page = frames[0].document, root = page.documentElement;
    const paint = frames[0].getComputedStyle(page.body);
    const folded = root.scrollWidth;
    for (const part of page.querySelectorAll('details')) part.open = true;
    const light = colour => colour.match(/\d+/g).slice(0, 3).reduce((sum, c) => sum + Number(c), 0) / 3;
    const cut = [...page.querySelectorAll('dd, h1, h2, p, li, .name')].filter(e => e.scrollWidth > e.clientWidth + 1);
    let wrong = 0;
    const expect = (is, text) => { if (!is) { wrong++; console.log(text); } };
    const find = page.querySelector('input[type=search]');
    const rows = [...page.querySelectorAll('tbody tr, .leaf, .list li')].filter(row => !row.closest('.grid'));
    const search = text => {
        find.value = text;
        find.dispatchEvent(new Event('input'));
        return rows.filter(row => row.getClientRects().length > 0);
    };
    expect(find || rows.length < 8, 'no search');
    if (find) {
        const all = search('').length, some = search('weight');
        expect(some.length > 0 || '$1' == 'losscmp' || '$1' == 'check', 'nothing found');
        expect(some.length <= all, 'found more than there is');
        expect(search('no such key').length == 0, 'found what is not there');
        expect(search('').length == all, 'the rows are not back');
    }
    for (const title of page.querySelectorAll('th.num')) {
        const column = [...title.parentElement.children].indexOf(title);
        const numbers = () => [...title.closest('table').tBodies[0].rows]
            .map(row => row.cells[column].textContent).map(Number).filter(number => !isNaN(number));
        title.click();
        expect(numbers().every((n, i, all) => i == 0 || all[i - 1] >= n), 'not sorted');
        title.click();
        expect(numbers().every((n, i, all) => i == 0 || all[i - 1] <= n), 'not sorted upwards');
    }
    const keys = page.querySelectorAll('.leaf .name, td.key').length;
    expect([...page.querySelectorAll('[title=copy]')].length == keys, 'keys that are not to be copied');
    measured.textContent = ['measured', folded, root.scrollWidth, Math.round(light(paint.backgroundColor)),
        Math.round(light(paint.color)), cut.length, page.body.innerText.length, wrong].join(' ');
};
</script>
EOF
}

# look NAME WIDTH HEIGHT SCHEME
look() {
    local name=$1 width=$2 height=$3 scheme=$4 shot line words contrast
    local schemes=(dark light)
    shot=$folder/$name-$width-${schemes[scheme]}.png
    frame "$name" "$width" "$height" >"$folder/frame.html"
    line=$(browse "$scheme" "$width" "$height" --dump-dom "file://$folder/frame.html" | grep -o 'measured [0-9 ]*') || line=
    read -ra words <<<"$line"
    if [ "${#words[@]}" -ne 8 ]; then
        echo "$name, $width, ${schemes[scheme]}: not measured: '$line'; $(grep -i console "$work/log" | head -n 3)"
        failed=1
        return
    fi
    if [ "${words[7]}" -ne 0 ] || grep -i ':CONSOLE' "$work/log"; then
        echo "$name, $width, ${schemes[scheme]}: the console has messages"
        failed=1
    fi
    if [ "${words[1]}" -gt "$width" ] || [ "${words[2]}" -gt "$width" ] || [ "${words[5]}" -ne 0 ]; then
        echo "$name, $width: ${words[1]} wide, unfolded ${words[2]}; ${words[5]} texts are cut off"
        failed=1
    fi
    contrast=$((scheme == 1 ? words[3] - words[4] : words[4] - words[3]))
    if [ "$contrast" -lt 120 ]; then
        echo "$name, ${schemes[scheme]}: ground ${words[3]}, text ${words[4]} of 255"
        failed=1
    fi
    [ "${words[6]}" -gt 200 ] || { echo "$name: nearly empty" && failed=1; }
    # the picture: as it opens, the top of it
    sed -i '/^<script>/,/^<.script>/d' "$folder/frame.html"
    browse "$scheme" "$width" "$height" --screenshot="$shot" "file://$folder/frame.html"
    [ -s "$shot" ] || { echo "$name: no screenshot" && failed=1; }
}

dense=$samples/torch_dist_c_dense_tp2pp2
moe=$samples/torch_dist_c_moe_ep2pp2
rm -f "$folder"/*.html "$folder"/*.png
rm -rf "$work/out"
"$dcpkit" inspect --stats --html "$folder/inspect.html" "$moe" >/dev/null
"$dcpkit" convert --quiet --dry-run --to torch_dist --target-mesh tp=2,pp=2,dp=2 --html "$folder/plan.html" "$moe" \
    "$work/planned" >/dev/null
"$dcpkit" convert --quiet --to torch_dist --target-mesh tp=4,pp=2 "$dense" "$work/mesh"
"$dcpkit" inspect --html "$folder/mesh.html" "$work/mesh" >/dev/null
"$dcpkit" check --html "$folder/check.html" "$dense" >/dev/null
"$dcpkit" convert --quiet --to fsdp_dtensor --html "$folder/convert.html" "$dense" "$work/out"
"$dcpkit" compare-two-checkpoint --html "$folder/equal.html" "$dense" "$work/out" >/dev/null
"$dcpkit" compare-two-checkpoint --html "$folder/compare.html" "$dense" \
    "$samples/torch_dist_b_dense_tp2pp2" >/dev/null || [ $? -eq 1 ]
tiny=(train --config "$(dirname "${BASH_SOURCE[0]}")/../../tools/train_tiny.json" --json)
"$dcpkit" "${tiny[@]}" --html "$folder/train.html" >"$work/a.jsonl"
"$dcpkit" "${tiny[@]}" optimizer.lr=0.02 >"$work/b.jsonl"
"$dcpkit" losscmp --html "$folder/losscmp.html" "$work/a.jsonl" "$work/b.jsonl" >/dev/null || [ $? -eq 1 ]
n=0
for page in inspect mesh plan check convert equal compare losscmp train; do
    for scheme in 0 1; do
        look "$page" 400 2400 "$scheme"
        look "$page" 1400 2000 "$scheme"
        n=$((n + 2))
    done
done
rm -f "$folder/frame.html"
[ "$failed" -eq 0 ] || exit 1
echo "$n views of 9 pages, by $("$browser" --version 2>/dev/null | head -n 1); screenshots in $folder"
