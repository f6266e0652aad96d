/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.h - a model for a run of another parallel layout: what must divide, what args then say, how
 * the vocabulary is padded. */
#ifndef DCPK_LIB_RULES_MESH_H
#define DCPK_LIB_RULES_MESH_H

#include "lib/ckpt/model.h"

/*
 * Prepare the model for a 3D-parallel run on `mesh`; sizes of 0 stay as they are. args get the
 * sizes; RNG states, which belong to (pipeline, tensor) ranks, are dropped when those change.
 * Nothing happens when all sizes are 0. Errors: DCPK_EMISMATCH naming what does not divide:
 * attention heads by tp, layers by pp, experts and data parallelism by ep. (Axes of tensors are
 * checked where they are cut.) DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_mesh(struct dcpk_model *model, const struct dcpk_layout *mesh,
                            struct dcpk_error *err);

/* How the target pads its vocabulary; divisible_by 0: as the source does. */
struct dcpk_vocab {
    int64_t size;         /* real rows, without padding; 0: args.vocab_size */
    int64_t divisible_by; /* Megatron's --make-vocab-size-divisible-by */
    int64_t tp;           /* of the target; 0 is 1 */
};

/*
 * Trim or zero-extend the rows of word embeddings and output layer (weights, masters, optimizer
 * state) to ceil(size / (divisible_by * tp)) * divisible_by * tp (MC/tokenizers
 * vocab_size_with_padding; fsdp_training.md 4.4); args.padded_vocab_size follows. Rows trimmed are
 * reported as dropped. Errors: DCPK_EMISMATCH when the source has fewer rows than `size`, or more
 * real ones; DCPK_EUSAGE when `size` is not known; DCPK_ERANGE past 2^63 rows.
 */
dcpk_status dcpk_rules_vocab(struct dcpk_model *model, const struct dcpk_vocab *vocab,
                             struct dcpk_error *err);

#endif
