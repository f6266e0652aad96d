#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_zarr.sh - a .zarray whose numbers overflow, chunks that swell, and what is no file in a chunk's place.
# zarray REGEX SHAPE CHUNKS [OTHER]: one array "w" of these.
zarray() {
    mkdir -p evil/w
    printf '{"sharded_backend": "zarr", "sharded_backend_version": 1}' >evil/metadata.json
    printf '{"zarr_format": 2, "dtype": "<f4", "order": "C", "filters": null, "fill_value": 0, "shape": %s, "chunks": %s, %s}' \
        "$1" "$2" "${3:-\"compressor\": null}" >evil/w/.zarray
}

zarray '[9223372036854775807, 9]' '[1, 9]'
attack "a shape past 2^63" 3 "'w/?|w/\.zarray" evil
zarray '[1e400]' '[1]'
attack "an infinite shape" 3 "w/\.zarray" evil
zarray '[NaN]' '[1]'
attack "a shape that is no number" 3 "w/\.zarray" evil
zarray '[-4]' '[2]'
attack "a negative shape" 3 "w/\.zarray" evil
zarray '[4]' '[0]'
attack "chunks of nothing" 3 "w/\.zarray|'w'" evil
zarray '[4]' '[2, 2]'
attack "more axes in chunks" 3 "w/\.zarray" evil
zarray '[1000000000000]' '[1]'
attack "10^12 chunks" 3 "'w'|w/" evil
zarray '[4]' '[4]' '"compressor": null, "shape": [8]'
attack "a key twice" 3 "w/" evil
zarray "$(head -c 50000 /dev/zero | tr '\0' '[')" '[4]'
attack "a shape 50000 deep" 3 "w/\.zarray" evil
zarray '[4]' '[4]' && mkfifo evil/w/0
attack "a pipe as a chunk" 4 "'w/0'.*not a plain file" evil
zarray '[4]' '[4]' && mkdir evil/w/0
attack "a folder as a chunk" 4 "'w/0'.*not a plain file" evil
zarray '[4]' '[4]' && head -c 15 /dev/zero >evil/w/0
attack "a chunk too short" 3 "'w/0'" evil
exit 0
