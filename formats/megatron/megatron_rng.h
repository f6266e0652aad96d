/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_rng.h - RNG states as 3D-parallel checkpoints keep them, by two ranks or by three. */
#ifndef DCPK_FORMATS_MEGATRON_RNG_H
#define DCPK_FORMATS_MEGATRON_RNG_H

#include "lib/ckpt/output.h"
#include "lib/model/model.h"

#define DCPK_MEGATRON_RNG "rng_state/shard_"

/*
 * "rng_state/shard_<pp>.<tp>_<PP>.<TP>", or with the rank among data- and context-parallel ones as
 * a third number. An object is a list of one list of states.
 * Source: megatron/training/checkpointing.py get_rng_state: two numbers @core_v0.14.0 to
 * core_v0.19.0 and main of 2026-08-22, except @core_v0.16.1 with expert parallelism; three there,
 * and in main since 2026-08-25 for every run (Megatron-LM #6858).
 */
enum { DCPK_MEGATRON_RNG_BY_MODEL_RANK = 2, DCPK_MEGATRON_RNG_BY_EVERY_RANK = 3 };

/*
 * The numbers of `key`, which starts with DCPK_MEGATRON_RNG. Further ones than three count as one
 * with the third. Core 0.4 to 0.7 lost the last size of two (formats/zarr/FORMAT.md). Returns false
 * for a key of another form.
 */
bool dcpk_megatron_rng_split(const char *key, struct dcpk_rng *rank);

/* Add the object's states to the model. One that is not understood is dropped by name. */
dcpk_status dcpk_megatron_read_rng(struct dcpk_model *model, const struct dcpk_object *object,
                                   struct dcpk_error *err);

/*
 * Add objects for every rank of the layout of args that the model has states for, under keys of two
 * numbers; with n_axes 3 also under those of three, where the number of data-parallel ranks is
 * known. A rank without states of its own gets those that stand for it (dcpk_model_rng); states
 * that no rank gets are reported. *is_whole: every rank has some; else none is written, since a run
 * loads those of all ranks or of none.
 */
dcpk_status dcpk_megatron_put_rng(const struct dcpk_model *model, struct dcpk_output *out,
                                  int n_axes, bool *is_whole, struct dcpk_error *err);

#endif
