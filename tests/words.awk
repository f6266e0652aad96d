# SPDX-License-Identifier: Apache-2.0
# words.awk - find words in comments and strings that the house style does not allow; format.sh calls it.
#
#   awk -f words.awk FILE...
#
# Comments are plain English: a file records, an option sets, a function reports; none of them tells, says or goes on.
# "is no list" is "is not a list"; "there is no list" stands. In comments and strings "after", not "behind"; "next to", not
# "beside"; "again", not "anew"; "except", not "but for". A string, which users read, does not begin with "what" or "who"; one
# without a space is a key, and may have any word. A comment begins with a verb or a noun: not with "What", "Of" or "Is", nor
# with a question. Code does not count.

BEGIN {
    banned = "behind|beside|anew|but for|tells?|told|telling|says|nobody|(go|goes|going|gone|went) on|lets? go|letting go"
    banned = "[^a-z_](" banned ")[^a-z_]"
    relative = "\001[ \t*]*(What|Who|Whose|Whoever|Of|Is|Are|Has|Does|Did|Was|Were) "
    unread = "behind|besides?|anew|whoever|whatever|nobody|tells?|told|telling|is another one|but for|by looking|not missed"
    unread = "[^a-z_](" unread "|(come|comes|came|coming) out|stands?|stood)[^a-z_]"
}

FNR == 1 {
    in_comment = 0
    before = ""
    string = ""
    is_open = 0
    is_begun = 0
}

{
    text = comment_of($0)
    check_string()
    if (text == "")
        next
    check_begin(text)
    gsub("\001", "", text)
    sub(/^[ \t]*\*[ \t]/, "", text)
    text = " " tolower(text) " "
    while (match(text, banned)) {
        printf "%s:%d: '%s' in a comment: write a plainer word, or name what records, sets, reports or continues\n", \
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

# Checks the first word of a comment, which \001 marks; one that is alone on its line has its word in a later one.
function check_begin(text) {
    if (is_begun)
        text = "\001" text
    if (match(text, relative))
        printf "%s:%d: a comment begins with a relative clause or a question: begin with a verb or a noun\n", FILENAME, FNR
    is_begun = text ~ /\001[ \t*]*$/
}

# Checks a string whose pieces are all there; macros between pieces do not end it.
function check_string(    text) {
    if (is_open)
        return
    text = " " tolower(string) " "
    string = ""
    if (text ~ /^ [^ ]* $/)
        return
    if (match(text, /^ (what|who|whose|whoever) /))
        printf "%s:%d: a string begins with '%s': name the thing\n", FILENAME, string_line, substr(text, 2, RLENGTH - 2)
    while (match(text, unread)) {
        printf "%s:%d: '%s' in a string: write a plainer word\n", \
            FILENAME, string_line, substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH - 1)
    }
}

# Returns the comments of a line; appends its strings to `string`.
function comment_of(text,    found, mark, rest) {
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
        rest = substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + RLENGTH)
        if (rest !~ /^[ \t\\A-Za-z0-9_]*$/ || mark != "\"")
            end_string()
        if (mark == "//")
            return found "\001" text
        in_comment = mark == "/*"
        if (in_comment) {
            found = found "\001"
            continue
        }
        if (mark == "\"" && !is_open)
            string_line = FNR
        is_open = mark == "\""
        while (match(text, /^\\./) || match(text, /^[^"'\\]+/) || (text != "" && substr(text, 1, 1) != mark)) {
            if (is_open)
                string = string (text ~ /^\\/ ? " " : substr(text, 1, RSTART > 0 ? RLENGTH : 1))
            text = substr(text, RSTART > 0 ? RLENGTH + 1 : 2)
        }
        text = substr(text, 2)
    }
    if (text !~ /^[ \t\\A-Za-z0-9_]*$/)
        end_string()
    return found
}

# Code follows the string: it has no further piece.
function end_string() {
    if (!is_open)
        return
    is_open = 0
    check_string()
}
