/* SPDX-License-Identifier: Apache-2.0 */
/* out_case.h - outputs of random pieces of a checkpoint that is made up with them: un-stacked,
 * joined, cast, filled, literal. */
#ifndef DCPK_TESTS_OUT_CASE_H
#define DCPK_TESTS_OUT_CASE_H

#include "lib/tensor/piece.h"
#include "tests/fake_ckpt.h"

enum { OUT_MAX = 8, OUT_BOXES = 40 };

struct out_case {
    struct fake fake;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out;
    uint8_t *want[OUT_MAX]; /* elements of each output tensor */
    char label[64];
    uint64_t seed;
};

/* bf16 to f32 and back, as IEEE 754 says: round to nearest, ties to even. */
static inline void out_cast_naive(enum dcpk_dtype from, const uint8_t *src, enum dcpk_dtype to,
                                  uint8_t *dst)
{
    uint32_t bits;
    uint16_t half;

    if (from == to) {
        memcpy(dst, src, dcpk_dtype_bytes(to));
    } else if (from == DCPK_BF16) {
        memcpy(&half, src, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(dst, &bits, sizeof bits);
    } else {
        memcpy(&bits, src, sizeof bits);
        half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(dst, &half, sizeof half);
    }
}

/*
 * A source tensor that has a box of the extents of `to`, with other axes of length 1, and that box.
 */
static inline uint32_t out_make_source(struct out_case *r, enum dcpk_dtype dtype,
                                       const struct dcpk_box *to, struct dcpk_box *from)
{
    int64_t shape[DCPK_MAX_RANK];

    from->rank = 0;
    for (int axis = 0; axis <= to->rank; axis++) {
        const bool is_extra = axis == to->rank || to->extent[axis] == 1;
        int64_t *extent = &from->extent[from->rank], before, behind;

        if (is_extra && fake_below(&r->seed, 3) > 0)
            continue;
        *extent = is_extra ? 1 : to->extent[axis];
        before = fake_below(&r->seed, 3);
        behind = fake_below(&r->seed, 3);
        if (*extent > 1000) /* whole rows of large ones, so that runs join */
            before = behind = 0;
        from->offset[from->rank] = before;
        shape[from->rank++] = before + *extent + behind;
    }
    return fake_add(&r->fake, dtype, from->rank, shape, (size_t)fake_below(&r->seed, 6), &r->seed);
}

static inline void out_make_piece(struct out_case *r, const struct dcpk_out_tensor *tensor,
                                  uint8_t *want, const struct dcpk_box *to,
                                  struct dcpk_piece *piece)
{
    const bool casts =
        (tensor->dtype == DCPK_F32 || tensor->dtype == DCPK_BF16) && fake_below(&r->seed, 3) == 0;
    const enum dcpk_dtype other = tensor->dtype == DCPK_F32 ? DCPK_BF16 : DCPK_F32;
    const enum dcpk_dtype dtype = casts ? other : tensor->dtype;
    const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
    const int64_t n_elems = fake_elems(to->extent, to->rank);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box from;
    uint32_t source;

    if (fake_below(&r->seed, 5) == 0) {
        CHECK_OK(dcpk_piece_make(r->out->arena, DCPK_PIECE_FILL, NULL, to, piece, &err), r->label);
        for (int64_t i = 0; i < n_elems; i++)
            memset(want + (size_t)fake_index(tensor->shape, to, i) * elem_bytes, 0, elem_bytes);
        return;
    }
    source = out_make_source(r, dtype, to, &from);
    CHECK_OK(dcpk_piece_make(r->out->arena, source, &from, to, piece, &err), r->label);
    for (int64_t i = 0; i < n_elems; i++)
        out_cast_naive(dtype,
                       r->fake.data[source] + (size_t)fake_index(r->fake.shapes[source], &from, i) *
                                                  dcpk_dtype_bytes(dtype),
                       tensor->dtype, want + (size_t)fake_index(tensor->shape, to, i) * elem_bytes);
}

/* A shape: small as a rule; large ones need slabs, also within a row. */
static inline int out_make_shape(struct out_case *r, bool large, int64_t *shape)
{
    static const struct {
        int rank;
        int64_t shape[4];
    } large_shapes[] = {
        {2, {700, 1500}}, {2, {2, 410000}},      {3, {3, 401, 700}},
        {1, {900001}},    {4, {2, 1, 77, 4001}},
    };
    const int64_t pick = fake_below(&r->seed, 5);
    const int rank = large ? large_shapes[pick].rank : (int)pick;

    for (int axis = 0; axis < rank; axis++) {
        shape[axis] = large ? large_shapes[pick].shape[axis] : 1 + fake_below(&r->seed, 7);
        if (!large && fake_below(&r->seed, 30) == 0)
            shape[axis] = 0;
    }
    return rank;
}

/* Add tensor t of the output; its sources become tensors of r->fake. */
static inline void out_make_tensor(struct out_case *r, size_t t, bool large)
{
    static const enum dcpk_dtype dtypes[] = {DCPK_F32, DCPK_BF16, DCPK_I64, DCPK_U8, DCPK_C128};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = r->out->arena;
    int64_t *shape = dcpk_arena_array(arena, DCPK_MAX_RANK, sizeof *shape, &err);
    const char **keys = dcpk_arena_array(arena, 2, sizeof *keys, &err);
    struct dcpk_piece *pieces = dcpk_arena_array(arena, OUT_BOXES, sizeof *pieces, &err);
    const int rank = out_make_shape(r, large, shape);
    const int64_t n_elems = fake_elems(shape, rank);
    struct dcpk_out_tensor tensor = {
        .keys = keys,
        .n_keys = 1 + t % 2,
        .dtype = dtypes[fake_below(&r->seed, large ? 4 : 5)],
        .rank = rank,
        .shape = shape,
        .pieces = pieces,
    };
    struct dcpk_box boxes[OUT_BOXES];

    keys[0] = dcpk_arena_printf(arena, &err, "out%zu", t);
    keys[1] = "alias";
    r->want[t] = malloc((size_t)n_elems * dcpk_dtype_bytes(tensor.dtype) + 1);
    if (!large && fake_below(&r->seed, 8) == 0) {
        fake_fill(tensor.dtype, r->want[t], n_elems, &r->seed);
        tensor.literal = r->want[t];
    } else {
        dcpk_box_whole(shape, rank, &boxes[0]);
        tensor.n_pieces = fake_cut(boxes, (size_t)fake_below(&r->seed, large ? 4 : 30), &r->seed);
        if (n_elems == 0)
            tensor.n_pieces = 0;
        for (size_t i = 0; i < tensor.n_pieces; i++)
            out_make_piece(r, &tensor, r->want[t], &boxes[i], &pieces[i]);
    }
    CHECK_OK(dcpk_output_add_tensor(r->out, &tensor, &err), r->label);
}

static inline void out_case_release(struct out_case *r)
{
    for (size_t t = 0; t < r->out->n_tensors; t++)
        free(r->want[t]);
    dcpk_output_free(r->out);
    dcpk_checkpoint_close(r->ckpt);
    fake_release(&r->fake);
}

#endif
