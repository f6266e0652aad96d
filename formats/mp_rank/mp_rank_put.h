/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_put.h - the canonical view being turned into files of ranks. */
#ifndef DCPK_FORMATS_MP_RANK_PUT_H
#define DCPK_FORMATS_MP_RANK_PUT_H

#include "formats/megatron/buckets/megatron_bucket_layout.h"
#include "formats/mp_rank/mp_rank_priv.h"
#include "lib/ckpt/format.h"

/* ---- files (mp_rank_write.c) ---- */

/* A file that torch.load reads: a value, whose tensors without bytes are those of the output, one
 * chunk each. */
struct dcpk_mp_file {
    const char *name;   /* "mp_rank_00_001/distrib_optim.pt" */
    const char *prefix; /* of the records in it: "distrib_optim" */
    uint32_t payload;
    size_t first_tensor, n_tensors; /* of out->tensors */
};

/* out->form of an output; in its arena. */
struct dcpk_mp_files {
    struct dcpk_mp_file *list;
    size_t n, capacity;
};

/* Writes an output whose form these are. */
extern const struct dcpk_format_writer dcpk_mp_writer;

struct dcpk_mp_putting {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    struct dcpk_mp_files *files;
    struct dcpk_bucket_run run;
    struct dcpk_replay replay; /* what the ranks hold, buffers included */
    int64_t n_data_parallel;   /* ranks, context parallelism included */
    bool is_rng_whole;
    const struct dcpk_value *common; /* the common state, as torch_dist has it */
    struct dcpk_bucket_states states;
    struct dcpk_bucket_layout layout; /* of a distributed optimizer; n 0: there is none */
    struct dcpk_mp_rank at;           /* the rank at hand */
    const char *folder;               /* its folder */
};

/* True if chunk `chunk` of the model, on the rank at hand, holds it. */
bool dcpk_mp_holds(const struct dcpk_mp_putting *p, const struct dcpk_replay_slot *slot,
                   int64_t chunk);

/* Add a tensor to the output, in one chunk, and to the file at hand. name: for messages. Returns
 * the value for the file; NULL and err: memory, or DCPK_EUNSUPPORTED for no elements. */
const struct dcpk_value *dcpk_mp_put_tensor(struct dcpk_mp_putting *p, struct dcpk_out_tensor *out,
                                            const char *name, struct dcpk_error *err);
/* The same of the part of a tensor that the rank at hand holds. */
const struct dcpk_value *dcpk_mp_put_slot(struct dcpk_mp_putting *p,
                                          const struct dcpk_replay_slot *slot,
                                          const struct dcpk_model_tensor *tensor,
                                          enum dcpk_dtype dtype, const char *name,
                                          struct dcpk_error *err);

/* Add "<folder>/<prefix>.pt", whose tensors without bytes are those of the output from
 * first_tensor on. */
dcpk_status dcpk_mp_put_file(struct dcpk_mp_putting *p, const char *prefix,
                             const struct dcpk_value *value, size_t first_tensor,
                             struct dcpk_error *err);

/* ---- optimizers (FORMAT.md 3) ---- */

/* Find the states, and lay out the buckets of a distributed optimizer. Errors: those of
 * dcpk_bucket_layout_make. */
dcpk_status dcpk_mp_find_buckets(struct dcpk_mp_putting *p, struct dcpk_error *err);
/* True if an optimizer that is not distributed trains the weight itself: it is fp32. */
bool dcpk_mp_is_own_master(const struct dcpk_mp_putting *p, const struct dcpk_replay_slot *slot);
/* The state dict of the rank's optimizers, without what lies in buckets. */
dcpk_status dcpk_mp_put_optimizer(struct dcpk_mp_putting *p, const struct dcpk_value **optimizer,
                                  struct dcpk_error *err);
/* The file with the buckets of the rank; nothing where it writes none. */
dcpk_status dcpk_mp_put_buckets(struct dcpk_mp_putting *p, struct dcpk_error *err);

/* The hook of that name (lib/ckpt/format.h). */
dcpk_status dcpk_mp_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                               struct dcpk_error *err);

#endif
