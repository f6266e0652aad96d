/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - the few questions that keys and names are asked everywhere. */
#ifndef DCPK_LIB_BASE_TEXT_H
#define DCPK_LIB_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool dcpk_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static inline bool dcpk_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

#endif
