/* SPDX-License-Identifier: Apache-2.0 */
/* integrity.c - the SHA-256 of all files of a folder: which there are, and a list of them as
 * Megatron's integrity.json or as text. */
#include "lib/ckpt/integrity.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/hex.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/io/sink.h"

#define MAX_LIST_BYTES (UINT64_C(32) << 20) /* 300 000 files */
#define ALGORITHM      "sha256"

void dcpk_integrity_release(struct dcpk_integrity *list)
{
    dcpk_arena_free(list->arena);
    *list = (struct dcpk_integrity){0};
}

/* An arena and room for n files. */
static dcpk_status integrity_begin(struct dcpk_integrity *list, size_t n, struct dcpk_error *err)
{
    list->arena = dcpk_arena_new();
    list->files = dcpk_arena_array(list->arena, n, sizeof *list->files, err);
    if (list->files == NULL)
        return err->status;
    return DCPK_OK;
}

/* A file (its name is copied) with the sum that its place has. There must be room. */
static dcpk_status integrity_add(struct dcpk_integrity *list, const char *name,
                                 struct dcpk_error *err)
{
    struct dcpk_file_sum *file = &list->files[list->n_files];

    file->name = dcpk_arena_strdup(list->arena, name, err);
    if (file->name == NULL)
        return err->status;
    list->n_files++;
    return DCPK_OK;
}

static dcpk_status check_algorithm(const struct dcpk_json *node, struct dcpk_error *err)
{
    const char *name = dcpk_json_string(node);

    if (node == NULL || (name != NULL && strcmp(name, ALGORITHM) == 0))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "the algorithm '%.40s' is not known, Megatron writes " ALGORITHM,
                     dcpk_text_or(name, ""));
}

static dcpk_status list_take_files(struct dcpk_integrity *list, const struct dcpk_json *files,
                                   struct dcpk_error *err)
{
    size_t n = 0;
    dcpk_status st;

    if (files == NULL || dcpk_json_kind(files) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "it has no object 'files'");
    for (const struct dcpk_json *f = dcpk_json_first(files); f != NULL; f = dcpk_json_next(f))
        n++;
    st = integrity_begin(list, n, err);
    for (const struct dcpk_json *f = dcpk_json_first(files); f != NULL && st == DCPK_OK;
         f = dcpk_json_next(f)) {
        const char *digits = dcpk_json_string(f);

        if (digits == NULL ||
            !dcpk_hex_get(digits, list->files[list->n_files].sha256, DCPK_SHA256_BYTES))
            return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' has no SHA-256 in lowercase hex",
                             dcpk_json_key(f));
        st = integrity_add(list, dcpk_json_key(f), err);
    }
    return st;
}

/* Begins the list and fills it from a parsed document. */
static dcpk_status integrity_take(struct dcpk_integrity *list, const struct dcpk_json *doc,
                                  struct dcpk_error *err)
{
    if (dcpk_json_kind(doc) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "it is not a JSON object");
    if (check_algorithm(dcpk_json_member(doc, "algorithm"), err) != DCPK_OK)
        return err->status;
    return list_take_files(list, dcpk_json_member(doc, "files"), err);
}

dcpk_status dcpk_integrity_read(struct dcpk_store *store, struct dcpk_integrity *list,
                                struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    dcpk_status st = dcpk_json_read(store, DCPK_INTEGRITY_NAME, MAX_LIST_BYTES, &doc, err);

    if (st == DCPK_OK)
        st = integrity_take(list, doc, err);
    dcpk_json_free(doc);
    if (st != DCPK_OK)
        dcpk_context(err, "reading '" DCPK_INTEGRITY_NAME "'");
    return st;
}

/* Add a file of the folder, unless it is the list's or the journal's. */
static dcpk_status list_collect(struct dcpk_store *store, struct dcpk_integrity *list,
                                const char *name, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (strcmp(name, DCPK_INTEGRITY_NAME) == 0 || strcmp(name, DCPK_JOURNAL_NAME) == 0)
        return DCPK_OK;
    if (dcpk_store_look(store, name, &kind, err) != DCPK_OK)
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return DCPK_OK;
    return integrity_add(list, name, err);
}

dcpk_status dcpk_integrity_collect(struct dcpk_store *store, struct dcpk_integrity *list,
                                   struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_list(store, &names, &n, err);

    if (st == DCPK_OK)
        st = integrity_begin(list, n, err);
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = list_collect(store, list, names[i], err);
    dcpk_free(names);
    return st;
}

void dcpk_integrity_put_members(const struct dcpk_integrity *list, struct dcpk_json_out *j)
{
    char digits[2 * DCPK_SHA256_BYTES + 1];

    dcpk_json_add_string(j, "algorithm", ALGORITHM);
    dcpk_json_put_key(j, "files");
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < list->n_files; i++)
        dcpk_json_add_string(j, list->files[i].name,
                             dcpk_hex_put(list->files[i].sha256, DCPK_SHA256_BYTES, digits));
    dcpk_json_end_object(j);
}

void dcpk_integrity_put(const struct dcpk_integrity *list, struct dcpk_bytes *text)
{
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, text, 2);
    dcpk_json_begin_object(&j);
    dcpk_integrity_put_members(list, &j);
    dcpk_json_end_object(&j);
}

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
        dcpk_arena_copy(found->arena, found->files, found->n_files, sizeof *files, err);

    if (files == NULL)
        return err->status;
    qsort(files, found->n_files, sizeof *files, compare_file_names);
    *list = *found;
    list->files = files;
    return DCPK_OK;
}

dcpk_status dcpk_integrity_collect_all(struct dcpk_store *store, struct dcpk_integrity *list,
                                       struct dcpk_error *err)
{
    struct dcpk_integrity found = {.arena = dcpk_arena_new()};
    struct walk w = {.store = store, .list = &found};
    dcpk_status st = walk_all(&w, err);

    if (st == DCPK_OK)
        st = sort_files(&found, list, err);
    dcpk_free(found.files);
    dcpk_free(w.folders);
    if (st != DCPK_OK)
        dcpk_arena_free(found.arena);
    return st;
}

/* ---- a list as text ---- */

/* "<64 digits>  <name>", or " *" for sha256sum --binary; "./" before a name is dropped. */
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
    return integrity_add(list, name, err);
}

static dcpk_status list_take_lines(struct dcpk_integrity *list, const char *text, size_t n_bytes,
                                   struct dcpk_error *err)
{
    dcpk_status st = integrity_begin(list, dcpk_count_lines(text, n_bytes), err);
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
            st = integrity_take(list, doc, err);
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
