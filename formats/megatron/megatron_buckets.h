/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_buckets.h - how Megatron laid a model out over ranks and DDP buckets, for the files that
 * decode dp_reshardable, fully_sharded_bucket_space and dp_zero_gather_scatter. */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_BUCKETS_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_BUCKETS_H

#include "formats/megatron/megatron.h"
#include "formats/megatron/megatron_parts.h"
#include "lib/ckpt/registered.h"

/* --- megatron_to_model.c --- */

/* What a state's name makes of a tensor ("exp_avg": DCPK_EXP_AVG). */
enum dcpk_role dcpk_megatron_role(const struct dcpk_megatron_key *key);

/* --- megatron_state.c --- */

/*
 * Append the param_groups of one optimizer's state dict, {'optimizer': {'param_groups': [...]}} or,
 * in fp32 runs, without the outer dict, to model->groups; its loss scaler is kept too.
 */
dcpk_status dcpk_megatron_add_groups(struct dcpk_model *model, const struct dcpk_value *optimizer,
                                     struct dcpk_error *err);

/* --- megatron_cut.c: how args say that the model was cut --- */

/*
 * When a bucket of the first model chunk is closed; in all others there is one a buffer
 * (MC/distributed/distributed_data_parallel.py@0.7.0 to main, MT/training.py get_model).
 */
struct dcpk_bucketing {
    int64_t n_elems;   /* it has so many at least; 0: never */
    int64_t n_buckets; /* not 0: the elements of the rank's parameters by this number, instead */
};

/*
 * A model chunk is called by its place in the order in which layers run through them: chunk * pp +
 * stage. Sizes are at least 1.
 */
struct dcpk_cut {
    int64_t tp, pp, vpp;               /* vpp: model chunks on each pipeline stage */
    int64_t ep, etp;                   /* of routed experts */
    int64_t n_slices, n_expert_slices; /* data-parallel ranks that share a bucket */
    int64_t n_layers, n_experts;       /* n_experts: 0 in a dense model */
    const int64_t *layer_ends;         /* of chunk c: decoder layers on chunks 0 to c */
    int64_t norm_chunk, mtp_chunk;     /* with the decoder's final norm; multi-token prediction */
    struct dcpk_bucketing bucketing;
    bool has_mtp;
    bool is_tied;  /* the output layer's weight is the embedding's */
    unsigned spec; /* enum dcpk_spec, as far as args tell */
};

/*
 * Read args (an argparse.Namespace). What cut points to is in `arena`. Errors: DCPK_EUNSUPPORTED
 * for a layout that cannot be replayed, or when args lack a fact, naming it; DCPK_EFORMAT for
 * numbers that do not fit together.
 */
dcpk_status dcpk_cut_read(const struct dcpk_value *args, struct dcpk_arena *arena,
                          struct dcpk_cut *cut, struct dcpk_error *err);

/*
 * The model chunk that holds a parameter. Chunk 0 of all stages holds the first layers, chunk 1 the
 * next (MC/transformer/transformer_layer.py@0.19.0 get_transformer_layer_offset). Errors:
 * DCPK_EFORMAT for a layer or expert past those of args.
 */
dcpk_status dcpk_cut_find(const struct dcpk_cut *cut, const struct dcpk_registered *reg,
                          int64_t *chunk, struct dcpk_error *err);

/* --- megatron_blocks.c: how tensor parallelism cut a weight --- */

/*
 * A parameter is made of parts, rows of it one behind the other, each cut into as many blocks as
 * there are ranks: a rank holds its block of every part in that order. Most have one part; a gated
 * fc1 has the gate and the up rows (torch_dist.md 4.4), megatron_parts.h has the others.
 */
struct dcpk_blocks {
    int axis;        /* that is cut, -1: every rank holds all of it */
    int64_t n_ranks; /* that hold different blocks; 1 when axis is -1 */
    int n_parts;
    int64_t ends[DCPK_MAX_PARTS]; /* of the parts, on that axis */
};

/*
 * Read them off the chunks that a weight is stored in: Megatron stores each rank's block of a part
 * as a chunk. n_lead: stacked axes (layers, experts) in front of the parameter's own. tp: the size
 * of the group that may cut it. Errors: DCPK_EUNSUPPORTED for chunks that are no such blocks.
 */
dcpk_status dcpk_blocks_find(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                             int n_lead, int64_t tp, struct dcpk_blocks *blocks,
                             struct dcpk_error *err);
/* Put the rows of `part` behind those of `blocks`. Errors: DCPK_EUNSUPPORTED when they are not cut
 * alike. */
dcpk_status dcpk_blocks_append(struct dcpk_blocks *blocks, const struct dcpk_blocks *part,
                               struct dcpk_error *err);
/* Rank r's block of a part, in a parameter of that shape. */
void dcpk_blocks_box(const struct dcpk_blocks *blocks, const int64_t *shape, int rank, int64_t r,
                     int part, struct dcpk_box *box);

/* --- megatron_rules.c: what releases of Megatron did otherwise --- */

/*
 * A buffer is filled from its first element on: each parameter starts at a multiple of
 * start_alignment, each bucket ends at a multiple of end_alignment and of the number of
 * data-parallel ranks, and the next begins there. A checkpoint does not say which release wrote it:
 * rules that do not fit the recorded sizes and the stored chunks are not those of its writer.
 */
struct dcpk_replay_rules {
    const char *releases;     /* "core 0.7", for messages */
    const char *since_option; /* of args: the first of these releases has it; NULL: none is older */
    int64_t start_alignment, end_alignment; /* elements */
    /* The recorded size of a bucket in front of a word embedding that has its own contains the
     * padding. */
    bool shared_counts_padding;
    bool stage_before_expert; /* dp_group_idx of experts: tensor, pipeline, expert parallel rank */
};

enum { DCPK_N_REPLAY_RULES = 5 };
/* The newest release first. */
extern const struct dcpk_replay_rules dcpk_replay_rules[DCPK_N_REPLAY_RULES];

/* The rules of the release that args (an argparse.Namespace) look like. */
const struct dcpk_replay_rules *dcpk_replay_rules_find(const struct dcpk_value *args);

/* The next multiple at or behind element `at`. multiple: at least 1. */
int64_t dcpk_replay_round_up(int64_t at, int64_t multiple);
/* What buckets that n_slices data-parallel ranks share end at a multiple of: at most 2^27. */
int64_t dcpk_replay_end_multiple(const struct dcpk_replay_rules *rules, int64_t n_slices);

/* --- megatron_bucket_list.c: the stored buckets --- */

enum { DCPK_MAX_BUCKET_STATES = 8 };
#define DCPK_MAX_BUCKET_ELEMS (INT64_C(1) << 56) /* what is rounded up fits 64 bits */

/* How a bucket is stored. */
enum dcpk_bucket_form {
    DCPK_SLICED,    /* in chunks, cut where parameters and slices of ranks end */
    DCPK_GATHERED,  /* whole, in an object (dp_zero_gather_scatter of core 0.6) */
    DCPK_COALESCED, /* it stands for all buckets of its buffer, one behind the other in an object,
                       the padding at their ends left out (of core 0.7 and later) */
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

/* Is it one of the keys that belong to buckets? */
bool dcpk_bucket_is_key(const char *key);

enum dcpk_bucket_flags {
    /* fully_sharded_bucket_space: the padding at the end is stored, and a tensor may have two axes,
     * data-parallel ranks first (core 0.11 to 0.14). */
    DCPK_BUCKETS_PADDED = 1,
};

/* Find and check all buckets, with the sizes that Megatron recorded beside them. In ckpt->arena.
 * flags: enum dcpk_bucket_flags. */
dcpk_status dcpk_bucket_list_read(struct dcpk_checkpoint *ckpt, unsigned flags,
                                  struct dcpk_bucket_list *list, struct dcpk_error *err);

/*
 * A key "[chained_<i>.]optimizer.distributed.dp_group_idx_<g>..." up to the group's number: bytes
 * of that part, 0 when it is none. chained: 0 too where there is no prefix.
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

/* --- megatron_gathered.c: buckets inside objects --- */

/*
 * The buckets of dp_zero_gather_scatter (torch_dist.md 5.5), one object a group of ranks; their
 * states become tensors inside it (dcpk_checkpoint_add_inner). list->n 0 when there are none.
 */
bool dcpk_gathered_is_there(const struct dcpk_checkpoint *ckpt);
dcpk_status dcpk_gathered_list_read(struct dcpk_checkpoint *ckpt, struct dcpk_bucket_list *list,
                                    struct dcpk_error *err);

/* --- megatron_replay.c: which parameter lies where --- */

/* A parameter as the ranks hold it. */
struct dcpk_slot {
    uint32_t param;
    struct dcpk_registered reg;
    int64_t chunk;       /* of the model, that holds it */
    bool has_own_bucket; /* word embeddings that stages of a pipeline share */
    bool is_copy;        /* of an embedding, in a later chunk: in a bucket, but not carried over */
    bool is_output;      /* the copy is a tied output layer */
    enum dcpk_dtype dtype;
    const struct dcpk_blocks *blocks;
    int64_t n_elems; /* of one rank's part */
};
struct dcpk_slot_place {
    size_t bucket;
    int64_t first;
};

struct dcpk_replay {
    struct dcpk_cut cut;
    const struct dcpk_replay_rules *rules; /* that fit */
    struct dcpk_slot *slots;               /* in the order of registration */
    size_t n_slots;
    int64_t n_ranks;                /* the larger of tp and etp */
    bool has_slices_only;           /* chunks do not tell where parameters begin (zarr) */
    struct dcpk_slot_place *places; /* of slot s, tensor-parallel rank r: [s * n_ranks + r] */
};

/* Find the slots, in the order of model->params; replay->cut is there. In model->arena. Errors:
 * DCPK_EUNSUPPORTED, DCPK_EFORMAT naming a parameter that cannot be placed. */
dcpk_status dcpk_replay_collect(struct dcpk_model *model, struct dcpk_replay *replay,
                                struct dcpk_error *err);

/*
 * Fill replay->places by replay->rules, replay->cut.bucketing and the order of replay->slots.
 * Errors: DCPK_EMISMATCH where that does not come out as the buckets are.
 */
dcpk_status dcpk_replay_fill(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                             struct dcpk_replay *replay, struct dcpk_error *err);

/* --- megatron_orders.c: which of the layouts that runs may have had --- */

/*
 * Replay the layout that DDP gives its buffers (torch_dist.md 5.4, way 1): parameters in reverse
 * order of registration, by the rules of a release, buckets as large as they are recorded; slices
 * of data-parallel ranks are cut at each parameter, so that every chunk boundary must be explained.
 * Gathered buckets have no such boundaries: there the sizes must come out, and the first elements
 * of parameters must be near their weights. The order, the release and the size of buckets of args
 * are tried first, then the others. rules: the only ones to try, NULL: all.
 */
dcpk_status dcpk_replay_run(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                            const struct dcpk_replay_rules *rules, struct dcpk_replay *replay,
                            struct dcpk_error *err);

/* --- megatron_sample.c --- */

/*
 * Compare the first elements of parameters with what the replay says is their master, of some
 * parameters where there are many. DCPK_EMISMATCH names the first that differs by more than
 * rounding can. Says nothing of layouts that only move constants about: the proof of all elements
 * is lib/exec/prove_masters.h.
 */
dcpk_status dcpk_replay_sample(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                               const struct dcpk_replay *replay, struct dcpk_error *err);

/* --- megatron_buckets.c --- */

/*
 * Add master, moments and other states of every parameter to the model, seen through the buckets,
 * and the parameter groups. Weights must be in the model. Sets model->needs_proof. Nothing happens
 * when there are no buckets.
 */
dcpk_status dcpk_megatron_decode_buckets(struct dcpk_model *model, struct dcpk_error *err);

#endif
