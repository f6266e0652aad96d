#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# json_schemas.sh - every --json fits the schema of its command, a document with a fault does not, and tools/JSON.md
# says what the schemas say.
here=$TOOLS/../tests/cli
dense=$SAMPLES/torch_dist_c_dense_tp2pp2

# fits SCHEMA LABEL: the document on stdin; kept in document.json.
fits() {
    cat >document.json
    [ -s document.json ] || echo "$2: nothing was printed"
    jq -r --slurpfile schema "$here/schemas/$1.json" -f "$here/schema.jq" document.json | sort | uniq -c | sed "s|^|$2: |" | head -n 5
}

"$DCPKIT" convert --to fsdp_dtensor --verify --json "$dense" fsdp | fits convert convert
"$DCPKIT" convert --to fsdp_dtensor --resume --json "$dense" fsdp | fits convert "convert, complete"
"$DCPKIT" convert --to zarr --dry-run --json "$dense" zarr | fits convert "convert, to be"
"$DCPKIT" convert --to zarr --dry-run --ranks 3 --json "$dense" zarr | fits convert "convert, shares"
"$DCPKIT" convert --to torch_dist --quiet --report report.json fsdp back && fits convert report <report.json
"$DCPKIT" convert --to zarr --json "$dense" zarr.tar | fits convert "convert to an archive"
"$DCPKIT" merge --weights 0.5,0.5 --verify --json "$dense" fsdp sum | fits convert merge
"$DCPKIT" modify-state-dict --json --op 'cast ^model bfloat16' --op 'remove ^rng' fsdp modified | fits modify-state-dict modify
while IFS= read -r tracker; do
    folder=${tracker%/latest_checkpointed_iteration.txt}
    "$DCPKIT" inspect --json --chunks --stats "$folder" 2>/dev/null | fits inspect "inspect ${folder#"$SAMPLES"/}"
done < <(find -L "$SAMPLES" -name latest_checkpointed_iteration.txt | sort)
"$DCPKIT" inspect --json --keys weight "$SAMPLES/tiny_generations/torch_dist_0.8.0_torch2.1" | fits inspect "inspect, some keys"
"$DCPKIT" hash --json fsdp | tee hashes.json | fits hash hash
"$DCPKIT" convert --quiet --force --hashes listed.json --to fsdp_dtensor "$dense" fsdp && fits hash "convert --hashes" <listed.json
"$DCPKIT" hash --check hashes.json --json fsdp | fits hash-check "hash --check"
"$DCPKIT" hash --check hashes.json --json modified | fits hash-check "hash --check, other"
"$DCPKIT" hash --fingerprint --json fsdp | fits hash-fingerprint "hash --fingerprint"
"$DCPKIT" hash --files --json fsdp | fits hash-files "hash --files"
"$DCPKIT" diff --delta --json fsdp "$dense" changed | fits delta delta
"$DCPKIT" apply --json fsdp changed again | fits apply apply
"$DCPKIT" remap --json --from tp=2 --to fsdp=4 fsdp | fits remap remap
"$DCPKIT" remap --json --from tp=1 --to tp=1 --transport staged fsdp | fits remap "remap alone"
"$DCPKIT" verify --json fsdp | fits verify verify
"$DCPKIT" verify --json --against "$dense" fsdp | fits verify "verify --against"
"$DCPKIT" verify --json --against "$dense" modified | fits verify "verify --against, other"
"$DCPKIT" check --json fsdp | fits check check
"$DCPKIT" check --json --finite modified | fits check "check, lacking"
"$DCPKIT" check --json --loads-in transformers "$dense" 2>/dev/null | fits verify "check, transformers"
echo '{"iteration": 1, "loss": 5.5, "grad_norm": 1.5}' >run.jsonl
echo '{"iteration": 1, "loss": "NaN"}' >other.jsonl
"$DCPKIT" losscmp --json run.jsonl run.jsonl | fits losscmp losscmp
"$DCPKIT" losscmp --json run.jsonl other.jsonl | fits losscmp "losscmp, other"
tiny=(--num-layers 1 --hidden-size 8 --ffn-hidden-size 8 --num-attention-heads 1 --seq-length 4 --micro-batch-size 1 --train-iters 2)
"$DCPKIT" train --json "${tiny[@]}" | grep iteration | tail -n 1 | fits train train
"$DCPKIT" train --json --state-hash-interval 2 "${tiny[@]}" | sed -n 2p | fits train "train, without hash"
"$DCPKIT" train --json --note-times "${tiny[@]}" | grep seconds | fits train-times "train --note-times"
"$DCPKIT" train --json --explain-memory --explain-comm "${tiny[@]}" | fits train-explain "train --explain"
"$DCPKIT" train --json --explain-memory --explain-comm --sweep dp --device-memory 16M --link-rate 1 --use-megatron-fsdp --fsdp-double-buffer "${tiny[@]}" 2>/dev/null | fits train-explain "train --explain, all"
"$DCPKIT" doctor --json . | fits doctor doctor
"$DCPKIT" help knob --json num_layers | fits help-knob "help knob"
"$DCPKIT" help knob --json CUDA_DEVICE_MAX_CONNECTIONS | fits help-knob "help knob, variable"
"$DCPKIT" help knob --json use_nccl_ub | fits help-knob "help knob, rules"
"$DCPKIT" help knob --json | fits help-knobs "help knobs"
"$DCPKIT" card --json | fits card card
"$DCPKIT" migrate --json "$dense" | fits migrate "migrate, checkpoint"
"$DCPKIT" migrate --json --out migrated.sh "$TOOLS/deepseek_v3.sh" | fits migrate "migrate, command line"
"$DCPKIT" compare-two-checkpoint --json "$dense" fsdp | fits compare-two-checkpoint compare
"$DCPKIT" compare-two-checkpoint --json "$SAMPLES/torch_dist_b_dense_tp2pp2" fsdp | fits compare-two-checkpoint "compare, other"
"$DCPKIT" compare-two-checkpoint --json --args "$dense" fsdp | fits compare-two-checkpoint "compare --args"
"$DCPKIT" print-tensor --json fsdp 'model.module.decoder.final_layernorm.weight[0:2]' | fits print-tensor print-tensor
"$DCPKIT" print-tensor --json fsdp args | fits print-tensor-value "print-tensor args"
"$DCPKIT" print-tensor --json --npy x.npy fsdp model.module.decoder.final_layernorm.weight | fits print-tensor-npy "print-tensor --npy"

# a document with a fault is found out
damaged() {
    jq "$1" report.json | jq -r --slurpfile schema "$here/schemas/convert.json" -f "$here/schema.jq" /dev/stdin
}
damaged 'del(.input)'
damaged '.read_bytes = "many"'
damaged '.read_bytes = 1.5'
damaged '.version = 2'
damaged '.tensors[1].extra = 1'
damaged '.tensors[0].shape = ["x"]'
damaged '.tracker = 7'

# the page is what the schemas say
mark='<!-- made by tests/cli/schema_doc.jq -->'
for schema in "$here"/schemas/*.json; do
    jq -r -f "$here/schema_doc.jq" "$schema"
    echo
done >made
sed "1,\|^$mark\$|d" "$TOOLS/JSON.md" | diff - made >difference || echo "tools/JSON.md is not what the schemas say: $(head -n 4 difference)"
for command in $("$DCPKIT" --help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
    if "$DCPKIT" "$command" --help | grep -q -- '^ *--json ' && [[ $command != convert-* && $command != merge ]]; then
        [ -e "$here/schemas/$command.json" ] || echo "$command: its --json has no schema"
    fi
done
