/* SPDX-License-Identifier: Apache-2.0 */
/* regex.h - regular expressions as Python's re has them, searched and replaced in bounded steps. */
#ifndef DCPK_LIB_BASE_REGEX_H
#define DCPK_LIB_BASE_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/bytes.h"

/*
 * A compiled expression. Syntax: PCRE2's, of which Python's is a part: \d \w \s \b and their
 * opposites, (?:...), (?P<name>...), lookaround, lazy and possessive repetitions, (?i). Text is
 * UTF-8. One of them serves one thread at a time.
 */
struct dcpk_regex;

/* The replacement of a match. */
struct dcpk_replacement;

/*
 * Compile text[0 .. n_bytes). Errors: DCPK_EUSAGE with the fault and its byte in the expression;
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_regex_new(const char *text, size_t n_bytes, struct dcpk_regex **regex,
                           struct dcpk_error *err);
void dcpk_regex_free(struct dcpk_regex *regex); /* NULL is a no-op */
/* Give a search of it a share of the steps that one text is given: it is one of n expressions, of a
 * file, that are searched for in each text. A thousand are left at least. */
void dcpk_regex_share(struct dcpk_regex *regex, size_t n);

/*
 * Searches for a match anywhere in `text`, as re.search. Errors: DCPK_EUSAGE when the answer takes
 * more steps or memory than one text is given (an expression that tries every way there is);
 * DCPK_EUNSUPPORTED for text that is not UTF-8; DCPK_ENOMEM.
 */
dcpk_status dcpk_regex_search(struct dcpk_regex *regex, const char *text, bool *found,
                              struct dcpk_error *err);

/*
 * Parse what a match of `regex` becomes, as the template of Python's re.sub (re/_parser.py,
 * parse_template @3.11): \1 to \99 and \g<1> are groups, \g<name> a named one, \g<0> the match and
 * so is \0 (in Python a NUL, which no key holds), \\ a backslash. A group that took no part in the
 * match is empty. `text` is borrowed until dcpk_replacement_free.
 * Errors: DCPK_EUSAGE with the fault and its byte, also for the other escapes of Python, which
 * would put control characters or backslashes into a key.
 */
dcpk_status dcpk_replacement_new(const struct dcpk_regex *regex, const char *text, size_t n_bytes,
                                 struct dcpk_replacement **replacement, struct dcpk_error *err);
void dcpk_replacement_free(struct dcpk_replacement *replacement); /* NULL is a no-op */

/*
 * Append `text` with every match replaced to `out`, as re.sub of Python 3.7 and later: an empty
 * match counts also right after another one, at one place once. Errors: those of searching.
 */
dcpk_status dcpk_regex_replace(struct dcpk_regex *regex, const struct dcpk_replacement *replacement,
                               const char *text, struct dcpk_bytes *out, struct dcpk_error *err);

#endif
