# SPDX-License-Identifier: Apache-2.0
# choices.awk - find conditional expressions (?:) that the house style does not allow; format.sh calls it.
#
#   awk -v most=8 -f choices.awk FILE...
#
# A conditional expression chooses between two values on one line. Faults: one with a call that takes `err` in its branches, a
# line that begins with ? or :, and a folder with more than `most` of them in 1000 lines. Comments and strings do not count.

FNR == 1 {
    check_code()
    file = FILENAME
    folder = file
    sub(/\/[^\/]*$/, "", folder)
    code = ""
    in_comment = 0
}

{
    line = strip($0)
    code = code line "\n"
    n_lines[folder]++
    if (line ~ /^[ \t]*[?:]/)
        printf "%s:%d: a line begins with ? or :\n", file, FNR
}

END {
    check_code()
    for (folder in n_choices)
        if (1000 * n_choices[folder] > most * n_lines[folder])
            printf "%s: %d ?: in %d lines, more than %d in 1000\n", folder, n_choices[folder], n_lines[folder], most
}

# The line without comments, its strings and characters empty.
function strip(text,    kept, mark) {
    kept = ""
    while (1) {
        if (in_comment) {
            if (!match(text, /\*\//))
                return kept
            text = substr(text, RSTART + 2)
            in_comment = 0
        }
        if (!match(text, /["']|\/[*\/]/))
            return kept text
        kept = kept substr(text, 1, RSTART - 1)
        mark = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (mark == "//")
            return kept
        in_comment = mark == "/*"
        if (in_comment)
            continue
        kept = kept mark mark
        while (match(text, /^\\./) || match(text, /^[^"'\\]+/) || (text != "" && substr(text, 1, 1) != mark))
            text = substr(text, RSTART > 0 ? RLENGTH + 1 : 2)
        text = substr(text, 2)
    }
}

# Count the conditional expressions of the file that ends, and look into their branches.
function check_code(    at, before, line) {
    line = 1
    while ((at = index(code, "?")) > 0) {
        before = substr(code, 1, at)
        code = substr(code, at + 1)
        line += gsub(/\n/, "", before)
        n_choices[folder]++
        if (branches(code) ~ /[^A-Za-z0-9_]err\)/)
            printf "%s:%d: a call that takes err in a conditional expression\n", file, line
    }
}

# What follows a ?, up to the end of the expression around it.
function branches(text,    i, depth, c) {
    depth = 0
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c ~ /[(\[{]/)
            depth++
        if (c ~ /[)\]}]/ && --depth < 0)
            break
        if (c == ";" || (c == "," && depth == 0))
            break
    }
    return substr(text, 1, i - 1)
}
