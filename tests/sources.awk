# SPDX-License-Identifier: Apache-2.0
# sources.awk - find source files that comments cite and that do not exist; documents.sh calls it.
#
#   awk -v sources=lib/a.h:lib/b.c:... -f sources.awk FILE...
#
# A citation is a file's name in a comment, its path from the root, or the end of that: "box.h", "tensor/box.h",
# "lib/tensor/box.h". Not ours: a file at a tag (x.cu@v), of the system (<x.h>), of a pattern (compare_*.c, cmd_<name>.c), or
# with the path of another program.

BEGIN {
    n = split(sources, list, ":")
    for (i = 1; i <= n; i++)
        for (path = list[i]; path != ""; path = index(path, "/") ? substr(path, index(path, "/") + 1) : "") {
            exists[path] = 1
            folders[substr(path, 1, index(path, "/"))] = 1 # "": a name without a path is ours
        }
}

FNR == 1 { in_comment = 0 }

{
    text = $0
    while (text != "") {
        if (!in_comment) {
            if (!match(text, /\/\*|\/\/|"([^"\\]|\\.)*"/))
                next
            mark = substr(text, RSTART, 2)
            text = substr(text, RSTART + (mark ~ /^"/ ? RLENGTH : 2))
            if (mark == "//") {
                check(text)
                next
            }
            in_comment = mark == "/*"
            continue
        }
        at = index(text, "*/")
        check(at ? substr(text, 1, at - 1) : text)
        in_comment = !at
        text = at ? substr(text, at + 2) : ""
    }
}

function check(comment,    name, before, after) {
    while (match(comment, /[A-Za-z0-9_.\/-]*[A-Za-z0-9_]\.(c|h|cu|cuh)/)) {
        name = substr(comment, RSTART, RLENGTH)
        before = RSTART > 1 ? substr(comment, RSTART - 1, 1) : " "
        after = substr(comment, RSTART + RLENGTH, 1)
        comment = substr(comment, RSTART + RLENGTH)
        if (before !~ /[*<>$:{]/ && after !~ /[@A-Za-z0-9_>]/ && !(name in exists) && is_ours(name))
            printf "%s:%d: '%s' does not exist\n", FILENAME, FNR, name
    }
}

function is_ours(name) {
    return substr(name, 1, index(name, "/")) in folders
}
