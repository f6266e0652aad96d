/* SPDX-License-Identifier: Apache-2.0 */
/* run_below.c - the one checkpoint in a run folder of a trainer, as accelerate and others nest it.
 */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"
#include "lib/ckpt/run_names.h"
#include "lib/io/store.h"

#define MAX_LEVELS  3
#define MAX_VISITED 1000 /* folders */
#define MAX_FOUND   8    /* more are not listed */
#define MAX_FORMATS 8

struct looking {
    const struct dcpk_format *const *formats;
    const struct dcpk_format *schemes[MAX_FORMATS + 1]; /* those of `formats`; NULL-terminated */
    char *found[MAX_FOUND];
    size_t n_found, n_visited;
    bool has_run; /* of Megatron's: its folder must be given */
    char *cut;    /* a folder with parts of a checkpoint alone; NULL: there is none */
    const char *cut_text;
};

static void find_schemes(struct looking *l)
{
    size_t n = 0;

    for (const struct dcpk_format *const *f = l->formats; *f != NULL && n < MAX_FORMATS; f++)
        if ((*f)->container != NULL || (*f)->is_nested)
            l->schemes[n++] = *f;
}

static bool is_mark_of_scheme(const struct looking *l, const char *name)
{
    for (size_t i = 0; l->schemes[i] != NULL; i++)
        if (dcpk_mark_of(l->schemes[i], name) != NULL)
            return true;
    return false;
}

/* True if the folder has a mark of a scheme's container and of no other format. */
static dcpk_status is_of_scheme(const struct looking *l, const char *folder, bool *has_mark,
                                bool *is, struct dcpk_error *err)
{
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    const size_t n = dcpk_marks_list(l->formats, DCPK_MARK_INNER, marks);

    if (dcpk_run_find_mark(folder, l->schemes, is, err))
        return err->status;
    *has_mark = *is;
    for (size_t i = 0; i < n; i++) {
        char *path = dcpk_run_text(err, "%s/%s", folder, marks[i]->start);
        enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

        if (path != NULL)
            (void)dcpk_run_look(path, &kind, err);
        dcpk_free(path);
        if (err->status != DCPK_OK)
            return err->status;
        if (kind != DCPK_PATH_FILE)
            continue;
        *has_mark = true;
        *is = *is && is_mark_of_scheme(l, marks[i]->start);
    }
    return DCPK_OK;
}

/* A folder that cannot be read is none of those looked for. */
static void pass_over(struct dcpk_error *err)
{
    if (err->status != DCPK_ENOMEM)
        dcpk_error_clear(err);
}

/* Keeps the first folder that has parts of a scheme's checkpoint and not the file that makes it
 * one. */
static dcpk_status find_cut(struct looking *l, const char *folder, char *const *names, size_t n,
                            struct dcpk_error *err)
{
    const char *text = dcpk_marks_sign(l->schemes, names, n);

    if (l->cut != NULL || text == NULL)
        return DCPK_OK;
    l->cut = dcpk_run_text(err, "%s", folder);
    l->cut_text = text;
    return dcpk_made(l->cut, err);
}

static dcpk_status look_below(struct looking *l, const char *folder, int level,
                              struct dcpk_error *err);

/* One folder: a checkpoint, a run of Megatron's, or a folder to look into. Owns path. */
static dcpk_status look_at(struct looking *l, char *path, int level, struct dcpk_error *err)
{
    bool has_mark = false, is = false;
    int64_t iteration = DCPK_ITERATION_UNKNOWN;

    if (is_of_scheme(l, path, &has_mark, &is, err) == DCPK_OK)
        (void)dcpk_run_read_tracker(path, &iteration, err);
    l->has_run |= iteration != DCPK_ITERATION_UNKNOWN || (has_mark && !is) ||
                  dcpk_run_path_iteration(path) != DCPK_ITERATION_UNKNOWN;
    if (err->status == DCPK_OK && is && l->n_found < MAX_FOUND) {
        l->found[l->n_found++] = path;
        return DCPK_OK;
    }
    if (err->status == DCPK_OK && !has_mark && !l->has_run)
        (void)look_below(l, path, level + 1, err);
    dcpk_free(path);
    return err->status;
}

static dcpk_status look_below(struct looking *l, const char *folder, int level,
                              struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    char **names = NULL;
    size_t n = 0;

    if (dcpk_store_open(folder, &store, err) == DCPK_OK)
        (void)dcpk_store_list(store, &names, &n, err);
    dcpk_store_close(store);
    if (err->status == DCPK_OK && level > 1)
        (void)find_cut(l, folder, names, n, err);
    if (level > MAX_LEVELS)
        n = 0;
    for (size_t i = 0; i < n && err->status == DCPK_OK && l->n_visited < MAX_VISITED; i++) {
        char *path = dcpk_run_text(err, "%s/%s", folder, names[i]);
        enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

        l->n_visited++;
        if (path == NULL || dcpk_run_look(path, &kind, err) || kind != DCPK_PATH_FOLDER)
            dcpk_free(path);
        else
            (void)look_at(l, path, level, err);
        pass_over(err);
    }
    dcpk_free(names);
    pass_over(err);
    return err->status;
}

/* True if it is named as an optimizer's folder, and another one is next to it: what a model is,
 * its keys show. */
static bool is_optimizer(const struct looking *l, size_t at)
{
    const char *name = dcpk_name_last(l->found[at]);
    const size_t n = (size_t)(name - l->found[at]);

    for (size_t i = 0; dcpk_starts_with(name, "optim") && i < l->n_found; i++)
        if (i != at && strncmp(l->found[i], l->found[at], n) == 0 &&
            strchr(l->found[i] + n, '/') == NULL)
            return true;
    return false;
}

/* A model and its optimizer, one of each, are read as one: by the folder that they lie in. */
static dcpk_status choose(const struct looking *l, const char *path, char **folder,
                          struct dcpk_error *err)
{
    const int n_path = dcpk_run_trimmed(path) + 1; /* with a slash */
    const char *before = "it holds several checkpoints; give one of them: ";
    size_t n_models = 0, chosen = 0;

    for (size_t i = 0; i < l->n_found; i++)
        if (!is_optimizer(l, i)) {
            chosen = i;
            n_models++;
        }
    if (n_models == 1 && l->n_found <= 2 && l->cut == NULL) {
        const char *model = l->found[chosen];
        const int n = (int)(dcpk_name_last(model) - model) - 1;

        *folder = dcpk_run_text(err, "%.*s", l->n_found == 2 ? n : (int)strlen(model), model);
        return dcpk_made(*folder, err);
    }
    if (l->cut != NULL) {
        (void)dcpk_fail(err, DCPK_EFORMAT, "its folder '%s' is not whole: %s", l->cut + n_path,
                        l->cut_text);
        before = "; give one that is: ";
    } else
        (void)dcpk_fail(err, DCPK_EFORMAT, "%s", "");
    for (size_t i = 0; i < l->n_found; i++) {
        if (n_models > 1 && is_optimizer(l, i))
            continue;
        dcpk_append(err, "%s'%s'", before, l->found[i] + n_path);
        before = ", ";
    }
    return err->status;
}

dcpk_status dcpk_run_find_below(const char *path, const struct dcpk_format *const *formats,
                                char **folder, struct dcpk_error *err)
{
    struct looking l = {.formats = formats};
    char *top = dcpk_run_text(err, "%.*s", dcpk_run_trimmed(path), path);

    *folder = NULL;
    find_schemes(&l);
    if (top != NULL && l.schemes[0] != NULL)
        (void)look_below(&l, top, 1, err);
    if (err->status == DCPK_OK && !l.has_run && (l.n_found > 0 || l.cut != NULL))
        (void)choose(&l, top, folder, err);
    for (size_t i = 0; i < l.n_found; i++)
        dcpk_free(l.found[i]);
    dcpk_free(l.cut);
    dcpk_free(top);
    return err->status;
}
