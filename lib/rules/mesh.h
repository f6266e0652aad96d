/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.h - a model for a run of another parallel layout: what must divide, the args it then has,
 * how the vocabulary is padded. */
#ifndef DCPK_LIB_RULES_MESH_H
#define DCPK_LIB_RULES_MESH_H

#include "lib/model/model.h"

/*
 * Prepare the model for a 3D-parallel run on `mesh`; sizes of 0 stay as they are, and the number of
 * ranks follows (dcpk_layout_fit_ranks). args get the sizes; RNG states, which belong to (pipeline,
 * tensor) ranks, are dropped when those change. Nothing happens when all sizes are 0. Errors: those
 * of dcpk_grid_check_model (axes of tensors are checked where they are cut); DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_mesh(struct dcpk_model *model, const struct dcpk_grid *mesh,
                            struct dcpk_error *err);

/*
 * True if the attribute only describes how a run is spread over its ranks: sizes of the mesh, where
 * a pipeline is cut, and how the vocabulary is padded for tp. Source: the options of
 * megatron/training/arguments.py @core_v0.15.3 and main, and what validate_args makes of them.
 */
bool dcpk_rules_is_layout_arg(const char *name);

/* The default of --make-vocab-size-divisible-by (megatron/training/arguments.py@core_v0.19.0). */
#define DCPK_USUAL_DIVISIBLE_BY 128

/* How the target pads its vocabulary; divisible_by 0: as the source does. */
struct dcpk_vocab {
    int64_t size;         /* real rows, without padding; 0: args.vocab_size */
    int64_t divisible_by; /* Megatron's --make-vocab-size-divisible-by */
    int64_t tp;           /* of the target; 0 is 1 */
};

/* Rows of the word embeddings, else of the output layer, padding included; 0: there is neither. */
int64_t dcpk_rules_vocab_rows(const struct dcpk_model *model);

/* The number of tokens: `given` when it is not 0, else args.vocab_size; 0: not known. Errors:
 * DCPK_EMISMATCH when args have more than is given. */
dcpk_status dcpk_rules_vocab_size(const struct dcpk_model *model, int64_t given, int64_t *size,
                                  struct dcpk_error *err);

/*
 * Trim or zero-extend word embeddings and output layer (weights, masters, optimizer state) to
 * n_rows; args.padded_vocab_size follows. Rows trimmed are reported as dropped. size: tokens, which
 * are not trimmed (the caller's care); 0: not known. Errors: DCPK_EMISMATCH when there are fewer
 * rows than `size`.
 */
dcpk_status dcpk_rules_vocab_resize(struct dcpk_model *model, int64_t n_rows, int64_t size,
                                    struct dcpk_error *err);

/*
 * The same to ceil(size / (divisible_by * tp)) * divisible_by * tp rows (MC/tokenizers
 * vocab_size_with_padding; RULES.md 4). Errors: DCPK_EMISMATCH when the source has fewer rows than
 * `size`, or more real ones; DCPK_EUSAGE when `size` is not known; DCPK_ERANGE past 2^63 rows.
 */
dcpk_status dcpk_rules_vocab(struct dcpk_model *model, const struct dcpk_vocab *vocab,
                             struct dcpk_error *err);

/* True for an attribute of args that cuts a pipeline into stages and chunks. */
bool dcpk_stages_is_arg(const char *name);

#endif
