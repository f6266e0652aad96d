/* SPDX-License-Identifier: Apache-2.0 */
/* user_buffers.h - memory for weights and gradients that are sent, which the library of the
 * collectives knows in advance: NCCL's user buffers, nccl_ub. */
/*
 *   new -> join -> take, give, ... -> register -> take, give, ... -> unregister -> free
 *          which groups             with each group             before the groups are freed
 *
 * Memory that is given back is kept for the next one of its size, so that a step uses what the
 * first one has taken, and registered buffers stay registered. Ranks of a group take buffers of the
 * same sizes in the same order. Either all of them have windows, or all register locally.
 * Source: megatron_fsdp/param_and_grad_buffer.py (manual_buffer_registration),
 * megatron/core/nccl_allocator.py @core_v0.19.0.
 */
#ifndef DCPK_LIB_TRAIN_USER_BUFFERS_H
#define DCPK_LIB_TRAIN_USER_BUFFERS_H

#include "lib/device/collectives.h"

struct dcpk_train_job;
struct dcpk_user_buffers;

/* Memory that gathers use, and reductions. */
enum dcpk_buffer_use { DCPK_BUFFER_GATHER, DCPK_BUFFER_REDUCE };

/*
 * Collective over job->world, which is borrowed, as job. *buffers: NULL where the configuration
 * does not ask for them, where no GPU computes, and where a rank's library has none: that is noted,
 * and the run has none. is_silent: nothing is noted. Errors: DCPK_ENOMEM, those of the group.
 */
dcpk_status dcpk_user_buffers_new(const struct dcpk_train_job *job, bool is_silent,
                                  struct dcpk_user_buffers **buffers, struct dcpk_error *err);
/* Frees all memory, taken or not. NULL is a no-op. */
void dcpk_user_buffers_free(struct dcpk_user_buffers *buffers);

/* Calls of the group use buffers of that kind; before `take`. A group that has joined, or of one
 * rank, changes nothing. */
void dcpk_user_buffers_join(struct dcpk_user_buffers *buffers, enum dcpk_buffer_use use,
                            struct dcpk_group *group);

/* Contents undefined; 0 bytes give memory, too. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_user_buffers_take(struct dcpk_user_buffers *buffers, enum dcpk_buffer_use use,
                                   size_t n_bytes, void **at, struct dcpk_error *err);
/* Work that was queued on the device may use the memory, if that of the next one comes after it.
 * NULL is a no-op. */
void dcpk_user_buffers_give(struct dcpk_user_buffers *buffers, void *at);

/*
 * Collective over the groups that joined, outside steps: registers all buffers that are not yet.
 * n_trained: iterations since the run began. With fsdp_manual_registration only after the first
 * one, else at the beginning, too; at other times, and for NULL, a no-op. Notes how many bytes were
 * registered, and how. Errors: those of the groups.
 */
dcpk_status dcpk_user_buffers_register(struct dcpk_user_buffers *buffers, int64_t n_trained,
                                       struct dcpk_error *err);
/* Undoes it, when no call uses the memory. NULL is a no-op. */
void dcpk_user_buffers_unregister(struct dcpk_user_buffers *buffers);

#endif
