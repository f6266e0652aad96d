/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - a run of one rank: what it keeps, its steps, its end. */
#include "lib/train/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/order.h"
#include "lib/exec/ranks.h"
#include "lib/train/gpt.h"
#include "lib/train/initial.h"
#include "lib/train/optim.h"
#include "lib/train/resume.h"
#include "lib/train/run_mesh.h"
#include "lib/train/save.h"
#include "lib/train/state_hash.h"
#include "lib/train/tokens.h"

/* Losses of the run from noisy weights, which comes first where noise is measured. */
struct noisy_losses {
    double *list; /* by step of the run */
    size_t n, capacity;
};

struct training {
    const struct dcpk_train_job *job;
    struct noisy_losses *noisy; /* NULL: no noise */
    bool is_noisy;              /* this is that run: it adds to them, logs and saves nothing */
    size_t n_steps;
    const struct dcpk_train_config *config;
    struct dcpk_arena *arena;
    struct dcpk_train_mesh mesh;
    struct dcpk_train_params params;
    struct dcpk_memory_account account;
    struct dcpk_user_buffers *user_buffers; /* NULL: none */
    struct dcpk_fsdp *fsdp;
    struct dcpk_gpt *gpt;
    struct dcpk_tokens *tokens;
    struct dcpk_optim optim;
    struct dcpk_train_progress progress;
    struct dcpk_train_state state;
    float **buffers;              /* by parameter */
    struct dcpk_saving *saving;   /* asynchronous; NULL: none */
    struct dcpk_reserve *reserve; /* for its copies; NULL: no save is asynchronous */
    bool noted_unlocked;
    bool is_apart; /* other ranks wait for what this one, which failed, does not send */
    struct dcpk_fsdp_traffic sent_before; /* the step that runs, or ran last */
    struct dcpk_batches batches;
    struct dcpk_phases *phases; /* NULL: nothing is timed */
};

/* ---- model, optimizer and data of a rank ---- */

static dcpk_status training_make_model(struct training *t, struct dcpk_error *err)
{
    struct dcpk_fsdp_options fsdp = {
        .config = t->config, .mesh = &t->mesh, .params = &t->params, .account = &t->account};
    struct dcpk_gpt_options gpt = {
        .config = t->config, .mesh = &t->mesh, .params = &t->params, .account = &t->account};

    fsdp.phases = gpt.phases = t->phases;
    fsdp.buffers = t->user_buffers;
    if (dcpk_train_params(t->config, &t->mesh.at, t->arena, &t->params, err) ||
        dcpk_fsdp_new(&fsdp, &t->fsdp, err))
        return err->status;
    gpt.weights = dcpk_fsdp_weights(t->fsdp);
    if (dcpk_gpt_new(&gpt, &t->gpt, err) != DCPK_OK)
        return err->status;
    t->buffers = dcpk_arena_array(t->arena, t->params.n, sizeof *t->buffers, err);
    if (t->buffers == NULL)
        return err->status;
    t->state = (struct dcpk_train_state){.config = t->config,
                                         .params = &t->params,
                                         .shards = dcpk_fsdp_shards(t->fsdp),
                                         .mesh = &t->mesh,
                                         .math = t->job->math,
                                         .buffers = t->buffers};
    for (size_t i = 0; i < t->params.n; i++)
        if (t->params.list[i].is_buffer)
            t->buffers[i] = dcpk_fsdp_buffer(t->fsdp, i);
    return DCPK_OK;
}

/* Arguments of saving and resuming; `progress` becomes that of now. */
static struct dcpk_saved_run training_saved(struct training *t)
{
    t->progress.adam_steps = t->optim.step;
    return (struct dcpk_saved_run){.state = &t->state,
                                   .schedule = &t->optim.schedule,
                                   .progress = &t->progress,
                                   .loss_scale = &t->optim.loss_scale,
                                   .env = t->job->env,
                                   .host = t->job->host,
                                   .reserve = t->reserve};
}

/* Note what was done with a checkpoint and for how long the run stood still, where asked for. */
static void training_note_time(const struct training *t, const char *what, double begun)
{
    char text[96];
    const int n = snprintf(text, sizeof text, "iteration %" PRId64 " was %s in %.3f s\n",
                           t->progress.iteration, what, dcpk_now_seconds() - begun);

    if (t->config->files.notes_times && !t->is_noisy)
        t->job->notes(t->job->context, text, (size_t)n);
}

static dcpk_status training_resume(struct training *t, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    const struct dcpk_saved_run saved = training_saved(t);
    struct dcpk_bytes notes = {0};
    const dcpk_status st = dcpk_train_resume(&saved, &notes, err);

    if (st != DCPK_OK)
        goto out;
    if (notes.n_bytes > 0 && !t->is_noisy)
        t->job->notes(t->job->context, (const char *)notes.data, notes.n_bytes);
    training_note_time(t, "loaded", begun);
    t->optim.step = t->progress.adam_steps;
out:
    dcpk_bytes_release(&notes);
    return st;
}

/* Memory for the copies of asynchronous saves is made ready while the first iterations train. */
static dcpk_status training_reserve(struct training *t, struct dcpk_error *err)
{
    const struct dcpk_train_files *files = &t->config->files;
    struct dcpk_saved_run saved;

    if (files->save == NULL || !files->is_async || t->is_noisy)
        return DCPK_OK;
    saved = training_saved(t);
    return dcpk_saving_reserve(&saved, &t->reserve, err);
}

/* Agrees on the status, so that no rank waits for one that has failed. */
static dcpk_status training_agree(struct training *t, dcpk_status st, struct dcpk_error *err)
{
    return dcpk_totals_agree(t->job->world, t->job->math, st, NULL, 0, err);
}

/* Skipped when the checkpoint must contain every parameter: on a CPU, generating them takes as long
 * as reading them. */
static dcpk_status training_initial(struct training *t, struct dcpk_error *err)
{
    const struct dcpk_train_files *files = &t->config->files;

    if (files->load != NULL && !dcpk_resume_keeps(files->strictness))
        return DCPK_OK;
    return dcpk_initial_fill(&t->state, err);
}

/* Times phases, and the groups that carry weights and gradients, where that was asked for. */
static dcpk_status training_make_phases(struct training *t, struct dcpk_error *err)
{
    static const enum dcpk_train_group watched[] = {DCPK_G_INNER,        DCPK_G_OUTER,
                                                    DCPK_G_EXPERT_DP,    DCPK_G_GATHER,
                                                    DCPK_G_EXPERT_INNER, DCPK_G_EXPERT_GATHER};
    const bool is_timed = t->config->files.notes_times;

    if (t->is_noisy || (!is_timed && t->job->ranges == NULL))
        return DCPK_OK;
    if (dcpk_phases_new(t->job->math->device, t->job->ranges, is_timed, &t->phases, err))
        return err->status;
    for (size_t i = 0; i < DCPK_COUNT(watched); i++)
        dcpk_phases_watch(t->phases, t->mesh.group[watched[i]]);
    return DCPK_OK;
}

/* Notes what the double buffer does not hold. */
static dcpk_status training_note_apart(const struct training *t, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    struct dcpk_train_apart ignored;

    for (int64_t pp = 0; !t->is_noisy && pp < t->config->layout.pp; pp++) {
        text.n_bytes = 0;
        if (dcpk_train_apart(t->config, pp, &ignored, &text, err) != DCPK_OK)
            break;
        if (text.n_bytes > 0)
            t->job->notes(t->job->context, (const char *)text.data, text.n_bytes);
    }
    dcpk_bytes_release(&text);
    return err->status;
}

/* Makes everything that waits for no other rank. */
static dcpk_status training_make(struct training *t, struct dcpk_error *err)
{
    t->arena = dcpk_arena_new();
    if (training_make_phases(t, err) || training_make_model(t, err) ||
        dcpk_batches_make(t->config, t->arena, &t->batches, err) ||
        dcpk_tokens_open(t->config, &t->tokens, err) ||
        dcpk_optim_init(t->config, &t->optim, err) || training_note_apart(t, err))
        return err->status;
    return training_initial(t, err);
}

/* Over the initial values those of a checkpoint, which fails on all ranks or none; noise. */
static dcpk_status training_fill(struct training *t, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (t->config->files.load != NULL) {
        const enum dcpk_phase before = dcpk_phase_enter(t->phases, DCPK_PHASE_LOAD);

        st = training_resume(t, err);
        dcpk_phase_leave(t->phases, before);
    }
    if (st == DCPK_OK && t->is_noisy)
        st = dcpk_noise_add(&t->state, err);
    return training_agree(t, st, err);
}

/* True if this rank alone left a step. Ranks agree on a number, or on another's failure. */
static bool has_come_apart(dcpk_status st)
{
    return st != DCPK_OK && st != DCPK_ERANGE && st != DCPK_EMISMATCH && st != DCPK_ECANCELLED;
}

/* User buffers, when no gather is under way. n_trained: iterations since the run began. */
static dcpk_status training_register(struct training *t, int64_t n_trained, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (t->user_buffers == NULL || n_trained > 1)
        return DCPK_OK;
    st = dcpk_fsdp_settle(t->fsdp, err);
    if (st == DCPK_OK)
        st = dcpk_user_buffers_register(t->user_buffers, n_trained, err);
    t->is_apart = has_come_apart(st);
    return st;
}

static dcpk_status training_begin(struct training *t, struct dcpk_error *err)
{
    if (dcpk_train_mesh_init(&t->config->layout, t->job->world, &t->mesh, err) ||
        dcpk_user_buffers_new(t->job, t->is_noisy, &t->user_buffers, err) ||
        training_agree(t, training_make(t, err), err) ||
        dcpk_tokens_check_same(t->tokens, t->job->env->ranks, err) || training_fill(t, err) ||
        training_reserve(t, err) || training_register(t, 0, err))
        return err->status;
    return dcpk_fsdp_install(t->fsdp, err);
}

/* Others cannot come: this rank's process ends soon, and with it the job. */
static void training_limit_waits(struct training *t)
{
    const int limit_ms = t->job->apart_ms > 0 ? t->job->apart_ms : DCPK_TRAIN_APART_MS;

    for (int g = 0; g < DCPK_N_GROUPS; g++)
        if (t->mesh.group[g] != NULL)
            t->mesh.group[g]->timeout_ms = limit_ms;
    if (t->job->env != NULL)
        (void)dcpk_ranks_set_timeout(t->job->env->ranks, limit_ms);
}

static void training_end(struct training *t)
{
    dcpk_saving_abandon(t->saving); /* ends the things that a failed run has begun */
    dcpk_reserve_free(t->reserve);
    dcpk_tokens_close(t->tokens);
    dcpk_gpt_free(t->gpt);
    dcpk_fsdp_free(t->fsdp);
    dcpk_user_buffers_unregister(t->user_buffers);
    dcpk_train_mesh_release(&t->mesh);
    dcpk_user_buffers_free(t->user_buffers); /* what failed calls may still use ends with groups */
    dcpk_phases_free(t->phases);
    dcpk_arena_free(t->arena);
}

/* ---- a step ---- */

static dcpk_status training_read(struct training *t, struct dcpk_error *err)
{
    const struct dcpk_microbatch first = {t->progress.consumed_samples, 0, t->mesh.at.dp,
                                          t->config->layout.dp};
    const enum dcpk_phase before = dcpk_phase_enter(t->phases, DCPK_PHASE_DATA);
    const dcpk_status st = dcpk_batches_read(&t->batches, t->config, t->tokens, &first,
                                             t->optim.loss_scale.scale, err);

    dcpk_phase_leave(t->phases, before);
    return st;
}

/* Prepares everything that a step needs before ranks wait for one another in it. */
static dcpk_status training_prepare(struct training *t, struct dcpk_error *err)
{
    struct noisy_losses *noisy = t->noisy;

    if (t->is_noisy &&
        dcpk_grow(&noisy->list, &noisy->capacity, noisy->n, sizeof *noisy->list, err) != DCPK_OK)
        return err->status;
    if (training_read(t, err) || dcpk_fsdp_begin(t->fsdp, t->batches.n, err))
        return err->status;
    dcpk_fsdp_scale_sums(t->fsdp, t->optim.loss_scale.scale / dcpk_loss_divisor(t->config));
    return DCPK_OK;
}

/* Forward and backward of all microbatches, on all ranks. sums: loss in units of 2^-32, tokens. */
static dcpk_status training_pass(struct training *t, int64_t sums[2], struct dcpk_error *err)
{
    struct dcpk_gpt_loss loss = {0};
    dcpk_status st;

    if (training_agree(t, training_prepare(t, err), err) != DCPK_OK)
        return err->status;
    st = dcpk_gpt_step(t->gpt, t->batches.list, t->batches.n, &loss, err);
    t->is_apart = has_come_apart(st);
    if (t->is_apart)
        return st;
    sums[0] = loss.sum;
    sums[1] = loss.tokens;
    if (dcpk_totals_agree(t->mesh.group[DCPK_G_WORLD], t->job->math, st, sums, 2, err))
        return err->status;
    sums[0] /= t->config->layout.tp; /* each tensor-parallel rank has the same */
    sums[1] /= t->config->layout.tp;
    return DCPK_OK;
}

/* Reduce, update, install. A step of fp16 whose gradients overflow is skipped. */
static dcpk_status training_update(struct training *t, int64_t n_tokens, struct dcpk_step *step,
                                   struct dcpk_error *err)
{
    const bool is_f16 = t->config->precision.compute == DCPK_F16;
    struct dcpk_optim_result result = {.lr = dcpk_schedule_lr(&t->optim.schedule)};
    dcpk_status st = dcpk_fsdp_finish(
        t->fsdp, dcpk_gradient_factor(t->config, t->optim.loss_scale.scale, n_tokens), err);

    step->is_skipped = is_f16 && st == DCPK_ERANGE;
    if (step->is_skipped) {
        dcpk_error_clear(err);
        st = DCPK_OK;
    } else if (st == DCPK_OK) {
        st = dcpk_optim_step(&t->optim, &t->state, &result, err);
    }
    if (st != DCPK_OK)
        return st;
    step->lr = (struct dcpk_logged){result.lr, 0, true};
    step->loss_scale = (struct dcpk_logged){t->optim.loss_scale.scale, 0, true};
    step->grad_norm = (struct dcpk_logged){result.norm, 0, !step->is_skipped};
    if (is_f16)
        dcpk_loss_scale_update(&t->optim.loss_scale, &t->config->precision, step->is_skipped);
    return dcpk_fsdp_install(t->fsdp, err);
}

/* The gradients of a pass into all that they change. */
static dcpk_status training_apply(struct training *t, int64_t n_tokens, struct dcpk_step *step,
                                  struct dcpk_error *err)
{
    const enum dcpk_phase before = dcpk_phase_enter(t->phases, DCPK_PHASE_OPTIMIZER);
    dcpk_status st = training_update(t, n_tokens, step, err);

    if (st == DCPK_OK)
        st = dcpk_expert_bias_update(&t->state, t->gpt, err);
    dcpk_phase_leave(t->phases, before);
    t->is_apart = has_come_apart(st);
    return st;
}

/* Keep the loss of the noisy run; set how far that of the other one is from it. */
static void training_compare(struct training *t, struct dcpk_step *step)
{
    struct noisy_losses *noisy = t->noisy;

    if (noisy == NULL)
        return;
    if (t->is_noisy) {
        noisy->list[noisy->n++] = step->loss.value; /* training_prepare made room */
    } else {
        const double noise = fabs(step->loss.value - noisy->list[t->n_steps++]);

        step->loss_noise = (struct dcpk_logged){noise, 0, step->loss.is_there};
    }
}

static dcpk_status training_check_replicas(struct training *t, struct dcpk_error *err)
{
    const int64_t interval = t->config->fsdp.hash_interval;

    if (interval == 0 || t->progress.iteration % interval != 0)
        return DCPK_OK;
    return dcpk_fsdp_check_replicas(t->fsdp, err);
}

static dcpk_status training_hash(const struct training *t, struct dcpk_step *step,
                                 struct dcpk_error *err)
{
    const int64_t interval = t->config->files.state_hash_interval;

    step->has_hash = interval > 0 && step->iteration % interval == 0;
    if (!step->has_hash)
        return DCPK_OK;
    return dcpk_state_hash(&t->state, &step->state_hash, err);
}

static dcpk_status training_report(const struct training *t, const struct dcpk_step *step,
                                   struct dcpk_error *err)
{
    const struct dcpk_train_job *job = t->job;

    if (!t->is_noisy)
        return job->step(job->context, step, err);
    if (job->noisy_step == NULL)
        return DCPK_OK;
    return job->noisy_step(job->context, step->iteration, err);
}

static dcpk_status training_step(struct training *t, struct dcpk_error *err)
{
    struct dcpk_step step = {0};
    int64_t sums[2];

    t->sent_before = *dcpk_fsdp_traffic(t->fsdp);
    if (training_pass(t, sums, err) || training_apply(t, sums[1], &step, err))
        return dcpk_context(err, "iteration %" PRId64, t->progress.iteration + 1);
    t->progress.iteration++;
    t->progress.consumed_samples += t->config->data.global_batch;
    t->progress.flops += dcpk_train_step_flops(t->config);
    step.iteration = t->progress.iteration;
    step.consumed_samples = t->progress.consumed_samples;
    step.next_lr = (struct dcpk_logged){dcpk_schedule_lr(&t->optim.schedule), 0, true};
    step.next_loss_scale = (struct dcpk_logged){t->optim.loss_scale.scale, 0, true};
    if (sums[1] > 0)
        step.loss = (struct dcpk_logged){(double)sums[0] / 0x1p32 / (double)sums[1], 0, true};
    if (training_check_replicas(t, err) || training_hash(t, &step, err))
        return err->status;
    training_compare(t, &step);
    return training_report(t, &step, err);
}

/* ---- figures of a run ---- */

static dcpk_status training_measure(struct training *t, struct dcpk_error *err)
{
    const struct dcpk_fsdp_traffic *sent = dcpk_fsdp_traffic(t->fsdp);
    struct dcpk_train_measured m = {.rank = t->mesh.rank};

    if (t->job->measured == NULL)
        return DCPK_OK;
    for (int a = 0; a < DCPK_FSDP_N_ACTIONS; a++) {
        m.sent.n_bytes[a] = sent->n_bytes[a] - t->sent_before.n_bytes[a];
        m.sent.n_calls[a] = sent->n_calls[a] - t->sent_before.n_calls[a];
    }
    memcpy(m.held, t->account.most, sizeof m.held);
    if (dcpk_train_measured_complete(&m, t->config, t->job->world, t->job->math, err) != DCPK_OK)
        return err->status;
    return t->job->measured(t->job->context, &m, err);
}

/* ---- a run ---- */

/* Wait for the asynchronous save, if there is one. */
static dcpk_status training_finish_saving(struct training *t, struct dcpk_error *err)
{
    struct dcpk_saving *saving = t->saving;
    enum dcpk_phase before;
    dcpk_status st;

    if (saving == NULL)
        return DCPK_OK;
    t->saving = NULL;
    before = dcpk_phase_enter(t->phases, DCPK_PHASE_SAVE);
    st = dcpk_saving_finish(saving, err);
    dcpk_phase_leave(t->phases, before);
    return st;
}

/* Note once why the copies of asynchronous saves are slow, where they are. */
static void training_note_unlocked(struct training *t)
{
    const char *why = dcpk_reserve_unlocked(t->reserve);
    char text[DCPK_ERROR_BYTES + 96];
    int n;

    if (why == NULL || t->noted_unlocked)
        return;
    t->noted_unlocked = true;
    n = snprintf(text, sizeof text,
                 "asynchronous saves copy slowly: their buffers are not page-locked: %s\n", why);
    t->job->notes(t->job->context, text, (size_t)n);
}

static dcpk_status training_write(struct training *t, struct dcpk_error *err)
{
    const struct dcpk_saved_run saved = training_saved(t);

    if (!t->config->files.is_async)
        return dcpk_train_save(&saved, err);
    if (training_finish_saving(t, err) || dcpk_saving_start(&saved, &t->saving, err))
        return err->status;
    training_note_unlocked(t);
    return DCPK_OK;
}

static dcpk_status training_save(struct training *t, int64_t last, struct dcpk_error *err)
{
    const struct dcpk_train_files *files = &t->config->files;
    const int64_t interval = files->save_interval, i = t->progress.iteration;
    const double begun = dcpk_now_seconds();
    enum dcpk_phase before;
    dcpk_status st;

    if (files->save == NULL || (i != last && (interval <= 0 || i % interval != 0)))
        return DCPK_OK;
    before = dcpk_phase_enter(t->phases, DCPK_PHASE_SAVE);
    st = training_write(t, err);
    dcpk_phase_leave(t->phases, before);
    if (st != DCPK_OK)
        return st;
    training_note_time(t, "saved", begun);
    if (t->job->saved != NULL)
        t->job->saved(t->job->context);
    return DCPK_OK;
}

/* Note that the checkpoint is already where the run ends. */
static void training_note_finished(const struct training *t, int64_t last)
{
    char text[128];
    int n;

    if (t->is_noisy || t->config->files.load == NULL || t->progress.iteration < last)
        return;
    n = snprintf(text, sizeof text,
                 "nothing to train: the checkpoint is at iteration %" PRId64 ", and the run ends "
                 "at %" PRId64 "\n",
                 t->progress.iteration, last);
    t->job->notes(t->job->context, text, (size_t)n);
}

/* A run without remaining iterations saves the state that it resumed, but not over its source. */
static dcpk_status training_save_resumed(struct training *t, int64_t last, struct dcpk_error *err)
{
    const struct dcpk_train_files *files = &t->config->files;

    if (t->is_noisy || t->progress.iteration < last || files->save == NULL || files->load == NULL ||
        strcmp(files->save, files->load) == 0)
        return DCPK_OK;
    return training_save(t, t->progress.iteration, err);
}

static dcpk_status training_dump_groups(struct training *t, struct dcpk_error *err)
{
    struct dcpk_saved_run saved;

    if (t->config->files.map_folder == NULL || t->is_noisy)
        return DCPK_OK;
    saved = training_saved(t);
    return dcpk_train_dump_groups(&saved, err);
}

/* The iteration that the run stops after, as of where it begins. */
static int64_t training_last(const struct training *t)
{
    const struct dcpk_train_data *data = &t->config->data;
    const int64_t n = data->exit_interval, begun = t->progress.iteration;
    const int64_t last = data->exit_at > 0 ? data->exit_at : data->train_iters;

    if (n == 0 || begun >= last)
        return last;
    return dcpk_min_i64(last, begun - begun % n + n);
}

/* All ranks are done with the others before one of them leaves its groups (collectives.h). */
static dcpk_status training_settle(struct training *t, struct dcpk_error *err)
{
    dcpk_status st = training_finish_saving(t, err);

    if (st == DCPK_OK)
        st = dcpk_fsdp_settle(t->fsdp, err);
    return dcpk_ranks_agree(t->job->env->ranks, st, err);
}

/* A run from its beginning to its last iteration; the caller ends it, also after a failure. */
static dcpk_status training_iterate(struct training *t, struct dcpk_error *err)
{
    int64_t begun, last;

    if (training_begin(t, err) != DCPK_OK)
        return err->status;
    begun = t->progress.iteration;
    last = training_last(t);
    training_note_finished(t, last);
    if (training_dump_groups(t, err) || training_save_resumed(t, last, err) ||
        dcpk_phases_report(t->phases, t->job, begun, err))
        return err->status;
    while (t->progress.iteration < last) {
        if (training_step(t, err) || training_register(t, t->progress.iteration - begun, err))
            return err->status;
        if (t->is_noisy)
            continue;
        if (training_save(t, last, err) ||
            dcpk_phases_report(t->phases, t->job, t->progress.iteration, err) ||
            (t->progress.iteration == last && training_measure(t, err)))
            return err->status;
    }
    if (training_settle(t, err) != DCPK_OK)
        return err->status;
    return dcpk_phases_finish(t->phases, t->job, t->progress.iteration - begun, err);
}

static dcpk_status training_run(struct training *t, struct dcpk_error *err)
{
    const dcpk_status st = training_iterate(t, err);

    if (t->is_apart)
        training_limit_waits(t);
    training_end(t);
    return st;
}

dcpk_status dcpk_train_run(const struct dcpk_train_job *job, struct dcpk_error *err)
{
    const struct training plain = {.job = job, .config = job->config, .account.math = job->math};
    struct noisy_losses noisy = {0};
    struct training t = plain;
    dcpk_status st = DCPK_OK;

    if (job->config->data.has_noise) {
        t.noisy = &noisy;
        t.is_noisy = true;
        st = training_run(&t, err);
        t = plain;
        t.noisy = &noisy;
    }
    if (st == DCPK_OK)
        st = training_run(&t, err);
    dcpk_free(noisy.list);
    return st;
}
