/* SPDX-License-Identifier: Apache-2.0 */
/* compare_files.c - files beside the tensors and objects of two checkpoints, by name and bytes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "lib/job/compare_priv.h"

#define MOST_FILES 100000 /* beside one checkpoint; a tokenizer has a dozen */
#define MOST_DEPTH 8      /* of folders in folders: a link may lead to what holds it */
#define PART_BYTES ((size_t)1 << 20)

/* Files beside a checkpoint's own. */
struct beside {
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
static dcpk_status add_entry(struct dcpk_comparing *c, struct beside *found, const char *folder,
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
    if (found->n >= MOST_FILES)
        return dcpk_fail(err, DCPK_ERANGE, "more than %d files lie beside the tensors of '%s'",
                         MOST_FILES, dcpk_store_path(store));
    if (dcpk_grow(&found->names, &found->capacity, found->n, sizeof *found->names, err) != DCPK_OK)
        return err->status;
    found->names[found->n++] = path;
    return DCPK_OK;
}

/* folder: "" is the checkpoint's own, another one ends with a slash. */
static dcpk_status list_folder(struct dcpk_comparing *c, struct beside *found, const char *folder,
                               struct dcpk_error *err)
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

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Folders are entries, too, and are gone through as they turn up. */
static dcpk_status list_beside(struct dcpk_comparing *c, struct beside *found,
                               struct dcpk_error *err)
{
    dcpk_status st = list_folder(c, found, "", err);

    for (size_t i = 0; i < found->n && st == DCPK_OK; i++)
        if (dcpk_ends_with(found->names[i], "/") && count_slashes(found->names[i]) < MOST_DEPTH)
            st = list_folder(c, found, found->names[i], err);
    if (st == DCPK_OK && found->n > 0)
        qsort(found->names, found->n, sizeof *found->names, by_name);
    return st;
}

/* ---- bytes ---- */

/* The first byte that differs, or the length of the shorter one: of two equal files both. */
static dcpk_status find_first(struct dcpk_source *a, struct dcpk_source *b, uint64_t *first,
                              struct dcpk_error *err)
{
    const uint64_t n_a = dcpk_source_bytes(a), n_b = dcpk_source_bytes(b);
    const uint64_t n_both = n_a < n_b ? n_a : n_b;
    uint8_t *buffer = dcpk_alloc(2 * PART_BYTES, err);
    dcpk_status st = buffer == NULL ? err->status : DCPK_OK;
    bool same = true;
    uint64_t at = 0;

    while (at < n_both && same && st == DCPK_OK) {
        const size_t n = n_both - at < PART_BYTES ? (size_t)(n_both - at) : PART_BYTES;
        size_t i = 0;

        st = dcpk_source_read(a, at, buffer, n, err);
        if (st == DCPK_OK)
            st = dcpk_source_read(b, at, buffer + PART_BYTES, n, err);
        while (st == DCPK_OK && i < n && buffer[i] == buffer[PART_BYTES + i])
            i++;
        same = i == n;
        at += i;
    }
    dcpk_free(buffer);
    if (st == DCPK_OK)
        *first = at;
    return st;
}

static dcpk_status compare_file(struct dcpk_comparing *c, const char *name, struct dcpk_error *err)
{
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = name, .is_value = true};
    struct dcpk_arena *arena = c->report->arena;
    struct dcpk_source *a, *b;
    uint64_t first;

    if (dcpk_store_find(c->a->store, name, &a, err) ||
        dcpk_store_find(c->b->store, name, &b, err) || find_first(a, b, &first, err))
        return err->status;
    if (first == dcpk_source_bytes(a) && first == dcpk_source_bytes(b))
        return DCPK_OK;
    d.a = dcpk_arena_printf(arena, err, "a file of %" PRIu64 " bytes", dcpk_source_bytes(a));
    d.b =
        dcpk_arena_printf(arena, err, "a file of %" PRIu64 " that differs from byte %" PRIu64 " on",
                          dcpk_source_bytes(b), first);
    if (d.a == NULL || d.b == NULL)
        return err->status;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* An entry of both: a file, a folder whose files are entries, or what is neither. */
static dcpk_status compare_entry(struct dcpk_comparing *c, const char *name, struct dcpk_error *err)
{
    enum dcpk_path_kind a, b;
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = name, .is_value = true};

    c->report->n_values++;
    if (dcpk_ends_with(name, "/") || strcmp(name, DCPK_INTEGRITY_NAME) == 0)
        return DCPK_OK; /* checksums of files, whose content is compared itself */
    if (dcpk_store_look(c->a->store, name, &a, err) || dcpk_store_look(c->b->store, name, &b, err))
        return err->status;
    if (a == DCPK_PATH_FILE && b == DCPK_PATH_FILE)
        return compare_file(c, name, err);
    if (a == b)
        return DCPK_OK;
    d.a = a == DCPK_PATH_FILE ? "a file" : "no plain file";
    d.b = b == DCPK_PATH_FILE ? "a file" : "no plain file";
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

static dcpk_status add_single(struct dcpk_comparing *c, const char *name,
                              enum dcpk_difference_kind kind, struct dcpk_error *err)
{
    const struct dcpk_difference d = {.kind = kind, .name = name, .is_value = true};

    c->report->n_values++;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

dcpk_status dcpk_comparing_files(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct beside a = {.ckpt = c->a}, b = {.ckpt = c->b};
    dcpk_status st = list_beside(c, &a, err);
    size_t i = 0, j = 0;

    if (st == DCPK_OK)
        st = list_beside(c, &b, err);
    while ((i < a.n || j < b.n) && st == DCPK_OK) {
        const int order = j == b.n ? -1 : i == a.n ? 1 : strcmp(a.names[i], b.names[j]);

        if (order == 0)
            st = compare_entry(c, a.names[i], err);
        else
            st = add_single(c, order < 0 ? a.names[i] : b.names[j],
                            order < 0 ? DCPK_ONLY_IN_A : DCPK_ONLY_IN_B, err);
        i += order <= 0;
        j += order >= 0;
    }
    dcpk_free(b.names);
    dcpk_free(a.names);
    return st;
}
