/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - the training loop: joins the model, its parameters, the optimizer, data and saving. */
/*
 *   load, or initial values
 *   repeat:  samples of this rank -> forward and backward of its microbatches (gpt.h, fsdp.h)
 *            -> losses and tokens of all ranks -> reduced gradients -> update (optim.h) -> install
 *            -> routers' biases (optim.h)
 *            -> a line of the log (lib/job/step_log.h), now and then a checkpoint (save.h)
 *
 * Gradients of a step are those of the summed losses times one factor: 1 / tokens of the batch. The
 * other form, the mean over microbatches of their means, weighs the tokens of a microbatch by
 * (its places / its tokens), which is 1 where every place has a loss.
 *
 * fp16 without per-token loss divides losses before the backward pass, by the places of the batch,
 * so that activations' gradients overflow at Megatron's scales. Megatron divides by those of one
 * data-parallel rank: its gradients are as many times larger as there are such ranks.
 * Source: megatron/core/pipeline_parallel/schedules.py @core_v0.19.0, forward_step_calc_loss.
 */
#ifndef DCPK_LIB_TRAIN_TRAIN_H
#define DCPK_LIB_TRAIN_TRAIN_H

#include "lib/device/collectives.h"
#include "lib/device/device.h"
#include "lib/device/ops.h"
#include "lib/exec/env.h"
#include "lib/job/step_log.h"
#include "lib/knobs/config.h"
#include "lib/train/footprint.h"
#include "lib/train/phases.h"

#define DCPK_TRAIN_APART_MS 120000

/* Arguments of a run. All borrowed. */
struct dcpk_train_job {
    const struct dcpk_train_config *config; /* checked (knobs.h) */
    struct dcpk_group *world;               /* all ranks of the run */
    struct dcpk_math *math;
    const struct dcpk_env *env; /* to save and resume, with the ranks of the run */
    struct dcpk_device *host;   /* of host memory (memory_checkpoint.h) */
    /* A rank that failed inside a step, where others wait for what it does not send: how long it
     * waits for them from then on, at most, in milliseconds; 0: DCPK_TRAIN_APART_MS. */
    int apart_ms;
    /* Called on every rank after each iteration, with the same step. */
    dcpk_status (*step)(void *context, const struct dcpk_step *step, struct dcpk_error *err);
    /* The same of the run from noisy weights, which has no log: so that it can be stopped. NULL:
     * nothing is called. */
    dcpk_status (*noisy_step)(void *context, int64_t iteration, struct dcpk_error *err);
    /* With config->files.notes_times, called on every rank: where its time went until `iteration`
     * was trained and saved, since the last call or the beginning; and at the end of the run. */
    dcpk_status (*times)(void *context, int64_t iteration, const struct dcpk_times *times,
                         struct dcpk_error *err);
    dcpk_status (*times_of_run)(void *context, int64_t n_iterations, const struct dcpk_times *mean,
                                const struct dcpk_times *most, struct dcpk_error *err);
    const struct dcpk_ranges *ranges; /* of phases, for a profiler; NULL: none */
    /* Lines on what resuming kept or left out. */
    void (*notes)(void *context, const char *text, size_t n_bytes);
    /* Called on every rank after a checkpoint was saved, or its asynchronous save began. NULL:
     * nothing is called. */
    void (*saved)(void *context);
    /* NULL (on all ranks): nothing is measured. Called on every rank after the last iteration, if
     * any. */
    dcpk_status (*measured)(void *context, const struct dcpk_train_measured *measured,
                            struct dcpk_error *err);
    void *context;
};

/*
 * Collective. Train until config->data.exit_at or train_iters; config->data.has_noise: twice, the
 * first time without a log and checkpoints (initial.h). A run that is resumed there is only saved,
 * as Megatron's, in another folder. Errors: those of the parts; DCPK_ECANCELLED on ranks that
 * stopped because another failed. A rank without memory inside a step, or whose device or network
 * fails there, returns by itself: waits of world and env->ranks have a limit then, the process has
 * to end with an error, upon which the launcher ends the others.
 */
dcpk_status dcpk_train_run(const struct dcpk_train_job *job, struct dcpk_error *err);

#endif
