#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# print_npy.sh - elements as a .npy file: byte for byte what numpy.save writes of what torch reads.
sample=$SAMPLES/torch_dist_c_dense_tp2pp2
weight=decoder.layers.mlp.linear_fc2.weight
moment=optimizer.state.exp_avg.$weight
npy() { "$DCPKIT" print-tensor "$@" 2>err; }
command -v jq >/dev/null || exit 77

# SHA-256 of numpy.save (numpy 2.4) of the slices of what torch 2.11 loads, as float32.
while read -r sha key slice; do
    for program in "$DCPKIT" "${MANGLE%/*}/dcpkit_small_units"; do # the second one: blocks of 256 bytes
        "$program" print-tensor --force --cast --npy x.npy "$sample" "$key$slice" >said || echo "$key$slice: exit $?"
        [ "$(sha256sum <x.npy)" = "$sha  -" ] || echo "$key$slice: other bytes"
    done
done <<END
d3d4f9d88be5f19fe6dbf250fa38e33897feaeb5b7f41668bd32b56433d528ca $weight
7bb2c97b2a949ac3302ce79ba0ab47c31874f8bcec353ed9d1af2e7ae892b2ae $weight [0, 3:5, :8]
c7f6d37b6b7eea5c339bf9a25a32c7cb7905dcb7505d2ca0416a0936abee62d2 $weight [::-1, 90:10:-7, 1]
41b1ee3663ce11a7c02f3ce96fc2ef1f49b94a75f4a0056af6bea81334ef504d $weight [..., ::-1]
c32e910093042b0beade2789c343c380cfcd7d6b3c4db03cf2781fb9e10385be $weight [:, 1:1]
37cdffc041f26e99eb44295164f173fac703de718f13b9844b094129fe29a3e1 $weight [::2, ::65, ::-65]
cdeb7ddc6be0d1635c8b2b6197e6f5feb566ca09530b73bb19174d755a11f979 $weight [3, ::-3, 4:90:5]
fc20ccc1f112eab6ac4a62cf883e86b17494ff76d6cabf06e3dc6faac9d253e6 $moment
fe29a3b924edab1f9b956a333989f23bf61ccd14b135c0ab27782fc31904b20b $moment [::-1, 90:10:-7, 1]
b86ba86d0d447ff06e18732da62d7e2975db18dd5b3110ef0b54195023232ae8 $moment [::2, ::65, ::-65]
72b085f327dd5cd2a522005e8e05c756e137fde20aaf9510ee9a0ff954323f24 $moment [-1]
END
rm x.npy
# What numpy has not: the bits, and how to read them. Its header in full.
npy --npy w.npy "$sample" "${weight}[1, 2, :3]" && cat err
head -c 128 w.npy | tail -c +11
tail -c +129 w.npy | od -An -tx2
"$DCPKIT" print-tensor --json "$sample" "${weight}[1, 2, :3]" | jq -c .values
npy --npy s.npy --json "$sample" "${moment}[1, 2, 3]" | jq -c . && cat err
head -c 128 s.npy | tail -c +11
tail -c +129 s.npy | od -An -tf4
"$DCPKIT" print-tensor "$sample" "${moment}[1, 2, 3]" | tail -n 1

print() { "$DCPKIT" print-tensor "$@"; }
refuses "a file that is there" 2 "npy file 's.npy' exists .--force" print --npy s.npy "$sample" "$moment"
refuses "stdout" 2 "'-' is not one" print --npy - "$sample" "$moment"
refuses "an object" 2 "no tensor 'args' to write" print --npy new.npy "$sample" args
refuses "no folder" 4 "nowhere/new.npy" print --npy nowhere/new.npy "$sample" "$moment"
refuses "a bad slice" 2 'out of bounds' print --npy new.npy "$sample" "${moment}[9]"
cp -RL --no-preserve=mode "$sample" cut
for file in cut/iter_0000004/*.distcp; do truncate -s 200000 "$file"; done
refuses "data that is cut off" 3 'distcp' print --npy new.npy cut "$moment"
(
    ulimit -f 8 # KiB; the signal is ignored, so that writing fails
    trap '' XFSZ
    refuses "no space" 4 'new.npy' print --npy new.npy "$sample" "$moment"
)
