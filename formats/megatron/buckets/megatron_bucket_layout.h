/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_bucket_layout.h - the DDP buckets that a run makes of a model: what megatron_replay.h
 * replays, made again. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKET_LAYOUT_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKET_LAYOUT_H

#include "formats/megatron/buckets/megatron_replay.h"
#include "formats/megatron/megatron_flatten.h"

/* One rank's part of a parameter in a bucket: of slots[slot], n_elems from element `first` on. */
struct dcpk_bucket_part {
    size_t slot;
    int64_t first, n_elems;
};

/* A bucket; parts[first_part .. + n_parts) of the layout, ascending. */
struct dcpk_laid_bucket {
    bool is_expert; /* of the optimizer for routed experts */
    int64_t group;  /* dp_group_idx */
    int64_t buffer; /* gbuf_idx */
    int64_t number; /* bucket_idx */
    int64_t stage;  /* of the pipeline */
    int64_t tp_rank;
    enum dcpk_dtype dtype;           /* of its parameters */
    int64_t n_elems, n_padded_elems; /* without and with the padding at its end */
    int64_t n_slices;                /* data-parallel ranks that share it */
    size_t first_part, n_parts;
};

/* In the arena it was made in. */
struct dcpk_bucket_layout {
    struct dcpk_replay replay; /* cut, rules and slots; no places */
    bool has_expert_optimizer;
    /* By (is_expert, group, buffer, number). */
    struct dcpk_laid_bucket *buckets;
    size_t n;
    struct dcpk_bucket_part *parts;
    size_t n_parts;
};

/* The run that the layout is for. */
struct dcpk_bucket_run {
    const struct dcpk_value *args; /* of the run that will load them */
    const char *impl; /* implementation of its modules: "te" or "local"; NULL: as args say */
    enum dcpk_dtype model_dtype; /* of weights that the model has only as masters */
    bool has_expert_optimizer;
    bool has_buffers; /* dcpk_bucket_layout_collect is to list persistent buffers, too */
};

/*
 * List what the ranks of a run hold, whose cut is in replay->cut, by args: replay->slots, in the
 * order of registration, with copies of embeddings. In `arena`. Errors: as
 * dcpk_bucket_layout_make.
 */
dcpk_status dcpk_bucket_layout_collect(const struct dcpk_model *model,
                                       const struct dcpk_bucket_run *run, struct dcpk_arena *arena,
                                       struct dcpk_replay *replay, struct dcpk_error *err);

/*
 * Lay the parameters of the model into the buffers of every rank, as the newest releases do
 * (formats/torch_dist/FORMAT.md 5.4). In `arena`. Errors: DCPK_EUNSUPPORTED for a layout of ranks
 * that is not replayed, for args that lack a fact, or naming a parameter without a known place;
 * DCPK_EMISMATCH naming one that tensor parallelism does not divide.
 */
dcpk_status dcpk_bucket_layout_make(const struct dcpk_model *model,
                                    const struct dcpk_bucket_run *run, struct dcpk_arena *arena,
                                    struct dcpk_bucket_layout *layout, struct dcpk_error *err);

/*
 * The same for slots that layout->replay has, with cut and rules, in the order of registration;
 * has_expert_optimizer is set. Fills in buckets and parts. Errors: DCPK_ERANGE, DCPK_ENOMEM.
 */
dcpk_status dcpk_bucket_layout_lay(struct dcpk_bucket_layout *layout, struct dcpk_arena *arena,
                                   struct dcpk_error *err);

/* ---- written buckets ---- */

/* A state that the optimizer has of every parameter. */
struct dcpk_bucket_state {
    const char *name;
    enum dcpk_role role; /* DCPK_MASTER: the parameter's value */
};
struct dcpk_bucket_states {
    struct dcpk_bucket_state list[DCPK_MAX_BUCKET_STATES];
    size_t n;
};
/* The states that the first parameter has, its value first. Errors: DCPK_EUNSUPPORTED for one too
 * many. */
dcpk_status dcpk_bucket_states_find(const struct dcpk_model *m, const struct dcpk_replay *replay,
                                    struct dcpk_bucket_states *states, struct dcpk_error *err);
/* A parameter's tensor of a state. Errors: DCPK_EMISMATCH naming what has none. */
dcpk_status dcpk_bucket_find_tensor(const struct dcpk_model *model,
                                    const struct dcpk_replay_slot *slot,
                                    const struct dcpk_bucket_state *state,
                                    const struct dcpk_model_tensor **tensor,
                                    struct dcpk_error *err);
/* One state of all buckets. Borrowed. */
struct dcpk_bucket_source {
    const struct dcpk_model *model;
    const struct dcpk_bucket_layout *layout;
    const struct dcpk_bucket_state *state;
};
/* Append a bucket, without the padding at its end, from element `first` on. Gaps are zeros. */
dcpk_status dcpk_bucket_add_pieces(const struct dcpk_bucket_source *from,
                                   const struct dcpk_laid_bucket *bucket, int64_t first,
                                   struct dcpk_flat_pieces *pieces, struct dcpk_error *err);
/* The gradients' dtype next to parameters of `dtype`, "float32": in fp16 runs only where args ask
 * for it (MT/arguments.py@core_v0.19.0 validate_args, accumulate_allreduce_grads_in_fp32). */
const char *dcpk_bucket_grad_dtype(const struct dcpk_value *args, enum dcpk_dtype dtype);

#endif
