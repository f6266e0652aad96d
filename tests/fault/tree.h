/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - files and folders as one number each, to see whether they are what they were. */
#ifndef DCPK_TESTS_FAULT_TREE_H
#define DCPK_TESTS_FAULT_TREE_H

#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "tests/check.h"

/* Of names, kinds and contents; 0: nothing is there. */
typedef uint64_t tree_print;

static inline void tree_add_file(XXH3_state_t *state, const char *path)
{
    static char block[1 << 16];
    FILE *file = fopen(path, "rb");
    size_t n;

    CHECK(file != NULL, path);
    while ((n = fread(block, 1, sizeof block, file)) > 0)
        XXH3_64bits_update(state, block, n);
    CHECK(!ferror(file), path);
    fclose(file);
}

static inline int tree_by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* left_out: a name directly in it that does not count; NULL: none. */
static inline tree_print tree_of_but(const char *path, const char *left_out)
{
    char copy[8192];
    char *const roots[] = {copy, NULL};
    XXH3_state_t *state = XXH3_createState();
    const size_t n_root = strlen(path);
    tree_print print = 0;
    FTS *walk;

    snprintf(copy, sizeof copy, "%s", path);
    walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, tree_by_name);
    CHECK(state != NULL && walk != NULL, path);
    XXH3_64bits_reset(state);
    for (FTSENT *e; (e = fts_read(walk)) != NULL;) {
        const char *name = e->fts_path + n_root;
        const unsigned short kind = e->fts_info;

        if (kind == FTS_NS && e->fts_level == FTS_ROOTLEVEL)
            goto out; /* not there */
        if (kind == FTS_DP)
            continue;
        if (e->fts_level == 1 && left_out != NULL && strcmp(e->fts_name, left_out) == 0)
            continue;
        CHECK(kind == FTS_D || kind == FTS_F || kind == FTS_SL, e->fts_path);
        XXH3_64bits_update(state, &kind, sizeof kind);
        XXH3_64bits_update(state, name, strlen(name) + 1);
        XXH3_64bits_update(state, &e->fts_statp->st_size, kind == FTS_F ? sizeof(off_t) : 0);
        if (kind == FTS_F)
            tree_add_file(state, e->fts_path);
    }
    print = XXH3_64bits_digest(state) | 1;
out:
    fts_close(walk);
    XXH3_freeState(state);
    return print;
}

static inline tree_print tree_of(const char *path)
{
    return tree_of_but(path, NULL);
}

/* Delete what is there; nothing is fine. */
static inline void tree_delete(const char *path)
{
    char copy[8192];
    char *const roots[] = {copy, NULL};
    FTS *walk;

    snprintf(copy, sizeof copy, "%s", path);
    walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    CHECK(walk != NULL, path);
    for (FTSENT *e; (e = fts_read(walk)) != NULL;)
        if (e->fts_info != FTS_D && e->fts_info != FTS_NS)
            CHECK(remove(e->fts_path) == 0, e->fts_path);
    fts_close(walk);
}

#endif
