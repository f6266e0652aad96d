/* SPDX-License-Identifier: Apache-2.0 */
/* summary.h - a checkpoint in few lines: totals, and keys folded. */
#ifndef DCPK_LIB_CKPT_SUMMARY_H
#define DCPK_LIB_CKPT_SUMMARY_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/content.h"

struct dcpk_content_totals {
    uint64_t n_tensors, n_elems, tensor_bytes;
};

/*
 * Sizes. An alias is a chunk or object whose place (file, offset, length) another one has: two
 * names for the same bytes (lib/ckpt/overlaps.h defines which is the alias). Bytes are counted
 * once; a tensor is an alias when all of its chunks are.
 */
struct dcpk_totals {
    uint64_t n_tensors, n_alias_tensors;
    uint64_t n_chunks, n_alias_chunks;
    uint64_t n_objects, n_alias_objects;
    uint64_t n_files;
    struct dcpk_content_totals by_content[DCPK_N_CONTENTS]; /* tensors that are not aliases */
    uint64_t n_params;     /* elements of the model's parameters: weights without buffers */
    uint64_t n_elems;      /* of tensors, aliases once */
    uint64_t tensor_bytes; /* elements alone */
    uint64_t object_bytes; /* items as stored */
    uint64_t stored_bytes; /* items of tensors and objects as stored, their headers included */
    uint64_t file_bytes;   /* length of all files that hold them */
};

/*
 * Keys that differ only in numbers (a component of digits: "layers.3.", the number after "weight"
 * or "bias", a shard "_0_4"), with the same dtype, shape and aliasing, are one row. The settings of
 * a parameter group or of the scheduler are one, too ("....*").
 */
struct dcpk_summary_row {
    /* "decoder.layers.{0..3}.mlp.linear_fc1.weight"; "{0,2,5..7}" where numbers are missing. */
    const char *pattern;
    enum dcpk_dtype dtype; /* DCPK_DTYPE_NONE for objects */
    int rank;
    const int64_t *shape; /* of one of them */
    bool is_alias;
    uint64_t n_keys, n_chunks;
    /* Over all of them: elements of tensors, items of objects as stored; also of aliases. */
    uint64_t n_bytes;
};

/* Everything but the shapes (the checkpoint's) is owned by it: dcpk_summary_free. */
struct dcpk_summary {
    struct dcpk_arena *arena;
    struct dcpk_totals totals;
    struct dcpk_summary_row *tensors, *objects; /* in order of the pattern */
    size_t n_tensors, n_objects;
};

/* Selected tensors and objects, by their numbers. */
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

#endif
