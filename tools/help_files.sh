#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# help_files.sh - writes a man page for each command and completion for each shell, as the program prints them.
#
#   tools/help_files.sh DCPKIT FOLDER
#
# FOLDER gets man1/dcpkit-COMMAND.1.gz, man7/dcpkit-TOPIC.7.gz, bash/dcpkit, zsh/_dcpkit and fish/dcpkit.fish. The build calls it.
set -euo pipefail

dcpkit=$1 out=$2
rm -rf "$out"
mkdir -p "$out"/{man1,man7,bash,zsh,fish}
"$dcpkit" --help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' | while read -r command; do
    "$dcpkit" "$command" --help=man | gzip -9nc >"$out/man1/dcpkit-$command.1.gz"
done
for topic in "$(dirname "${BASH_SOURCE[0]}")"/topics/*.txt; do
    topic=$(basename "$topic" .txt)
    "$dcpkit" help "$topic" --man | gzip -9nc >"$out/man7/dcpkit-$topic.7.gz"
done
"$dcpkit" completion bash >"$out/bash/dcpkit"
"$dcpkit" completion zsh >"$out/zsh/_dcpkit"
"$dcpkit" completion fish >"$out/fish/dcpkit.fish"
