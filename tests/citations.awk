# SPDX-License-Identifier: Apache-2.0
# citations.awk - find citations of documents and sections that do not exist; documents.sh calls it.
#
#   awk -v documents=A.md:B.md:... -f citations.awk FILE...
#
# A citation is a document's path, from the root or from the folder of the file that cites it, and perhaps numbers of
# sections: "formats/zarr/FORMAT.md 3", "FORMAT.md 4.2, 4.5 and 5.1". It may go on in the next line. FORMAT.md and README.md
# without a number may be those of any folder. Not ours: a document at a tag (x.md@v), of a variable ($DIR/x.md), of a pattern,
# of the web.

BEGIN {
    n = split(documents, list, ":")
    for (i = 1; i <= n; i++)
        exists[list[i]] = 1
    number_of = "[0-9]+(\\.[0-9]+)*"
    sections_of = "^`? " number_of "((, | and | to )" number_of ")*"
}

{
    check_held(FNR == 1 ? "" : $0)
    held = index($0, ".md") ? $0 : ""
    file = FILENAME
    sub(/^\.\//, "", file)
    line = FNR
}

END { check_held("") }

# The line before, with what follows it.
function check_held(next_line) {
    if (held == "")
        return
    sub(/^[ \t]*([*#]|\/\/)*[ \t]*/, "", next_line)
    check(held " " next_line, length(held))
}

# The citations that begin in the first n_own characters of `text`.
function check(text, n_own,    at, name, before, rest, sections) {
    while (match(text, /[A-Za-z0-9_.\/-]*[A-Za-z0-9_]\.md/) && RSTART <= n_own) {
        at = RSTART + RLENGTH
        name = substr(text, RSTART, RLENGTH)
        before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
        rest = substr(text, at)
        sections = match(rest, sections_of) ? substr(rest, 1, RLENGTH) : ""
        if (before !~ /[$>*}:{,]/ && rest !~ /^[@A-Za-z0-9]/)
            check_citation(name, sections)
        text = rest
        n_own -= at - 1
    }
}

function check_citation(name, sections,    document, section) {
    document = find(name)
    if (document == "") {
        if (sections != "" || name !~ /^(FORMAT|README)\.md$/)
            printf "%s:%d: '%s' does not exist\n", file, line, name
        return
    }
    if (sections != "")
        read_headings(document)
    while (match(sections, number_of)) {
        section = substr(sections, RSTART, RLENGTH)
        if (!((document, section) in headings))
            printf "%s:%d: '%s' has no section %s\n", file, line, document, section
        sections = substr(sections, RSTART + RLENGTH)
    }
}

# The document that `name` means in this file; "": none.
function find(name,    path) {
    path = file
    if (!sub(/\/[^\/]*$/, "/", path))
        path = ""
    path = path name
    while (sub(/[^\/]+\/\.\.\//, "", path))
        ;
    if (path in exists)
        return path
    return name in exists ? name : ""
}

# "## 4.2 Layers" and "## 4. Tensors".
function read_headings(document,    text, words) {
    if (document in is_read)
        return
    is_read[document] = 1
    while ((getline text < document) > 0)
        if (text ~ /^#+ [0-9]/) {
            split(text, words, " ")
            sub(/\.$/, "", words[2])
            headings[document, words[2]] = 1
        }
    close(document)
}
