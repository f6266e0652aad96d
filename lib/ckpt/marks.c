/* SPDX-License-Identifier: Apache-2.0 */
/* marks.c - looks through the marks of all formats. */
#include "lib/ckpt/marks.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/ckpt/format.h"

static bool mark_fits(const struct dcpk_mark *mark, const char *name)
{
    if (mark->end == NULL)
        return strcmp(name, mark->start) == 0;
    return dcpk_starts_with(name, mark->start) && dcpk_ends_with(name, mark->end);
}

const struct dcpk_mark *dcpk_mark_of(const struct dcpk_format *format, const char *name)
{
    for (const struct dcpk_mark *m = format->marks; m != NULL && m->start != NULL; m++)
        if (mark_fits(m, name))
            return m;
    return NULL;
}

size_t dcpk_marks_list(const struct dcpk_format *const *formats, enum dcpk_mark_kind most,
                       const struct dcpk_mark *list[DCPK_MAX_MARKS])
{
    size_t n = 0;

    for (; *formats != NULL; formats++)
        for (const struct dcpk_mark *m = (*formats)->marks; m != NULL && m->start != NULL; m++) {
            size_t i = 0;

            while (i < n && strcmp(list[i]->start, m->start) != 0)
                i++;
            if (m->kind > most || i < n)
                continue;
            assert(n < DCPK_MAX_MARKS);
            list[n++] = m;
        }
    return n;
}

const char *dcpk_marks_words(const struct dcpk_format *const *formats, enum dcpk_mark_kind most,
                             char text[DCPK_MARKS_BYTES])
{
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    const size_t n_marks = dcpk_marks_list(formats, most, marks);
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n_marks && n < DCPK_MARKS_BYTES; i++) {
        const char *joint = i + 1 == n_marks ? " or " : ", ";

        n += (size_t)snprintf(text + n, DCPK_MARKS_BYTES - n, "%s%s", i == 0 ? "" : joint,
                              marks[i]->start);
    }
    return text;
}
