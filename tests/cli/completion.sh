# SPDX-License-Identifier: Apache-2.0
# completion.sh - bash completes commands, formats and every option of --help; each command has a man page with the same options.
# shellcheck shell=bash
mkdir bin && ln -s "$DCPKIT" bin/dcpkit
PATH=$TMP/bin:$PATH
dcpkit completion bash >script
# shellcheck source=/dev/null
source ./script

# completes WORD...: what the last one may become
completes() {
    COMP_WORDS=(dcpkit "$@") COMP_CWORD=$#
    _dcpkit
    echo "${COMPREPLY[*]}"
}
completes insp
completes convert --to f
completes convert --weights
completes convert --verify in

for command in $(completes '' | tr ' ' '\n' | grep -vE '^(help|--)'); do
    dcpkit "$command" --help | grep -oE '^ +(-.,)? +--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u >shown
    completes "$command" -- | tr ' ' '\n' | sort -u >words
    comm -23 shown words | sed "s/^/$command: not completed: /"
    dcpkit "$command" --help=man >page
    grep -oE '\\fB\\-\\-[^ ]*\\fR' page | sed 's/\\fB//; s/\\fR//; s/\\-/-/g' | sort -u >paged
    comm -23 shown paged | sed "s/^/$command: not in the man page: /"
    grep -q '^\.SH EXAMPLE' page || echo "$command: no example in its page"
done
wc -l <words | grep -q '^[1-9]' || echo "no words"
refuses "another shell" 2 "'tcsh' is not bash, zsh or fish" dcpkit completion tcsh
refuses "another form" 2 "'html' is not man or words" dcpkit check --help=html
