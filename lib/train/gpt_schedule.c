/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_schedule.c - microbatches of a step over pipeline stages, one forward, one backward: 1F1B. */
/*
 * P = 3 stages, 4 microbatches (f: forward, b: backward):
 *
 *   stage 0   f0 f1 f2          b0 f3    b1       b2       b3
 *   stage 1      f0 f1       b0 f2    b1 f3    b2       b3
 *   stage 2         f0 b0 f1 b1    f2 b2    f3 b3
 *
 * Stage s begins with P - 1 - s forward passes; then one forward and one backward pass in turn keep
 * P - s microbatches at most. One stage alone: each microbatch forward, then backward.
 * Source: megatron/core/pipeline_parallel/schedules.py @core_v0.19.0,
 * forward_backward_pipelining_without_interleaving.
 */
#include "lib/train/gpt_priv.h"

/* A message that was sent and whose memory is not free yet. */
struct sending {
    uint64_t ticket;
    bool is_under_way;
};

struct schedule {
    struct dcpk_gpt *gpt;
    const struct dcpk_gpt_batch *batches;
    struct sending forward, backward;
};

static dcpk_status sending_wait(struct dcpk_gpt *gpt, struct sending *sending,
                                struct dcpk_error *err)
{
    struct dcpk_group *pp = gpt_group(gpt, DCPK_G_PP);

    if (!sending->is_under_way)
        return DCPK_OK;
    sending->is_under_way = false;
    return pp->by->wait(pp, sending->ticket, err);
}

/* Send `data` to the stage `to`; a stage that does not exist gets nothing. */
static dcpk_status stage_send(struct dcpk_gpt *gpt, struct sending *sending, int to,
                              const void *data, struct dcpk_error *err)
{
    struct dcpk_group *pp = gpt_group(gpt, DCPK_G_PP);
    const size_t n_bytes = gpt_bytes(gpt, gpt->size.rows * gpt->size.hidden);

    if (to < 0 || to >= pp->n_ranks)
        return DCPK_OK;
    if (gpt->ops->wait(gpt->math, err) ||
        pp->by->send(pp, to, data, n_bytes, &sending->ticket, err))
        return err->status;
    sending->is_under_way = true;
    return DCPK_OK;
}

static dcpk_status stage_receive(struct dcpk_gpt *gpt, int from, void *data, struct dcpk_error *err)
{
    struct dcpk_group *pp = gpt_group(gpt, DCPK_G_PP);
    const size_t n_bytes = gpt_bytes(gpt, gpt->size.rows * gpt->size.hidden);

    if (from < 0 || from >= pp->n_ranks)
        return DCPK_OK;
    if (gpt->ops->wait(gpt->math, err))
        return err->status;
    return pp->by->receive(pp, from, data, n_bytes, NULL, err);
}

static dcpk_status run_forward(struct schedule *schedule, int64_t i, struct dcpk_error *err)
{
    struct dcpk_gpt *gpt = schedule->gpt;
    struct gpt_pass *pass = &gpt->passes[i % gpt->n_passes];
    const int stage = gpt_group(gpt, DCPK_G_PP)->rank;

    enum dcpk_phase before;
    dcpk_status st;

    dcpk_gpt_take_batch(gpt, &schedule->batches[i], pass);
    if (stage_receive(gpt, stage - 1, pass->kept[0].input, err) ||
        sending_wait(gpt, &schedule->forward, err))
        return err->status;
    before = dcpk_phase_enter(gpt->options.phases, DCPK_PHASE_FORWARD);
    st = dcpk_gpt_forward(gpt, pass, err);
    dcpk_phase_leave(gpt->options.phases, before);
    if (st != DCPK_OK)
        return st;
    return stage_send(gpt, &schedule->forward, stage + 1, gpt->out, err);
}

static dcpk_status run_backward(struct schedule *schedule, int64_t i, struct dcpk_error *err)
{
    struct dcpk_gpt *gpt = schedule->gpt;
    struct gpt_pass *pass = &gpt->passes[i % gpt->n_passes];
    const int stage = gpt_group(gpt, DCPK_G_PP)->rank;

    enum dcpk_phase before;
    dcpk_status st;

    if (sending_wait(gpt, &schedule->backward, err) || stage_receive(gpt, stage + 1, gpt->d, err))
        return err->status;
    before = dcpk_phase_enter(gpt->options.phases, DCPK_PHASE_BACKWARD);
    st = dcpk_gpt_backward(gpt, pass, err);
    dcpk_phase_leave(gpt->options.phases, before);
    if (st != DCPK_OK)
        return st;
    return stage_send(gpt, &schedule->backward, stage - 1, gpt->d, err);
}

static dcpk_status run_step(struct schedule *schedule, int64_t n, struct dcpk_error *err)
{
    struct dcpk_gpt *gpt = schedule->gpt;
    const struct dcpk_group *pp = gpt_group(gpt, DCPK_G_PP);
    const int64_t n_first = pp->n_ranks - 1 - pp->rank < n ? pp->n_ranks - 1 - pp->rank : n;

    for (int64_t i = 0; i < n_first; i++)
        if (run_forward(schedule, i, err))
            return err->status;
    for (int64_t i = 0; i < n; i++) {
        if (n_first + i < n && run_forward(schedule, n_first + i, err))
            return err->status;
        if (run_backward(schedule, i, err))
            return err->status;
    }
    if (sending_wait(gpt, &schedule->forward, err) || sending_wait(gpt, &schedule->backward, err))
        return err->status;
    return dcpk_gpt_check_losses(gpt, err);
}

dcpk_status dcpk_gpt_step(struct dcpk_gpt *gpt, const struct dcpk_gpt_batch *batches, int64_t n,
                          struct dcpk_gpt_loss *loss, struct dcpk_error *err)
{
    struct schedule schedule = {.gpt = gpt, .batches = batches};
    /* except for its passes */
    const enum dcpk_phase before = dcpk_phase_enter(gpt->options.phases, DCPK_PHASE_PIPELINE);
    dcpk_status st;

    dcpk_gpt_begin(gpt);
    st = run_step(&schedule, n, err);
    dcpk_phase_leave(gpt->options.phases, before);
    if (st == DCPK_OK)
        *loss = gpt->loss;
    return st;
}
