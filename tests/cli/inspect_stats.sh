#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inspect_stats.sh - statistics as numpy has them (float64), the same on any number of threads; the worst tensor first.
export COLUMNS=100 # as in a pipe without it
sample torch_dist_c_dense_tp2pp2 in
"$DCPKIT" inspect --stats -j 1 in >one
"$DCPKIT" inspect --stats -j 5 --memory 16M in | diff one -
# min, max, mean, norm to 12 digits: the last ones depend on the order of additions.
"$DCPKIT" inspect --stats --json in >one.json
jq -r '.tensors["optimizer.state.param.decoder.final_layernorm.weight"].stats |
    [.min, .max, .mean, .norm, .n_nan, .n_inf, .n_zero, .n_elems] | @tsv' one.json |
    awk '{printf "%.12g %.12g %.12g %.12g %d %d %d %d\n", $1, $2, $3, $4, $5, $6, $7, $8}'
[ "$(sed -n '/^statistics/,$p' one | grep -c '%')" -eq 36 ] || echo "not all tensors have a row"
tail -n 1 one
jq -c '.stats_totals' one.json
"$DCPKIT" inspect --json in | jq -c '[.stats_totals, (.tensors | map(has("stats")) | any)]'
"$DCPKIT" inspect --fail-nonfinite in >said && tail -n 1 said
[ "$(awk 'length > 100' one | wc -l)" -eq 0 ] || echo "a line is longer than 100 columns"

# poison KEY BYTES: over its first elements; the data begin 704 bytes behind the item (formats/torch/FORMAT.md 2).
poison() {
    read -r file at < <("$DCPKIT" inspect --json --chunks in | jq -r --arg key "$1" '.tensors[$key].chunks[0] | "\(.file) \(.offset_bytes)"')
    printf '%b' "$2" | dd of="in/iter_0000004/$file" bs=1 seek=$((at + 704)) conv=notrunc status=none
}
poison decoder.final_layernorm.weight '\xc0\x7f\xc0\x7f\x80\xff'
poison optimizer.state.exp_avg.decoder.final_layernorm.weight '\x00\x00\x80\x7f'
poison optimizer.state.exp_avg_sq.decoder.final_layernorm.weight "$(printf '\\x00%.0s' {1..256})"
status=0
"$DCPKIT" inspect --stats --fail-nonfinite in >said || status=$?
echo "exit $status"
sed -n '/^statistics/,$p' said | sed -n '2,6p;$p'
status=0
"$DCPKIT" inspect --fail-nonfinite --json in >said || status=$?
echo "exit $status $(jq -c .stats_totals said)"
"$DCPKIT" inspect --fail-nonfinite --keys '^optimizer\.state\.param\.' in | tail -n 1

# a page: the same figures of each layer whether layers share a tensor or not; what is not finite is in red
"$DCPKIT" inspect --stats --html bad.html in >/dev/null
grep -o 'class="badge bad">[^<]*' bad.html
grep -c '<td class="bad" title="[^"]*NaN or infinite ones left out">' bad.html
sample torch_dist_c_dense_tp2pp2 sound
"$DCPKIT" convert --quiet --to fsdp_dtensor sound fsdp
"$DCPKIT" inspect --stats --html stacked.html sound >/dev/null
"$DCPKIT" inspect --stats --html apart.html fsdp >/dev/null
for page in stacked apart; do
    sed 's/<wbr>//g; s/ class="s[0-9]"//g' "$page.html" |
        grep -E '^<tr><th>(mlp.linear_fc2|self_attention.linear_proj|embedding.word_embeddings).weight: exp' >"$page"
done
diff stacked apart
grep -c '<td title="[0-9.e-]*"><td title="[0-9.e-]*"><td title="[0-9.e-]*"><td title="[0-9.e-]*"></tr>' stacked
