/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - projections whose rows are parts of different meaning: Mamba's and Gated DeltaNet's. */
#ifndef DCPK_LIB_CKPT_PARTS_H
#define DCPK_LIB_CKPT_PARTS_H

#include "lib/ckpt/model.h"

#define DCPK_MAX_PARTS 7

/* How many rows a part has. */
enum dcpk_part_size {
    DCPK_PART_INNER, /* all heads of the values: the columns of out_proj */
    DCPK_PART_STATE, /* all groups of the keys, or of B and C: half of what the convolution has
                        besides */
    DCPK_PART_HEADS, /* one a head: as dt_bias, where the parts have it */
};

struct dcpk_part_kind {
    const char *name; /* NULL behind the last */
    enum dcpk_part_size size;
};

/* A module's projections: the parts of its in_proj and of its convolution, in the order of rows. */
struct dcpk_part_layout {
    const char *mark; /* a parameter that only this module has */
    struct dcpk_part_kind proj[DCPK_MAX_PARTS + 1], conv[DCPK_MAX_PARTS + 1];
};
#define DCPK_N_PART_LAYOUTS 3
extern const struct dcpk_part_layout dcpk_part_layouts[DCPK_N_PART_LAYOUTS];

/* One part of a parameter: its name in 3D-parallel checkpoints, and how many rows it has. */
struct dcpk_part {
    const char *name;
    int64_t n_rows;
};

/*
 * The parts of a parameter in the order of its rows: parts[0 .. *n). *n is 0 for one that has none.
 * Their sizes follow from the shapes of the parameters beside it (`out_proj.weight`, `dt_bias`, the
 * convolution), which must add up to the rows of `in_proj`. Errors: DCPK_EUNSUPPORTED naming the
 * parameter when they do not.
 */
dcpk_status dcpk_parts_of(const struct dcpk_model *model, const struct dcpk_param *param,
                          struct dcpk_part parts[DCPK_MAX_PARTS], size_t *n,
                          struct dcpk_error *err);

/*
 * A tensor-parallel rank holds its block of every part, part behind part. A tensor of all ranks,
 * rank behind rank, as Megatron-FSDP keeps it, thus has another order of rows for each number of
 * ranks; 3D-parallel checkpoints have none of this (fsdp_dtensor.md 8.1; megatron/core/ssm/utils.py
 * @0.19.0 _split_tensor_factory).
 */
enum dcpk_parts_order {
    DCPK_PARTS_OF_ONE,  /* part behind part, as one rank holds them: the order of the view */
    DCPK_PARTS_BY_RANK, /* rank behind rank */
};

/* Parts as tp ranks hold them. */
struct dcpk_parts_held {
    const struct dcpk_part *parts;
    size_t n;
    int64_t tp;
};

/*
 * The rows of `tensor` in `order`; it has the other one, of tp ranks. Shape and pieces are made in
 * `arena`; reordered may be `tensor`. Errors: DCPK_EMISMATCH when a part does not divide by tp or
 * the rows are not those of the parts.
 */
dcpk_status dcpk_parts_reorder(struct dcpk_arena *arena, const struct dcpk_parts_held *held,
                               enum dcpk_parts_order order, const struct dcpk_model_tensor *tensor,
                               struct dcpk_model_tensor *reordered, struct dcpk_error *err);

/*
 * Bring every projection of the model from the order of tp ranks into that of one. Errors: those of
 * dcpk_parts_of and dcpk_parts_reorder.
 */
dcpk_status dcpk_parts_unite(struct dcpk_model *model, int64_t tp, struct dcpk_error *err);

#endif
