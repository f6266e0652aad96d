/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - prefixes, lines and numbers in keys and names. */
#ifndef DCPK_LIB_BASE_TEXT_H
#define DCPK_LIB_BASE_TEXT_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
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

/* The part of a path after its last slash. */
static inline const char *dcpk_name_last(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* `text`, or `by_default` where it is NULL: for messages. */
static inline const char *dcpk_text_or(const char *text, const char *by_default)
{
    return text != NULL ? text : by_default;
}

/* `joint` before an item of a list that follows another; nothing before the first. */
static inline const char *dcpk_joint(bool follows, const char *joint)
{
    return follows ? joint : "";
}

/* The most lines that text[0 .. n_bytes) can have, whether or not the last one ends. */
static inline size_t dcpk_count_lines(const char *text, size_t n_bytes)
{
    size_t n = 1;

    for (size_t i = 0; i < n_bytes; i++)
        n += text[i] == '\n';
    return n;
}

/*
 * The next line of text[0 .. n_bytes) from *at on that is not empty: where it begins, and its bytes
 * without the newline in *length. *at then points after it. NULL: there is none.
 */
static inline const char *dcpk_take_line(const char *text, size_t n_bytes, size_t *at,
                                         size_t *length)
{
    while (*at < n_bytes) {
        const char *line = text + *at;
        const char *end = memchr(line, '\n', n_bytes - *at);

        if (end == NULL)
            end = text + n_bytes;
        *length = (size_t)(end - line);
        *at += *length + 1;
        if (*length > 0)
            return line;
    }
    return NULL;
}

/* The next of the words at *list, which blanks separate, and its bytes in *n. *list then points
 * after it. NULL: there is none. */
static inline const char *dcpk_take_word(const char **list, size_t *n)
{
    const char *word = *list + strspn(*list, " ");

    *n = strcspn(word, " ");
    *list = word + *n;
    return *n > 0 ? word : NULL;
}

/*
 * The decimal number at *text, which then points after it. -1, and *text stays, when there is none
 * or it has more than nine digits: layers, experts and ranks have fewer.
 */
static inline int64_t dcpk_take_number(const char **text)
{
    const char *end = *text;
    int64_t n;

    while (isdigit((unsigned char)*end))
        end++;
    if (end == *text || end - *text > 9)
        return -1;
    n = strtoll(*text, NULL, 10);
    *text = end;
    return n;
}

#define DCPK_MAX_SIZE (INT64_C(1) << 60)

/* Reads digits at *text, which then points after them: at most DCPK_MAX_SIZE. Returns false, and
 * *text stays, when there are none or they are more. */
static inline bool dcpk_take_size(const char **text, int64_t *n)
{
    const char *end = *text;
    int64_t v = 0;

    for (; isdigit((unsigned char)*end) && v <= DCPK_MAX_SIZE / 10; end++)
        v = v * 10 + (*end - '0');
    if (end == *text || isdigit((unsigned char)*end) || v > DCPK_MAX_SIZE)
        return false;
    *text = end;
    *n = v;
    return true;
}

#endif
