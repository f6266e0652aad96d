/* SPDX-License-Identifier: Apache-2.0 */
/* held.h - what a rank of a grid holds of a tensor. */
/*
 *   tensor --tp--> the rank's block of each part, or its columns --FSDP--> its rows of these
 *
 *   rows of the tensor   [ gate0 gate1 | up0 up1 ]       rank 1 of tp=2 holds [ gate1 | up1 ],
 *   local rows           [ gate1 | up1 ]                 of which FSDP takes consecutive rows
 *
 * Without FSDP a stage holds its layers, an expert-parallel rank its experts, and what nothing
 * cuts is there as often as there are ranks for it.
 */
#ifndef DCPK_LIB_PLACE_HELD_H
#define DCPK_LIB_PLACE_HELD_H

#include "lib/place/fsdp_layout.h"
#include "lib/place/grid.h"
#include "lib/tensor/chunks.h"

/* Rows [row, row + n_rows) of a tensor: of its axis 0, in elements. */
struct dcpk_rows {
    int64_t row, n_rows;
};

/* The block of `rows` that rank r of tp ranks holds; tp divides them (the caller guarantees
 * this). */
static inline struct dcpk_rows dcpk_rows_of_rank(struct dcpk_rows rows, int64_t tp, int64_t r)
{
    return (struct dcpk_rows){rows.row + r * (rows.n_rows / tp), rows.n_rows / tp};
}

/* How the ranks of a grid share a tensor. A value; everything in it is borrowed. */
struct dcpk_spread {
    const int64_t *shape;
    int rank;
    int64_t stage; /* of the pipeline; -1: all have it */
    int64_t ep;    /* the expert-parallel rank whose expert it is; -1: dense */
    int tp_axis;   /* that tensor parallelism cuts; -1: none */
    int64_t n_tp;  /* into so many blocks; 1 without the axis */
    /* Parts of axis 0, rows [part_at[i], part_at[i + 1]): each is cut by itself. 0: the axis is
     * one. */
    const int64_t *part_at;
    int64_t n_parts;
    /* Its place in the flat buffers of Megatron-FSDP; NULL: it is not sharded. */
    const struct dcpk_fsdp_param *flat;
    const struct dcpk_fsdp_place *place;
};

/* The part that one rank holds: the dense local tensor of DTensor's to_local(). */
struct dcpk_local {
    /* The number of its copy, from 0 to at most the rank's number: the ranks of one copy together
     * hold each element once. -1: the rank holds nothing of the tensor. */
    int64_t copy;
    int64_t shape[DCPK_MAX_RANK]; /* where n is 0, an extent is 0 */
    /* n boxes, of 3 * rank numbers each, in the arena: offset and extent in the tensor, offset in
     * the local tensor. */
    const int64_t *const *spans;
    size_t n;
};

/* Checks that the tensor has the axis, and on it n_parts equal parts of n_tp equal blocks each.
 * Errors: DCPK_EMISMATCH. */
dcpk_status dcpk_check_blocks(const int64_t *shape, int rank, int axis, int64_t n_parts,
                              int64_t n_tp, struct dcpk_error *err);

/* Checks that the ranks of tensor parallelism have equal blocks, of each part. Errors:
 * DCPK_EMISMATCH. */
dcpk_status dcpk_spread_check(const struct dcpk_spread *spread, struct dcpk_error *err);

/*
 * Finds what `rank` holds under `placing`, any rank; the grid and the spread were checked. Spans
 * are in `arena`. Errors: DCPK_EUNSUPPORTED for a row that FSDP would cut; DCPK_ENOMEM.
 */
dcpk_status dcpk_held_of(const struct dcpk_placing *placing, const struct dcpk_spread *spread,
                         int64_t rank, struct dcpk_arena *arena, struct dcpk_local *local,
                         struct dcpk_error *err);

/*
 * Finds what all ranks hold of `rows` of a tensor in flat buffers, one of its parts (NULL: all of
 * it, as one part), each box once: a box for each block of tensor parallelism and FSDP rank that
 * has a row of it, counted from the first of `rows`. list: in `arena`. Errors: as dcpk_held_of.
 */
dcpk_status dcpk_held_chunks(const struct dcpk_spread *spread, const struct dcpk_rows *rows,
                             struct dcpk_arena *arena, struct dcpk_span_list *list,
                             struct dcpk_error *err);

#endif
