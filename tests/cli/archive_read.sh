#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# archive_read.sh - a checkpoint packed by GNU tar, gzip, zstd or Info-ZIP reads like its folder.
if "$DCPKIT" --version | grep -q 'not built in.*libarchive'; then
    echo "built without libarchive"
    exit 77
fi
for tool in tar gzip zstd zip; do
    command -v $tool >/dev/null || {
        echo "no $tool"
        exit 77
    }
done

# packs NAME: the sample as archives of each kind; plain ones are read in place. Of a copy: tar fails where a test
# beside this one links a file that it reads (its time of change is another then).
packs() {
    local format
    mkdir from && sample "$1" "from/$1"
    for format in gnu pax ustar; do
        tar -C from --format=$format -cf $format.tar "$1"
    done
    tar -C "from/$1" -cf root.tar .
    gzip -k -1 gnu.tar
    zstd -q -k -1 gnu.tar
    (cd from && zip -q -r -0 "$TMP/stored.zip" "$1" && zip -q -r -1 "$TMP/packed.zip" "$1")
    rm -r from
}

for name in torch_dist_a_dense_tp2pp2 torch_dist_b_dense_tp2pp2 \
    torch_dist_c_moe_ep2pp2 torch_dist_c_dp_reshardable_tp2dp2 fsdp_dtensor_native_dp2 \
    fsdp_dtensor_converted_by_megatron zarr_dense_tp2dp2; do
    packs $name
    "$DCPKIT" hash "$SAMPLES/$name" >want
    [ -s want ] || echo "$name: no hashes"
    for file in *.tar *.gz *.zst *.zip; do
        "$DCPKIT" hash "$file" >got 2>said || echo "$name, $file: hash: exit $?: $(cat said)"
        diff -q want got >/dev/null || echo "$name, $file: other hashes"
        "$DCPKIT" verify "$file" >said 2>notes || echo "$name, $file: verify: exit $?: $(cat said notes)"
        unpacked=$(grep -c 'unpacked once' notes)
        case $file in
        *.gz | *.zst | packed.zip) [ "$unpacked" = 1 ] || echo "$name, $file: no note of unpacking" ;;
        *) [ "$unpacked" = 0 ] || echo "$name, $file: unpacked, though it lies plainly" ;;
        esac
    done
    echo "$name: read from $(echo *.tar *.gz *.zst *.zip)"
    rm -f -- *.tar *.gz *.zst *.zip
done

name=torch_dist_b_dense_tp2pp2
packs $name
"$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/$name" want_out >said 2>&1 || cat said
for file in gnu.tar gnu.tar.gz stored.zip packed.zip; do
    "$DCPKIT" convert --to fsdp_dtensor $file out >said 2>&1 || echo "convert $file: $(cat said)"
    diff -r want_out out && echo "convert $file: as from the folder"
    "$DCPKIT" verify --against $file out >said 2>&1 || echo "verify against $file: $(cat said)"
    rm -rf out
done
sample ${name}_p2g && tar -cf map.tar ${name}_p2g && rm -r ${name}_p2g
refuses "a file beside the archive's content" 2 "in an archive.*--output" \
    "$DCPKIT" print-torch-dcp-in-json map.tar
"$DCPKIT" print-torch-dcp-in-json "$SAMPLES/${name}_p2g" --output want.json >want
"$DCPKIT" print-torch-dcp-in-json map.tar --output got.json >got
cmp <(head -n 1 want) <(head -n 1 got) && cmp want.json got.json && echo "print-torch-dcp-in-json: as from the folder"
"$DCPKIT" inspect gnu.tar | head -n 1
"$DCPKIT" inspect root.tar | head -n 1
