/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - what a configuration would hold and send, for persons and programs. */
#ifndef DCPK_LIB_TRAIN_EXPLAIN_H
#define DCPK_LIB_TRAIN_EXPLAIN_H

#include "lib/report/doc.h"
#include "lib/train/footprint.h"

/* All bytes of the rank that holds most. config: checked (knobs.h). Errors: those of
 * dcpk_train_footprint. */
dcpk_status dcpk_train_need(const struct dcpk_train_config *config, enum dcpk_footprint_of of,
                            uint64_t *n_bytes, struct dcpk_error *err);

/* The most samples of a micro batch with which every stage fits into limit_bytes; 0: not one. */
dcpk_status dcpk_train_largest_batch(const struct dcpk_train_config *config,
                                     enum dcpk_footprint_of of, uint64_t limit_bytes,
                                     int64_t *micro_batch, struct dcpk_error *err);

/*
 * The fewest ranks, up to 4096, by which the run fits into limit_bytes each; among layouts of as
 * many the least tensor parallelism, up to 8. All are layouts that `train` takes: data-parallel
 * ranks divide the batch, or, where it follows them, are what experts need times a power of two.
 * Stages, context and expert parallelism stay. layout: its sizes are 0 where none fits.
 */
dcpk_status dcpk_train_smallest_layout(const struct dcpk_train_config *config,
                                       enum dcpk_footprint_of of, uint64_t limit_bytes,
                                       struct dcpk_grid *layout, struct dcpk_error *err);

/*
 * Memory by tag, as this run holds it, and as Megatron would under each strategy; with a limit
 * (bytes of a device, 0: none) also the sizes of either that fit into it, and advice. Strategies
 * that DDP does not have are Megatron-FSDP's. Errors: those above; of the document.
 */
dcpk_status dcpk_train_explain_memory(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                      struct dcpk_doc *doc, struct dcpk_error *err);

/* Bytes that data-parallel ranks send in a step: of this run, and of Megatron by strategy; seconds
 * at so many bytes a second (0: not asked). */
dcpk_status dcpk_train_explain_comm(const struct dcpk_train_config *config, double bytes_per_second,
                                    struct dcpk_doc *doc, struct dcpk_error *err);

#endif
