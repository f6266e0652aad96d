#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage.sh - command lines that make no sense: exit 2 and one line that says what to do.
sample=$SAMPLES/torch_dist_c_dense_tp2pp2
code=0
"$DCPKIT" 2>listed || code=$?
diff listed <("$DCPKIT" --help) && echo "no command: exit $code, and the help"
"$DCPKIT" help | head -n 1
diff <("$DCPKIT" help convert) <("$DCPKIT" convert --help)
for word in help --help -h; do
    diff <("$DCPKIT" --help) <("$DCPKIT" help $word)
done
refuses "help for nothing" 2 "unknown command 'nothing'" "$DCPKIT" help nothing
refuses "an empty IN" 2 'name of the input is empty' "$DCPKIT" convert --to zarr '' out
refuses "unknown target" 2 "'npz'; --to takes fsdp_dtensor, torch_dist, zarr, torch, huggingface, peft or dcp" "$DCPKIT" convert --to npz "$sample" out
refuses "a slip in a target" 2 "did you mean 'torch_dist'\\?" "$DCPKIT" convert --to torchdist "$sample" out
refuses "a slip in a target of merge" 2 "did you mean 'hf'\\?" "$DCPKIT" merge --to hff --weights 1,1 "$sample" "$sample" out
refuses "unknown command" 2 'konvert.*convert' "$DCPKIT" konvert a b
for command in convert inspect hash verify print-torch-dcp-in-json \
    convert-torch-dist-to-fsdp-dtensor; do
    refuses "$command, unknown option" 2 '--no-such' "$DCPKIT" $command --no-such a b
    [ $command != inspect ] || continue # the current folder, or several
    refuses "$command without arguments" 2 "$command" "$DCPKIT" $command
    [ $command != hash ] || continue # several
    refuses "$command, too many arguments" 2 "$command" "$DCPKIT" $command a b c d
done
for option in --json --check=list; do
    refuses "hash $option of several" 2 'take one DIR, not 2' "$DCPKIT" hash $option "$sample" "$sample"
done
"$DCPKIT" hash "$sample" >one
diff <("$DCPKIT" hash "$sample" "$sample/iter_0000004") <(echo "# $sample" && cat one && echo && echo "# $sample/iter_0000004" && cat one)
refuses "compare-two-checkpoint with one" 2 'missing' "$DCPKIT" compare-two-checkpoint "$sample"
refuses "threads 0" 2 'threads' "$DCPKIT" hash --threads 0 "$sample"
refuses "threads many" 2 'threads' "$DCPKIT" hash --threads many "$sample"
refuses "memory -1" 2 'memory' "$DCPKIT" hash --memory -1 "$sample"
refuses "memory 99999999T" 2 'memory' "$DCPKIT" hash --memory 99999999T "$sample"
refuses "unknown format" 2 'no_such_format' "$DCPKIT" hash --from no_such_format "$sample"
refuses "memory below the least" 2 "memory '64' is too small: the minimum is 16M" "$DCPKIT" hash --memory 64 "$sample"
refuses "a slip in an option" 2 "'--dryrun'; did you mean '--dry-run'" "$DCPKIT" convert --dryrun "$sample" out
refuses "an ambiguous option" 2 "'--target'; did you mean '--target-" "$DCPKIT" convert --target x "$sample" out
refuses "a slip in a command" 2 "did you mean 'inspect'\\?" "$DCPKIT" insepct "$sample"
for option in --report --hashes --param-to-param-group-map-json; do
    refuses "$option -" 2 "$option takes the name of a file; '-' is not one" \
        "$DCPKIT" convert --to fsdp_dtensor $option - "$sample" out
done
refuses "--output -" 2 "'-' is not one" "$DCPKIT" print-torch-dcp-in-json -o - "$sample"
refuses "--check -" 2 "'-' is not one" "$DCPKIT" hash --check - "$sample"
refuses "weights-only of nothing" 2 'are for --against' "$DCPKIT" verify --weights-only "$sample"
refuses "a vocabulary of nothing" 2 'are for --against' "$DCPKIT" verify --vocab-size 9 "$sample"
for option in "--output-model-weight-prefix m" "--output-optimizer-state-prefix o" --like-megatron-inspector; do
    # shellcheck disable=SC2086 # an option with its argument
    refuses "${option%% *} for zarr" 2 "${option%% *} is for --to fsdp_dtensor, not for zarr" "$DCPKIT" convert --to zarr $option "$sample" out
done
refuses "a map that is not there" 4 "reading the parameter group map: 'nowhere'" \
    "$DCPKIT" convert --to fsdp_dtensor --param-to-param-group-map-json nowhere "$sample" out
