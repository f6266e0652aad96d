/* SPDX-License-Identifier: Apache-2.0 */
/* phases.h - where the time of a rank goes: seconds by phase, and ranges that a profiler shows. */
/*
 * A rank is in one phase at a time. A phase inside another one interrupts it, so that no second is
 * counted twice, and the sum of all phases is the time that passed:
 *
 *   enter backward         enter reduce    leave            leave
 *   |------- backward -----|--- reduce ----|--- backward ---|--- other ---
 *
 * The clock is that of the work. On the processor, whose work is done when a call returns, it is
 * the host's. On a GPU the turns are events in the queue of the mathematics, read at the end of an
 * iteration, so that timing makes nothing wait. "gather" and "reduce" are then times in which that
 * queue did nothing else; what ran at the same time on streams of their own is dcpk_busy.
 *
 * "backward" includes recomputation; "optimizer" the weights that are made of the result; "save"
 * what the run waits for, also of an asynchronous save. "other" is agreement with other ranks,
 * hashing, logging, and the start of a run.
 */
#ifndef DCPK_LIB_TRAIN_PHASES_H
#define DCPK_LIB_TRAIN_PHASES_H

#include "lib/device/collectives.h"
#include "lib/device/device.h"
#include "lib/device/ranges.h"

enum dcpk_phase {
    DCPK_PHASE_OTHER,
    DCPK_PHASE_DATA,
    DCPK_PHASE_FORWARD,
    DCPK_PHASE_BACKWARD,
    DCPK_PHASE_GATHER,   /* weights, over data-parallel ranks */
    DCPK_PHASE_REDUCE,   /* gradients, over the same */
    DCPK_PHASE_PIPELINE, /* messages of the stages next to this one */
    DCPK_PHASE_OPTIMIZER,
    DCPK_PHASE_SAVE,
    DCPK_PHASE_LOAD,
    DCPK_N_PHASES,
};

extern const char *const dcpk_phase_names[DCPK_N_PHASES];

/* Seconds between two moments of a rank. */
struct dcpk_times {
    double all; /* by the host's clock */
    double phase[DCPK_N_PHASES];
    bool has_streams; /* collectives have streams of their own: */
    struct dcpk_busy busy;
};

/* The clock of a run of one rank, used by its thread. NULL: nothing is timed. */
struct dcpk_phases;

/* device: of the mathematics. ranges: NULL: none. is_timed: else ranges alone. All borrowed.
 * Errors: DCPK_ENOMEM. */
dcpk_status dcpk_phases_new(struct dcpk_device *device, const struct dcpk_ranges *ranges,
                            bool is_timed, struct dcpk_phases **phases, struct dcpk_error *err);
/* Also in the middle of a phase: open ranges are ended. NULL is a no-op. */
void dcpk_phases_free(struct dcpk_phases *phases);

/* Time calls of the group, as part of `busy`; before its first call. */
void dcpk_phases_watch(struct dcpk_phases *phases, struct dcpk_group *group);

/* The rest of dcpk_phase_enter and _leave. */
enum dcpk_phase dcpk_phases_enter(struct dcpk_phases *phases, enum dcpk_phase phase);
void dcpk_phases_leave(struct dcpk_phases *phases, enum dcpk_phase before);

/* A phase begins. Returns the one that it interrupts, for dcpk_phase_leave. */
static inline enum dcpk_phase dcpk_phase_enter(struct dcpk_phases *phases, enum dcpk_phase phase)
{
    return phases == NULL ? DCPK_PHASE_OTHER : dcpk_phases_enter(phases, phase);
}

/* It ends, also by a failure. */
static inline void dcpk_phase_leave(struct dcpk_phases *phases, enum dcpk_phase before)
{
    if (phases != NULL)
        dcpk_phases_leave(phases, before);
}

/* Outside phases. *times: since the last call, or since new. Errors: of the device, or DCPK_ENOMEM
 * for a turn that was not noted. */
dcpk_status dcpk_phases_take(struct dcpk_phases *phases, struct dcpk_times *times,
                             struct dcpk_error *err);

struct dcpk_train_job;

/* Collective, outside phases: take, and call job->times on all ranks. Errors: those of both. */
dcpk_status dcpk_phases_report(struct dcpk_phases *phases, const struct dcpk_train_job *job,
                               int64_t iteration, struct dcpk_error *err);
/* The same of all that was taken, and of all ranks: job->times_of_run. */
dcpk_status dcpk_phases_finish(struct dcpk_phases *phases, const struct dcpk_train_job *job,
                               int64_t n_iterations, struct dcpk_error *err);

#endif
