# SPDX-License-Identifier: Apache-2.0
# words.awk - find words in comments that the house style does not allow; format.sh calls it.
#
#   awk -f words.awk FILE...
#
# Comments are plain English: a file records, an option sets, a function reports; none of them tells, says or goes on.
# "is no list" is "is not a list"; "there is no list" stands. Code and strings do not count.

BEGIN {
    banned = "tells?|told|telling|says|nobody|(go|goes|going|gone|went) on|lets? go|letting go"
    banned = "[^a-z_](" banned ")[^a-z_]"
}

FNR == 1 {
    in_comment = 0
    before = ""
}

{
    text = comment_of($0)
    if (text == "")
        next
    sub(/^[ \t]*\*[ \t]/, "", text)
    text = " " tolower(text) " "
    while (match(text, banned)) {
        printf "%s:%d: '%s' in a comment: name what records, sets, reports or continues\n", \
            FILENAME, FNR, substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH - 1)
    }
    text = before text
    if (text ~ /[^ ] (is|are|was|were) no [a-z]/ && text !~ /there (is|are|was|were) no [a-z]/ && text !~ / no (longer|more) /)
        printf "%s:%d: 'is no' in a comment: 'is not a'\n", FILENAME, FNR
    before = text
    sub(/ $/, "", before)
    sub(/^.* /, "", before)
}

# What of the line is in a comment.
function comment_of(text,    found, mark) {
    found = ""
    while (text != "") {
        if (in_comment) {
            if (!match(text, /\*\//))
                return found text
            found = found substr(text, 1, RSTART - 1)
            text = substr(text, RSTART + 2)
            in_comment = 0
            before = ""
            continue
        }
        if (!match(text, /["']|\/[*\/]/))
            break
        mark = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (mark == "//")
            return found text
        in_comment = mark == "/*"
        if (in_comment)
            continue
        while (match(text, /^\\./) || match(text, /^[^"'\\]+/) || (text != "" && substr(text, 1, 1) != mark))
            text = substr(text, RSTART > 0 ? RLENGTH + 1 : 2)
        text = substr(text, 2)
    }
    return found
}
