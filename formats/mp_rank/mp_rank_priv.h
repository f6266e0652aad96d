/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_priv.h - the files of all ranks, and what their names mean. */
#ifndef DCPK_FORMATS_MP_RANK_PRIV_H
#define DCPK_FORMATS_MP_RANK_PRIV_H

#include "formats/formats.h"
#include "formats/megatron/buckets/megatron_bucket_layout.h"
#include "formats/megatron/buckets/megatron_cut.h"
#include "formats/torch/rank_files.h"
#include "lib/ckpt/format.h"
#include "lib/place/held.h"

#define DCPK_MP_FOLDER "mp_rank_"
#define DCPK_MP_MODEL  "model_optim_rng.pt"
#define DCPK_MP_OPTIM  "distrib_optim.pt"

/* The key of an optimizer's dict with masters, a list for each group. */
#define DCPK_MP_MASTERS "fp32_from_fp16_params"

/* Ends of the keys of objects that a rank's optimizer becomes (formats/torch_dist/FORMAT.md 5.5).
 */
#define DCPK_MP_GROUPS  ".optimizer/shard_0_1"
#define DCPK_MP_BUCKETS ".param_state/shard_0_1"

/* ckpt->state */
struct dcpk_mp_state {
    struct dcpk_rank_files files;
    int64_t tp;
    /* The reason why the optimizer's numbers have no names; NULL: there is none. */
    const char *optimizer_fault;
    bool has_buckets; /* the optimizer's state lies in distrib_optim.pt */
};

/* A file's place among the ranks. */
struct dcpk_mp_rank {
    int64_t tp, pp, ep;
};

/* Names the folder of a rank (FORMAT.md 1). */
enum { DCPK_MP_NAME_BYTES = 96 };
void dcpk_mp_name_folder(const struct dcpk_cut *cut, const struct dcpk_mp_rank *at,
                         char name[DCPK_MP_NAME_BYTES]);

/*
 * The first rank of its stage that has these coordinates; -1: none has. With fewer ranks of tensor
 * parallelism for experts, a rank's number gives it a place in both (lib/place/grid.h).
 * n_data_parallel: ranks of each, context parallelism included.
 */
int64_t dcpk_mp_first_rank(const struct dcpk_cut *cut, int64_t n_data_parallel,
                           const struct dcpk_mp_rank *at);

/*
 * The name that a rank's own modules have for `name` of the whole model, of chunk `chunk`. expert:
 * its number, -1: none. In `arena`; NULL and err for memory.
 */
const char *dcpk_mp_local_name(const struct dcpk_cut *cut, int64_t chunk, const char *name,
                               int64_t expert, struct dcpk_arena *arena, struct dcpk_error *err);

/* Opening a checkpoint. */
struct dcpk_mp_reading {
    struct dcpk_rank_reading rank;
    struct dcpk_mp_state *state;
    struct dcpk_cut cut;     /* of the run, by args of the first file */
    int64_t n_data_parallel; /* ranks, context parallelism included */
    const struct dcpk_value *iteration;
    bool is_gated;          /* fc1 has gate and up rows */
    struct dcpk_mp_rank at; /* of the file at hand */
};

/* A tensor of a rank's model. In an arena. */
struct dcpk_mp_tensor {
    const char *name; /* in the whole model: the checkpoint's key */
    const struct dcpk_value_tensor *local;
    struct dcpk_spread spread; /* how ranks share it */
    bool is_buffer, is_expert;
};
struct dcpk_mp_tensors {
    struct dcpk_mp_tensor *list;
    size_t n;
};

/*
 * List the tensors of the models in a rank's file, in the order of registration. In `arena`.
 * Errors: DCPK_EUNSUPPORTED for a model from before core, for other values than tensors, and where
 * no rule cuts one; DCPK_EFORMAT for layers that the stage does not have.
 */
dcpk_status dcpk_mp_list(const struct dcpk_mp_reading *r, const struct dcpk_value *file,
                         struct dcpk_arena *arena, struct dcpk_mp_tensors *tensors,
                         struct dcpk_error *err);

/* Adds the file's part of a tensor under `key`: of the weight, or of state of its shape. Errors:
 * DCPK_EFORMAT where another rank has it in another shape or dtype. */
dcpk_status dcpk_mp_add(struct dcpk_mp_reading *r, const struct dcpk_mp_tensor *tensor,
                        const struct dcpk_value_tensor *local, const char *key,
                        struct dcpk_error *err);

/* The dicts of a file's optimizers: [0] is that of dense parameters or of all, [1] that of experts;
 * NULL: there is none. */
void dcpk_mp_optimizers(const struct dcpk_value *file, const struct dcpk_value *optimizers[2]);
/* The dict with the groups: in another one, except in fp32 runs. */
const struct dcpk_value *dcpk_mp_inner(const struct dcpk_value *optimizer);

dcpk_status dcpk_mp_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/* True if a rank's file may name it: what torch_dist's may, and every enum of Megatron's. */
bool dcpk_mp_is_known(const char *module, const char *name);

/* ---- writing: the canonical view being turned into files of ranks ---- */

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
