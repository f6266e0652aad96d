/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_text.h - an input as text. */
#ifndef DCPK_TESTS_FUZZ_TEXT_H
#define DCPK_TESTS_FUZZ_TEXT_H

#include <stdlib.h>
#include <string.h>

/* A NUL-terminated copy, owned by the caller. (AddressSanitizer's strndup reads a byte too many
 * with strict_string_checks=1.) */
static inline char *fuzz_text(const void *bytes, size_t n_bytes)
{
    char *text = malloc(n_bytes + 1);

    if (text == NULL)
        abort();
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    return text;
}

#endif
