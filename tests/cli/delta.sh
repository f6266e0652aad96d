#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# delta.sh - what changed between two checkpoints on disk, and the second one again from the first and that.

# round LABEL BASE NEW: NEW comes back, file by file; prints the share of its bytes that differ from BASE.
round() {
    rm -rf delta again
    "$DCPKIT" diff --delta --json "$2" "$3" delta >counts.json || return
    "$DCPKIT" apply --json "$2" delta again >applied.json || return
    diff -r "$3" again && jq -s -r --arg name "$1" '
        if .[0].changed_bytes != .[1].changed_bytes or .[0].total_bytes != .[1].total_bytes then "other counts" else
        "\($name): \(.[0] | if .changed_bytes == 0 then "equal" elif .changed_bytes * 2 < .total_bytes then "less than half"
        else "more than half" end)" end' counts.json applied.json
}

# two iterations that follow each other, in each container
tiny=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 32 --seq-length 8 --vocab-size 64
    --micro-batch-size 1 --train-iters 2 --save-interval 1)
for format in torch_dist zarr; do
    "$DCPKIT" train "${tiny[@]}" --ckpt-format $format --save "$format" >train.log 2>&1
    round "$format, a step" "$format/iter_0000001" "$format/iter_0000002"
    [ "$(jq .delta_bytes counts.json)" -lt "$(jq .total_bytes counts.json)" ] || echo "not smaller"
done
round "the same" torch_dist/iter_0000002 torch_dist/iter_0000002
round "another format" torch_dist/iter_0000002 zarr/iter_0000002
round "Hugging Face" torch_dist/iter_0000002 "$SAMPLES/safetensors_qwen3"
tar -cf run.tar torch_dist
round "a base in an archive" run.tar torch_dist/iter_0000002

# bytes that moved: the first tensor grows, all others follow it in their files
sample torch_dist_c_dense_tp2pp2 run
"$DCPKIT" modify-state-dict --quiet --op 'cast ^decoder.final_layernorm float32' run moved
round "moved" run/iter_0000004 moved/iter_0000004

# files that are new, gone, empty, longer, shorter, in a folder
cp -r run/iter_0000004 next
rm next/metadata.json && mkdir next/tokenizer && echo words >next/tokenizer/vocab.json && : >next/empty
head -c 100000 /dev/urandom >>next/__0_0.distcp
round "files" run/iter_0000004 next
# a part of BASE that is not used may differ, files too
cp -r run/iter_0000004 base && echo other >base/metadata.json && echo other >base/more
rm -r again && "$DCPKIT" apply --quiet base delta again && diff -r next again && echo "an unused file of BASE differs: the same"

# threads and memory change no byte
cp -r delta one
for options in '--threads 1' '--threads 5 --memory 16M'; do
    # shellcheck disable=SC2086 # words of a command
    "$DCPKIT" delta --quiet --force $options run/iter_0000004 next delta && diff -r one delta
    # shellcheck disable=SC2086
    "$DCPKIT" apply --quiet --force $options run/iter_0000004 delta again && diff -r next again && echo "$options: the same"
done
"$DCPKIT" delta --dry-run run/iter_0000004 next nothing | head -n 1 | sed 's/:.*//'
"$DCPKIT" apply --dry-run run/iter_0000004 delta nothing | head -n 1 | sed 's/:.*//'

# what is refused
refuses "an output that exists" 2 "'delta' exists .*--force" "$DCPKIT" delta run/iter_0000004 next delta
refuses "two paths" 2 'missing|OUT' "$DCPKIT" diff --delta run/iter_0000004 next
refuses "OUT in NEW" 2 "next" "$DCPKIT" delta run/iter_0000004 next next/delta
refuses "OUT is BASE" 2 "run/iter_0000004" "$DCPKIT" apply --force run/iter_0000004 delta run/iter_0000004
refuses "OUT is DELTA" 2 "delta" "$DCPKIT" apply --force run/iter_0000004 delta delta
refuses "no delta" 3 "'next' is not a delta: it has no 'delta.index'" "$DCPKIT" apply run/iter_0000004 next out
refuses "another base" 3 "'moved/iter_0000004' is not the base of this delta: its file '.metadata' is not the same" \
    "$DCPKIT" apply moved delta out
rm base/__1_0.distcp
refuses "a base without a file" 3 "is not the base of this delta: it has no file '__1_0.distcp'" "$DCPKIT" apply base delta out
cp run/iter_0000004/__1_0.distcp base && "$MANGLE" flip base/__1_0.distcp 200000
refuses "a base with another byte" 3 "is not the base of this delta: its file '__1_0.distcp' differs from it in" "$DCPKIT" apply base delta out
mkdir -p next/a/b && echo deep >next/a/b/c
refuses "a file deeper than a folder" 3 "'a/b/c' is deeper than a folder" "$DCPKIT" delta run/iter_0000004 next out
rm -r next/a
echo secret >private && chmod 600 private && ln -s ../private next/linked
refuses "a link to a private file" 2 "'linked' is a link to a file that fewer users may read" "$DCPKIT" delta run/iter_0000004 next out
rm next/linked

# a killed run leaves nothing that looks whole, and the next one is not kept from its work
header='{"x":{"dtype":"U8","shape":[67108864],"data_offsets":[0,67108864]}}'
mkdir big bigger
for folder in big bigger; do
    printf '%b' "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0$header" >$folder/model.safetensors
    truncate -s $((8 + ${#header} + 67108864)) $folder/model.safetensors
done
echo end | dd of=bigger/model.safetensors bs=1 seek=50000000 conv=notrunc status=none
"$DCPKIT" delta --quiet big bigger changed && [ "$(du -sb changed | cut -f1)" -lt 50000 ] || echo "a large delta"
"$DCPKIT" apply --quiet --threads 1 big changed out &
while [ ! -e out.dcpkit-partial/model.safetensors ] && kill -0 $!; do :; done
{ kill -KILL $! && wait $!; } 2>/dev/null || echo "killed" # the shell reports a killed job at any moment
[ ! -e out ] || echo "it looks whole"
refuses "a partial output" 2 "'out.dcpkit-partial'.*--force" "$DCPKIT" apply big changed out
"$DCPKIT" apply --quiet --force big changed out && cmp bigger/model.safetensors out/model.safetensors && ls -d out*
rm -rf big bigger out

# hashes of blocks: those of a tensor with the same bytes
cat run/iter_0000004/__0_0.distcp run/iter_0000004/__1_0.distcp | head -c 1500000 >bytes
for at in 0 1048576; do
    tail -c +$((at + 1)) bytes | head -c 1048576 >block
    n=$(stat -c %s block)
    header=$(printf '{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' "$n" "$n")
    mkdir model
    { printf '%b' "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0$header" && cat block; } >model/model.safetensors
    "$DCPKIT" hash model | awk -v at=$at '$NF == "x" || $2 == "x" { print $1, at, "bytes" }' >>wanted
    rm -r model
done
cp -rL "$SAMPLES/safetensors_qwen3" model && cp bytes model
"$DCPKIT" hash --blocks model | awk '$3 == "bytes" { print $1, $2, $3 }' | diff wanted - && wc -l <wanted
refuses "blocks as JSON" 2 '--blocks is a list of its own' "$DCPKIT" hash --blocks --json model
