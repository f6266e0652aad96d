#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# safetensors.sh - Hugging Face's folders and files: looked at, changed, refused.
modify() { "$DCPKIT" modify-state-dict "$@"; }
hashes() { "$DCPKIT" hash "$1" | grep -v 'the whole'; }
sample safetensors_qwen3 model
sample safetensors_dtypes zoo

"$DCPKIT" inspect model | sed -n '2,3p;/^tensors  /p'
"$DCPKIT" print-tensor zoo 'i64[1, :2]'
"$DCPKIT" verify zoo | tail -n 1
# A file by its own path is what its folder is.
diff <(hashes zoo) <(hashes zoo/model.safetensors) && echo "file: the same"
"$DCPKIT" compare-two-checkpoint zoo zoo/model.safetensors | tail -n 1

# Names change; bytes do not. OUT is the folder itself, and the rest is carried over.
modify --op 'rename ^model\. m.' model out
find out -type f | LC_ALL=C sort
cmp model/config.json out/config.json
diff <(hashes model | sed 's/  model\./  m./' | LC_ALL=C sort) <(hashes out | LC_ALL=C sort) && echo "modify: the same bytes"
modify --op 'rename ^m\. model.' out back >said
"$DCPKIT" compare-two-checkpoint --strict model back | tail -n 1
modify --resume --op 'rename ^m\. model.' out back | head -n 1
modify --op 'cast h float32' --op 'remove ^i' zoo/model.safetensors wide.tar | tail -n 1
"$DCPKIT" inspect wide.tar | grep -E '^  (h|i64) '
refuses "modify: OUT exists" 2 "out' exists \(--force replaces it\)" modify --op 'rename a b' model out

refuses "convert" 3 "there is no config.json" "$DCPKIT" convert --to torch_dist zoo run
truncate -s -1 back/model.safetensors
refuses "cut short" 3 "'lm_head.weight' ends at byte .* \(is the file truncated\?\)|is the file truncated" "$DCPKIT" inspect back
rm model/model-00002-of-00003.safetensors
refuses "a missing file" 4 "model-00002-of-00003.safetensors" "$DCPKIT" inspect model
rm model/model.safetensors.index.json
refuses "a missing index" 3 "lost their model.safetensors.index.json" "$DCPKIT" inspect model
printf 'too few' >short.safetensors
refuses "no header" 3 "too few for a header" "$DCPKIT" hash short.safetensors
printf '\x01\xe1\xf5\x05\0\0\0\0{' >wide.safetensors && truncate -s 100000100 wide.safetensors
refuses "a header of 100 MB" 3 "its header has 100000001 bytes, the limit is 100000000" "$DCPKIT" hash wide.safetensors
mkfifo pipe.safetensors
refuses "a pipe" 4 "plain file|not a folder" timeout 10 "$DCPKIT" hash pipe.safetensors

# What the writer of a file noted in it is carried over.
header='{"__metadata__": {"format": "mlx", "rank": "8"}, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}  '
printf '%b%sx' "\\x$(printf %x ${#header})\0\0\0\0\0\0\0" "$header" >noted.safetensors
modify --op 'rename a b' noted.safetensors noted >said && grep -ao '{"__metadata__": {[^}]*}' noted/model.safetensors
