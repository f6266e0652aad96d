#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# remote.sh - checkpoints on a server, by S3 and by plain HTTP: the same as on disk, through pages of listings, busy answers and
# connections that are cut; what a server gets wrong is an error.
ldconfig -p | grep -q libcurl.so.4 || { echo "no libcurl"; exit 77; }
export NO_PROXY=127.0.0.1 AWS_REGION=eu-west-1

# serve SETTING...: start a server of $TMP, set $at.
n_servers=0
serve() {
    local port=$GOT/port$((++n_servers))
    "$SERVER" "$TMP" "$port" "$@" &
    trap 'kill $(jobs -p)' EXIT
    timeout 5 bash -c "until [ -e '$port' ]; do sleep 0.01; done"
    at=127.0.0.1:$(cat "$port")
    export AWS_ENDPOINT_URL=http://$at
}

sample torch_dist_a_dense_tp2pp2 run
sample safetensors_qwen3 "a model"
on_disk=$("$DCPKIT" hash --quiet run | sha256sum)
same() {
    [ "$("$DCPKIT" hash --quiet "$@" | sha256sum)" = "$on_disk" ] && echo "same tensors"
}

echo "== S3"
export AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=secret
serve s3 signed=me
same s3://bucket/run
same --iteration 4 s3://bucket/run/
same s3://bucket/run/iter_0000004
"$DCPKIT" inspect --quiet "s3://bucket/a model" | sed -n '1,2p'
"$DCPKIT" convert --quiet --to fsdp_dtensor s3://bucket/run "$GOT/converted" && "$DCPKIT" verify --quiet --against s3://bucket/run "$GOT/converted" | grep verdict
refuses "nothing there" 4 'lists no file there' "$DCPKIT" inspect s3://bucket/other
refuses "no such iteration" 4 'no file' "$DCPKIT" inspect --iteration 5 s3://bucket/run
refuses "no bucket" 2 'names no bucket' "$DCPKIT" inspect s3:///run
refuses "another key" 4 'HTTP status 403, AccessDenied\); keys are read from AWS_ACCESS_KEY_ID' env AWS_ACCESS_KEY_ID=you "$DCPKIT" inspect s3://bucket/run
refuses "no key" 4 'was not signed; keys are read' env -u AWS_ACCESS_KEY_ID "$DCPKIT" inspect s3://bucket/run
refuses "an output there" 3 'is an address' "$DCPKIT" convert --to zarr run s3://bucket/out
refuses "no bucket of that name" 4 'not there .*404, NoSuchBucket' "$DCPKIT" inspect s3://none/run
refuses "an endpoint without a scheme" 2 'begins with https' env AWS_ENDPOINT_URL="$at" "$DCPKIT" inspect s3://bucket/run
refuses "a port without a server" 4 'connect' env AWS_ENDPOINT_URL=http://127.0.0.1:1 "$DCPKIT" inspect s3://bucket/run

echo "== HTTP"
serve
same "http://$at/run"
same "http://$at/run/iter_0000004/"
"$DCPKIT" inspect --quiet "http://$at/a%20model" | grep ^format
refuses "a query" 2 "'\?' or '#' follows" "$DCPKIT" inspect "http://$at/run?x"
refuses "no folder" 4 'lists no file there' "$DCPKIT" inspect "http://$at/none"
same "http://$at/" # the one run

echo "== faults"
serve busy=2 cut=3
same "http://$at/run"
serve ranges=0
refuses "no ranges" 4 'not ranges' "$DCPKIT" hash "http://$at/run"
serve grown=1
refuses "changed" 4 'has changed since' "$DCPKIT" hash "http://$at/run"
serve replaced=6
refuses "replaced by one as long" 4 'has changed since' "$DCPKIT" hash "http://$at/run"
serve shifted=1
refuses "another range" 4 'other bytes than 0-' "$DCPKIT" inspect "http://$at/a%20model"
serve huge=1
refuses "no file is so long" 4 'does not send its length' "$DCPKIT" inspect "http://$at/a%20model"
serve s3 whole=0
refuses "a listing that is cut" 3 'goes on without a token' "$DCPKIT" inspect s3://bucket/run
refuses "a password" 2 'a user before' "$DCPKIT" inspect "http://me:word@$at/run"
