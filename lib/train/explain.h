/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - memory and traffic of a configuration, for persons and programs. */
#ifndef DCPK_LIB_TRAIN_EXPLAIN_H
#define DCPK_LIB_TRAIN_EXPLAIN_H

#include "lib/knobs/config.h"
#include "lib/report/doc.h"

/*
 * Memory by tag, as this run holds it, and as Megatron would under each strategy; with a limit
 * (bytes of a device, 0: none) also the sizes of either that fit into it, and advice. Strategies
 * that DDP does not have are Megatron-FSDP's. Errors: those above; of the document.
 */
dcpk_status dcpk_train_explain_memory(const struct dcpk_train_config *config, uint64_t limit_bytes,
                                      struct dcpk_doc *doc, struct dcpk_error *err);

/*
 * A row for each layout of the run's ranks in which the sizes of `axes` (DCPK_SWEEP_...) differ:
 * bytes that Megatron would hold under each strategy, and, with a limit (0: none), the first
 * strategy that fits. Errors: DCPK_EUSAGE where no layout makes a run; those above.
 */
dcpk_status dcpk_train_explain_sweep(const struct dcpk_train_config *config, unsigned axes,
                                     uint64_t limit_bytes, struct dcpk_doc *doc,
                                     struct dcpk_error *err);

/* Bytes that data-parallel ranks send in a step: of this run, and of Megatron by strategy; seconds
 * at so many bytes a second (0: not asked). */
dcpk_status dcpk_train_explain_comm(const struct dcpk_train_config *config, double bytes_per_second,
                                    struct dcpk_doc *doc, struct dcpk_error *err);

#endif
