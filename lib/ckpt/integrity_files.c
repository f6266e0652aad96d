/* SPDX-License-Identifier: Apache-2.0 */
/* integrity_files.c - the SHA-256 of all files of a folder: which there are, and a list of them as
 * text. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/hex.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/integrity_priv.h"
#include "lib/io/sink.h"

#define MAX_DEPTH 64 /* folders in each other */
#define DIGITS    ((size_t)2 * DCPK_SHA256_BYTES)

static int compare_file_names(const void *a, const void *b)
{
    return strcmp(((const struct dcpk_file_sum *)a)->name, ((const struct dcpk_file_sum *)b)->name);
}

/* ---- which there are ---- */

struct walk {
    struct dcpk_store *store;
    struct dcpk_integrity *list;
    size_t capacity;
    const char **folders; /* still to be looked into; a stack */
    size_t n_folders, folders_capacity;
};

static dcpk_status push_folder(struct walk *w, const char *path, struct dcpk_error *err)
{
    size_t depth = 1;

    for (const char *c = path; *c != '\0'; c++)
        depth += *c == '/';
    if (depth > MAX_DEPTH)
        return dcpk_fail(err, DCPK_ERANGE, "'%.200s' is inside more than %d folders", path,
                         MAX_DEPTH);
    if (dcpk_grow(&w->folders, &w->folders_capacity, w->n_folders, sizeof *w->folders, err) !=
        DCPK_OK)
        return err->status;
    w->folders[w->n_folders++] = path;
    return DCPK_OK;
}

static dcpk_status add_file(struct walk *w, const char *path, struct dcpk_error *err)
{
    if (dcpk_grow(&w->list->files, &w->capacity, w->list->n_files, sizeof *w->list->files, err) !=
        DCPK_OK)
        return err->status;
    w->list->files[w->list->n_files++] = (struct dcpk_file_sum){.name = path};
    return DCPK_OK;
}

/* An entry of the folder at `path`, "" the store itself. */
static dcpk_status take_entry(struct walk *w, const char *path, const char *name,
                              struct dcpk_error *err)
{
    const char *whole =
        dcpk_arena_printf(w->list->arena, err, "%s%s%s", path, *path == '\0' ? "" : "/", name);
    enum dcpk_path_kind kind;

    if (whole == NULL || dcpk_store_look(w->store, whole, &kind, err) != DCPK_OK)
        return err->status;
    if (kind == DCPK_PATH_FOLDER)
        return push_folder(w, whole, err);
    if (kind != DCPK_PATH_FILE || strcmp(whole, DCPK_JOURNAL_NAME) == 0)
        return DCPK_OK;
    return add_file(w, whole, err);
}

static dcpk_status walk_folder(struct walk *w, const char *path, struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dcpk_status st;

    if (*path == '\0')
        st = dcpk_store_list(w->store, &names, &n, err);
    else
        st = dcpk_store_list_in(w->store, path, &names, &n, err);
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = take_entry(w, path, names[i], err);
    dcpk_free(names);
    return st;
}

static dcpk_status walk_all(struct walk *w, struct dcpk_error *err)
{
    if (push_folder(w, "", err) != DCPK_OK)
        return err->status;
    while (w->n_folders > 0)
        if (walk_folder(w, w->folders[--w->n_folders], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* Makes `list` of the files found, in an array of the arena as every list has it, by name. */
static dcpk_status sort_files(const struct dcpk_integrity *found, struct dcpk_integrity *list,
                              struct dcpk_error *err)
{
    struct dcpk_file_sum *files =
        dcpk_arena_array(found->arena, found->n_files, sizeof *files, err);

    if (files == NULL)
        return err->status;
    if (found->n_files > 0) {
        memcpy(files, found->files, found->n_files * sizeof *files);
        qsort(files, found->n_files, sizeof *files, compare_file_names);
    }
    *list = *found;
    list->files = files;
    return DCPK_OK;
}

dcpk_status dcpk_integrity_collect_all(struct dcpk_store *store, struct dcpk_integrity *list,
                                       struct dcpk_error *err)
{
    struct dcpk_integrity found = {.arena = dcpk_arena_new(0, err)};
    struct walk w = {.store = store, .list = &found};
    dcpk_status st;

    if (found.arena == NULL)
        return err->status;
    st = walk_all(&w, err);
    if (st == DCPK_OK)
        st = sort_files(&found, list, err);
    dcpk_free(found.files);
    dcpk_free(w.folders);
    if (st != DCPK_OK)
        dcpk_arena_free(found.arena);
    return st;
}

/* ---- a list as text ---- */

/* "<64 digits>  <name>", or " *" for sha256sum --binary; "./" in front of a name is dropped. */
static dcpk_status list_take_line(struct dcpk_integrity *list, const char *line, size_t n,
                                  struct dcpk_error *err)
{
    char digits[DIGITS + 1];
    const char *name;

    snprintf(digits, sizeof digits, "%.*s", (int)dcpk_min_size(n, DIGITS), line);
    if (n < DIGITS + 3 || line[DIGITS] != ' ' ||
        (line[DIGITS + 1] != ' ' && line[DIGITS + 1] != '*') ||
        !dcpk_hex_get(digits, list->files[list->n_files].sha256, DCPK_SHA256_BYTES))
        return dcpk_fail(err, DCPK_EFORMAT, "no SHA-256 and name of a file: \"%.*s\"",
                         (int)dcpk_min_size(n, 80), line);
    name = dcpk_arena_strndup(list->arena, line + DIGITS + 2, n - DIGITS - 2, err);
    if (name == NULL)
        return err->status;
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    return dcpk_integrity_add(list, name, err);
}

static dcpk_status list_take_lines(struct dcpk_integrity *list, const char *text, size_t n_bytes,
                                   struct dcpk_error *err)
{
    dcpk_status st = dcpk_integrity_begin(list, dcpk_count_lines(text, n_bytes), err);
    size_t at = 0, length;
    const char *line;

    while (st == DCPK_OK && (line = dcpk_take_line(text, n_bytes, &at, &length)) != NULL)
        st = list_take_line(list, line, length, err);
    return st;
}

dcpk_status dcpk_integrity_parse(const char *text, size_t n_bytes, struct dcpk_integrity *list,
                                 struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    dcpk_status st;

    if (n_bytes > 0 && text[0] == '{') {
        st = dcpk_json_parse(text, n_bytes, &doc, err);
        if (st == DCPK_OK)
            st = dcpk_integrity_take(list, doc, err);
        dcpk_json_free(doc);
    } else {
        st = list_take_lines(list, text, n_bytes, err);
    }
    if (st == DCPK_OK && list->n_files > 0)
        qsort(list->files, list->n_files, sizeof *list->files, compare_file_names);
    for (size_t i = 1; i < list->n_files && st == DCPK_OK; i++)
        if (strcmp(list->files[i - 1].name, list->files[i].name) == 0)
            st = dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is there twice", list->files[i].name);
    return st;
}

/* Takes `word` if it is next in the text, after white space: moves *at after it. */
static bool skip_word(const char *text, size_t n_bytes, const char *word, size_t *at)
{
    const size_t n = strlen(word);
    size_t i = *at;

    while (i < n_bytes && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t'))
        i++;
    if (n_bytes - i < n || memcmp(text + i, word, n) != 0)
        return false;
    *at = i + n;
    return true;
}

bool dcpk_integrity_is_list(const char *text, size_t n_bytes)
{
    size_t at = 0, n = 0;

    if (skip_word(text, n_bytes, "{", &at))
        return skip_word(text, n_bytes, "\"algorithm\"", &at) ||
               skip_word(text, n_bytes, "\"files\"", &at);
    while (n < n_bytes && n <= DIGITS && strchr("0123456789abcdef", text[n]) != NULL &&
           text[n] != '\0')
        n++;
    return n == DIGITS;
}
