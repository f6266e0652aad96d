/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_replay.h - which parameter lies where in the buckets. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_REPLAY_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_REPLAY_H

#include "formats/megatron/buckets/megatron_bucket_list.h"
#include "formats/megatron/buckets/megatron_cut.h"
#include "lib/ckpt/value.h"
#include "lib/model/model.h"

/* A parameter as the ranks hold it. */
struct dcpk_replay_slot {
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
struct dcpk_replay_place {
    size_t bucket;
    int64_t first;
};

struct dcpk_replay {
    struct dcpk_cut cut;
    const struct dcpk_replay_rules *rules; /* that fit */
    struct dcpk_replay_slot *slots;        /* in the order of registration */
    size_t n_slots;
    int64_t n_ranks;                  /* the larger of tp and etp */
    bool has_slices_only;             /* chunks do not show where parameters begin (zarr) */
    struct dcpk_replay_place *places; /* of slot s, tensor-parallel rank r: [s * n_ranks + r] */
};

/* Find the slots, in the order of model->params; replay->cut is there. In model->arena. Errors:
 * DCPK_EUNSUPPORTED, DCPK_EFORMAT naming a parameter that cannot be placed. */
dcpk_status dcpk_replay_collect(struct dcpk_model *model, struct dcpk_replay *replay,
                                struct dcpk_error *err);

/* True if the parameter has a bucket of its own: the word embedding that stages of a pipeline
 * share. */
bool dcpk_replay_has_own_bucket(const struct dcpk_cut *cut, const char *param);
/* Append what later chunks hold of embeddings once more; slots have room for
 * DCPK_REPLAY_COPIES. */
enum { DCPK_REPLAY_COPIES = 16 };
void dcpk_replay_add_copies(struct dcpk_replay *replay);
/* Sort the slots by the order of registration in which modules of `spec` (enum dcpk_spec) are
 * built. Errors: DCPK_EUNSUPPORTED for a name that has no known place in it. */
dcpk_status dcpk_replay_order(const struct dcpk_model *model, unsigned spec,
                              struct dcpk_replay *replay, struct dcpk_error *err);
/* How large a bucket of a model chunk becomes before it is closed; 0: it is the only one. */
int64_t dcpk_replay_full_elems(const struct dcpk_replay *replay, int64_t chunk);

/*
 * Fill replay->places by replay->rules, replay->cut.bucketing and the order of replay->slots.
 * Errors: DCPK_EMISMATCH where that does not match the buckets.
 */
dcpk_status dcpk_replay_fill(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                             struct dcpk_replay *replay, struct dcpk_error *err);

/*
 * Replay the layout that DDP gives its buffers (formats/torch_dist/FORMAT.md 5.4): parameters in
 * reverse order of registration, by the rules of a release, buckets as large as they are recorded;
 * slices of data-parallel ranks are cut at each parameter, so that every chunk boundary must be
 * explained. Gathered buckets have no such boundaries: there the sizes must match, and the first
 * elements of parameters must be near their weights. The order, the release and the size of buckets
 * of args are tried first, then the others. rules: the only ones to try, NULL: all.
 */
dcpk_status dcpk_replay_run(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                            const struct dcpk_replay_rules *rules, struct dcpk_replay *replay,
                            struct dcpk_error *err);

/* True if `weight` can be `master` in fewer bits. */
bool dcpk_replay_is_near(double weight, double master);

/* ---- rules of releases ---- */

/*
 * A buffer is filled from its first element on: each parameter starts at a multiple of
 * start_alignment, each bucket ends at a multiple of end_alignment and of the number of
 * data-parallel ranks, and the next begins there. A checkpoint does not record which release wrote
 * it: rules that do not fit the recorded sizes and the stored chunks are not those of its writer.
 */
struct dcpk_replay_rules {
    const char *releases;     /* "core 0.7", for messages */
    const char *since_option; /* of args: the first of these releases has it; NULL: none is older */
    int64_t start_alignment, end_alignment; /* elements */
    /* The recorded size of a bucket before a word embedding that has its own contains the
     * padding. */
    bool shared_counts_padding;
    bool stage_before_expert; /* dp_group_idx of experts: tensor, pipeline, expert parallel rank */
};

enum { DCPK_N_REPLAY_RULES = 5 };
/* The newest release first. */
extern const struct dcpk_replay_rules dcpk_replay_rules[DCPK_N_REPLAY_RULES];

/* The rules of the release that args (an argparse.Namespace) look like. */
const struct dcpk_replay_rules *dcpk_replay_rules_find(const struct dcpk_value *args);

/* The next multiple at or after element `at`. multiple: at least 1. */
int64_t dcpk_replay_round_up(int64_t at, int64_t multiple);
/* The multiple at which buckets end that n_slices data-parallel ranks share: at most 2^27. */
int64_t dcpk_replay_end_multiple(const struct dcpk_replay_rules *rules, int64_t n_slices);

#endif
