/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp.h - who keeps the parameters of a rank: sharded storage, gathers before use, reductions of
 * gradients, all strategies of Megatron-FSDP and DDP. */
/*
 * A step:
 *
 *   begin -> [ model: enter, weight, add, leave (weights.h) ] x microbatches -> finish
 *         -> the optimizer updates shards (shards.h) -> install
 *
 *                        weights kept   gradients kept   reduced
 *   no_shard             all            all              at the last microbatch, to all
 *   optim                all            all              at the last microbatch, to slices
 *   optim_grads          all            slice            at each microbatch
 *   optim_grads_params   slice          slice            at each; weights gathered for each pass
 *
 * HSDP: slices are those of the inner ranks, and the last microbatch adds them over the outer
 * ranks; HFSDP: every outer rank keeps a part of the slice's optimizer state.
 * DDP is `optim`, or `no_shard` without a distributed optimizer, without units.
 * Source: fsdp/src/megatron_fsdp/megatron_fsdp.py and param_and_grad_buffer.py @core_v0.19.0.
 */
#ifndef DCPK_LIB_TRAIN_FSDP_H
#define DCPK_LIB_TRAIN_FSDP_H

#include "lib/place/fsdp_layout.h"
#include "lib/train/memory_account.h"
#include "lib/train/params.h"
#include "lib/train/phases.h"
#include "lib/train/run_mesh.h"
#include "lib/train/shards.h"
#include "lib/train/user_buffers.h"
#include "lib/train/weights.h"

enum dcpk_fsdp_action {
    DCPK_FSDP_GATHER,       /* weights of a bucket over the ranks that share it out */
    DCPK_FSDP_PREFETCH,     /* the same, before a pass asks for it */
    DCPK_FSDP_READY,        /* the gathered weights are there */
    DCPK_FSDP_RELEASE,      /* gathered weights are given up */
    DCPK_FSDP_REDUCE,       /* gradients of a bucket: reduce-scatter, or all-reduce (no_shard) */
    DCPK_FSDP_REDUCED,      /* the result is in the slice */
    DCPK_FSDP_OUTER_GATHER, /* HFSDP: slices' weights over the outer ranks */
    DCPK_FSDP_OUTER_REDUCE, /* HSDP, HFSDP: slices' gradients over the outer ranks */
    DCPK_FSDP_N_ACTIONS,
};

extern const char *const dcpk_fsdp_action_names[DCPK_FSDP_N_ACTIONS];

/* One step of the schedule. n_bytes: of the bucket as it lies on this rank, whole or (outer) its
 * slice; 0 where nothing is sent. */
struct dcpk_fsdp_event {
    enum dcpk_fsdp_action action;
    size_t bucket;
    int64_t unit; /* -1: outside units */
    bool is_expert;
    enum dcpk_train_pass pass;
    uint64_t n_bytes;
};

struct dcpk_fsdp_options { /* all borrowed until free */
    const struct dcpk_train_config *config;
    const struct dcpk_train_mesh *mesh;
    const struct dcpk_train_params *params;
    struct dcpk_memory_account *account;
    struct dcpk_phases *phases; /* NULL: not timed */
    struct dcpk_user_buffers
        *buffers;     /* of what is sent; NULL: the device's memory like all else */
    bool is_megatron; /* of a plan: no_shard fills nothing up, slices are not widened to be added */
    /* NULL: no log. Called in the order of the schedule, by the thread of the call. */
    void (*event)(void *context, const struct dcpk_fsdp_event *event);
    void *context;
};

/* Bytes that this rank sends, by action, with the ring algorithm: (D - 1) / D of a bucket for a
 * gather or a scatter over D ranks, twice that for an all-reduce. */
struct dcpk_fsdp_traffic {
    uint64_t n_bytes[DCPK_FSDP_N_ACTIONS], n_calls[DCPK_FSDP_N_ACTIONS];
};

struct dcpk_fsdp;

/*
 * All memory but what passes gather. Main parameters and moments are zeroed: initialisation or
 * loading fills shards, then calls install. Errors: DCPK_EUNSUPPORTED where a row would be cut, and
 * for a pair of math and collectives that share no memory; DCPK_ENOMEM.
 */
dcpk_status dcpk_fsdp_new(const struct dcpk_fsdp_options *options, struct dcpk_fsdp **fsdp,
                          struct dcpk_error *err);
/* The same without memory and shards, for a footprint alone (footprint.h): the mesh may be a
 * planned one, the account that of dcpk_memory_counted. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_fsdp_plan(const struct dcpk_fsdp_options *options, struct dcpk_fsdp **fsdp,
                           struct dcpk_error *err);
/* Waits for what is under way, on other ranks as well. NULL is a no-op. */
void dcpk_fsdp_free(struct dcpk_fsdp *fsdp);

/* Owned by fsdp, as all below. */
struct dcpk_weights *dcpk_fsdp_weights(struct dcpk_fsdp *fsdp);
/* Shards of this rank, for the optimizer. */
const struct dcpk_train_shards *dcpk_fsdp_shards(const struct dcpk_fsdp *fsdp);
/* The fp32 memory of a parameter that is a buffer (params.h), whole on every rank. */
float *dcpk_fsdp_buffer(struct dcpk_fsdp *fsdp, size_t param);

/* Gradients become zero; n_microbatches backward passes over everything follow, no more
 * (asserted: gradients would be reduced twice). */
dcpk_status dcpk_fsdp_begin(struct dcpk_fsdp *fsdp, int64_t n_microbatches, struct dcpk_error *err);

/* After begin: gradients of this step are `scale` times as large (fp16), and so is the unit of
 * their integers, to a power of two. Their range is that of gradients that are not scaled: whether
 * a step overflows is then fp16's matter, which is the same in every layout of ranks. */
void dcpk_fsdp_scale_sums(struct dcpk_fsdp *fsdp, double scale);

/*
 * Collective over all ranks of the mesh, after the passes (asserted). All reductions have ended
 * then, gradients of query and key norms are added over tensor-parallel ranks, those of tied
 * embeddings over both stages; shards[].grad is the sum times `factor`.
 * Errors, on all ranks: DCPK_ERANGE where a gradient is not finite or its sum passes the integers'
 * range (2^(63 - exact_lsb) / ranks), naming rank, parameter and element on the one that saw it.
 */
dcpk_status dcpk_fsdp_finish(struct dcpk_fsdp *fsdp, double factor, struct dcpk_error *err);

/* Wait for gathers that are under way: as a run ends, or registers buffers. Errors: those of the
 * groups. */
dcpk_status dcpk_fsdp_settle(struct dcpk_fsdp *fsdp, struct dcpk_error *err);

/* Main parameters into weights of the compute dtype; what strategies keep whole is gathered. */
dcpk_status dcpk_fsdp_install(struct dcpk_fsdp *fsdp, struct dcpk_error *err);

/*
 * Collective over all ranks of the mesh: weights that every data-parallel rank keeps whole have the
 * same bits on all of them. Nothing to check with optim_grads_params. Errors: DCPK_EMISMATCH on
 * ranks that differ from their group's first, DCPK_ECANCELLED on the others; DCPK_ENOMEM.
 * Source: megatron/core/utils.py @core_v0.19.0, check_param_hashes_across_dp_replicas.
 */
dcpk_status dcpk_fsdp_check_replicas(struct dcpk_fsdp *fsdp, struct dcpk_error *err);

const struct dcpk_fsdp_traffic *dcpk_fsdp_traffic(const struct dcpk_fsdp *fsdp); /* since new */

/* ---- which parameters share a flat buffer, and how many ranks share it out ---- */

/*
 * D ranks have the same part of the model; HSDP: D = inner x outer ranks, instances are outer ones.
 *
 *                               reduced over   then over   parts of the optimizer
 *   no_shard                    D              -           1
 *   others                      inner          outer       inner; HFSDP: D
 *   experts                     inner / EP     outer       inner / EP; HFSDP: D / EP
 *
 * Experts have the outer ranks of the rest. Source: _init_dist_index of mcore_fsdp_adapter.py, the
 * same from core 0.17 to main; in 0.16 HSDP has no groups of experts.
 */

/* The strategy that a run uses; without Megatron-FSDP it is optim or no_shard. */
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
