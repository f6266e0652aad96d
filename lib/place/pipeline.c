/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - "Et*3|(tt|)*2" written out, and counted. */
#include "lib/place/pipeline.h"

#include <string.h>

#include "lib/base/text.h"

#define MAX_LAYOUT (1 << 20) /* characters of a pipeline layout, written out */

#define MTP_SEPARATOR '/' /* after the decoder's layers of a hybrid model */

/* The text at *p as a repeated part, "x*3" or with `groups` "(xy)*3", or as one character; *p then
 * points after it. */
static int64_t take_part(const char **p, bool groups, size_t *n_part)
{
    const char *close = groups && **p == '(' ? strchr(*p, ')') : NULL;
    const char *after = *p + 1;
    int64_t times = -1;

    *n_part = 1;
    if (close != NULL) {
        after = close + 1;
        *n_part = (size_t)(close - *p) - 1;
    }
    if (*after == '*' && *n_part > 0 && (close != NULL || !groups)) {
        after++;
        times = dcpk_take_number(&after);
    }
    if (times < 0) {
        *n_part = 1;
        after = *p + 1;
    }
    *p = after;
    return times;
}

/*
 * Repeat the parts of a layout as often as it asks, into `to` unless that is NULL. Returns how
 * many characters there are, or more than MAX_LAYOUT.
 */
static size_t unroll(const char *text, bool groups, char *to)
{
    size_t n = 0, n_part;

    while (*text != '\0' && n <= MAX_LAYOUT) {
        const char *part = text;
        int64_t times = take_part(&text, groups, &n_part);

        part += times >= 0 && groups; /* after the parenthesis */
        if (times < 0)
            times = 1;
        for (; times > 0 && n <= MAX_LAYOUT; times--) {
            if (to != NULL)
                memcpy(to + n, part, n_part);
            n += n_part;
        }
    }
    return n;
}

/* Groups first, then single characters. */
const char *dcpk_pipeline_unroll(struct dcpk_arena *arena, const char *text, struct dcpk_error *err)
{
    for (int groups = 1; groups >= 0 && text != NULL; groups--) {
        const size_t n = unroll(text, groups != 0, NULL);
        char *to;

        if (n > MAX_LAYOUT) {
            dcpk_fail(err, DCPK_ERANGE, "a pipeline layout of more than %d characters", MAX_LAYOUT);
            return NULL;
        }
        to = dcpk_arena_array(arena, n + 1, 1, err);
        if (to != NULL) {
            unroll(text, groups != 0, to);
            to[n] = '\0';
        }
        text = to;
    }
    return text;
}

int64_t dcpk_pipeline_parts(const char *unrolled)
{
    int64_t n = 1;

    for (; *unrolled != '\0' && *unrolled != MTP_SEPARATOR; unrolled++)
        n += *unrolled == '|';
    return n;
}

dcpk_status dcpk_pipeline_count(const char *unrolled, const char *kinds,
                                struct dcpk_pipeline *pipeline, struct dcpk_error *err)
{
    int64_t part = 0;

    pipeline->layers[0] = 0;
    for (; *unrolled != '\0' && *unrolled != MTP_SEPARATOR; unrolled++) {
        if (*unrolled == '|')
            pipeline->layers[++part] = 0;
        else if (kinds == NULL || strchr(kinds, *unrolled) != NULL)
            pipeline->layers[part]++;
        else if (*unrolled == 'm')
            pipeline->mtp = part;
        else if (strchr("EL,", *unrolled) == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%c' in the layout of the pipeline is not known", *unrolled);
    }
    return DCPK_OK;
}
