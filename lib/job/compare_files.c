/* SPDX-License-Identifier: Apache-2.0 */
/* compare_files.c - files next to the tensors and objects of two checkpoints, by name and bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "lib/job/compare_priv.h"

#define MAX_FILES  100000 /* next to one checkpoint; a tokenizer has a dozen */
#define MAX_DEPTH  8      /* of folders in folders: a link may lead to what holds it */
#define PART_BYTES ((size_t)1 << 20)

/* Files next to a checkpoint's own. */
struct side_files {
    struct dcpk_checkpoint *ckpt;
    const char **names; /* owned; each in the report's arena, of a folder with a slash at its end */
    size_t n, capacity;
};

/* The common state is compared by its values; between two formats that of each is its own. */
static bool is_compared_elsewhere(const struct dcpk_comparing *c,
                                  const struct dcpk_checkpoint *ckpt, const char *name)
{
    const struct dcpk_mark *mark = dcpk_mark_of(ckpt->format, name);

    if (ckpt->format->reader->is_own(ckpt, name) || (mark != NULL && mark->kind == DCPK_MARK_PART))
        return true;
    return !c->same_format && mark != NULL && mark->kind == DCPK_MARK_CHECKPOINT;
}

/* A store of ranges, an archive, lists a folder by what is in it, but finds nothing of its name. */
static bool is_folder_of_archive(struct dcpk_store *store, const char *path)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* a link that leads nowhere is an entry as well */
    char **names = NULL;
    size_t n;
    const bool is_folder = dcpk_store_list_in(store, path, &names, &n, &ignored) == DCPK_OK;

    dcpk_free(names);
    return is_folder;
}

static dcpk_status list_entries(struct dcpk_store *store, const char *folder, char ***names,
                                size_t *n, struct dcpk_error *err)
{
    const size_t length = strlen(folder);
    char *bare;
    dcpk_status st;

    if (length == 0)
        return dcpk_store_list(store, names, n, err);
    bare = dcpk_alloc(length, err);
    if (bare == NULL)
        return err->status;
    memcpy(bare, folder, length - 1); /* without the slash at its end */
    bare[length - 1] = '\0';
    st = dcpk_store_list_in(store, bare, names, n, err);
    dcpk_free(bare);
    return st;
}

/* Append "folder" + "name" + "/" where it is a folder. */
static dcpk_status add_entry(struct dcpk_comparing *c, struct side_files *found, const char *folder,
                             const char *name, struct dcpk_error *err)
{
    struct dcpk_store *store = found->ckpt->store;
    const char *path = dcpk_arena_printf(c->report->arena, err, "%s%s", folder, name);
    enum dcpk_path_kind kind;

    if (path == NULL || dcpk_store_look(store, path, &kind, err) != DCPK_OK)
        return err->status;
    if (kind == DCPK_PATH_FOLDER ||
        (kind == DCPK_PATH_NOTHING && is_folder_of_archive(store, path)))
        path = dcpk_arena_printf(c->report->arena, err, "%s/", path);
    if (path == NULL)
        return err->status;
    if (found->n >= MAX_FILES)
        return dcpk_fail(err, DCPK_ERANGE, "more than %d files lie next to the tensors of '%s'",
                         MAX_FILES, dcpk_store_path(store));
    if (dcpk_grow(&found->names, &found->capacity, found->n, sizeof *found->names, err) != DCPK_OK)
        return err->status;
    found->names[found->n++] = path;
    return DCPK_OK;
}

/* folder: "" is the checkpoint's own, another one ends with a slash. */
static dcpk_status list_folder(struct dcpk_comparing *c, struct side_files *found,
                               const char *folder, struct dcpk_error *err)
{
    const bool is_top = *folder == '\0';
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = list_entries(found->ckpt->store, folder, &names, &n, err);

    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        const bool is_again = i > 0 && strcmp(names[i], names[i - 1]) == 0; /* of an archive */

        if (!is_again && !(is_top && is_compared_elsewhere(c, found->ckpt, names[i])))
            st = add_entry(c, found, folder, names[i], err);
    }
    dcpk_free(names);
    return st;
}

static size_t count_slashes(const char *name)
{
    size_t n = 0;

    for (; *name != '\0'; name++)
        n += *name == '/';
    return n;
}

/* Folders are entries, too, and are gone through as they turn up. */
static dcpk_status list_side_files(struct dcpk_comparing *c, struct side_files *found,
                                   struct dcpk_error *err)
{
    dcpk_status st = list_folder(c, found, "", err);

    for (size_t i = 0; i < found->n && st == DCPK_OK; i++)
        if (dcpk_ends_with(found->names[i], "/") && count_slashes(found->names[i]) < MAX_DEPTH)
            st = list_folder(c, found, found->names[i], err);
    if (st == DCPK_OK && found->n > 0)
        qsort(found->names, found->n, sizeof *found->names, dcpk_compare_texts);
    return st;
}

/* ---- bytes ---- */

static dcpk_status compare_part(const struct dcpk_range range[2], uint64_t at, size_t n,
                                uint8_t *buffer, size_t *first, struct dcpk_error *err)
{
    for (int s = 0; s < 2; s++)
        if (dcpk_source_read(range[s].file, range[s].offset_bytes + at,
                             buffer + (size_t)s * PART_BYTES, n, err))
            return err->status;
    for (*first = 0; *first < n && buffer[*first] == buffer[PART_BYTES + *first]; ++*first)
        ;
    return DCPK_OK;
}

dcpk_status dcpk_ranges_compare(const struct dcpk_range range[2],
                                const struct dcpk_progress *progress, uint64_t *first,
                                struct dcpk_error *err)
{
    const uint64_t n_both = dcpk_min_u64(range[0].n_bytes, range[1].n_bytes);
    uint8_t *buffer = dcpk_alloc(2 * PART_BYTES, err);
    size_t n = 0, n_same = 0;
    dcpk_status st = DCPK_OK;

    if (buffer == NULL)
        return err->status;
    for (*first = 0; *first < n_both && n_same == n && st == DCPK_OK; *first += n_same) {
        n = (size_t)dcpk_min_u64(n_both - *first, PART_BYTES);
        if (progress->update != NULL && !progress->update(progress->context, *first, n_both))
            st = dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
        else
            st = compare_part(range, *first, n, buffer, &n_same, err);
    }
    dcpk_free(buffer);
    return st;
}

static dcpk_status compare_file(struct dcpk_comparing *c, const char *name, struct dcpk_error *err)
{
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = name, .is_value = true};
    struct dcpk_range range[2] = {{0}, {0}};
    uint64_t first;

    for (int s = 0; s < 2; s++) {
        if (dcpk_store_find(c->side[s].ckpt->store, name, &range[s].file, err))
            return err->status;
        range[s].n_bytes = dcpk_source_bytes(range[s].file);
    }
    if (dcpk_ranges_compare(range, &c->options->env.progress, &first, err))
        return err->status;
    if (first == range[DCPK_A].n_bytes && first == range[DCPK_B].n_bytes)
        return DCPK_OK;
    if (dcpk_comparing_print(c, &d.a, err, "a file of %" PRIu64 " bytes", range[DCPK_A].n_bytes) ||
        dcpk_comparing_print(c, &d.b, err,
                             "a file of %" PRIu64 " that differs from byte %" PRIu64 " on",
                             range[DCPK_B].n_bytes, first))
        return err->status;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

static const char *kind_text(enum dcpk_path_kind kind)
{
    return kind == DCPK_PATH_FILE ? "a file" : "no plain file";
}

/* An entry of both: a file, a folder whose files are entries, or what is neither. */
static dcpk_status compare_entry(struct dcpk_comparing *c, const char *name, struct dcpk_error *err)
{
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = name, .is_value = true};
    enum dcpk_path_kind kind[2];

    c->report->n_values++;
    if (dcpk_ends_with(name, "/") || strcmp(name, DCPK_INTEGRITY_NAME) == 0)
        return DCPK_OK; /* checksums of files, whose content is compared itself */
    for (int s = 0; s < 2; s++)
        if (dcpk_store_look(c->side[s].ckpt->store, name, &kind[s], err))
            return err->status;
    if (kind[DCPK_A] == DCPK_PATH_FILE && kind[DCPK_B] == DCPK_PATH_FILE)
        return compare_file(c, name, err);
    if (kind[DCPK_A] == kind[DCPK_B])
        return DCPK_OK;
    d.a = kind_text(kind[DCPK_A]);
    d.b = kind_text(kind[DCPK_B]);
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

static dcpk_status add_single(struct dcpk_comparing *c, const char *name, enum dcpk_side side,
                              struct dcpk_error *err)
{
    const struct dcpk_difference d = {.kind = dcpk_only_in(side), .name = name, .is_value = true};

    c->report->n_values++;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* Below 0: the next name is A's alone, above 0: B's. */
static int order_next(const struct side_files *a, size_t i, const struct side_files *b, size_t j)
{
    if (j == b->n)
        return -1;
    if (i == a->n)
        return 1;
    return strcmp(a->names[i], b->names[j]);
}

/* Go through the names of both in order. */
static dcpk_status compare_names(struct dcpk_comparing *c, const struct side_files *a,
                                 const struct side_files *b, struct dcpk_error *err)
{
    size_t i = 0, j = 0;

    while (i < a->n || j < b->n) {
        const int order = order_next(a, i, b, j);
        dcpk_status st;

        if (order == 0)
            st = compare_entry(c, a->names[i], err);
        else if (order < 0)
            st = add_single(c, a->names[i], DCPK_A, err);
        else
            st = add_single(c, b->names[j], DCPK_B, err);
        if (st != DCPK_OK)
            return st;
        i += order <= 0;
        j += order >= 0;
    }
    return DCPK_OK;
}

dcpk_status dcpk_comparing_files(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct side_files side[2] = {{.ckpt = c->side[DCPK_A].ckpt}, {.ckpt = c->side[DCPK_B].ckpt}};
    dcpk_status st = list_side_files(c, &side[DCPK_A], err);

    if (st == DCPK_OK)
        st = list_side_files(c, &side[DCPK_B], err);
    if (st == DCPK_OK)
        st = compare_names(c, &side[DCPK_A], &side[DCPK_B], err);
    dcpk_free(side[DCPK_B].names);
    dcpk_free(side[DCPK_A].names);
    return st;
}
