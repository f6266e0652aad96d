/* SPDX-License-Identifier: Apache-2.0 */
/* extras.c - copies the files that lie beside a checkpoint. */
#include "lib/exec/extras.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/path.h"

#define MAX_NAME_BYTES 512

/* Say that it stays behind, if it does. */
static bool is_private(struct dcpk_checkpoint *ckpt, const char *name)
{
    if (!dcpk_store_leads_to_private(ckpt->store, name))
        return false;
    dcpk_checkpoint_note(ckpt,
                         "'%s' is not carried over: it is a link to what fewer may read than the "
                         "checkpoint",
                         name);
    return true;
}

static dcpk_status copy_file(struct dcpk_checkpoint *ckpt, const char *name,
                             struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_source *source;
    dcpk_status st;

    if (is_private(ckpt, name))
        return DCPK_OK;
    st = dcpk_store_find(ckpt->store, name, &source, err);
    return st == DCPK_OK ? dcpk_folder_copy(folder, name, source, err) : st;
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

/* A store of ranges, an archive, lists a folder by what is in it, but finds nothing of its name. */
static dcpk_status copy_entry(struct dcpk_checkpoint *ckpt, const char *name,
                              struct dcpk_folder *folder, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    dcpk_status st = dcpk_store_look(ckpt->store, name, &kind, err);

    if (st == DCPK_OK && kind == DCPK_PATH_FILE)
        st = copy_file(ckpt, name, folder, err);
    else if (st == DCPK_OK && kind != DCPK_PATH_OTHER && !is_private(ckpt, name))
        st = copy_folder(ckpt, name, folder, err);
    if (st != DCPK_OK)
        dcpk_context(err, "carrying '%s' along", name);
    return st;
}

dcpk_status dcpk_extras_copy(struct dcpk_checkpoint *ckpt, const char *const *names,
                             struct dcpk_folder *folder, struct dcpk_error *err)
{
    char **there;
    size_t n;
    dcpk_status st = dcpk_store_list(ckpt->store, &there, &n, err);

    if (st != DCPK_OK)
        return st;
    for (; *names != NULL && st == DCPK_OK; names++)
        for (size_t i = 0; i < n && st == DCPK_OK; i++)
            if (strcmp(there[i], *names) == 0 && (i == 0 || strcmp(there[i - 1], *names) != 0))
                st = copy_entry(ckpt, *names, folder, err);
    dcpk_free(there);
    return st;
}
