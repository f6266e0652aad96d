/* SPDX-License-Identifier: Apache-2.0 */
/* phases.c - turns from phase to phase, noted as they come; seconds between them, added up later.
 */
#include "lib/train/phases.h"

#include <assert.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/exec/ranks.h"
#include "lib/train/train.h"

const char *const dcpk_phase_names[DCPK_N_PHASES] = {
    [DCPK_PHASE_OTHER] = "other",       [DCPK_PHASE_DATA] = "data",
    [DCPK_PHASE_FORWARD] = "forward",   [DCPK_PHASE_BACKWARD] = "backward",
    [DCPK_PHASE_GATHER] = "gather",     [DCPK_PHASE_REDUCE] = "reduce",
    [DCPK_PHASE_PIPELINE] = "pipeline", [DCPK_PHASE_OPTIMIZER] = "optimizer",
    [DCPK_PHASE_SAVE] = "save",         [DCPK_PHASE_LOAD] = "load",
};

/* The phase that begins at a moment; of a device with a clock it is the mark of that number. */
struct turn {
    enum dcpk_phase phase;
    double at; /* by the host's clock */
};

struct dcpk_phases {
    struct dcpk_device *device;
    const struct dcpk_ranges *ranges;
    bool is_timed;
    enum dcpk_phase now;
    size_t n_open;      /* ranges */
    struct turn *turns; /* since the last take */
    size_t n_turns, capacity;
    struct dcpk_times taken; /* all of it; busy: also what was not taken yet */
    struct dcpk_busy busy;   /* what groups add to */
    struct dcpk_error failed;
};

static void phases_turn(struct dcpk_phases *p, enum dcpk_phase phase)
{
    struct dcpk_device *device = p->device;

    p->now = phase;
    if (!p->is_timed || p->failed.status != DCPK_OK ||
        dcpk_grow(&p->turns, &p->capacity, p->n_turns, sizeof *p->turns, &p->failed) != DCPK_OK ||
        (device->ops->mark != NULL && device->ops->mark(device, p->n_turns, &p->failed) != DCPK_OK))
        return;
    p->turns[p->n_turns++] = (struct turn){phase, dcpk_now_seconds()};
}

dcpk_status dcpk_phases_new(struct dcpk_device *device, const struct dcpk_ranges *ranges,
                            bool is_timed, struct dcpk_phases **phases, struct dcpk_error *err)
{
    struct dcpk_phases *p = dcpk_alloc(sizeof *p, err);

    if (p == NULL)
        return err->status;
    p->device = device;
    p->ranges = ranges;
    p->is_timed = is_timed;
    phases_turn(p, DCPK_PHASE_OTHER);
    *phases = p;
    return DCPK_OK;
}

void dcpk_phases_free(struct dcpk_phases *p)
{
    if (p == NULL)
        return;
    for (; p->n_open > 0; p->n_open--)
        p->ranges->pop();
    dcpk_free(p->turns);
    dcpk_free(p);
}

void dcpk_phases_watch(struct dcpk_phases *p, struct dcpk_group *group)
{
    if (p == NULL || !p->is_timed)
        return;
    group->busy = &p->busy;
    p->taken.has_streams = group->by->is_device;
}

enum dcpk_phase dcpk_phases_enter(struct dcpk_phases *p, enum dcpk_phase phase)
{
    const enum dcpk_phase before = p->now;

    if (p->ranges != NULL) {
        p->ranges->push(dcpk_phase_names[phase]);
        p->n_open++;
    }
    phases_turn(p, phase);
    return before;
}

void dcpk_phases_leave(struct dcpk_phases *p, enum dcpk_phase before)
{
    if (p->ranges != NULL) {
        assert(p->n_open > 0);
        p->ranges->pop();
        p->n_open--;
    }
    phases_turn(p, before);
}

static dcpk_status seconds_between(const struct dcpk_phases *p, size_t from, size_t to,
                                   double *seconds, struct dcpk_error *err)
{
    *seconds = p->turns[to].at - p->turns[from].at;
    if (p->device->ops->between == NULL)
        return DCPK_OK;
    return p->device->ops->between(p->device, from, to, seconds, err);
}

static dcpk_status turns_add(const struct dcpk_phases *p, struct dcpk_times *times,
                             struct dcpk_error *err)
{
    double seconds;

    for (size_t i = 0; i + 1 < p->n_turns; i++) {
        if (seconds_between(p, i, i + 1, &seconds, err) != DCPK_OK)
            return err->status;
        times->phase[p->turns[i].phase] += seconds;
    }
    times->all = dcpk_now_seconds() - p->turns[0].at; /* the device has come to the last turn */
    return DCPK_OK;
}

dcpk_status dcpk_phases_take(struct dcpk_phases *p, struct dcpk_times *times,
                             struct dcpk_error *err)
{
    struct dcpk_times *taken = &p->taken;

    assert(p->now == DCPK_PHASE_OTHER);
    *times = (struct dcpk_times){.has_streams = taken->has_streams};
    phases_turn(p, DCPK_PHASE_OTHER);
    if (p->failed.status != DCPK_OK || turns_add(p, times, &p->failed) != DCPK_OK) {
        *times = (struct dcpk_times){0};
        *err = p->failed;
        return err->status;
    }
    times->busy.gather = p->busy.gather - taken->busy.gather;
    times->busy.reduce = p->busy.reduce - taken->busy.reduce;
    taken->busy = p->busy;
    taken->all += times->all;
    for (int i = 0; i < DCPK_N_PHASES; i++)
        taken->phase[i] += times->phase[i];
    p->n_turns = 0;
    phases_turn(p, DCPK_PHASE_OTHER);
    return DCPK_OK;
}

/* ---- all ranks ---- */

dcpk_status dcpk_phases_report(struct dcpk_phases *p, const struct dcpk_train_job *job,
                               int64_t iteration, struct dcpk_error *err)
{
    struct dcpk_times times;

    if (p == NULL || !p->is_timed)
        return DCPK_OK;
    if (dcpk_ranks_agree(job->env->ranks, dcpk_phases_take(p, &times, err), err) != DCPK_OK)
        return err->status;
    return job->times(job->context, iteration, &times, err);
}

enum { N_NUMBERS = DCPK_N_PHASES + 3 };

static double *times_number(struct dcpk_times *times, int i)
{
    double *const others[] = {&times->all, &times->busy.gather, &times->busy.reduce};

    if (i < DCPK_N_PHASES)
        return &times->phase[i];
    return others[i - DCPK_N_PHASES];
}

dcpk_status dcpk_phases_finish(struct dcpk_phases *p, const struct dcpk_train_job *job,
                               int64_t n_iterations, struct dcpk_error *err)
{
    uint64_t sums[N_NUMBERS], largest[N_NUMBERS]; /* nanoseconds */
    struct dcpk_ranks *ranks = job->env->ranks;
    struct dcpk_times mean, most;
    dcpk_status st;

    if (p == NULL || !p->is_timed)
        return DCPK_OK;
    st = dcpk_phases_take(p, &mean, err); /* the rest */
    mean = most = p->taken;
    for (int i = 0; i < N_NUMBERS; i++)
        sums[i] = largest[i] = (uint64_t)(1e9 * *times_number(&mean, i));
    st = dcpk_ranks_sum(ranks, sums, N_NUMBERS, st, err);
    if (dcpk_ranks_most(ranks, largest, N_NUMBERS, st, err) != DCPK_OK)
        return err->status;
    for (int i = 0; i < N_NUMBERS; i++) {
        *times_number(&mean, i) = 1e-9 * (double)sums[i] / dcpk_ranks_count(ranks);
        *times_number(&most, i) = 1e-9 * (double)largest[i];
    }
    return job->times_of_run(job->context, n_iterations, &mean, &most, err);
}
