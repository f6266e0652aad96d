/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c - recognises what people mistake for a checkpoint, by the names in a folder. */
#include "lib/ckpt/stranger.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"
#include "lib/ckpt/run_names.h"

#define MOST_FOLDERS 256 /* that are looked into */

/* Beside what formats know: names that give a folder away. */
static const struct dcpk_mark others[] = {
    {DCPK_MARK_OTHER, "iter_", ".dcpkit-partial",
     "a conversion to it was cut short and can be resumed"},
    {0},
};
static const struct dcpk_format no_format = {.marks = others};

/* The text of the format's first mark that a name fits. */
static const char *find_sign(const struct dcpk_format *format, char *const *names, size_t n)
{
    const struct dcpk_mark *best = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct dcpk_mark *mark = dcpk_mark_of(format, names[i]);

        if (mark != NULL && mark->kind > DCPK_MARK_INNER && mark->text != NULL &&
            (best == NULL || mark < best))
            best = mark;
    }
    if (best == NULL)
        return NULL;
    return best->text;
}

static const char *find_any_sign(const struct dcpk_format *const *formats, char *const *names,
                                 size_t n)
{
    for (; *formats != NULL; formats++) {
        const char *text = find_sign(*formats, names, n);

        if (text != NULL)
            return text;
    }
    return find_sign(&no_format, names, n);
}

/* Is there a file `name` in the folder `folder` of the store? */
static bool has(struct dcpk_store *store, const char *folder, const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    char *path = dcpk_run_text(&err, "%s/%s", folder, name);

    if (path != NULL && dcpk_store_look(store, path, &kind, &err) != DCPK_OK)
        kind = DCPK_PATH_NOTHING;
    dcpk_free(path);
    return kind == DCPK_PATH_FILE;
}

/* The first folder in it that is a run or a checkpoint, or belongs into one: *text: which of
 * them. */
static const char *find_inside(struct dcpk_store *store, const struct dcpk_format *const *formats,
                               char *const *names, size_t n, const char **text)
{
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    const size_t n_marks = dcpk_marks_list(formats, DCPK_MARK_INNER, marks);

    for (size_t i = 0; i < n && i < MOST_FOLDERS; i++) {
        for (size_t m = 0; m < n_marks; m++)
            if (has(store, names[i], marks[m]->start)) {
                *text = marks[m]->text;
                return names[i];
            }
        if (has(store, names[i], DCPK_TRACKER_NAME))
            return names[i];
    }
    return NULL;
}

const char *dcpk_stranger_hint(struct dcpk_store *store, const struct dcpk_format *const *formats,
                               char text[DCPK_STRANGER_BYTES])
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *sign, *inside = NULL, *what = NULL;
    char **names;
    size_t n;

    text[0] = '\0';
    if (dcpk_store_list(store, &names, &n, &err) != DCPK_OK)
        return text;
    sign = find_any_sign(formats, names, n);
    if (sign == NULL)
        inside = find_inside(store, formats, names, n, &what);
    if (n == 0)
        snprintf(text, DCPK_STRANGER_BYTES, "; it is empty");
    else if (sign != NULL)
        snprintf(text, DCPK_STRANGER_BYTES, "; %s", sign);
    else if (what != NULL)
        snprintf(text, DCPK_STRANGER_BYTES, "; its folder '%s' is %s", inside, what);
    else if (inside != NULL)
        snprintf(text, DCPK_STRANGER_BYTES, "; give a folder in it, such as '%s'", inside);
    dcpk_free(names);
    return text;
}
