/* SPDX-License-Identifier: Apache-2.0 */
/* summary.h - a checkpoint in few lines: totals, keys folded, the run that wrote it. */
#ifndef DCPK_LIB_CKPT_SUMMARY_H
#define DCPK_LIB_CKPT_SUMMARY_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/content.h"
#include "lib/ckpt/model.h"

struct dcpk_content_totals {
    uint64_t n_tensors, n_elems, tensor_bytes;
};

/*
 * Sizes. An alias is a chunk or object whose place (file, offset, length) another one has: two
 * names for the same bytes (dcpk_find_aliases says which is the alias). Bytes are counted once; a
 * tensor is an alias when all of its chunks are.
 */
struct dcpk_totals {
    uint64_t n_tensors, n_alias_tensors;
    uint64_t n_chunks, n_alias_chunks;
    uint64_t n_objects, n_alias_objects;
    uint64_t n_files;
    struct dcpk_content_totals by_content[DCPK_N_CONTENTS]; /* tensors that are no aliases */
    uint64_t n_params;     /* elements of the model's parameters: weights without buffers */
    uint64_t n_elems;      /* of tensors, aliases once */
    uint64_t tensor_bytes; /* elements alone */
    uint64_t object_bytes; /* items as stored */
    uint64_t stored_bytes; /* items of tensors and objects as stored, their headers included */
    uint64_t file_bytes;   /* length of all files that hold them */
};

/*
 * Keys that differ only in numbers (a component of digits: "layers.3.", the number behind "weight"
 * or "bias", a shard "_0_4"), with the same dtype, shape and aliasing, are one row. The settings of
 * a parameter group or of the scheduler are one, too ("....*").
 */
struct dcpk_summary_row {
    const char *pattern;   /* "decoder.layers.{0..3}.mlp.linear_fc1.weight"; "{0,2,5..7}" where
                              numbers are missing */
    enum dcpk_dtype dtype; /* DCPK_DTYPE_NONE for objects */
    int rank;
    const int64_t *shape; /* of one of them */
    bool is_alias;
    uint64_t n_keys, n_chunks;
    uint64_t n_bytes; /* of all of them: elements of tensors, items of objects as stored; of aliases
                         too */
};

/* Everything but the shapes (the checkpoint's) is owned by it: dcpk_summary_free. */
struct dcpk_summary {
    struct dcpk_arena *arena;
    struct dcpk_totals totals;
    struct dcpk_summary_row *tensors, *objects; /* in order of the pattern */
    size_t n_tensors, n_objects;
};

/* Which tensors and objects, by their numbers. */
struct dcpk_chosen {
    const bool *tensors, *objects;
};

/*
 * The totals are of the whole checkpoint, the rows of what was chosen; NULL: of all. O(n log n) in
 * tensors, chunks and objects. Errors: DCPK_ENOMEM, DCPK_ERANGE (a total passes 2^64).
 */
dcpk_status dcpk_summary_new(const struct dcpk_checkpoint *ckpt, const struct dcpk_chosen *chosen,
                             struct dcpk_summary **summary, struct dcpk_error *err);
void dcpk_summary_free(struct dcpk_summary *summary); /* NULL is a no-op */

/*
 * Mark aliases: is_alias[i] is set for chunk i, is_alias[n_chunks + i] for object i, for all but
 * one of the items that have the same place: the first weight's chunk (lib/ckpt/content.h), else
 * the first chunk, else the first object. is_alias: n_chunks + n_objects of them, false when
 * called.
 */
dcpk_status dcpk_find_aliases(const struct dcpk_checkpoint *ckpt, bool *is_alias,
                              struct dcpk_error *err);

/*
 * No two items share bytes of a file, but for exact aliases. DCPK_EFORMAT names the two that do.
 * O(n log n).
 */
dcpk_status dcpk_check_places(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/*
 * The first class, function or called name in `value` that is_known refuses, depth first: an object
 * of which is_known is false, or a bare global. *found is false when there is none; module and name
 * are borrowed from the value. Errors: DCPK_ENOMEM; DCPK_ERANGE past 10 million nodes (shared nodes
 * are walked each time).
 */
typedef bool dcpk_is_known(const char *module, const char *name);
dcpk_status dcpk_value_find_unknown(const struct dcpk_value *value, dcpk_is_known *is_known,
                                    bool *found, const char **module, const char **name,
                                    struct dcpk_error *err);

/*
 * Load every object, aliases once, and the common state, and look through them: DCPK_EFORMAT names
 * the first thing that is_known refuses. stopped: asked after each; DCPK_ECANCELLED when it says
 * so.
 */
dcpk_status dcpk_check_values(struct dcpk_checkpoint *ckpt, dcpk_is_known *is_known,
                              bool (*stopped)(void), struct dcpk_error *err);

/*
 * What is known of the run, from common state (format->load_common) or, where there is none, the
 * objects args, iteration, checkpoint_version. Values live in `arena`. A failing read becomes a
 * note of the checkpoint, the fields stay empty: a checkpoint that cannot be converted can still be
 * looked at.
 */
struct dcpk_run_state {
    const struct dcpk_value *args;      /* the attributes of args: a DICT; NULL: unknown */
    const struct dcpk_value *iteration; /* INT or NULL */
    const struct dcpk_value *version;   /* checkpoint_version, or NULL */
    struct dcpk_layout layout;          /* 0: not known */
    const char *optimizer_layout;       /* "fully_reshardable", ...; "none", "unknown" */
    const char *const *names;           /* of the state (lib/ckpt/named_state.h); NULL-terminated */
};
void dcpk_run_state_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                         struct dcpk_run_state *state);

#endif
