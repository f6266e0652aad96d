/* SPDX-License-Identifier: Apache-2.0 */
/* fake_ckpt.h - a checkpoint format without bytes of its own, so that plan and executor are tested
 * alone. */
/*
 * Source: tensors of random elements, cut into boxes at random; the boxes lie in two files in
 * memory with gaps between them, row-major or with the order of their axes reversed. Output: items
 * "<" crc tensor data ">" crc, no gaps but before large items, files of at most FAKE_FILE_BYTES.
 * Everything is naive: one element at a time.
 */
#ifndef DCPK_TESTS_FAKE_CKPT_H
#define DCPK_TESTS_FAKE_CKPT_H

#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/digest.h"
#include "lib/ckpt/format.h"
#include "tests/check.h"
#include "tests/random.h"

enum {
    FAKE_TENSORS = 256,
    FAKE_CHUNKS = 2048,
    FAKE_OBJECTS = 8,
    FAKE_FILE_BYTES = 3 << 20,
    FAKE_LEAD_BYTES = 7,
    FAKE_TAIL_BYTES = 5,
};

struct fake_chunk {
    int64_t span[2 * DCPK_MAX_RANK];
    uint32_t tensor;
    struct dcpk_place place;
    struct dcpk_extent extent; /* but for source */
};

struct fake {
    struct dcpk_tensor tensors[FAKE_TENSORS];
    int64_t shapes[FAKE_TENSORS][DCPK_MAX_RANK];
    char keys[FAKE_TENSORS][16];
    uint8_t *data[FAKE_TENSORS]; /* row-major */
    size_t n_tensors;
    struct fake_chunk chunks[FAKE_CHUNKS]; /* those of a tensor one behind the other */
    size_t n_chunks;
    struct dcpk_object objects[FAKE_OBJECTS];
    size_t n_objects;
    struct dcpk_bytes files[2];
    uint64_t n_located; /* calls of locate */
};

static struct fake *fake_now; /* what fake_format opens */

static inline int64_t fake_below(uint64_t *seed, int64_t n)
{
    return (int64_t)random_below(seed, (uint64_t)n);
}

static inline int64_t fake_elems(const int64_t *extent, int rank)
{
    int64_t n = 1;

    for (int axis = 0; axis < rank; axis++)
        n *= extent[axis];
    return n;
}

/* Row-major index, in a tensor of `shape`, of element `i` (row-major) of a box of it. */
static inline int64_t fake_index(const int64_t *shape, const struct dcpk_box *box, int64_t i)
{
    int64_t index = 0, scale = 1;

    for (int axis = box->rank - 1; axis >= 0; axis--) {
        index += (box->offset[axis] + i % box->extent[axis]) * scale;
        i /= box->extent[axis];
        scale *= shape[axis];
    }
    return index;
}

/* Random elements; floats are finite. */
static inline void fake_fill(enum dcpk_dtype dtype, uint8_t *data, int64_t n_elems, uint64_t *seed)
{
    const size_t elem_bytes = dcpk_dtype_bytes(dtype);

    for (int64_t i = 0; i < n_elems; i++) {
        uint64_t bits = random_next(seed);
        uint8_t *at = data + (size_t)i * elem_bytes;

        if (dtype == DCPK_F32 && (bits >> 23 & 0xff) == 0xff)
            bits ^= UINT64_C(1) << 25;
        if (dtype == DCPK_BF16 && (bits >> 7 & 0xff) == 0xff)
            bits ^= UINT64_C(1) << 9;
        for (size_t b = 0; b < elem_bytes; b++)
            at[b] = (uint8_t)(bits >> (8 * (b % 8)));
    }
}

/* Cut boxes[0] into up to n_cuts + 1 boxes, in random order; returns how many. */
static inline size_t fake_cut(struct dcpk_box *boxes, size_t n_cuts, uint64_t *seed)
{
    size_t n = 1;

    for (size_t cut = 0; cut < n_cuts; cut++) {
        const size_t i = (size_t)fake_below(seed, (int64_t)n);
        const int axis = boxes[0].rank == 0 ? 0 : (int)fake_below(seed, boxes[0].rank);
        int64_t at;

        if (boxes[i].rank == 0 || boxes[i].extent[axis] < 2)
            continue;
        at = 1 + fake_below(seed, boxes[i].extent[axis] - 1);
        boxes[n] = boxes[i];
        boxes[n].offset[axis] += at;
        boxes[n++].extent[axis] -= at;
        boxes[i].extent[axis] = at;
    }
    return n;
}

/* Append a chunk's record to one of the files. */
static inline void fake_store(struct fake *fake, const struct dcpk_box *box, uint64_t *seed)
{
    const uint32_t t = (uint32_t)fake->n_tensors;
    const struct dcpk_tensor *tensor = &fake->tensors[t];
    const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
    const int64_t n_elems = fake_elems(box->extent, box->rank);
    struct fake_chunk *chunk = &fake->chunks[fake->n_chunks++];
    const uint32_t file = (uint32_t)fake_below(seed, 2);
    struct dcpk_bytes *bytes = &fake->files[file];
    const bool reversed = fake_below(seed, 5) == 0;
    int64_t stride = (int64_t)elem_bytes;

    for (int64_t gap = fake_below(seed, 200); gap > 0; gap--)
        dcpk_bytes_u8(bytes, 0xee);
    dcpk_box_pack(box, chunk->span);
    chunk->tensor = t;
    chunk->place = (struct dcpk_place){file, bytes->n_bytes, (uint64_t)n_elems * elem_bytes};
    chunk->extent.first_bytes = chunk->extent.record_offset_bytes = bytes->n_bytes;
    chunk->extent.record_bytes = chunk->place.n_bytes;
    chunk->extent.is_row_major = !reversed;
    for (int i = 0; i < box->rank; i++) {
        const int axis = reversed ? i : box->rank - 1 - i;

        chunk->extent.stride_bytes[axis] = stride;
        stride *= box->extent[axis];
    }
    dcpk_bytes_zeros(bytes, (size_t)n_elems * elem_bytes);
    for (int64_t i = 0; i < n_elems; i++) {
        const int64_t from = fake_index(tensor->shape, box, i);
        int64_t rest = i, to = 0;

        for (int axis = box->rank - 1; axis >= 0; axis--) {
            to += rest % box->extent[axis] * chunk->extent.stride_bytes[axis];
            rest /= box->extent[axis];
        }
        memcpy(bytes->data + chunk->place.offset_bytes + (size_t)to,
               fake->data[t] + (size_t)from * elem_bytes, elem_bytes);
    }
    chunk->extent.has_crc32 = true;
    chunk->extent.crc32 =
        dcpk_crc32(0, n_elems == 0 ? NULL : bytes->data + chunk->place.offset_bytes,
                   (size_t)n_elems * elem_bytes);
}

/* Add a tensor of random elements in at most n_cuts + 1 chunks; returns its number. */
static inline uint32_t fake_add(struct fake *fake, enum dcpk_dtype dtype, int rank,
                                const int64_t *shape, size_t n_cuts, uint64_t *seed)
{
    const size_t t = fake->n_tensors;
    const int64_t n_elems = fake_elems(shape, rank);
    struct dcpk_box boxes[64];
    size_t n_boxes;

    if (rank > 0)
        memcpy(fake->shapes[t], shape, (size_t)rank * sizeof *shape);
    snprintf(fake->keys[t], sizeof fake->keys[t], "tensor%zu", t);
    fake->tensors[t] = (struct dcpk_tensor){
        .key = fake->keys[t], .dtype = dtype, .rank = rank, .shape = fake->shapes[t]};
    fake->data[t] = malloc((size_t)n_elems * dcpk_dtype_bytes(dtype) + 1);
    fake_fill(dtype, fake->data[t], n_elems, seed);
    dcpk_box_whole(shape, rank, &boxes[0]);
    n_boxes = fake_cut(boxes, n_cuts, seed);
    fake->tensors[t].first_chunk = fake->n_chunks;
    fake->tensors[t].n_chunks = n_boxes;
    for (size_t i = 0; i < n_boxes; i++) /* now and then last to first: the order must not matter */
        fake_store(fake, &boxes[t % 2 == 0 ? i : n_boxes - 1 - i], seed);
    return (uint32_t)fake->n_tensors++;
}

static inline void fake_add_object(struct fake *fake, const char *key, size_t n_bytes)
{
    struct dcpk_bytes *bytes = &fake->files[0];

    fake->objects[fake->n_objects++] =
        (struct dcpk_object){.key = key, .place = {0, bytes->n_bytes, n_bytes}};
    for (size_t i = 0; i < n_bytes; i++)
        dcpk_bytes_u8(bytes, i == 0 ? 'o' : (uint8_t)(i * 7));
}

static inline void fake_release(struct fake *fake)
{
    for (size_t t = 0; t < fake->n_tensors; t++)
        free(fake->data[t]);
    dcpk_bytes_release(&fake->files[0]);
    dcpk_bytes_release(&fake->files[1]);
    memset(fake, 0, sizeof *fake);
}

static inline dcpk_status fake_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    (void)store;
    (void)err;
    *score = 100;
    return DCPK_OK;
}

static inline dcpk_status fake_format_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const char *const names[2] = {"a", "b"};
    struct fake *fake = fake_now;

    ckpt->files = dcpk_alloc_array(2, sizeof *ckpt->files, err);
    ckpt->chunks = dcpk_alloc_array(fake->n_chunks, sizeof *ckpt->chunks, err);
    if (ckpt->files == NULL || ckpt->chunks == NULL)
        return err->status;
    for (; ckpt->n_files < 2; ckpt->n_files++)
        if (dcpk_store_find(ckpt->store, names[ckpt->n_files], &ckpt->files[ckpt->n_files], err) !=
            DCPK_OK)
            return err->status;
    for (; ckpt->n_chunks < fake->n_chunks; ckpt->n_chunks++) {
        const struct fake_chunk *chunk = &fake->chunks[ckpt->n_chunks];

        ckpt->chunks[ckpt->n_chunks] = (struct dcpk_chunk){
            .tensor = chunk->tensor, .span = chunk->span, .place = chunk->place};
    }
    for (size_t t = 0; t < fake->n_tensors; t++)
        if (dcpk_checkpoint_add_tensor(ckpt, &fake->tensors[t], err) != DCPK_OK)
            return err->status;
    for (size_t i = 0; i < fake->n_objects; i++)
        if (dcpk_checkpoint_add_object(ckpt, &fake->objects[i], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static inline dcpk_status fake_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                      const struct dcpk_reader *reader, struct dcpk_extent *where,
                                      struct dcpk_error *err)
{
    (void)reader;
    (void)err;
    __atomic_add_fetch(&fake_now->n_located, 1, __ATOMIC_RELAXED);
    *where = fake_now->chunks[chunk - ckpt->chunks].extent;
    where->source = ckpt->files[chunk->place.file];
    return DCPK_OK;
}

/* An object is good when its first byte is an 'o'. */
static inline dcpk_status fake_load_object(struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_object *object,
                                           struct dcpk_arena *arena,
                                           const struct dcpk_value **value, struct dcpk_error *err)
{
    char first;
    dcpk_status st;

    st = dcpk_source_read(ckpt->files[object->place.file], object->place.offset_bytes, &first, 1,
                          err);
    if (st == DCPK_OK && first != 'o')
        st = dcpk_fail(err, DCPK_EFORMAT, "begins with byte %d", first);
    if (st == DCPK_OK && dcpk_arena_alloc(arena, 100, err) == NULL)
        st = err->status;
    *value = dcpk_value_none();
    return st;
}

/* An object's first byte is one record, the rest, as fake_add_object makes it, another. */
static inline dcpk_status fake_each_record(struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_object *object, dcpk_take_record *take,
                                           void *context, struct dcpk_error *err)
{
    const uint64_t at = object->place.offset_bytes, n = object->place.n_bytes;
    uint32_t crc32 = dcpk_crc32(0, "o", 1);
    const struct dcpk_record first = {at, 1, crc32};
    dcpk_status st = take(context, &first, err);

    (void)ckpt;
    crc32 = 0;
    for (uint64_t i = 1; i < n; i++)
        crc32 = dcpk_crc32(crc32, &(const uint8_t){(uint8_t)(i * 7)}, 1);
    return st == DCPK_OK ? take(context, &(struct dcpk_record){at + 1, n - 1, crc32}, err) : st;
}

static inline uint64_t fake_payload_bytes(const struct dcpk_output *out, size_t payload)
{
    const struct dcpk_object *source = out->payloads[payload].source;

    return source == NULL ? 1 + payload * 37 % 300 : source->place.n_bytes;
}

/* Make room for n bytes; begins a file when the last one is full. */
static inline dcpk_status fake_take(struct dcpk_output *out, uint64_t n_bytes, uint32_t *file,
                                    uint64_t *offset_bytes, struct dcpk_error *err)
{
    struct dcpk_out_file *last = out->n_files == 0 ? NULL : &out->files[out->n_files - 1];

    if (last == NULL || (last->n_bytes > 0 && last->n_bytes + n_bytes > FAKE_FILE_BYTES)) {
        if (dcpk_grow(&out->files, &out->files_capacity, out->n_files, sizeof *out->files, err) !=
            DCPK_OK)
            return err->status;
        last = &out->files[out->n_files];
        *last = (struct dcpk_out_file){dcpk_arena_printf(out->arena, err, "f%zu", out->n_files), 0};
        if (last->name == NULL)
            return err->status;
        out->n_files++;
    }
    if (n_bytes >= 4096)
        last->n_bytes = (last->n_bytes + 63) / 64 * 64;
    *file = (uint32_t)(out->n_files - 1);
    *offset_bytes = last->n_bytes;
    last->n_bytes += n_bytes;
    return DCPK_OK;
}

static inline dcpk_status fake_lay_out(struct dcpk_output *out, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (size_t p = 0; p < out->n_payloads && st == DCPK_OK; p++) {
        struct dcpk_out_payload *payload = &out->payloads[p];

        payload->n_bytes = fake_payload_bytes(out, p);
        st = fake_take(out, payload->n_bytes, &payload->file, &payload->offset_bytes, err);
    }
    for (size_t i = 0; i < out->n_chunks && st == DCPK_OK; i++) {
        struct dcpk_out_chunk *chunk = &out->chunks[i];
        const struct dcpk_out_tensor *tensor = &out->tensors[chunk->tensor];

        chunk->lead_bytes = FAKE_LEAD_BYTES;
        chunk->tail_bytes = FAKE_TAIL_BYTES;
        chunk->data_bytes = (uint64_t)fake_elems(chunk->span + tensor->rank, tensor->rank) *
                            dcpk_dtype_bytes(tensor->dtype);
        st = fake_take(out, FAKE_LEAD_BYTES + chunk->data_bytes + FAKE_TAIL_BYTES, &chunk->file,
                       &chunk->offset_bytes, err);
    }
    return st;
}

static inline dcpk_status fake_frame(const struct dcpk_output *out,
                                     const struct dcpk_out_chunk *chunk, uint32_t crc32,
                                     uint8_t *lead, uint8_t *tail, struct dcpk_error *err)
{
    (void)out;
    (void)err;
    lead[0] = '<';
    tail[0] = '>';
    for (int i = 0; i < 4; i++)
        lead[1 + i] = tail[1 + i] = (uint8_t)(crc32 >> (8 * i));
    lead[5] = (uint8_t)chunk->tensor;
    lead[6] = (uint8_t)(chunk->tensor >> 8);
    return DCPK_OK;
}

static inline dcpk_status fake_encode(const struct dcpk_output *out,
                                      const struct dcpk_out_payload *payload,
                                      struct dcpk_bytes *bytes, struct dcpk_error *err)
{
    const size_t p = (size_t)(payload - out->payloads);

    for (uint64_t i = 0; i < fake_payload_bytes(out, p); i++)
        dcpk_bytes_u8(bytes, (uint8_t)(p + i));
    return dcpk_bytes_status(bytes, err);
}

static inline dcpk_status fake_write_ahead(const struct dcpk_output *out,
                                           struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_sink *sink;
    dcpk_status st = dcpk_folder_create_hidden(folder, "index", 4, &sink, err);

    (void)out;
    if (st != DCPK_OK)
        return st;
    st = dcpk_sink_write(sink, 0, "done", 4, err);
    if (st == DCPK_OK)
        return dcpk_sink_close(sink, err);
    dcpk_sink_abandon(sink);
    return st;
}

static inline dcpk_status fake_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                                      struct dcpk_error *err)
{
    (void)out;
    return dcpk_folder_show(folder, "index", err);
}

static const struct dcpk_format_reader fake_reader = {
    .locate = fake_locate,
    .load_object = fake_load_object,
    .outline_object = fake_load_object,
    .each_record = fake_each_record,
};

static const struct dcpk_format_writer fake_writer = {
    .lay_out = fake_lay_out,
    .frame = fake_frame,
    .encode = fake_encode,
    .write_ahead = fake_write_ahead,
    .finish = fake_finish,
};

static const struct dcpk_format fake_format = {
    .name = "fake",
    .summary = "for tests",
    .state_bytes = 1,
    .probe = fake_probe,
    .open = fake_format_open,
    .reader = &fake_reader,
    .writer = &fake_writer,
};

/* Open `fake`, which must live as long as the checkpoint. */
static inline struct dcpk_checkpoint *fake_open(struct fake *fake, const char *label)
{
    static const struct dcpk_format *const formats[] = {&fake_format, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_store *store;

    fake_now = fake;
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), label);
    CHECK_OK(dcpk_store_add_memory(store, "a", fake->files[0].data, fake->files[0].n_bytes, &err),
             label);
    CHECK_OK(dcpk_store_add_memory(store, "b", fake->files[1].data, fake->files[1].n_bytes, &err),
             label);
    CHECK_OK(dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err), label);
    return ckpt;
}

#endif
