/* SPDX-License-Identifier: Apache-2.0 */
/* integrity.c - reads and writes Megatron's integrity.json. */
#include "lib/ckpt/integrity.h"

#include "lib/base/alloc.h"
#include "lib/base/hex.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/ckpt/integrity_priv.h"
#include "lib/io/sink.h"

#define MAX_LIST_BYTES (UINT64_C(32) << 20) /* 300 000 files */
#define ALGORITHM      "sha256"

void dcpk_integrity_release(struct dcpk_integrity *list)
{
    dcpk_arena_free(list->arena);
    *list = (struct dcpk_integrity){0};
}

dcpk_status dcpk_integrity_begin(struct dcpk_integrity *list, size_t n, struct dcpk_error *err)
{
    list->arena = dcpk_arena_new(0, err);
    if (list->arena == NULL)
        return err->status;
    list->files = dcpk_arena_array(list->arena, n, sizeof *list->files, err);
    if (list->files == NULL)
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_integrity_add(struct dcpk_integrity *list, const char *name,
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
        return dcpk_fail(err, DCPK_EFORMAT, "there is no object 'files'");
    for (const struct dcpk_json *f = dcpk_json_first(files); f != NULL; f = dcpk_json_next(f))
        n++;
    st = dcpk_integrity_begin(list, n, err);
    for (const struct dcpk_json *f = dcpk_json_first(files); f != NULL && st == DCPK_OK;
         f = dcpk_json_next(f)) {
        const char *digits = dcpk_json_string(f);

        if (digits == NULL ||
            !dcpk_hex_get(digits, list->files[list->n_files].sha256, DCPK_SHA256_BYTES))
            return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' has no SHA-256 in lowercase hex",
                             dcpk_json_key(f));
        st = dcpk_integrity_add(list, dcpk_json_key(f), err);
    }
    return st;
}

dcpk_status dcpk_integrity_take(struct dcpk_integrity *list, const struct dcpk_json *doc,
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
        st = dcpk_integrity_take(list, doc, err);
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
    return dcpk_integrity_add(list, name, err);
}

dcpk_status dcpk_integrity_collect(struct dcpk_store *store, struct dcpk_integrity *list,
                                   struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dcpk_status st = dcpk_store_list(store, &names, &n, err);

    if (st == DCPK_OK)
        st = dcpk_integrity_begin(list, n, err);
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
