/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_read.c - index and headers -> tensors, a chunk each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/safetensors_header.h"
#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/tensor/strided.h"

/* Limit of the index: a name and a file for each of a million tensors. */
#define MAX_INDEX_BYTES (UINT64_C(256) << 20)

static dcpk_status entry_add_chunk(struct dcpk_checkpoint *ckpt,
                                   const struct dcpk_safetensors_entry *entry,
                                   const struct dcpk_place *data, struct dcpk_error *err)
{
    struct dcpk_safetensors_state *state = ckpt->state;
    const size_t rank = (size_t)entry->rank;
    int64_t *span = dcpk_arena_array(ckpt->arena, 2 * rank, sizeof *span, err);
    struct dcpk_chunk chunk = {
        .span = span,
        .tensor = (uint32_t)ckpt->n_tensors,
        .place = {.file = data->file,
                  .offset_bytes = data->offset_bytes + entry->first_bytes,
                  .n_bytes = entry->end_bytes - entry->first_bytes},
    };

    if (span == NULL)
        return err->status;
    for (size_t a = 0; a < rank; a++)
        span[rank + a] = entry->shape[a];
    if (dcpk_grow(&ckpt->chunks, &state->chunks_capacity, ckpt->n_chunks, sizeof chunk, err))
        return err->status;
    ckpt->chunks[ckpt->n_chunks++] = chunk;
    return DCPK_OK;
}

/* Every tensor is one chunk, the whole of it. data: that of its file. */
static dcpk_status entry_add_tensor(struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_safetensors_entry *entry,
                                    const struct dcpk_place *data, struct dcpk_error *err)
{
    const struct dcpk_tensor tensor = {.key = entry->key,
                                       .dtype = entry->dtype,
                                       .rank = entry->rank,
                                       .shape = entry->shape,
                                       .first_chunk = ckpt->n_chunks,
                                       .n_chunks = 1};

    if (ckpt->n_tensors >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "more than %u tensors", UINT32_MAX);
    if (entry_add_chunk(ckpt, entry, data, err))
        return err->status;
    return dcpk_checkpoint_add_tensor(ckpt, &tensor, err);
}

/* The text before the data; owned by the caller. */
static dcpk_status header_slurp(struct dcpk_source *source, char **text, size_t *n,
                                struct dcpk_error *err)
{
    uint8_t length[DCPK_SAFETENSORS_LENGTH_BYTES];
    const uint64_t most = dcpk_source_value_limit(source, DCPK_SAFETENSORS_MAX_HEADER_BYTES);
    uint64_t n_bytes;

    *text = NULL;
    if (dcpk_source_bytes(source) < sizeof length)
        return dcpk_fail(err, DCPK_EFORMAT, "it has %" PRIu64 " bytes, too few for a header",
                         dcpk_source_bytes(source));
    if (dcpk_source_read(source, 0, length, sizeof length, err))
        return err->status;
    n_bytes = dcpk_load_u64le(length);
    if (n_bytes > dcpk_source_bytes(source) - sizeof length)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "a header of %" PRIu64 " bytes passes its end (is the file truncated?)",
                         n_bytes);
    if (n_bytes > most)
        return dcpk_fail(err, DCPK_ERANGE,
                         "its header has %" PRIu64 " bytes, the limit is %" PRIu64, n_bytes, most);
    *text = dcpk_alloc((size_t)n_bytes + 1, err);
    if (*text == NULL || dcpk_source_read(source, sizeof length, *text, (size_t)n_bytes, err))
        return err->status;
    *n = (size_t)n_bytes;
    return DCPK_OK;
}

/* Keeps a remark for files that are written of these. Where two files differ the first one
 * counts. */
static dcpk_status remark_add(struct dcpk_checkpoint *ckpt,
                              const struct dcpk_safetensors_remark *remark, const char *name,
                              struct dcpk_error *err)
{
    struct dcpk_safetensors_state *state = ckpt->state;
    bool existed = false;
    uint64_t found = 0;

    if (dcpk_map_put(&state->remark_by_key, remark->key, strlen(remark->key), state->n_remarks,
                     &existed, &found, err))
        return err->status;
    if (existed && strcmp(state->remarks[found].text, remark->text) != 0)
        dcpk_checkpoint_note_once(ckpt,
                                  "'%s': \"__metadata__\" has another '%.200s' than an earlier "
                                  "file; files that are written of these have the earlier one",
                                  name, remark->key);
    if (existed)
        return DCPK_OK;
    if (dcpk_grow(&state->remarks, &state->remarks_capacity, state->n_remarks,
                  sizeof *state->remarks, err))
        return err->status;
    state->remarks[state->n_remarks++] = *remark;
    return DCPK_OK;
}

void dcpk_safetensors_close(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_safetensors_state *state = ckpt->state;

    dcpk_free(state->remarks);
    dcpk_map_release(&state->remark_by_key);
}

/* All tensors of the file `name`. */
static dcpk_status file_add(struct dcpk_checkpoint *ckpt, const char *name, struct dcpk_error *err)
{
    struct dcpk_safetensors_header header = {0};
    struct dcpk_place data = {0};
    struct dcpk_source *source;
    char *text = NULL;
    size_t n = 0;

    if (dcpk_store_find(ckpt->store, name, &source, err) ||
        dcpk_checkpoint_add_file(ckpt, source, &data.file, err))
        return err->status;
    if (header_slurp(source, &text, &n, err) == DCPK_OK) {
        data.offset_bytes = DCPK_SAFETENSORS_LENGTH_BYTES + n;
        data.n_bytes = dcpk_source_bytes(source) - data.offset_bytes;
        (void)dcpk_safetensors_parse(text, n, data.n_bytes, ckpt->arena, &header, err);
    }
    dcpk_free(text);
    for (size_t i = 0; i < header.n_remarks && err->status == DCPK_OK; i++)
        (void)remark_add(ckpt, &header.remarks[i], name, err);
    for (size_t i = 0; i < header.n_entries && err->status == DCPK_OK; i++)
        (void)entry_add_tensor(ckpt, &header.entries[i], &data, err);
    if (err->status != DCPK_OK)
        dcpk_context(err, "reading '%s'", name);
    return err->status;
}

/* A name in the index is that of a file next to it. */
static dcpk_status check_file_name(const char *key, const char *name, struct dcpk_error *err)
{
    if (name == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "\"weight_map\": '%.200s' names no file", key);
    if (strchr(name, '/') != NULL || !dcpk_ends_with(name, DCPK_SAFETENSORS_ENDING))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "\"weight_map\": '%.200s' lies in '%.200s', which is not the name of a "
                         "safetensors file",
                         key, name);
    return DCPK_OK;
}

/* The files that the map names, each once, in the order of their names. Borrowed from the map. */
static dcpk_status list_files(const struct dcpk_json *map, const char ***names, size_t *n,
                              struct dcpk_error *err)
{
    struct dcpk_map seen = {0};
    size_t capacity = 0;

    for (const struct dcpk_json *m = dcpk_json_first(map); m != NULL; m = dcpk_json_next(m)) {
        const char *name = dcpk_json_string(m);
        bool existed = false;
        uint64_t found;

        if (check_file_name(dcpk_json_key(m), name, err) ||
            dcpk_map_put(&seen, name, strlen(name), 0, &existed, &found, err))
            goto out;
        if (existed)
            continue;
        if (dcpk_grow(names, &capacity, *n, sizeof **names, err))
            goto out;
        (*names)[(*n)++] = name;
    }
    if (*n > 1)
        qsort(*names, *n, sizeof **names, dcpk_compare_texts);
out:
    dcpk_map_release(&seen);
    return err->status;
}

/* A tensor of the files that the map does not name. */
static dcpk_status fail_unnamed(const struct dcpk_checkpoint *ckpt, const struct dcpk_json *map,
                                struct dcpk_error *err)
{
    struct dcpk_map named = {0};
    uint64_t found;
    bool existed;

    for (const struct dcpk_json *m = dcpk_json_first(map); m != NULL; m = dcpk_json_next(m))
        if (dcpk_map_put(&named, dcpk_json_key(m), strlen(dcpk_json_key(m)), 0, &existed, &found,
                         err))
            goto out;
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const char *key = ckpt->tensors[t].key;

        if (dcpk_map_get(&named, key, strlen(key), &found))
            continue;
        dcpk_fail(err, DCPK_EFORMAT,
                  "\"weight_map\" does not name tensor '%.200s', which a file "
                  "of it holds",
                  key);
        goto out;
    }
out:
    dcpk_map_release(&named);
    return err->status;
}

/* Every tensor lies where the map has it, and the map has every tensor. */
static dcpk_status check_map(const struct dcpk_checkpoint *ckpt, const struct dcpk_json *map,
                             struct dcpk_error *err)
{
    size_t n = 0;

    for (const struct dcpk_json *m = dcpk_json_first(map); m != NULL; m = dcpk_json_next(m), n++) {
        const struct dcpk_tensor *tensor = dcpk_checkpoint_tensor(ckpt, dcpk_json_key(m));
        const char *file;

        if (tensor == NULL)
            return dcpk_fail(err, DCPK_EFORMAT, "\"weight_map\": tensor '%.200s' is not in '%s'",
                             dcpk_json_key(m), dcpk_json_string(m));
        file = dcpk_source_name(ckpt->files[ckpt->chunks[tensor->first_chunk].place.file]);
        if (strcmp(file, dcpk_json_string(m)) != 0)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "\"weight_map\": tensor '%.200s' is not in '%s', but in '%s'",
                             dcpk_json_key(m), dcpk_json_string(m), file);
    }
    if (n == ckpt->n_tensors)
        return DCPK_OK;
    return fail_unnamed(ckpt, map, err);
}

/* transformers reads model.safetensors where it is, other programs what the index names. */
static dcpk_status check_one_model(struct dcpk_checkpoint *ckpt, const char **names, size_t n,
                                   struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (n == 1 && strcmp(names[0], DCPK_SAFETENSORS_SINGLE) == 0)
        return DCPK_OK;
    if (dcpk_store_look(ckpt->store, DCPK_SAFETENSORS_SINGLE, &kind, err))
        return err->status;
    if (kind != DCPK_PATH_FILE || n == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "the folder has '" DCPK_SAFETENSORS_SINGLE "' and '" DCPK_SAFETENSORS_INDEX
                     "' of other files ('%.200s'): remove the one that is not the model",
                     names[0]);
}

static dcpk_status open_index(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_json *map;
    const char **names = NULL;
    struct dcpk_json *doc;
    size_t n = 0;

    if (dcpk_json_read(ckpt->store, DCPK_SAFETENSORS_INDEX, MAX_INDEX_BYTES, &doc, err))
        return err->status;
    map = dcpk_json_member(doc, "weight_map");
    if (map == NULL || dcpk_json_kind(map) != DCPK_JSON_OBJECT) {
        dcpk_fail(err, DCPK_EFORMAT, "'" DCPK_SAFETENSORS_INDEX "' has no \"weight_map\"");
        goto out;
    }
    if (list_files(map, &names, &n, err) || check_one_model(ckpt, names, n, err))
        goto out;
    for (size_t i = 0; i < n; i++)
        if (file_add(ckpt, names[i], err))
            goto out;
    (void)check_map(ckpt, map, err);
out:
    dcpk_free(names);
    dcpk_json_free(doc);
    return err->status;
}

/* Without an index: model.safetensors, else every file with that ending. */
static dcpk_status open_files(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    char **names = NULL;
    size_t n = 0;

    if (dcpk_store_look(ckpt->store, DCPK_SAFETENSORS_SINGLE, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_FILE)
        return file_add(ckpt, DCPK_SAFETENSORS_SINGLE, err);
    if (dcpk_store_list(ckpt->store, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (dcpk_ends_with(names[i], DCPK_SAFETENSORS_ENDING) && file_add(ckpt, names[i], err))
            goto out;
out:
    dcpk_free(names);
    return err->status;
}

dcpk_status dcpk_safetensors_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (dcpk_store_look(ckpt->store, DCPK_PEFT_FOLDER DCPK_PEFT_FILE, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_FILE)
        dcpk_checkpoint_note_once(ckpt, "an adapter (LoRA) lies in " DCPK_PEFT_FOLDER
                                        ": it is not part of this model");
    if (dcpk_store_look(ckpt->store, DCPK_SAFETENSORS_INDEX, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_FILE)
        return open_index(ckpt, err);
    return open_files(ckpt, err);
}

dcpk_status dcpk_safetensors_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                    const struct dcpk_reader *reader, struct dcpk_extent *where,
                                    struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];

    (void)reader; /* the header said it */
    (void)err;
    *where = (struct dcpk_extent){.source = ckpt->files[chunk->place.file],
                                  .first_bytes = chunk->place.offset_bytes,
                                  .is_row_major = true};
    dcpk_row_major_strides(dcpk_dtype_bytes(tensor->dtype), tensor->shape, tensor->rank,
                           where->stride_bytes);
    return DCPK_OK;
}
