/* SPDX-License-Identifier: Apache-2.0 */
/* rank_files.c - pieces of tensors in the files of ranks: chunks, and copies of chunks. */
#include "formats/torch/rank_files.h"

#include <inttypes.h>
#include <string.h>

#include "formats/torch/item.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/overlaps.h"

/* Elements of a chunk that another file holds, too. */
struct dcpk_rank_copy {
    uint32_t tensor;
    bool is_whole; /* of a tensor that is whole in each file, by no mesh */
    struct dcpk_place first, again;
};

void dcpk_rank_files_release(struct dcpk_rank_files *files)
{
    dcpk_free(files->copies);
}

/* ---- reading ---- */

void dcpk_rank_reading_release(struct dcpk_rank_reading *r)
{
    dcpk_map_release(&r->records);
    dcpk_map_release(&r->boxes);
    dcpk_map_release(&r->files_by_source);
}

/* The file's number in the checkpoint, made when it is new. */
static dcpk_status add_file(struct dcpk_rank_reading *r, struct dcpk_source *source,
                            struct dcpk_error *err)
{
    struct dcpk_source **key = dcpk_arena_alloc(r->arena, sizeof *key, err);
    uint64_t number = r->ckpt->n_files;
    bool existed;

    if (key == NULL)
        return err->status;
    *key = source;
    if (dcpk_map_put(&r->files_by_source, (const char *)key, sizeof *key, number, &existed, &number,
                     err))
        return err->status;
    r->number = (uint32_t)number;
    if (existed)
        return DCPK_OK;
    return dcpk_checkpoint_add_file(r->ckpt, source, &r->number, err);
}

dcpk_status dcpk_rank_reading_open(struct dcpk_rank_reading *r, struct dcpk_source *source,
                                   dcpk_is_known *is_known, struct dcpk_arena *arena,
                                   const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_item_range range = dcpk_item_whole(source);

    dcpk_map_release(&r->records);
    if (add_file(r, source, err))
        return err->status;
    if (dcpk_item_read_known(&range, is_known, arena, value, &r->folder, err))
        dcpk_context(err, "reading '%s'", dcpk_source_name(source));
    return err->status;
}

dcpk_status dcpk_rank_state_dict(const struct dcpk_value *value,
                                 const struct dcpk_value_pair **pairs, size_t *n,
                                 struct dcpk_error *err)
{
    const bool is_object = dcpk_value_is_object(value, "collections", "OrderedDict");

    if (!is_object && (value == NULL || value->kind != DCPK_V_DICT))
        return dcpk_fail(err, DCPK_EFORMAT, "it does not hold a state dict");
    *pairs = is_object ? value->as.object->pairs : value->as.pairs;
    *n = is_object ? value->as.object->n_pairs : value->n;
    for (size_t i = 0; i < *n; i++) {
        const char *key = dcpk_value_as_str((*pairs)[i].key);

        if (key == NULL || strlen(key) != (*pairs)[i].key->n)
            return dcpk_fail(err, DCPK_EFORMAT, "a key of the state dict is not a name");
    }
    return DCPK_OK;
}

/* A chunk's span is followed by the record that is checked with it: its place, bytes (0: none) and
 * CRC-32. The first chunk of a record has it, and all at its place. */
enum { RECORD_AT, RECORD_BYTES, RECORD_CRC32, N_RECORD };

static dcpk_status add_record(struct dcpk_rank_reading *r, const struct dcpk_rank_piece *piece,
                              int64_t *record, struct dcpk_error *err)
{
    uint64_t *key = dcpk_arena_alloc(r->arena, sizeof *key, err);
    bool existed = false;
    uint64_t first = 0;

    if (key == NULL)
        return err->status;
    *key = piece->local->record_offset_bytes;
    if (dcpk_map_put(&r->records, (const char *)key, sizeof *key, piece->first_bytes, &existed,
                     &first, err))
        return err->status;
    if (existed && first != piece->first_bytes)
        return DCPK_OK;
    record[RECORD_AT] = (int64_t)piece->local->record_offset_bytes;
    record[RECORD_BYTES] = (int64_t)piece->local->record_bytes;
    record[RECORD_CRC32] = piece->local->record_crc32;
    return DCPK_OK;
}

static dcpk_status add_copy(struct dcpk_rank_files *files, const struct dcpk_chunk *chunk,
                            const struct dcpk_chunk *again, bool is_whole, struct dcpk_error *err)
{
    if (dcpk_grow(&files->copies, &files->copies_capacity, files->n_copies, sizeof *files->copies,
                  err))
        return err->status;
    files->copies[files->n_copies++] =
        (struct dcpk_rank_copy){again->tensor, is_whole, chunk->place, again->place};
    return DCPK_OK;
}

dcpk_status dcpk_rank_reading_add(struct dcpk_rank_reading *r, const struct dcpk_rank_piece *piece,
                                  struct dcpk_error *err)
{
    const size_t rank = (size_t)piece->box.rank;
    int64_t *key = dcpk_arena_array(r->ckpt->arena, 1 + 2 * rank + N_RECORD, sizeof *key, err);
    struct dcpk_chunk chunk = {.tensor = piece->tensor,
                               .place = {r->number, piece->first_bytes, piece->n_bytes}};
    uint64_t number = r->ckpt->n_chunks;
    bool existed = false;

    if (piece->n_bytes == 0)
        return DCPK_OK;
    if (key == NULL)
        return err->status;
    key[0] = piece->tensor;
    dcpk_box_pack(&piece->box, key + 1);
    chunk.span = key + 1;
    if (dcpk_map_put(&r->boxes, (const char *)key, (1 + 2 * rank) * sizeof *key, number, &existed,
                     &number, err))
        return err->status;
    if (existed)
        return add_copy(r->files, &r->ckpt->chunks[number], &chunk, piece->is_whole, err);
    if (add_record(r, piece, key + 1 + 2 * rank, err) ||
        dcpk_grow(&r->ckpt->chunks, &r->files->chunks_capacity, r->ckpt->n_chunks, sizeof chunk,
                  err))
        return err->status;
    r->ckpt->chunks[r->ckpt->n_chunks++] = chunk;
    r->ckpt->tensors[piece->tensor].n_chunks++;
    return DCPK_OK;
}

struct dcpk_rank_moment dcpk_rank_reading_moment(const struct dcpk_rank_reading *r)
{
    return (struct dcpk_rank_moment){r->ckpt->n_tensors, r->ckpt->n_chunks, r->ckpt->n_objects,
                                     r->files->n_copies};
}

/* All that was added since is forgotten. */
static dcpk_status forget_since(struct dcpk_rank_reading *r, const struct dcpk_rank_moment *moment,
                                struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->ckpt;
    uint64_t unused;
    bool existed;

    dcpk_map_release(&ckpt->tensor_by_key);
    dcpk_map_release(&ckpt->object_by_key);
    ckpt->n_tensors = moment->n_tensors;
    ckpt->n_chunks = moment->n_chunks;
    ckpt->n_objects = moment->n_objects;
    r->files->n_copies = moment->n_copies;
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (dcpk_map_put(&ckpt->tensor_by_key, ckpt->tensors[t].key, strlen(ckpt->tensors[t].key),
                         t, &existed, &unused, err))
            return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_map_put(&ckpt->object_by_key, ckpt->objects[i].key, strlen(ckpt->objects[i].key),
                         i, &existed, &unused, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_rank_reading_leave_optimizer(struct dcpk_rank_reading *r,
                                              const struct dcpk_rank_moment *moment,
                                              const char **fault, struct dcpk_error *err)
{
    if (!dcpk_status_is_content(err->status))
        return err->status;
    *fault = dcpk_arena_strdup(r->ckpt->arena, err->text, err);
    if (*fault == NULL)
        return err->status;
    dcpk_error_clear(err);
    dcpk_checkpoint_note(r->ckpt, "the optimizer is not read: %s", *fault);
    return forget_since(r, moment, err);
}

dcpk_status dcpk_rank_reading_order(struct dcpk_rank_reading *r, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->ckpt;
    struct dcpk_chunk *ordered = dcpk_alloc_array(ckpt->n_chunks, sizeof *ordered, err);
    size_t n = 0;

    if (ordered == NULL)
        return err->status;
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        ckpt->tensors[t].first_chunk = n;
        n += ckpt->tensors[t].n_chunks;
        ckpt->tensors[t].n_chunks = 0;
    }
    for (size_t i = 0; i < ckpt->n_chunks; i++) {
        struct dcpk_tensor *tensor = &ckpt->tensors[ckpt->chunks[i].tensor];

        ordered[tensor->first_chunk + tensor->n_chunks++] = ckpt->chunks[i];
    }
    dcpk_free(ckpt->chunks);
    ckpt->chunks = ordered;
    return DCPK_OK;
}

/* ---- the opened checkpoint ---- */

dcpk_status dcpk_rank_files_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                   const struct dcpk_reader *reader, struct dcpk_extent *where,
                                   struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const int64_t *extent = chunk->span + tensor->rank, *record = extent + tensor->rank;
    int64_t stride = (int64_t)dcpk_dtype_bytes(tensor->dtype);

    (void)reader;
    (void)err;
    *where = (struct dcpk_extent){.source = ckpt->files[chunk->place.file],
                                  .first_bytes = chunk->place.offset_bytes,
                                  .is_row_major = true,
                                  .has_crc32 = record[RECORD_BYTES] > 0,
                                  .crc32 = (uint32_t)record[RECORD_CRC32],
                                  .record_offset_bytes = (uint64_t)record[RECORD_AT],
                                  .record_bytes = (uint64_t)record[RECORD_BYTES]};
    for (int a = tensor->rank; a-- > 0;) {
        where->stride_bytes[a] = stride;
        stride *= extent[a]; /* a chunk has elements, and they lie in the file */
    }
    return DCPK_OK;
}

dcpk_status dcpk_rank_files_load(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                                 const struct dcpk_place *place, struct dcpk_arena *arena,
                                 const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_value_tensor *t = dcpk_arena_alloc(arena, sizeof *t, err);
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, err);
    uint8_t *data;

    if (place->n_bytes > DCPK_MAX_LOADED_BYTES)
        return dcpk_fail(err, DCPK_ERANGE, "%" PRIu64 " bytes are not loaded", place->n_bytes);
    data = dcpk_arena_alloc(arena, (size_t)place->n_bytes, err);
    if (t == NULL || v == NULL || data == NULL ||
        dcpk_source_read(ckpt->files[place->file], place->offset_bytes, data,
                         (size_t)place->n_bytes, err))
        return err->status;
    *t = (struct dcpk_value_tensor){.dtype = tensor->dtype,
                                    .rank = tensor->rank,
                                    .shape = tensor->shape,
                                    .n_bytes = place->n_bytes,
                                    .data = data};
    *v = (struct dcpk_value){.kind = DCPK_V_TENSOR, .as.tensor = t};
    *value = v;
    return DCPK_OK;
}

#define PIECE_BYTES ((size_t)1 << 20)

static dcpk_status compare_copy(struct dcpk_checkpoint *ckpt, const struct dcpk_rank_copy *copy,
                                uint8_t *buffer, struct dcpk_error *err)
{
    struct dcpk_source *first = ckpt->files[copy->first.file];
    struct dcpk_source *again = ckpt->files[copy->again.file];

    if (copy->first.n_bytes != copy->again.n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s': equal boxes of unequal bytes",
                         ckpt->tensors[copy->tensor].key);
    for (uint64_t at = 0; at < copy->first.n_bytes; at += PIECE_BYTES) {
        const size_t n = (size_t)dcpk_min_u64(PIECE_BYTES, copy->first.n_bytes - at);

        if (dcpk_source_read(first, copy->first.offset_bytes + at, buffer, n, err) ||
            dcpk_source_read(again, copy->again.offset_bytes + at, buffer + PIECE_BYTES, n, err))
            return err->status;
        if (memcmp(buffer, buffer + PIECE_BYTES, n) != 0)
            return dcpk_fail(
                err, DCPK_EFORMAT,
                "'%s' and '%s' hold the same elements of '%s', and their bytes differ: "
                "the ranks did not agree, or one of the files is damaged",
                dcpk_source_name(first), dcpk_source_name(again), ckpt->tensors[copy->tensor].key);
    }
    return DCPK_OK;
}

/* Each two places once: several tensors may share them. */
dcpk_status dcpk_rank_files_compare(struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_rank_files *files, bool whole_ones_alone,
                                    struct dcpk_error *err)
{
    uint8_t *buffer = dcpk_alloc(2 * PIECE_BYTES, err);
    struct dcpk_by_place done = {.arena = dcpk_arena_new()};

    for (size_t i = 0; i < files->n_copies && err->status == DCPK_OK; i++) {
        const struct dcpk_rank_copy *copy = &files->copies[i];
        uint64_t unused;

        if ((whole_ones_alone && !copy->is_whole) ||
            dcpk_by_place_get(&done, &copy->first, &copy->again, &unused))
            continue;
        if (compare_copy(ckpt, copy, buffer, err) == DCPK_OK)
            (void)dcpk_by_place_put(&done, &copy->first, &copy->again, 0, err);
    }
    dcpk_by_place_release(&done);
    dcpk_arena_free(done.arena);
    dcpk_free(buffer);
    return err->status;
}
