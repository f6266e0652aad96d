/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_priv.h - buckets, units and what is under way: shared by the files of FSDP. */
/*
 * A bucket, D ranks share it out (HFSDP: each slice among O outer ranks again):
 *
 *   |<------------------------- n_elems ------------------------->|
 *   |   slice 0     |   slice 1     |   slice 2     |   slice 3   |      n_slice = n_elems / D
 *                   |own 0 |own 1   |                                    n_own   = n_slice / O
 *
 * Weights of a bucket (optim_grads_params), and its gradients:
 *
 *   EMPTY -gather-> COMMUNICATING -wait-> READY -release-> EMPTY
 *   EMPTY -first of a backward pass-> FILLING -reduce-> QUEUED -wait-> EMPTY
 */
#ifndef DCPK_LIB_TRAIN_FSDP_PRIV_H
#define DCPK_LIB_TRAIN_FSDP_PRIV_H

#include "lib/train/fsdp.h"

enum dcpk_fsdp_weights_state {
    DCPK_WEIGHTS_EMPTY,
    DCPK_WEIGHTS_COMMUNICATING,
    DCPK_WEIGHTS_READY,
};

enum dcpk_fsdp_grads_state { DCPK_GRADS_EMPTY, DCPK_GRADS_FILLING, DCPK_GRADS_QUEUED };

/* A call under way, and the group that it was made on; NULL: it has ended. */
struct dcpk_fsdp_wait {
    struct dcpk_group *group;
    uint64_t ticket;
};

struct dcpk_fsdp_bucket {
    int64_t unit;
    bool is_expert;
    int64_t n_elems, n_slice, n_own;
    int64_t slice_at, own_at;                   /* first elements, in the bucket */
    int64_t weights_at, n_weights;              /* kept bytes of weights, */
    int64_t grads_at, n_grads;                  /* and of sums of gradients */
    struct dcpk_group *gather, *reduce, *outer; /* outer NULL: no outer ranks */
    int64_t n_shards, shard;                    /* of the layout: who owns what */

    enum dcpk_fsdp_weights_state weights_state;
    struct dcpk_fsdp_wait gathering;
    bool is_outer_stale; /* HFSDP: the slice has only what this rank owns */
    uint8_t *weights;    /* kept */
    uint8_t *whole;      /* all, while READY */

    enum dcpk_fsdp_grads_state grads_state;
    struct dcpk_fsdp_wait reducing;
    uint8_t *grads; /* sums, kept */
    uint8_t *comm;  /* sums on their way, all of the bucket; NULL: none */
    int64_t n_backward;

    float *main, *grad; /* n_own; grad may be a part of grads */
};

/* Buckets that are used together; number 0: what lies outside units, u + 1: unit u. */
struct dcpk_fsdp_unit {
    size_t first, n; /* buckets */
    int64_t n_elems;
    uint8_t *gathered; /* memory of whole weights; NULL: none */
    int buffer;        /* of the pool; -1: memory of its own */
    bool is_kept;      /* gathered weights stay, outside units */
};

struct dcpk_fsdp_spot {
    size_t bucket; /* SIZE_MAX: a buffer */
    int64_t first; /* in the bucket */
    float *buffer;
};

struct dcpk_fsdp {
    struct dcpk_weights base;
    struct dcpk_fsdp_options options;
    struct dcpk_math *math;

    enum dcpk_strategy strategy;
    bool has_units, is_hfsdp, is_exact;
    bool overlaps_gather, overlaps_reduce;
    enum dcpk_dtype compute, comm, main_grads;
    size_t compute_bytes, comm_bytes, grads_bytes; /* of an element */
    enum dcpk_reduction reduction;
    int64_t prefetch_elems, queue_elems; /* queue_elems 0: nothing overlaps */

    struct dcpk_fsdp_bucket *buckets;
    size_t n_buckets;
    struct dcpk_fsdp_unit *units;
    size_t n_units;               /* number 0 included */
    struct dcpk_fsdp_spot *spots; /* by parameter */
    struct dcpk_train_shards shards;
    float *moments; /* of all shards */
    size_t moments_bytes;
    uint64_t *bad;      /* by parameter: the record of gradients not finite or out of range */
    uint64_t *host_bad; /* the same on the host */
    double *worst;      /* one number, which ranks agree on */

    uint8_t *pool[2]; /* double buffer */
    bool is_taken[2];
    size_t pool_bytes;
    size_t n_live; /* units that have gathered memory, except those that keep it */

    size_t *queue; /* buckets whose reduction is under way, the oldest first */
    size_t n_queued;
    int64_t queued_elems;

    int64_t n_microbatches; /* of this step */
    int lsb;                /* of this step's integers: the unit is 2^-lsb */
    struct dcpk_fsdp_traffic traffic;
};

/* True if a rank keeps only its slice of weights, or of gradients. */
static inline bool dcpk_fsdp_cuts_weights(const struct dcpk_fsdp *f)
{
    return f->strategy == DCPK_OPTIM_GRADS_PARAMS;
}

static inline bool dcpk_fsdp_cuts_grads(const struct dcpk_fsdp *f)
{
    return f->strategy == DCPK_OPTIM_GRADS || f->strategy == DCPK_OPTIM_GRADS_PARAMS;
}

/* True if sums are copied to a dtype of their own on their way. */
static inline bool dcpk_fsdp_casts_grads(const struct dcpk_fsdp *f)
{
    return !f->is_exact && f->comm != f->main_grads;
}

/* True if gradients are looked at, one by one. Steps of fp16 that overflow are skipped. */
static inline bool dcpk_fsdp_looks_at_grads(const struct dcpk_fsdp *f)
{
    return f->options.config->fsdp.checks_nan || f->compute == DCPK_F16;
}

/* True if shards' fp32 gradient is the sum itself. */
static inline bool dcpk_fsdp_shares_grad(const struct dcpk_fsdp *f)
{
    return !f->is_exact && f->main_grads == DCPK_F32;
}

/* Bytes of each of the two buffers for whole weights; 0: none. */
size_t dcpk_fsdp_pool_bytes(const struct dcpk_fsdp *f);

/* Buckets, places, groups; no memory of the device. */
dcpk_status dcpk_fsdp_lay_out(struct dcpk_fsdp *f, struct dcpk_error *err);
/* This rank's shards. Errors: DCPK_EUNSUPPORTED where a row would be cut. */
dcpk_status dcpk_fsdp_make_shards(struct dcpk_fsdp *f, struct dcpk_error *err);
/* All memory that stays, and shards. */
dcpk_status dcpk_fsdp_allocate(struct dcpk_fsdp *f, struct dcpk_error *err);
void dcpk_fsdp_deallocate(struct dcpk_fsdp *f); /* Frees it; also after a failure */

/* Memory that collectives move, of a user buffer if there are some. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_fsdp_take(struct dcpk_fsdp *f, enum dcpk_memory_tag tag, size_t n_bytes, void **at,
                           struct dcpk_error *err);
void dcpk_fsdp_give(struct dcpk_fsdp *f, enum dcpk_memory_tag tag, size_t n_bytes, void *at);

/* Log and count; n_bytes as in the event. */
void dcpk_fsdp_log(struct dcpk_fsdp *f, enum dcpk_fsdp_action action, size_t bucket,
                   enum dcpk_train_pass pass);
/* Bytes that this rank sends for one action on a bucket, by the ring algorithm. */
uint64_t dcpk_fsdp_sent(const struct dcpk_fsdp *f, enum dcpk_fsdp_action action,
                        const struct dcpk_fsdp_bucket *b);
/* Waits for what is under way, if anything is. */
dcpk_status dcpk_fsdp_end(struct dcpk_fsdp_wait *wait, struct dcpk_error *err);

/* Weights of a unit: gathered and there; and those that come next are asked for. */
dcpk_status dcpk_fsdp_want(struct dcpk_fsdp *f, size_t unit, enum dcpk_train_pass pass,
                           struct dcpk_error *err);
/* Gives up gathered weights of the unit, where weights are cut. */
void dcpk_fsdp_release(struct dcpk_fsdp *f, size_t unit, enum dcpk_train_pass pass);
/* Begin a gather of a bucket into `whole`. */
dcpk_status dcpk_fsdp_gather_bucket(struct dcpk_fsdp *f, size_t bucket, uint8_t *whole,
                                    struct dcpk_error *err);
/* Waits for the gather of the bucket, if one is under way. */
dcpk_status dcpk_fsdp_bucket_ready(struct dcpk_fsdp *f, size_t bucket, enum dcpk_train_pass pass,
                                   struct dcpk_error *err);

/* Gradients of a unit: a backward pass begins, and ends. */
dcpk_status dcpk_fsdp_fill(struct dcpk_fsdp *f, size_t unit, struct dcpk_error *err);
/* Queues the reductions of the unit. */
dcpk_status dcpk_fsdp_reduce(struct dcpk_fsdp *f, size_t unit, struct dcpk_error *err);
/* The hook of weights.h. */
void dcpk_fsdp_add(struct dcpk_fsdp *f, size_t param, int64_t row, int64_t n_rows,
                   const float *grad);
/* Wait for the oldest reductions until at most n_elems are queued. */
dcpk_status dcpk_fsdp_drain(struct dcpk_fsdp *f, int64_t n_elems, struct dcpk_error *err);
/* Finishes the gradients after the last pass: outer ranks, other groups, one conversion. */
dcpk_status dcpk_fsdp_finish_grads(struct dcpk_fsdp *f, double factor, struct dcpk_error *err);

#endif
