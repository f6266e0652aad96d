/* SPDX-License-Identifier: Apache-2.0 */
/* side_files.c - copies the files that are next to a checkpoint. */
#include "lib/exec/side_files.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/path.h"

#define MAX_NAME_BYTES 512

static dcpk_status copy_file(struct dcpk_checkpoint *ckpt, const char *name,
                             struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_source *source;

    if (dcpk_checkpoint_skips_private(ckpt, name, folder))
        return DCPK_OK;
    if (dcpk_store_find(ckpt->store, name, &source, err) != DCPK_OK)
        return err->status;
    return dcpk_folder_copy(folder, name, source, err);
}

static dcpk_status copy_folder(struct dcpk_checkpoint *ckpt, const char *name,
                               struct dcpk_folder *folder, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    char **names, inner[MAX_NAME_BYTES];
    size_t n;
    dcpk_status st = dcpk_store_list_in(ckpt->store, name, &names, &n, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        const int length = snprintf(inner, sizeof inner, "%s/%s", name, names[i]);

        if (length < 0 || (size_t)length >= sizeof inner)
            continue; /* longer than any file system's names */
        st = dcpk_store_look(ckpt->store, inner, &kind, err);
        if (st == DCPK_OK && kind == DCPK_PATH_FILE)
            st = copy_file(ckpt, inner, folder, err);
    }
    dcpk_free(names);
    return st;
}

/* The reason why the file `name` should not be loaded; *fault is NULL where it may be, or is
 * none. */
static dcpk_status look(struct dcpk_store *store, const struct dcpk_side_file *file,
                        struct dcpk_arena *arena, const char **fault, struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    struct dcpk_source *source;
    dcpk_status st = DCPK_OK;

    *fault = NULL;
    if (file->find_fault == NULL)
        return DCPK_OK;
    st = dcpk_store_look(store, file->name, &kind, err);
    if (st != DCPK_OK || kind != DCPK_PATH_FILE)
        return st;
    st = dcpk_store_find(store, file->name, &source, err);
    if (st == DCPK_OK)
        st = file->find_fault(source, arena, fault, err);
    if (st != DCPK_OK)
        dcpk_context(err, "looking into '%s'", file->name);
    return st;
}

/* A store of ranges, an archive, lists a folder by what is in it, but finds nothing of its name. */
static dcpk_status copy_entry(struct dcpk_checkpoint *ckpt, const char *name,
                              struct dcpk_folder *folder, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    dcpk_status st = dcpk_store_look(ckpt->store, name, &kind, err);

    if (st == DCPK_OK && kind == DCPK_PATH_FILE)
        st = copy_file(ckpt, name, folder, err);
    else if (st == DCPK_OK && kind != DCPK_PATH_OTHER &&
             !dcpk_checkpoint_skips_private(ckpt, name, folder))
        st = copy_folder(ckpt, name, folder, err);
    if (st != DCPK_OK)
        dcpk_context(err, "copying '%s' to the output", name);
    return st;
}

static bool is_among(char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

dcpk_status dcpk_side_files_copy(struct dcpk_output *out, const struct dcpk_side_file *file,
                                 struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = out->source;
    const char *fault;
    char **there;
    size_t n;
    dcpk_status st = dcpk_store_list(ckpt->store, &there, &n, err);

    if (st != DCPK_OK)
        return st;
    for (; file != NULL && file->name != NULL && st == DCPK_OK; file++) {
        if (!is_among(there, n, file->name))
            continue;
        st = look(ckpt->store, file, out->arena, &fault, err);
        if (st == DCPK_OK && fault == NULL)
            st = copy_entry(ckpt, file->name, folder, err);
        else if (st == DCPK_OK)
            dcpk_output_event(out, DCPK_EVENT_DROPPED, file->name, "%s", fault);
    }
    dcpk_free(there);
    return st;
}

dcpk_status dcpk_side_files_check(struct dcpk_store *store, const struct dcpk_side_file *file,
                                  struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    dcpk_status st = DCPK_OK;

    for (; file != NULL && file->name != NULL && st == DCPK_OK; file++) {
        const char *fault;

        st = look(store, file, arena, &fault, err);
        if (st == DCPK_OK && fault != NULL)
            st = dcpk_fail(err, DCPK_EFORMAT, "'%s': %s", file->name, fault);
    }
    dcpk_arena_free(arena);
    return st;
}
