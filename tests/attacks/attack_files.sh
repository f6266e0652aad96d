#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_files.sh - names that lead out, pipes, devices and loops in place of files; trackers and JSON that lie.
tiny=tiny_generations/torch_dist_main_torch2.11

# evil: a fresh copy of the sample, to be damaged.
evil() {
    rm -rf evil
    sample $tiny evil
}

evil && "$MANGLE" replace evil/.metadata '\x0c__0_0.distcp' '\x09.metadata' 1
attack "metadata names itself" 3 "tp\.weight|\.metadata" evil
evil && rm evil/__0_0.distcp && mkfifo evil/__0_0.distcp
attack "a pipe as data" 3 "'__0_0\.distcp'.*not a plain file" evil
evil && rm evil/.metadata && mkfifo evil/.metadata
attack "a pipe as .metadata" 4 "not a plain file" evil
evil && ln -sf /dev/zero evil/__0_0.distcp
attack "a device as data" 3 "'__0_0\.distcp'.*not a plain file" evil
evil && ln -sf __0_0.distcp evil/__0_0.distcp
attack "a link to itself" 4 "__0_0\.distcp.*symbolic links" evil
evil && ln -sf . evil/deep && "$MANGLE" replace evil/.metadata '\x0c__0_0.distcp' '\x0cdeep/../a/bc' 1
attack "a climb through a link" 3 "'deep/\.\./a/bc' leaves" evil
long=$(printf '%0300d' 0)
evil && "$MANGLE" replace evil/.metadata '\x8c\x0c__0_0.distcp' "X\\x2c\\x01\\x00\\x00$long" 1
attack "a name of 300 bytes" 3 "file name '0000.* has 300 bytes" evil
long=$(printf '0123456789/%.0s' {1..400})
evil && "$MANGLE" replace evil/.metadata '\x8c\x0c__0_0.distcp' "X\\x30\\x11\\x00\\x00$long" 1
attack "a path of 4400 bytes" 3 "file name '0123.* has 4400 bytes" evil
evil && : >evil/__0_0.distcp
attack "an empty data file" 3 "__0_0\.distcp" evil
evil && truncate -s 4294967295 evil/.metadata
attack ".metadata with 4 GiB of nothing behind it" 3 "\.metadata" evil
evil && truncate -s 1T evil/.metadata
attack ".metadata of a TiB" 3 "\.metadata.*1099511627776" evil
evil && truncate -s 1T evil/metadata.json
attack "metadata.json of a TiB" 3 "metadata\.json.*1099511627776" evil
mkfifo evil
attack "a pipe as the checkpoint" 4 "'evil'" evil

# tracker LABEL REGEX TEXT: a run folder whose tracker holds TEXT.
tracker() {
    mkdir evil
    printf '%s' "$3" >evil/latest_checkpointed_iteration.txt
    attack "$1" 3 "$2" evil
}
tracker "a tracker with a path" "\.\./\.\./etc" ../../etc
tracker "a tracker below zero" "'-1'" -1
tracker "a tracker past 2^63" "99999999999999999999" 99999999999999999999
tracker "a tracker of a megabyte" "limit" "$(head -c 1000000 /dev/zero | tr '\0' 7 | head -c 100000)"

# json LABEL REGEX: metadata.json on stdin.
json() {
    evil
    cat >evil/metadata.json
    attack "$1" 3 "metadata\.json.*$2" evil
}
{ head -c 100000 /dev/zero | tr '\0' '['; } | json "JSON 100000 deep" ''
printf '{"sharded_backend": "torch_dist", "sharded_backend": "zarr"}' | json "a JSON key twice" ''
printf '{"sharded_backend": NaN}' | json "NaN as a name" ''
{ printf '{"sharded_backend": "' && head -c 500000 /dev/zero | tr '\0' 'x' && printf '"}'; } |
    json "a name of half a megabyte" ''
head -c 3000000 /dev/zero | json "JSON of three megabytes" ''

# common LABEL CODE REGEX: the damaged common.pt is found and not converted; opening alone does not read it.
common() {
    attack "$1" "$2" "$3" evil "convert --to fsdp_dtensor"
    sample tiny_generations/torch_dist_0.15.0_torch2.5 evil
}
sample tiny_generations/torch_dist_0.15.0_torch2.5 evil
truncate -s 1T evil/common.pt && common "common.pt of a TiB" 3 "common\.pt.*1099511627776"
truncate -s 1000M evil/common.pt && common "common.pt with 1000 MiB of nothing behind it" 3 "common\.pt.*not an end record"
ln -sf /dev/zero evil/common.pt && common "a device as common.pt" 4 "common\.pt.*not a plain file"
rm evil/common.pt && mkfifo evil/common.pt && common "a pipe as common.pt" 4 "common\.pt.*not a plain file"
ln -sf common.pt evil/common.pt && common "common.pt as a link to itself" 4 "common\.pt.*symbolic links"
: >evil/common.pt && common "an empty common.pt" 3 "common\.pt"

# integrity LABEL REGEX: verify does not pass over an integrity.json that is damaged.
integrity() {
    local status=0
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    $BOUNDED "$DCPKIT" verify evil >"$GOT/verified" 2>&1 || status=$?
    if [ "$status" -gt 0 ] && [ "$status" -le 4 ] && grep -qE -- "integrity +FAILED.*$2" "$GOT/verified"; then
        echo "$1: found"
    else
        echo "$1: exit $status: $(head -c 2000 "$GOT/verified")"
    fi
    evil
}
zeros=$(printf '%064d' 0)
evil
mkfifo evil/integrity.json && integrity "a pipe as integrity.json" "not a plain file"
ln -s /dev/zero evil/integrity.json && integrity "a device as integrity.json" "not a plain file"
mkdir evil/integrity.json && integrity "a folder as integrity.json" "not a plain file"
: >evil/integrity.json && integrity "an empty integrity.json" "no text"
truncate -s 30M evil/integrity.json && integrity "30 MiB of nothing" "JSON"
truncate -s 1T evil/integrity.json && integrity "integrity.json of a TiB" "1099511627776"
printf '{"files": {"../../../etc/passwd": "%s"}}' "$zeros" >evil/integrity.json && integrity "a listed path that climbs" "'\.\./\.\./\.\./etc/passwd'"
printf '{"files": {"/etc/passwd": "%s"}}' "$zeros" >evil/integrity.json && integrity "a listed absolute path" "'/etc/passwd'"
mkfifo evil/pipe && printf '{"files": {"pipe": "%s"}}' "$zeros" >evil/integrity.json && integrity "a listed pipe" "'pipe'"
printf '{"files": {".metadata": "%s", ".metadata": "%s"}}' "$zeros" "$zeros" >evil/integrity.json && integrity "a file listed twice" "twice"
printf '{"algorithm": "none", "files": {}}' >evil/integrity.json && integrity "no algorithm" "'none'"
printf '{"files": {".metadata": "%s"}}' 00 >evil/integrity.json && integrity "a sum cut short" "no SHA-256"
head -c 100000 /dev/zero | tr '\0' '[' >evil/integrity.json && integrity "100000 brackets" "nested deeper"
rm -rf evil
exit 0
