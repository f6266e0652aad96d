/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_shares.h - which parameters share a flat buffer, and how many ranks share it out: one answer
 * for the run and for what explains it. */
/*
 * D ranks have the same part of the model; HSDP: D = inner x outer ranks, instances are outer ones.
 *
 *                               reduced over   then over   parts of the optimizer
 *   no_shard                    D              -           1
 *   others                      inner          outer       inner; HFSDP: D
 *   experts, without instances  D / EP         -           D / EP
 */
#ifndef DCPK_LIB_TRAIN_FSDP_SHARES_H
#define DCPK_LIB_TRAIN_FSDP_SHARES_H

#include "lib/place/fsdp_layout.h"
#include "lib/train/params.h"

/* The strategy that a run goes by; without Megatron-FSDP it is optim or no_shard. */
enum dcpk_strategy dcpk_fsdp_strategy(const struct dcpk_train_config *config);
/* True if layers have buffers of their own. */
bool dcpk_fsdp_has_units(const struct dcpk_train_config *config);

/* True if the parameter is an embedding that both the first and the last stage have: its gradients
 * add up. */
bool dcpk_fsdp_is_copied(const struct dcpk_train_config *config,
                         const struct dcpk_train_param *param);

/*
 * The parameter as dcpk_fsdp_layout takes it; borrows it. Groups are in order: what lies outside
 * units, then unit by unit; in each dense parameters before experts; outside units an embedding
 * that another stage has, too, before the rest.
 */
struct dcpk_fsdp_param dcpk_fsdp_flat(const struct dcpk_train_config *config,
                                      const struct dcpk_train_param *param);

/* The amount that the ring algorithm sends of n (elements, bytes) that ranks scatter or gather. */
static inline uint64_t dcpk_fsdp_ring(uint64_t n, uint64_t n_ranks)
{
    return n * (n_ranks - 1) / n_ranks;
}

#endif
