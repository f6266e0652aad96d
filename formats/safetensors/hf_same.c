/* SPDX-License-Identifier: Apache-2.0 */
/* hf_same.c - compares the bytes of two tensors that files repeat, or of one with zeros. */
#include <string.h>

#include "formats/safetensors/hf_model.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"

#define BLOCK_BYTES ((size_t)1 << 20)

/* A chunk that is read. */
struct side {
    struct dcpk_extent where;
    struct dcpk_box box;
};

struct comparing {
    struct dcpk_checkpoint *ckpt;
    size_t elem_bytes;
    uint8_t *blocks; /* two of BLOCK_BYTES; the second is zero where there is one side */
    bool same;
};

static dcpk_status side_open(const struct comparing *c, const struct dcpk_chunk *chunk, int rank,
                             struct side *side, struct dcpk_error *err)
{
    dcpk_box_unpack(chunk->span, rank, &side->box);
    return dcpk_checkpoint_locate(c->ckpt, chunk, NULL, &side->where, err);
}

static uint64_t side_place(const struct side *side, const int64_t *index)
{
    int64_t at = (int64_t)side->where.first_bytes;

    for (int a = 0; a < side->box.rank; a++)
        at += (index[a] - side->box.offset[a]) * side->where.stride_bytes[a];
    return (uint64_t)at;
}

/* b NULL: zeros. */
static dcpk_status compare_run(struct comparing *c, const struct side *a, const struct side *b,
                               const int64_t *index, uint64_t n_bytes, struct dcpk_error *err)
{
    for (uint64_t at = 0; c->same && at < n_bytes; at += BLOCK_BYTES) {
        const size_t n = (size_t)dcpk_min_u64(BLOCK_BYTES, n_bytes - at);

        if (dcpk_source_read(a->where.source, side_place(a, index) + at, c->blocks, n, err) ||
            (b != NULL && dcpk_source_read(b->where.source, side_place(b, index) + at,
                                           c->blocks + BLOCK_BYTES, n, err)))
            return err->status;
        c->same = memcmp(c->blocks, c->blocks + BLOCK_BYTES, n) == 0;
    }
    return DCPK_OK;
}

/* The axes of `part` whose steps are runs of their own; the elements of a run. */
static int count_outer(const struct comparing *c, const struct side *a, const struct side *b,
                       const struct dcpk_box *part, int64_t *n_run)
{
    const struct side *sides[] = {a, b == NULL ? a : b};
    int n_outer = 0;

    for (size_t i = 0; i < DCPK_COUNT(sides); i++)
        if (!sides[i]->where.is_row_major || !dcpk_box_is_run(&sides[i]->box, part))
            n_outer = part->rank - (part->rank > 0);
    for (size_t i = 0; i < DCPK_COUNT(sides) && part->rank > 0; i++)
        if (sides[i]->where.stride_bytes[part->rank - 1] != (int64_t)c->elem_bytes)
            n_outer = part->rank;
    *n_run = (int64_t)dcpk_count_elems(part->extent + n_outer, part->rank - n_outer);
    return n_outer;
}

static dcpk_status compare_part(struct comparing *c, const struct side *a, const struct side *b,
                                const struct dcpk_box *part, struct dcpk_error *err)
{
    int64_t index[DCPK_MAX_RANK], n_run;
    const int n_outer = count_outer(c, a, b, part, &n_run);

    memcpy(index, part->offset, sizeof index);
    do {
        if (compare_run(c, a, b, index, (uint64_t)n_run * c->elem_bytes, err))
            return err->status;
    } while (c->same && dcpk_box_next(index, part, n_outer));
    return DCPK_OK;
}

/* One chunk of a tensor with all of the other; NULL: with zeros. */
static dcpk_status compare_chunk(struct comparing *c, const struct dcpk_chunk *chunk,
                                 const struct dcpk_tensor *tensor, const struct dcpk_tensor *other,
                                 struct dcpk_error *err)
{
    struct side a, b;
    struct dcpk_box part;

    if (side_open(c, chunk, tensor->rank, &a, err))
        return err->status;
    if (other == NULL && dcpk_box_intersect(&a.box, &a.box, &part))
        return compare_part(c, &a, NULL, &part, err);
    for (size_t i = 0; other != NULL && c->same && i < other->n_chunks; i++) {
        const struct dcpk_chunk *theirs = &c->ckpt->chunks[other->first_chunk + i];

        dcpk_box_unpack(theirs->span, other->rank, &b.box);
        if (!dcpk_box_intersect(&a.box, &b.box, &part))
            continue;
        if (side_open(c, theirs, other->rank, &b, err) || compare_part(c, &a, &b, &part, err))
            return err->status;
    }
    return DCPK_OK;
}

/* other NULL: with zeros. */
static dcpk_status compare_all(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                               const struct dcpk_tensor *other, bool *same, struct dcpk_error *err)
{
    struct comparing c = {
        .ckpt = ckpt, .elem_bytes = dcpk_dtype_bytes(tensor->dtype), .same = true};

    c.blocks = dcpk_alloc(2 * BLOCK_BYTES, err); /* zeroed */
    if (c.blocks == NULL)
        return err->status;
    for (size_t i = 0; c.same && i < tensor->n_chunks; i++)
        if (compare_chunk(&c, &ckpt->chunks[tensor->first_chunk + i], tensor, other, err))
            break;
    dcpk_free(c.blocks);
    *same = c.same;
    return err->status;
}

dcpk_status dcpk_hf_same_bytes(struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b, bool *same,
                               struct dcpk_error *err)
{
    const struct dcpk_tensor *x = &ckpt->tensors[a], *y = &ckpt->tensors[b];

    *same = x->dtype == y->dtype && dcpk_shape_equal(x->shape, x->rank, y->shape, y->rank);
    if (!*same)
        return DCPK_OK;
    return compare_all(ckpt, x, y, same, err);
}

dcpk_status dcpk_hf_is_zero(struct dcpk_checkpoint *ckpt, uint32_t tensor, bool *is,
                            struct dcpk_error *err)
{
    return compare_all(ckpt, &ckpt->tensors[tensor], NULL, is, err);
}
