#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# resumes.sh - draws resumes.tsv as resumes.svg: how far the losses of resumed runs are from the uninterrupted one's.
#
#   tests/interop/resumes.sh [TSV] >resumes.svg
#
# A row a source, a dot a resumed run and iteration (5 to 8): its loss less that of the run that was never interrupted ("whole"),
# of a source without one less that of Megatron's own resume.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
awk -F '\t' '
BEGIN { left = 300; width = 410; top = 66; step = 17; most = 0.0003 }
NR == 1 { next }
$1 FS $2 != last {
    last = $1 FS $2
    for (i = 4; i <= 7; i++) zero[i] = $i
    y = top + n_sources++ * step
    body = body sprintf("<text x=\"8\" y=\"%d\">core %s</text>\n", y + 4, $1 ", " $2)
}
$3 != "whole" {
    is_native = $3 ~ /^native/
    n[is_native]++
    for (i = 4; i <= 7; i++) {
        x = left + width / 2 + ($i - zero[i]) / most * width / 2
        dot = sprintf("<circle cx=\"%.1f\" cy=\"%d\" r=\"%d\" class=\"%s\"/>\n", x, y, is_native ? 5 : 2.5, is_native ? "native" : "ours")
        if (is_native) body = body dot
        else above = above dot
    }
}
END {
    bottom = top + n_sources * step
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"730\" height=\"%d\" viewBox=\"0 0 730 %d\" role=\"img\">\n", bottom + 16, bottom + 16
    print "<title>Losses of resumed runs less those of the uninterrupted run</title>"
    print "<style>text{font:11px sans-serif;fill:#57606a}.head{font-weight:bold}"
    print ".ours{fill:#1f6feb}.native{fill:none;stroke:#8b949e}line{stroke:#8b949e;stroke-width:.5}</style>"
    print "<text x=\"8\" y=\"14\" class=\"head\">Loss of iterations 5 to 8 of a resumed run, less that of the run that was never interrupted</text>"
    printf "<text x=\"8\" y=\"30\">Losses are 5.0 to 5.3. Blue: %d runs from what dcpkit wrote (another format or layout).", n[0]
    printf " Grey: %d of Megatron alone.</text>\n", n[1]
    for (i = -3; i <= 3; i++) {
        x = left + width / 2 + i / 10000 / most * width / 2
        printf "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x, top - 18, x, bottom - 4
        printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, bottom + 8, i == 0 ? "0" : sprintf("%+.4f", i / 10000)
    }
    printf "%s%s</svg>\n", body, above
}' "${1:-$here/resumes.tsv}"
