/* SPDX-License-Identifier: Apache-2.0 */
/* step_log.h - the log of a training run, ours or Megatron's: one step for each iteration. */
/*
 *   {"iteration": 9, "consumed_samples": 18, "loss": 5.128260135, "loss_hex": "0x1.4835698p+2",
 *    "grad_norm": 2.768, "grad_norm_hex": "0x1.625...p+1", "lr": 0.001, "loss_scale": 1.0,
 *    "skipped": false, "state_hash": "f00c3d7e2a119b04"}                         (one line)
 *
 * loss: of the batch, before the update. "loss_noise", where it was measured: how far it moves
 * when the first weights move by a unit of their last place. The hex floats are exact, the decimals
 * are for people. state_hash: of weights and moments after the update, the same in every layout. A
 * line without "iteration" is not a step: the first one of a run names what was asked for.
 *
 * Python's json writes NaN, Infinity and -Infinity bare: they are read, too.
 *
 * Megatron's lines, "iteration 9/ 24 | ... | lm loss: 5.128260E+00 | loss scale: 1.0 | grad norm:
 * 2.768 | number of skipped iterations: 0 | ...", have decimals alone, with fewer digits. Learning
 * rate and loss scale are printed after the scheduler's step: they are those of the next iteration.
 * Source: megatron/training/training.py @core_v0.19.0, train, training_log.
 */
#ifndef DCPK_LIB_JOB_STEP_LOG_H
#define DCPK_LIB_JOB_STEP_LOG_H

#include "lib/base/bytes.h"
#include "lib/base/error.h"

/* A number of a log and by how much at most it was rounded when it was printed; 0: exact. */
struct dcpk_logged {
    double value, rounded;
    bool is_there;
};

struct dcpk_step {
    int64_t iteration, consumed_samples; /* the latter is 0 where it is not known */
    struct dcpk_logged loss, grad_norm;
    struct dcpk_logged loss_noise;
    struct dcpk_logged lr, loss_scale;           /* of this step */
    struct dcpk_logged next_lr, next_loss_scale; /* of the next one: what Megatron's line has */
    bool is_skipped, has_hash;
    uint64_t state_hash;
};

/* Zeroed = empty. */
struct dcpk_step_log {
    struct dcpk_step *steps; /* by iteration, each once */
    size_t n;
    size_t n_replaced; /* steps of the file that a resumed run made again, left out */
};

/* The line of a step, with its newline. */
void dcpk_step_put(const struct dcpk_step *step, struct dcpk_bytes *out);

/*
 * Read the log in text[0 .. n_bytes). Lines that are of neither kind are skipped.
 * Errors: DCPK_EFORMAT naming the line whose JSON or number is malformed, or where there is no
 * step; DCPK_ENOMEM.
 */
dcpk_status dcpk_step_log_read(const char *text, size_t n_bytes, struct dcpk_step_log *log,
                               struct dcpk_error *err);
void dcpk_step_log_release(struct dcpk_step_log *log); /* a zeroed one is a no-op */

#endif
