/* SPDX-License-Identifier: Apache-2.0 */
/* archive.c - the checkpoint among an archive's members becomes a store. */
#include "formats/formats.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/archive/archive_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/bytes.h"

#define FREE_VALUE_BYTES (UINT64_C(512) << 10)

static int compare_archived(const void *a, const void *b)
{
    return strcmp(((const struct dcpk_member *)a)->name, ((const struct dcpk_member *)b)->name);
}

/* The plain files in order, first; the rest after them. */
static size_t sort_members(struct dcpk_member_list *list)
{
    size_t n_files = 0;

    for (size_t i = 0; i < list->n; i++)
        if (list->members[i].oddity == NULL) {
            const struct dcpk_member member = list->members[i];

            list->members[i] = list->members[n_files];
            list->members[n_files++] = member;
        }
    if (n_files > 0) /* else there may be no array */
        qsort(list->members, n_files, sizeof *list->members, compare_archived);
    return n_files;
}

/* For trackers: small, and before there is a store. */
static dcpk_status read_member(void *context, size_t i, char *text, size_t limit_bytes,
                               size_t *n_bytes, struct dcpk_error *err)
{
    const struct dcpk_member_list *list = context;
    const struct dcpk_member *member = &list->members[i];
    size_t at = 0;

    if (member->n_bytes > limit_bytes)
        return dcpk_fail(err, DCPK_ERANGE, "'%.200s' has %" PRIu64 " bytes, the limit is %zu",
                         member->name, member->n_bytes, limit_bytes);
    while (at < member->n_bytes) {
        const ssize_t got = pread(list->fd, text + at, (size_t)member->n_bytes - at,
                                  (off_t)(member->offset_bytes + at));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return dcpk_fail_errno(err, got < 0 ? errno : EIO, "reading '%.200s'", member->name);
        at += (size_t)got;
    }
    *n_bytes = at;
    return DCPK_OK;
}

static dcpk_status archive_find_run(struct dcpk_member_list *list, size_t n_files,
                                    const char *inner, const struct dcpk_format *const *formats,
                                    struct dcpk_run *run, struct dcpk_error *err)
{
    struct dcpk_run_files files = {
        .n = n_files, .read = read_member, .context = list, .formats = formats};
    char **names = dcpk_alloc_array(n_files, sizeof *names, err);

    if (names == NULL)
        return err->status;
    for (size_t i = 0; i < n_files; i++)
        names[i] = list->members[i].name;
    files.names = names;
    (void)dcpk_run_find_among(&files, inner, run, err);
    dcpk_free(names);
    return err->status;
}

/* The name of a member in the folder, or NULL when it is outside. */
static const char *name_in(const char *folder, const char *name)
{
    const size_t n = strlen(folder);

    if (n == 0)
        return name;
    return strncmp(name, folder, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

static dcpk_status fill_store(const struct dcpk_member_list *list, const char *folder,
                              struct dcpk_store *store, struct dcpk_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_member *member = &list->members[i];
        const char *name = name_in(folder, member->name);

        if (name == NULL)
            continue;
        if (member->oddity != NULL)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%.200s' is %s; a checkpoint in an archive has plain files only",
                             member->name, member->oddity);
        if (dcpk_store_add_range(store, name, member->offset_bytes, member->n_bytes, err) !=
            DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status add_note(const struct dcpk_member_list *list, struct dcpk_store *store,
                            struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};

    if (!list->is_unpacked)
        return DCPK_OK;
    dcpk_bytes_printf(&text,
                      "the members of '%s' cannot be read where they are (compressed or sparse): "
                      "all were unpacked once, to a temporary file of %" PRIu64 " bytes in '%s'",
                      list->path, list->unpacked_bytes, list->temporary);
    dcpk_bytes_u8(&text, 0);
    if (dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_store_set_note(store, (const char *)text.data, err);
    dcpk_bytes_release(&text);
    return err->status;
}

/* "run.tar:iter_0000004", or the path alone when the checkpoint is the archive's root. */
static char *shown_name(const char *path, const char *folder, struct dcpk_error *err)
{
    const size_t n_path = strlen(path), n_folder = strlen(folder);
    char *name = dcpk_alloc(n_path + n_folder + 2, err);

    if (name == NULL)
        return NULL;
    memcpy(name, path, n_path);
    if (n_folder > 0) {
        name[n_path] = ':';
        memcpy(name + n_path + 1, folder, n_folder);
    }
    return name;
}

static dcpk_status open_store(struct dcpk_member_list *list, struct dcpk_run *run,
                              struct dcpk_store **store, struct dcpk_error *err)
{
    char *folder = run->folder;
    struct dcpk_store *s = NULL;

    run->folder = shown_name(list->path, folder, err);
    if (run->folder == NULL || dcpk_store_new_ranges(run->folder, list->fd, &s, err))
        goto out;
    list->fd = -1; /* the store's now */
    if (fill_store(list, folder, s, err) || add_note(list, s, err)) {
        dcpk_store_close(s);
        goto out;
    }
    /*
     * Limits text and pickles to the size of the archive: unpacked data may be a thousand times as
     * large as the archive, and a value 65 times as large as its pickle. Small archives pass.
     */
    if (list->is_unpacked)
        dcpk_store_limit_values(s, FREE_VALUE_BYTES + list->archive_bytes);
    *store = s;
out:
    dcpk_free(folder);
    return err->status;
}

dcpk_status dcpk_archive_open(const char *path, const char *inner,
                              const struct dcpk_opening *opening, struct dcpk_run *run,
                              struct dcpk_store **store, struct dcpk_error *err)
{
    struct dcpk_member_list list = {.path = path, .progress = opening->progress, .fd = -1};
    struct dcpk_run found = {0};

    if (dcpk_archive_scan(&list, err) ||
        archive_find_run(&list, sort_members(&list), inner, opening->formats, &found, err) ||
        open_store(&list, &found, store, err)) {
        dcpk_run_release(&found);
        dcpk_context(err, "reading the archive '%s'", path);
    } else {
        found.is_archive = true;
        *run = found;
    }
    dcpk_archive_release(&list);
    return err->status;
}
