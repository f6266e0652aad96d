/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - these rows under that name: how formats store a parameter in pieces of their own. */
#ifndef DCPK_LIB_MODEL_ROWS_H
#define DCPK_LIB_MODEL_ROWS_H

#include "lib/model/model.h"
#include "lib/place/held.h"

/*
 * Rows of a parameter that one tensor holds: blocks of them, in the order in which that tensor has
 * them. Borrowed: an arena's, or constant.
 */
struct dcpk_stored {
    const char *name; /* of the rows: "gate"; in a format what it calls them: "_w", ".z", "" */
    const struct dcpk_rows *rows; /* NULL: all, in their order */
    size_t n_rows;
};

/*
 * All rows of a parameter, each under exactly one name. Formats differ in this list alone; every
 * writer takes the rows of each name, every reader joins them:
 *
 *     fc1 (SwiGLU)         fsdp_dtensor: "_w" {0, f}, "_v" {f, f}; torch_dist: "" (all)
 *     in_proj (Mamba)      torch_dist: ".z" {0, i}, ".x" {i, i}, ...; fsdp_dtensor: "", the blocks
 *                          of each tensor-parallel rank (dcpk_rows_by_rank)
 *     linear_qkv_down_proj (MLA, fused) of fsdp_dtensor holds two parameters of the view: their
 *                          names, and the rows of it that are theirs
 *
 * Names of Hugging Face (lib/rules/RULES.md 6, formats/safetensors/MAPS.md) need no other notion. A
 * name map there is a table of names and their rows. With r query heads of d rows in each
 * of G groups, linear_qkv is
 *
 *     "q_proj" {0, rd}, {(r+2)d, rd}, ...      G blocks, one a group
 *     "k_proj" {rd, d}, {(r+2)d + rd, d}, ...  and "v_proj" d rows after those; the bias the same
 *
 * "gate_proj" and "up_proj" are the two halves of fc1; where gate and up rows take turns in one
 * tensor, it is one name with blocks of one row. One tensor of q, k and v one after the other is
 * one name with the blocks of all three. Stacked experts are slices of the stored tensor, as
 * stacked layers are (struct dcpk_sources), single ones parameters of the view. Other parts of
 * such a map are not a matter of rows: the padded vocabulary is that of lib/rules/vocab.c, which
 * has resized the view before; a transposed weight is one of pieces; weights that are scaled, or
 * stored less one, are views that are computed (struct dcpk_computed).
 */
struct dcpk_split {
    const struct dcpk_stored *list;
    size_t n;
};

/* Parts of n_rows[i] rows called names[i], one after the other; in `arena`. */
dcpk_status dcpk_rows_behind(struct dcpk_arena *arena, const char *const *names,
                             const int64_t *n_rows, size_t n, struct dcpk_split *split,
                             struct dcpk_error *err);

/*
 * All rows of a parameter in the order in which tp ranks hold them, rank after rank: each has its
 * block of every block of the split, in the split's order. In `arena`; its name is "". Errors:
 * DCPK_EMISMATCH naming a part whose blocks do not divide by tp.
 */
dcpk_status dcpk_rows_by_rank(struct dcpk_arena *arena, const struct dcpk_split *split, int64_t tp,
                              struct dcpk_stored *ranked, struct dcpk_error *err);

/* Checks that the tensor has the rows of the split, no more and no fewer. Errors:
 * DCPK_EMISMATCH. */
dcpk_status dcpk_rows_fit(const struct dcpk_split *split, const struct dcpk_model_tensor *tensor,
                          struct dcpk_error *err);

/*
 * The rows of `tensor` that lie under a name, as a tensor of their own; its shape and pieces are
 * made in `arena`. taken may be `tensor`. The rows must be there (asserted).
 */
dcpk_status dcpk_rows_take(struct dcpk_arena *arena, const struct dcpk_model_tensor *tensor,
                           const struct dcpk_stored *stored, struct dcpk_model_tensor *taken,
                           struct dcpk_error *err);

/*
 * The inverse: whole has the rows of parts[i] where split->list[i] puts them. Its dtype, role, and
 * all axes but the rows are those of parts[0], and of all (asserted); its shape and pieces are made
 * in `arena`. whole may be one of the parts.
 */
dcpk_status dcpk_rows_join(struct dcpk_arena *arena, const struct dcpk_split *split,
                           const struct dcpk_model_tensor *parts, struct dcpk_model_tensor *whole,
                           struct dcpk_error *err);

/* Stored tensors of a checkpoint whose rows, one after the other, are those of one tensor of the
 * view. */
struct dcpk_sources {
    const uint32_t *tensor; /* of model->ckpt */
    size_t n;
    const int64_t *at; /* the slice of n_lead stacked axes (layers, experts) before their own */
    int n_lead;
};

/*
 * Set dtype, shape and pieces of a tensor of the view; in the model's arena, or the checkpoint's.
 * Errors: DCPK_EFORMAT when they differ in more than their rows.
 */
dcpk_status dcpk_rows_read(struct dcpk_model *model, const struct dcpk_sources *sources,
                           struct dcpk_model_tensor *tensor, struct dcpk_error *err);

#endif
