/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.h - what a rank holds and sends, from a configuration alone: the run itself, and
 * Megatron under the same configuration. */
/*
 * The configuration is laid out as a run lays it out, on a planned mesh (run_mesh.h), and its model
 * takes activations from a device that counts (memory_account.h): no formula is written twice.
 */
#ifndef DCPK_LIB_TRAIN_FOOTPRINT_H
#define DCPK_LIB_TRAIN_FOOTPRINT_H

#include "lib/base/bytes.h"
#include "lib/train/fsdp.h"

enum dcpk_footprint_of { DCPK_OF_THIS_RUN, DCPK_OF_MEGATRON };

/*
 * held: of Megatron, activations (DCPK_TAG_ACT) are an estimate: what backward reads of each layer
 * in its micro batches under way, attention being computed without its scores; with recomputation
 * the inputs of layers. sent: by data-parallel ranks, in a step.
 */
struct dcpk_train_footprint {
    uint64_t held[DCPK_N_TAGS];
    uint64_t max_adam_bytes;  /* of the rank of its stage that has most of DCPK_TAG_ADAM */
    uint64_t save_copy_bytes; /* host memory for what that rank saves: main and moments in fp32 */
    struct dcpk_fsdp_traffic sent;
};

/* The footprint of a rank that is laid out, without activations: its own state is not looked at. */
void dcpk_fsdp_footprint(const struct dcpk_fsdp *fsdp, enum dcpk_footprint_of of,
                         int64_t n_microbatches, struct dcpk_train_footprint *footprint);

/* The footprint of rank `rank` of the run. config: checked (knobs.h). Errors: the refusals of a run
 * when its model is made (gpt.h; not of Megatron); DCPK_ENOMEM. */
dcpk_status dcpk_train_footprint(const struct dcpk_train_config *config, int64_t rank,
                                 enum dcpk_footprint_of of, struct dcpk_train_footprint *footprint,
                                 struct dcpk_error *err);

/* The footprint of the rank that holds most, of all of the run. Errors: as above. */
dcpk_status dcpk_train_footprint_most(const struct dcpk_train_config *config,
                                      enum dcpk_footprint_of of,
                                      struct dcpk_train_footprint *footprint,
                                      struct dcpk_error *err);

uint64_t dcpk_train_held_sum(const uint64_t held[DCPK_N_TAGS]); /* bytes of all tags */

/* Weights of a rank that the double buffer does not hold, of this run. */
struct dcpk_train_apart {
    uint64_t buffer_bytes;  /* of each of the two buffers; 0: there are none, and no rest */
    uint64_t layer_bytes;   /* of layers of another size, gathered at one time, at most: with both
                             * buffers they are held[DCPK_TAG_GATHER] */
    uint64_t outside_bytes; /* of held[DCPK_TAG_WEIGHTS]: whole weights outside layers */
};

/*
 * Finds what the double buffer does not hold on the ranks of a stage. text: gets a line, without
 * its end, that names it, its bytes and why; nothing where there is no double buffer. Errors: those
 * of dcpk_train_footprint. Source: param_and_grad_buffer.py FixedPoolAllocator @core_v0.19.0.
 */
dcpk_status dcpk_train_apart(const struct dcpk_train_config *config, int64_t stage,
                             struct dcpk_train_apart *apart, struct dcpk_bytes *text,
                             struct dcpk_error *err);

/* Memory and bytes sent of this rank, and the footprint of its configuration. */
struct dcpk_train_measured {
    int64_t rank;
    struct dcpk_fsdp_traffic sent;         /* in the last step */
    uint64_t held[DCPK_N_TAGS];            /* the most at one time */
    uint64_t most_held[DCPK_N_TAGS];       /* the same of the rank that held most */
    struct dcpk_train_footprint explained; /* of this rank */
};

/* Collective over all ranks of the run: add what the rank that held most held, and what is
 * explained of this one. rank, sent and held are there. Errors: those of dcpk_train_footprint and
 * of the group. */
dcpk_status dcpk_train_measured_complete(struct dcpk_train_measured *m,
                                         const struct dcpk_train_config *config,
                                         struct dcpk_group *world, struct dcpk_math *math,
                                         struct dcpk_error *err);

/* Hold a run against its footprint. Errors: DCPK_EMISMATCH naming the bytes that differ. */
dcpk_status dcpk_train_measured_check(const struct dcpk_train_measured *m, struct dcpk_error *err);

#endif
