/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_bucket_list.h - the DDP buckets that a checkpoint stores. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKET_LIST_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKET_LIST_H

#include "lib/ckpt/checkpoint.h"

enum { DCPK_MAX_BUCKET_STATES = 8 };
#define DCPK_MAX_BUCKET_ELEMS (INT64_C(1) << 56) /* so that rounded-up numbers fit 64 bits */

/* How a bucket is stored. */
enum dcpk_bucket_form {
    DCPK_SLICED,   /* in chunks, cut where parameters and slices of ranks end */
    DCPK_GATHERED, /* whole, in an object (dp_zero_gather_scatter of core 0.6) */
    /* It stands for all buckets of its buffer, one after the other in an object, the padding at
     * their ends left out (of core 0.7 and later). */
    DCPK_COALESCED,
};

/* One bucket of one buffer: a tensor for each optimizer state, all cut into the same chunks. */
struct dcpk_bucket {
    enum dcpk_bucket_form form;
    bool is_expert; /* of the optimizer for routed experts */
    int64_t group;  /* dp_group_idx: the rank in the model-parallel group */
    int64_t buffer; /* gbuf_idx */
    int64_t number; /* bucket_idx */
    enum dcpk_dtype param_dtype;
    const char *key; /* of its first state, for messages */
    int64_t n_elems; /* without the padding at its end */
    int64_t n_padded_elems;
    int64_t n_stored_elems; /* one of the two: dp_reshardable leaves the padding out */
    uint32_t tensor[DCPK_MAX_BUCKET_STATES];
    size_t n_cuts;
    const int64_t *cuts; /* where chunks start, ascending, the first is 0 */
    const size_t *chunks[DCPK_MAX_BUCKET_STATES]; /* of each state, in that order */
};

/* Sorted by (is_expert, group, buffer, number); numbers of a buffer run from 0 without a gap. */
struct dcpk_bucket_list {
    struct dcpk_bucket *buckets;
    size_t n;
    const char *states[DCPK_MAX_BUCKET_STATES]; /* "param", "exp_avg", ... */
    size_t n_states;
    bool has_expert_optimizer;
    bool is_gathered; /* no bucket is DCPK_SLICED */
};

/* True for a key that belongs to buckets. */
bool dcpk_bucket_is_key(const char *key);

enum dcpk_bucket_flags {
    /* fully_sharded_bucket_space: the padding at the end is stored, and a tensor may have two axes,
     * data-parallel ranks first (core 0.11 to 0.14). */
    DCPK_BUCKETS_PADDED = 1,
};

/* Find and check all buckets, with the sizes that Megatron recorded next to them. In ckpt->arena.
 * flags: enum dcpk_bucket_flags. */
dcpk_status dcpk_bucket_list_read(struct dcpk_checkpoint *ckpt, unsigned flags,
                                  struct dcpk_bucket_list *list, struct dcpk_error *err);

/*
 * A key "[chained_<i>.]optimizer.distributed.dp_group_idx_<g>..." up to the group's number: bytes
 * of that part, 0 when it is not such a key. chained: 0 too where there is no prefix.
 */
size_t dcpk_bucket_take_group(const char *key, int64_t *chained, int64_t *group);
/* The number of a state's name in list->states, added when it is new (then borrowed). Errors:
 * DCPK_EUNSUPPORTED for one too many. */
dcpk_status dcpk_bucket_find_state(struct dcpk_bucket_list *list, const char *state, size_t *number,
                                   struct dcpk_error *err);
/* Errors: DCPK_EUNSUPPORTED where rounded masters prove nothing of parameters of that dtype, as
 * torch names it. */
dcpk_status dcpk_bucket_check_dtype(const char *name, size_t n_bytes, enum dcpk_dtype *dtype,
                                    struct dcpk_error *err);

/* Errors: DCPK_EFORMAT for a bucket that lacks a state which another has. */
dcpk_status dcpk_bucket_check_states(const struct dcpk_bucket_list *list, struct dcpk_error *err);

/* ---- buckets inside objects (megatron_gathered.c) ---- */

/*
 * The buckets of dp_zero_gather_scatter (formats/torch_dist/FORMAT.md 5.5), one object a group of
 * ranks; their states become tensors inside it (dcpk_checkpoint_add_inner). list->n 0 when there
 * are none.
 */
dcpk_status dcpk_gathered_list_read(struct dcpk_checkpoint *ckpt, struct dcpk_bucket_list *list,
                                    struct dcpk_error *err);

#endif
