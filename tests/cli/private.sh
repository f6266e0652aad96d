#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# private.sh - what is made of a checkpoint is read by no more people than that is; links in it are followed, but not to
# what fewer may read; a folder of links, and one that a link leads to, work as any other.
umask 022
sample torch_dist_b_dense_tp2pp2 in # 0644 in 0755
# modes PATH: of a folder and its files, each once.
modes() { find "$1" -printf '%y %m\n' | sort -u | tr '\n' ';'; }
# made LABEL IN: the modes of what each command makes of IN, and of an archive.
made() {
    rm -rf out*
    "$DCPKIT" convert --quiet --to zarr "$2" out && echo "$1, zarr: $(modes out/iter_0000004)"
    "$DCPKIT" convert --quiet --report out.report --to fsdp_dtensor "$2" out.tar &&
        echo "$1, archive and report: $(stat -c %a out.tar out.report | tr '\n' ' ')"
    "$DCPKIT" modify-state-dict --quiet --op 'cast ^output_layer.weight float32' "$2" out.cast &&
        echo "$1, cast: $(modes out.cast/iter_0000004)"
    "$DCPKIT" print-tensor --cast --npy out.npy "$2" output_layer.weight >said &&
        echo "$1, npy: $(stat -c %a out.npy)"
}
made plain in
chmod 600 in/iter_0000004/__0_0.distcp && made "one file of 600" in
chmod 640 in/iter_0000004/__0_0.distcp && made "one file of 640" in
chmod 644 in/iter_0000004/__0_0.distcp && chmod 700 in/iter_0000004 && made "a folder of 700" in
chmod 755 in/iter_0000004
tar -cf in.tar -C in iter_0000004 && chmod 600 in.tar && made "an archive of 600" in.tar
gzip -k in.tar && chmod 640 in.tar.gz && made "a packed archive of 640" in.tar.gz
(umask 077 && made "umask 077" in)

# Links to the files, as caches and staging folders have them: everything comes along.
mkdir -p cache/blobs cache/snapshots/iter_0000004
for file in in/iter_0000004/*; do
    cp "$file" "cache/blobs/${file##*/}.blob"
    ln -s "../../blobs/${file##*/}.blob" "cache/snapshots/iter_0000004/${file##*/}"
done
cp in/iter_0000004/.metadata cache/blobs/m && ln -s ../../blobs/m cache/snapshots/iter_0000004/.metadata
echo '{}' >cache/blobs/t && ln -s ../../blobs/t cache/snapshots/iter_0000004/tokenizer.json
ln -s cache/snapshots/iter_0000004 reached
for from in cache/snapshots/iter_0000004 reached; do
    rm -rf out
    "$DCPKIT" modify-state-dict --quiet --op 'rename ^output_layer head' $from out/iter_0000004 || echo "exit $?"
    find out/iter_0000004 | sort | tr '\n' ' ' && modes out/iter_0000004 && echo
    "$DCPKIT" convert --quiet --to zarr $from out2 || echo "exit $?"
    rm -rf out2
done
# ... to data that only this user reads as well
chmod 600 cache/blobs/* && made "a cache of 600" cache/snapshots/iter_0000004
chmod 644 cache/blobs/*

# A link to what fewer may read, in a folder of others: named, and left behind.
echo secret >secret && mkdir -m 700 closed && echo secret >closed/vocab.json && chmod 600 secret
ln -s ../../secret in/iter_0000004/notes.txt
ln -s ../../secret in/iter_0000004/run_config.yaml
ln -s ../../closed in/iter_0000004/tokenizer
for out in out out.tar; do
    rm -rf out out.tar
    "$DCPKIT" modify-state-dict --op 'rename ^output_layer head' in $out 2>&1 | grep note
    grep -rl secret out* || stat -c "$out of modify: %a" $out
    rm -rf out out.tar
    "$DCPKIT" convert --to fsdp_dtensor in $out >said 2>&1
    grep -c 'not copied: it links to a file' said
    grep -rl secret out* || stat -c "$out of convert: %a" $out
done

# Private by a folder on its way: a home of mode 0700 with a file of 0644, by one link, by links through folders, by
# /proc, by a folder that is a link; a file of a group that the folder's is not.
rm -rf in/iter_0000004/{notes.txt,run_config.yaml,tokenizer}
mkdir -m 700 home && mkdir home/tok between && echo secret >home/notes.txt && echo secret >home/tok/vocab.json
ln -s ../home between/far && ln -s far/notes.txt between/near
echo secret >group && chmod 640 group && { chgrp 4242 group 2>"$GOT/no" || chmod 600 group; }
mkdir in/iter_0000004/tokenizer
# left LINK TARGET: a link to TARGET is left behind by both.
left() {
    local link=in/iter_0000004/$1
    ln -s "$2" "$link"
    rm -rf out out2
    "$DCPKIT" modify-state-dict --op 'rename ^output_layer head' in out >said 2>&1
    "$DCPKIT" convert --to fsdp_dtensor in out2 >>said 2>&1
    echo "$1 -> $2: $(grep -c "'$1' is not copied: it links to a file" said) $(grep -rl secret out out2)"
    stat -c "%n %a" out/iter_0000004 out2/iter_0000004
    rm "$link"
}
left run_config.yaml ../../home/notes.txt
left run_config.yaml ../../between/near
left run_config.yaml /proc/self/cwd/home/notes.txt
left run_config.yaml ../../group
left tokenizer/vocab.json ../../../home/tok/vocab.json
rmdir in/iter_0000004/tokenizer
left tokenizer ../../home/tok
# ... as assets of --hf-assets
mkdir assets && echo '{}' >assets/tokenizer.json && ln -s ../between/near assets/vocab.json
sample safetensors_qwen3 model && "$DCPKIT" convert --quiet --to torch_dist model run
refuses "assets by a private folder" 2 "'vocab.json' links to a file that fewer users may read" \
    "$DCPKIT" convert --to huggingface --hf-assets assets run hf
# All of it in the home: it comes along to an output there, and not to one that others may enter.
mv in home/in && mkdir home/blobs && echo '{}' >home/blobs/b && ln -s ../../blobs/b home/in/iter_0000004/run_config.yaml
for out in home/out out; do
    rm -rf out
    "$DCPKIT" convert --to zarr home/in $out >said 2>&1
    echo "$out: $(find $out -name run_config.yaml -printf 'mode %m, ')$(grep -c 'not copied: it links to a file' said) left"
done
# Data is followed, and hides the output.
mkdir staged && for file in home/in/iter_0000004/*.* home/in/iter_0000004/.metadata; do ln -s "../$file" staged; done
rm staged/run_config.yaml && "$DCPKIT" convert --quiet --to zarr staged out3 && stat -c "of data in a home: %a" out3/iter_0000004
