/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_regex.c - any regular expression on any text: an answer or an error, at a bounded cost. */
/*
 * The input: a line with the expression, a line with what a match becomes, the text.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/base/regex.h"
#include "tests/fuzz/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_REPLACED 8 /* bytes of text: the cost that is bounded is one of each match */

static void replace(struct dcpk_regex *regex, const char *with, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_replacement *replacement = NULL;
    struct dcpk_bytes out = {0};

    if (dcpk_replacement_new(regex, with, strlen(with), &replacement, &err) != DCPK_OK ||
        dcpk_regex_replace(regex, replacement, text, &out, &err) != DCPK_OK) {
        if (err.text[0] == '\0')
            abort();
    }
    dcpk_bytes_release(&out);
    dcpk_replacement_free(replacement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char *copy = fuzz_text(data, n_bytes), *rest = copy;
    const char *pattern = strsep(&rest, "\n"), *with = strsep(&rest, "\n");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_regex *regex = NULL;
    bool is_found;

    if (rest != NULL && dcpk_regex_new(pattern, strlen(pattern), &regex, &err) == DCPK_OK) {
        if (dcpk_regex_search(regex, rest, &is_found, &err) != DCPK_OK && err.text[0] == '\0')
            abort();
        if (strlen(rest) <= MAX_REPLACED)
            replace(regex, with, rest);
    }
    dcpk_regex_free(regex);
    free(copy);
    return 0;
}
