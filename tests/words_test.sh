#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# words_test.sh - words.awk finds each kind of fault, and none in what is right or no comment.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"

cat >good.c <<'END'
/* There is no list, say. Where there
 * is no list it is no longer read. The answer is no. */
const char *says = "/* somebody says"; // the teller's essays foretold it
int told = 'a'; /* steps that go one by one, ongoing; lets_go */
    say(told); /* where there are no axes */
const char *key = "beside", *path = "./behind/anew"; // a string without a space is a key
    fail("it is what it has: %s, the lookbehind of a besieged " NAME
         "what follows");
END
cat >bad.c <<'END'
/* What args tell. */
int x; /* Nobody knows
        * what it has told us. */
char *s = "a"; // it goes on
/*
 * What is no list. What
 * is no set, either.
 */
/* let go */ int y; /* a key that is no key */
/* One behind another, beside it; anew. */
fail("byte 7 is "
     "another one"
     "\nanew, " NAME " beside %s");
#define OPT "Nobody " \
            "looked"
fail("What is there"); fail("who knows");
END

awk -f "$here/words.awk" good.c bad.c | sed -E "s/ in a (comment|string).*//; s/: (name the thing|begin with a verb .*)//" >found
diff - found <<'END'
bad.c:1: a comment begins with a relative clause or a question
bad.c:1: 'tell'
bad.c:2: 'nobody'
bad.c:3: 'told'
bad.c:4: 'goes on'
bad.c:6: a comment begins with a relative clause or a question
bad.c:6: 'is no'
bad.c:7: 'is no'
bad.c:9: 'let go'
bad.c:9: 'is no'
bad.c:10: 'behind'
bad.c:10: 'beside'
bad.c:10: 'anew'
bad.c:11: 'is another one'
bad.c:11: 'anew'
bad.c:11: 'beside'
bad.c:14: 'nobody'
bad.c:16: a string begins with 'what'
bad.c:16: a string begins with 'who'
END
