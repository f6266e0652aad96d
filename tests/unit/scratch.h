/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a folder that a test may fill; gone when the test ends. */
#ifndef DCPK_TESTS_UNIT_SCRATCH_H
#define DCPK_TESTS_UNIT_SCRATCH_H

#include <dirent.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static char scratch_root[4096];

static inline int scratch_setup(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(scratch_root, sizeof scratch_root, "%s/dcpkit-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(scratch_root) == NULL ? -1 : 0;
}

static inline int scratch_remove_entry(const char *path, const struct stat *info, int kind,
                                       struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    return nftw(scratch_root, scratch_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* "<scratch folder>/<name>", valid until the fourth call after this one. */
static inline const char *scratch(const char *name)
{
    static char paths[4][8192];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", scratch_root, name);
    return path;
}

/* Delete a file or folder of the scratch folder, with all in it. */
static inline void scratch_clean(const char *name)
{
    CHECK_EQ_INT(nftw(scratch(name), scratch_remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0, name);
}

/* Is there an entry of the folder itself whose name holds `part`? */
static inline bool scratch_has_like(const char *part)
{
    DIR *folder = opendir(scratch_root);
    const struct dirent *entry;
    bool found = false;

    CHECK(folder != NULL, scratch_root);
    while ((entry = readdir(folder)) != NULL)
        found |= strstr(entry->d_name, part) != NULL;
    closedir(folder);
    return found;
}

static inline void scratch_write(const char *name, const char *text)
{
    FILE *f = fopen(scratch(name), "w");

    if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0)
        fail_msg("cannot write %s", scratch(name));
}

/* The text of a file, or NULL when there is none; valid until the next call. */
static inline const char *scratch_read(const char *name)
{
    static char text[4096];
    FILE *f = fopen(scratch(name), "r");

    if (f == NULL)
        return NULL;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static inline bool scratch_has(const char *name)
{
    struct stat info;

    return lstat(scratch(name), &info) == 0;
}

#endif
