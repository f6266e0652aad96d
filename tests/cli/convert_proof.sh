#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_proof.sh - convert --verify, --hashes, --integrity: proven before it is published; what is recorded can be
# checked by others: PyTorch's hashes of the source, sha256sum.
name=torch_dist_c_dense_tp2pp2
sample=$SAMPLES/$name manifest=$SAMPLES/$name/MANIFEST.iter_0000004.json
"$DCPKIT" convert -v --verify --hashes hashes.json --integrity --to torch_dist --target-generation C --target-mesh tp=1 \
    --report report.json "$sample" out >said 2>said.err || echo "exit $?: $(cat said.err)"
sed -n 's/^  verified/verified/p' said
tr -d ' \n' <report.json | grep -oE '"verified":\{[^}]*"n_parameters":[0-9]+'
"$DCPKIT" hash --check hashes.json out

echo "as PyTorch hashed the source:"
"$DCPKIT" hash --check "$manifest" out
wanted=$(cd out/iter_0000004 && for file in .metadata __0_0.distcp metadata.json; do
    sha256sum "$file" | sed -E 's/^([0-9a-f]+)  (.*)/    "\2": "\1",/'
done)
printf '{\n  "algorithm": "sha256",\n  "files": {\n%s\n  }\n}' "${wanted%,}" | cmp - out/iter_0000004/integrity.json
"$DCPKIT" verify out >said || echo "verify: exit $?"
grep -E '^(integrity|verdict)' said

cp -r out same
printf '\n' >>same/iter_0000004/metadata.json # as good as before to a reader
answers_no "a byte more" "^integrity +FAILED +'metadata.json' has SHA-256.*1 of 3 files" "$DCPKIT" verify same
refuses "as an input" 3 "'metadata.json' has SHA-256" "$DCPKIT" convert --check-input --to fsdp_dtensor same other
cp -r out less
sed -i '/__0_0.distcp/d' less/iter_0000004/integrity.json
answers_no "a line less" "^integrity +FAILED +'__0_0.distcp' holds data and is not listed" "$DCPKIT" verify less
rm same/iter_0000004/metadata.json
sed -i 's/metadata.json/..\/..\/hashes.json/' same/iter_0000004/integrity.json
answers_no "a path out" "^integrity +FAILED +'../../hashes.json' is listed.*not a file of" "$DCPKIT" verify --from dcp same
cp out/iter_0000004/metadata.json same/iter_0000004
sed -i 's/"sha256"/"md5"/' same/iter_0000004/integrity.json
"$DCPKIT" verify --from dcp same >said 2>&1
echo "another algorithm: exit $?, $(grep -c "integrity *FAILED.*'md5' is not known" said)"

refuses "into an archive" 2 "is an archive" "$DCPKIT" convert --verify --to fsdp_dtensor "$sample" new.tar
refuses "of zarr" 2 "each tensor in a folder" "$DCPKIT" convert --integrity --to zarr "$sample" new
refuses "into no folder" 4 "list of hashes 'nowhere/h'" "$DCPKIT" convert --hashes nowhere/h --to zarr "$sample" new
"$DCPKIT" convert --dry-run --verify --hashes none --integrity --to fsdp_dtensor "$sample" new >/dev/null || echo "dry run: exit $?"
[ ! -e none ] && [ ! -e new ] || echo "a dry run wrote something"
