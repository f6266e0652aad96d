/* SPDX-License-Identifier: Apache-2.0 */
/* extras.c - copies the files that lie beside a checkpoint. */
#include "lib/exec/extras.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/path.h"

#define MAX_NAME_BYTES 512

static dcpk_status copy_file(struct dcpk_store *store, const char *name, struct dcpk_folder *folder,
                             struct dcpk_error *err)
{
    struct dcpk_source *source;
    dcpk_status st = dcpk_store_find(store, name, &source, err);

    return st == DCPK_OK ? dcpk_folder_copy(folder, name, source, err) : st;
}

static dcpk_status copy_folder(struct dcpk_store *store, const char *name,
                               struct dcpk_folder *folder, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    char **names, inner[MAX_NAME_BYTES];
    size_t n;
    dcpk_status st = dcpk_store_list_in(store, name, &names, &n, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        const int length = snprintf(inner, sizeof inner, "%s/%s", name, names[i]);

        if (length < 0 || (size_t)length >= sizeof inner)
            continue; /* longer than any file system's names */
        st = dcpk_store_look(store, inner, &kind, err);
        if (st == DCPK_OK && kind == DCPK_PATH_FILE)
            st = copy_file(store, inner, folder, err);
    }
    dcpk_free(names);
    return st;
}

/* A store of ranges, an archive, lists a folder by what is in it, but finds nothing of its name. */
static dcpk_status copy_entry(struct dcpk_store *store, const char *name,
                              struct dcpk_folder *folder, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    dcpk_status st = dcpk_store_look(store, name, &kind, err);

    if (st == DCPK_OK && kind == DCPK_PATH_FILE)
        st = copy_file(store, name, folder, err);
    else if (st == DCPK_OK && kind != DCPK_PATH_OTHER)
        st = copy_folder(store, name, folder, err);
    if (st != DCPK_OK)
        dcpk_context(err, "carrying '%s' along", name);
    return st;
}

dcpk_status dcpk_extras_copy(struct dcpk_store *store, const char *const *names,
                             struct dcpk_folder *folder, struct dcpk_error *err)
{
    char **there;
    size_t n;
    dcpk_status st = dcpk_store_list(store, &there, &n, err);

    if (st != DCPK_OK)
        return st;
    for (; *names != NULL && st == DCPK_OK; names++)
        for (size_t i = 0; i < n && st == DCPK_OK; i++)
            if (strcmp(there[i], *names) == 0 && (i == 0 || strcmp(there[i - 1], *names) != 0))
                st = copy_entry(store, *names, folder, err);
    dcpk_free(there);
    return st;
}
