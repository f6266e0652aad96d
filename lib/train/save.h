/* SPDX-License-Identifier: Apache-2.0 */
/* save.h - a run's state into a checkpoint of any format, by the conversion that `convert` is. */
/*
 *   shards of all ranks -> memory_checkpoint.h -> rules, writer, plan, publish (lib/job/convert.h)
 *
 * Every rank of the run is one of the conversion: they read each other's memory, and write units of
 * the output side by side. The tracker names the checkpoint once it is whole and published.
 */
#ifndef DCPK_LIB_TRAIN_SAVE_H
#define DCPK_LIB_TRAIN_SAVE_H

#include "lib/device/device.h"
#include "lib/exec/exec.h"
#include "lib/train/memory_checkpoint.h"
#include "lib/train/reserve.h"
#include "lib/train/run_values.h"
#include "lib/train/train_state.h"

/* A run as saving and resuming see it. All borrowed. */
struct dcpk_saved_run {
    const struct dcpk_train_state *state; /* its mesh is not looked at */
    struct dcpk_schedule *schedule;
    struct dcpk_train_progress *progress;
    struct dcpk_loss_scale *loss_scale; /* saved and resumed of fp16 runs alone */
    /* Formats, device, threads, memory; with the ranks of the run. */
    const struct dcpk_env *env;
    struct dcpk_device *host;     /* memory_checkpoint.h */
    struct dcpk_reserve *reserve; /* dcpk_saving_reserve; NULL: memory is taken for each save */
};

/* Selects the shards to list. */
enum dcpk_list_flags {
    DCPK_LIST_OWN = 1,      /* those that this rank saves; else all */
    DCPK_LIST_NO_STATE = 2, /* no moments */
};

/*
 * The shards of this rank as boxes of the model's tensors: of fc1 the gate's rows and the others
 * apart. list: in `arena`. flags: enum dcpk_list_flags. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_train_list(const struct dcpk_saved_run *run, unsigned flags,
                            struct dcpk_arena *arena, struct dcpk_shard **list, size_t *n,
                            struct dcpk_error *err);

/*
 * Collective. Write iteration run->progress->iteration into config->files.save, in the format and
 * with the optimizer layout and generation that files name, cut as this run's mesh cuts it. Files
 * that an interrupted save left of that iteration are replaced. Errors: DCPK_EUNSUPPORTED for a
 * format or optimizer layout that is not written; those of the conversion, which leave the tracker
 * as it was. All ranks return the same status.
 */
dcpk_status dcpk_train_save(const struct dcpk_saved_run *run, struct dcpk_error *err);

/*
 * Collective. Take host memory for the copies of all saves of this run, as much as this rank saves,
 * and make it ready in the background. *reserve: dcpk_reserve_free. Errors: those of
 * dcpk_reserve_new, the same on all ranks.
 */
dcpk_status dcpk_saving_reserve(const struct dcpk_saved_run *run, struct dcpk_reserve **reserve,
                                struct dcpk_error *err);

/* An asynchronous save under way. */
struct dcpk_saving;

/*
 * Collective. As dcpk_train_save, but only shards are copied during the call, after which the run
 * may change them: rank 0 then writes and publishes by a thread of its own, with one thread of the
 * conversion and without messages. The configuration and the environment are borrowed until it is
 * finished. *saving: dcpk_saving_finish. Errors, the same on all ranks: those of before the first
 * write.
 */
dcpk_status dcpk_saving_start(const struct dcpk_saved_run *run, struct dcpk_saving **saving,
                              struct dcpk_error *err);
/* Collective. Wait until it is published, or has failed; all ranks return the same status. NULL is
 * a no-op. */
dcpk_status dcpk_saving_finish(struct dcpk_saving *saving, struct dcpk_error *err);
/* Not collective, for a run that has failed: this rank's thread still ends its work, whatever
 * becomes of it. NULL is a no-op. */
void dcpk_saving_abandon(struct dcpk_saving *saving);

/*
 * Collective. Write which parameter is in which parameter group, as Megatron dumps it:
 *
 *   "module.module.decoder.layers.0.mlp.linear_fc1.weight"   0    weights, which decay
 *   "module.module.decoder.final_layernorm.weight"           1    one-dimensional ones
 *   "module.module...mlp.experts.linear_fc1.weight0"         2    experts', with expert parallelism
 *
 * The folder is config->files.map_folder, a plain DCP whose keys are the live names
 * of all parameters of the model inside the run's wrappers ("module.module.", of fp32 "module."),
 * each the number of its group; a folder that is there is replaced. `print-torch-dcp-in-json` makes
 * of it the map that converters take. Source: get_megatron_optimizer in
 * megatron/core/optimizer/__init__.py @core_v0.19.0. Errors: DCPK_EUNSUPPORTED where plain DCP is
 * not built in; those of writing. All ranks return the same status.
 */
dcpk_status dcpk_train_dump_groups(const struct dcpk_saved_run *run, struct dcpk_error *err);

#endif
