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
attack "a pipe as data" 4 "'__0_0\.distcp'.*not a plain file" evil
evil && rm evil/.metadata && mkfifo evil/.metadata
attack "a pipe as .metadata" 4 "not a plain file" evil
evil && ln -sf /dev/zero evil/__0_0.distcp
attack "a device as data" 4 "'__0_0\.distcp'.*not a plain file" evil
evil && ln -sf __0_0.distcp evil/__0_0.distcp
attack "a link to itself" 4 "__0_0\.distcp.*symbolic links" evil
evil && ln -sf . evil/deep && "$MANGLE" replace evil/.metadata '\x0c__0_0.distcp' '\x0cdeep/../a/bc' 1
attack "a climb through a link" 3 "'deep/\.\./a/bc' leaves" evil
evil && : >evil/__0_0.distcp
attack "an empty data file" 3 "__0_0\.distcp" evil
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
exit 0
