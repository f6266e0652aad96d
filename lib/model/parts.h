/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - parameters whose rows are parts of different meaning: gate and up, the projections of
 * Mamba and Gated DeltaNet. */
#ifndef DCPK_LIB_MODEL_PARTS_H
#define DCPK_LIB_MODEL_PARTS_H

#include "lib/model/rows.h"

#define DCPK_MAX_PARTS 7

/* The number of rows of a part. */
enum dcpk_part_size {
    DCPK_PART_INNER, /* all heads of the values: the columns of out_proj */
    /* All groups of the keys, or of B and C: half of what the convolution has besides. */
    DCPK_PART_STATE,
    DCPK_PART_HEADS, /* one a head: as dt_bias, where the parts have it */
    DCPK_PART_HALF,  /* of the parameter */
    DCPK_N_PART_SIZES,
};

struct dcpk_part_kind {
    const char *name; /* NULL after the last */
    enum dcpk_part_size size;
};

/* SwiGLU fc1: "gate" and "up". */
extern const struct dcpk_part_kind dcpk_gate_up[];

/* A module's projections: the parts of its in_proj and of its convolution, in the order of rows. */
struct dcpk_part_layout {
    const char *mark; /* a parameter that only this module has */
    struct dcpk_part_kind proj[DCPK_MAX_PARTS + 1], conv[DCPK_MAX_PARTS + 1];
};
#define DCPK_N_PART_LAYOUTS 3
extern const struct dcpk_part_layout dcpk_part_layouts[DCPK_N_PART_LAYOUTS];

/* Parts of these kinds one after the other, size[] rows each by enum dcpk_part_size; in
 * `arena`. */
dcpk_status dcpk_parts_size(struct dcpk_arena *arena, const struct dcpk_part_kind *kinds,
                            const int64_t size[DCPK_N_PART_SIZES], struct dcpk_split *parts,
                            struct dcpk_error *err);

/* The number of known parts of a parameter (param->parts), 1 where none are. */
int64_t dcpk_parts_count(const struct dcpk_param *param);

/*
 * The parts of a parameter in the order of its rows, in `arena`; parts->n is 0 for one that has
 * none. Sizes of param->parts follow from its rows; those of projections from the shapes of the
 * parameters next to it (`out_proj.weight`, `dt_bias`, the convolution), which must add up to the
 * rows of `in_proj`. Errors: DCPK_EUNSUPPORTED naming the parameter when they do not;
 * DCPK_EMISMATCH for an odd number of gate and up rows.
 */
dcpk_status dcpk_parts_of(const struct dcpk_model *model, const struct dcpk_param *param,
                          struct dcpk_arena *arena, struct dcpk_split *parts,
                          struct dcpk_error *err);

/*
 * A tensor-parallel rank holds its block of every part, part after part. A tensor of all ranks,
 * rank after rank, as Megatron-FSDP keeps it, thus has another order of rows for each number of
 * ranks; 3D-parallel checkpoints have none of this (formats/fsdp_dtensor/FORMAT.md 8.1;
 * megatron/core/ssm/utils.py @0.19.0 _split_tensor_factory). Bring every projection of the model
 * from the order of tp ranks into that of one, which the view always has. Errors: those of
 * dcpk_parts_of, dcpk_rows_by_rank and dcpk_rows_fit.
 */
dcpk_status dcpk_parts_unite(struct dcpk_model *model, int64_t tp, struct dcpk_error *err);

/* --- parts that are stored tensors --- */

/* A key "<prefix><name><tail>". */
struct dcpk_part_key {
    const char *prefix, *name, *tail;
};

/* Stored tensors that are the parts of one parameter, in the order of its rows. */
struct dcpk_found_parts {
    uint32_t tensor[DCPK_MAX_PARTS]; /* of ckpt; the first n */
    size_t n;                        /* 0: not all of them are there */
    const char *missing;             /* the first that is not; in the model's arena */
    size_t whole_bytes;              /* of the name, that are the parameter's */
};

/*
 * Look up those of `kinds`, whose names follow the first head_bytes of key->name; found->missing:
 * the first key that is not there. whole_bytes stays as it is. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_parts_look_up(const struct dcpk_model *model, const struct dcpk_part_key *key,
                               size_t head_bytes, const struct dcpk_part_kind *kinds,
                               struct dcpk_found_parts *found, struct dcpk_error *err);

/*
 * "X.in_proj.weight.z", ".x", ".B", ".C" and ".dt" are rows of one parameter "X.in_proj.weight",
 * one part after the other, the same for any number of tensor-parallel ranks: together they are the
 * one of a run without tensor parallelism (megatron/core/ssm/utils.py@0.19.0 _split_tensor_factory,
 * its caller in mamba_mixer.py, gated_delta_net/common.py). Find all parts of the parameter of
 * which `source`, whose key is `key`, is one: found->n is 0 for a part of an unknown module, or
 * where one is missing. A tensor that is not a part is found alone, whole_bytes being all of its
 * name. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_parts_find(const struct dcpk_model *model, uint32_t source,
                            const struct dcpk_part_key *key, struct dcpk_found_parts *found,
                            struct dcpk_error *err);

#endif
