/* SPDX-License-Identifier: Apache-2.0 */
/* remap_layout.h - how the tensors of a model lie in the memory of ranks. */
#ifndef DCPK_LIB_JOB_REMAP_LAYOUT_H
#define DCPK_LIB_JOB_REMAP_LAYOUT_H

#include "lib/model/fsdp_shards.h"

/*
 * A parallel layout over ranks 0 .. n - 1, numbered as Megatron does: tp first, then cp and dp,
 * then pp; experts within a stage by etp, then ep. All sizes at least 1 (etp: tp), but for vpp
 * (0: 1) and for first and last, the layers of the stages at the ends (0: as many as the others).
 *
 * Without FSDP, stages hold their layers (the first one the embeddings, too, the last one the
 * rest), tp ranks their blocks (of rows with parts, as gate and up, of each part), and what nothing
 * cuts, optimizer state among it, is there as often as there are ranks for it. With FSDP, dp ranks
 * hold the rows that Megatron-FSDP's flat buffers give them, in n_instances replicas (HSDP); pp and
 * cp are 1.
 */
struct dcpk_rank_layout {
    struct dcpk_layout mesh;
    bool is_fsdp;
    int64_t n_instances, bucket_elems; /* FSDP; bucket_elems: lib/model/fsdp_layout.h */
};

/* How many ranks it has. */
int64_t dcpk_rank_layout_size(const struct dcpk_rank_layout *layout);

/* A layout of one model. Zero it before use; release it in any case. The model is borrowed. */
struct dcpk_laid_out {
    const struct dcpk_model *model;
    struct dcpk_rank_layout layout;
    struct dcpk_arena *arena;
    struct dcpk_fsdp_shards fsdp; /* with FSDP */
    struct dcpk_split *parts;     /* by parameter: of its rows */
    int64_t *stage;               /* by parameter; -1: all have it */
    int64_t n_experts;
};

/*
 * Lay out the model, whose parameters have their place (lib/model/parallel.h) and fit the sizes
 * (dcpk_rules_mesh). Errors: DCPK_EMISMATCH naming what does not divide; DCPK_EUNSUPPORTED for a
 * parameter that no rule cuts, and for rows that FSDP would cut; DCPK_ENOMEM.
 */
dcpk_status dcpk_lay_out(const struct dcpk_model *model, const struct dcpk_rank_layout *layout,
                         struct dcpk_laid_out *laid, struct dcpk_error *err);
void dcpk_laid_out_release(struct dcpk_laid_out *laid);

/* What a rank holds of a tensor. */
struct dcpk_seat {
    /* Which of the copies it is part of, from 0 to at most the rank's number: the ranks of one copy
     * together hold each element once. -1: the rank holds nothing of the tensor. */
    int64_t copy;
    int64_t local[DCPK_MAX_RANK]; /* shape of the dense local tensor */
    /* n_boxes spans of 3 * rank numbers: offset, extent, offset in the local tensor. In the arena
     * of dcpk_seat_find. */
    const int64_t *const *spans;
    size_t n_boxes;
};

/* tensor: of the model; rank: any. Errors: DCPK_EUNSUPPORTED for a row that FSDP would cut;
 * DCPK_ENOMEM. */
dcpk_status dcpk_seat_find(const struct dcpk_laid_out *laid, const struct dcpk_model_tensor *tensor,
                           int64_t rank, struct dcpk_arena *arena, struct dcpk_seat *seat,
                           struct dcpk_error *err);

#endif
