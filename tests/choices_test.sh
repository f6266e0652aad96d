#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# choices_test.sh - choices.awk finds each kind of fault, and none in what is right or no code.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
mkdir -p lib/good lib/bad lib/many

cat >lib/good/good.c <<'END'
/* Is a ? in a comment counted?
 ? no, nor f(err) ? x : y */
const char *text = "a ? f(x, err) : \"b\" /* ?"; // ? f(err)
const char mark = '?', quote = '\'', other = '"';
int x = is_a ? 1 : 2; /* one ? */
    return f(is_a ? 1 : 2, err); /* the call is not in it */
    default:
        return g(err);
END
for ((i = 0; i < 250; i++)); do echo; done >>lib/good/good.c
cat >lib/bad/bad.c <<'END'
    st = p == NULL ? err->status : f(p, err);
    return is_a ? f(a,
                    err) : DCPK_OK;
    x = is_b
            ? 1
            : 2;
    if (is_a ? (f(a, err)) : g(b))
        /* then */ : 3;
END
for ((i = 0; i < 1000; i++)); do echo; done >>lib/bad/bad.c
printf '%s\n' 'x = a ? 1 : 2;' '' >lib/many/many.c

awk -v most=8 -f "$here/choices.awk" lib/good/good.c lib/bad/bad.c lib/many/many.c | sort >found
diff - found <<'END'
lib/bad/bad.c:1: a call that takes err in a conditional expression
lib/bad/bad.c:2: a call that takes err in a conditional expression
lib/bad/bad.c:5: a line begins with ? or :
lib/bad/bad.c:6: a line begins with ? or :
lib/bad/bad.c:7: a call that takes err in a conditional expression
lib/bad/bad.c:8: a line begins with ? or :
lib/many: 1 ?: in 2 lines, more than 8 in 1000
END
