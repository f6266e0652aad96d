#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify_against.sh - the proof of a conversion fails where one byte, one key or the source is another.
sample torch_dist_c_dense_tp2pp2 in
"$DCPKIT" convert --to fsdp_dtensor in out >said 2>&1 || echo "exit $?: $(cat said)"
"$DCPKIT" verify --against in out >said 2>&1 || echo "exit $?: $(cat said)"
tail -n 1 said

answers_no "another training run" 'against.*FAILED' \
    "$DCPKIT" verify --against "$SAMPLES/torch_dist_b_dense_tp2pp2" out
"$DCPKIT" verify --against "$SAMPLES/torch_dist_b_dense_tp2pp2" out 2>&1 >said |
    sed -nE 's/^dcpkit: verify: note: (difference|[0-9]+ more;).*/\1/p' | uniq -c | sed 's/^ *//; s/[0-9]* more;/N more/'
"$DCPKIT" verify --json --against "$SAMPLES/torch_dist_b_dense_tp2pp2" out 2>said >json.txt
listed=$(sed -n '/"differences": \[/,/\]/p' json.txt | grep -c '^    "')
echo "listed in JSON: $((listed == $(sed -nE 's/.*"n_differences": ([0-9]+),/\1/p' json.txt) && listed > 20))"
cat said
cp -r out flipped
# A byte in the middle of the data of the largest tensor; its CRC tells too.
"$MANGLE" flip flipped/iter_0000004/__0_0.distcp 1000000
answers_no "one byte" 'against.*FAILED' "$DCPKIT" verify --against in flipped
# The step of one parameter, which belongs to its group: four bytes, 704 into its item.
sample fsdp_dtensor_native_dp2 stepped
at=$("$DCPKIT" inspect --chunks --keys 'final_layernorm.weight.step$' stepped 2>/dev/null | sed -nE 's/.*__1_0.distcp\t([0-9]+)\t.*/\1/p')
"$MANGLE" flip stepped/iter_0000004/__1_0.distcp $((at + 706))
"$MANGLE" seal stepped/iter_0000004/__1_0.distcp
answers_no "one step" 'against.*FAILED  1 differences.*final_layernorm.weight.: .step. of its parameter group' \
    "$DCPKIT" verify --against "$SAMPLES/fsdp_dtensor_native_dp2" stepped
cp -r out renamed
"$MANGLE" replace renamed/iter_0000004/.metadata layers.3.mlp.linear_fc2.weight \
    layers.3.mlp.linear_fc9.weight
answers_no "one parameter's name" 'against.*FAILED.*layers\.3\.mlp\.linear_fc[29]' \
    "$DCPKIT" verify --against in renamed

"$DCPKIT" modify-state-dict --op 'remove param_to_group_meta' out groupless >said 2>&1 || cat said
answers_no "no parameter group" 'against.*FAILED.*groups of the optimizer are only in the source' \
    "$DCPKIT" verify --against in groupless

# Another padding: 256 rows for 255 tokens become 400, 255, and 400 again; row 255 holds more than zeros.
convert_vocab() {
    "$DCPKIT" convert -v --to torch_dist --target-mesh tp="$1" --make-vocab-size-divisible-by "$2" "${@:3}" >said 2>&1 ||
        cat said
}
against() { "$DCPKIT" verify --against "$@" 2>said | grep -oE 'against     ok|[0-9]+ rows of the vocab.*' || cat said; }
convert_vocab 4 100 in more
convert_vocab 1 1 in fewer
convert_vocab 4 100 fewer again
against in more
against in fewer
against more fewer
against fewer again
answers_no "a padding that is not zero" 'elements of the weight differ, the first is number 16320$' \
    "$DCPKIT" verify --against fewer more
answers_no "a row of a token cut" 'the vocabulary has 255 rows for 256 tokens$' \
    "$DCPKIT" verify --vocab-size 256 --against in fewer
answers_no "fewer tokens than args say" '250 would cut into the 255 tokens' \
    "$DCPKIT" verify --vocab-size 250 --against in fewer
# Without args nobody says how many tokens there are.
sample fsdp_dtensor_telike_dp2_015 nameless
convert_vocab 1 100 --vocab-size 200 nameless/iter_0000004 named
grep -c '^    2 x embedding.word_embeddings.weight\[200:256\], ...: padding' said
answers_no "tokens not known" '56 of 256 rows of the vocabulary are missing.* gives the number of tokens$' \
    "$DCPKIT" verify --against nameless/iter_0000004 named
against nameless/iter_0000004 named --vocab-size 200
refuses "no source" 4 'nowhere' "$DCPKIT" verify --against nowhere out
