/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_priv.h - the files of all ranks, and what their names mean. */
#ifndef DCPK_FORMATS_MP_RANK_PRIV_H
#define DCPK_FORMATS_MP_RANK_PRIV_H

#include "formats/formats.h"
#include "formats/megatron/buckets/megatron_cut.h"
#include "formats/torch/rank_files.h"
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

#endif
