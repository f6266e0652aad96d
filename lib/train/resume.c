/* SPDX-License-Identifier: Apache-2.0 */
/* resume.c - opens a checkpoint, checks that it holds what a model asks for, reads this rank's
 * boxes of its tensors. */
/*
 *   open      the newest iteration -> canonical view, rules applied, as a conversion has it
 *   check     the boxes that all ranks ask for (memory_checkpoint.h) against tensors of the view
 *   read      each box of this rank: its pieces of stored chunks, cast, into the shard, by the
 *             remap engine (lib/exec/remap_files.h)
 *   state     iteration, samples, schedule, step, loss scale
 *
 * Ranks agree after each step; what a run had is replaced when all have succeeded.
 */
#include "lib/train/resume.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/exec/env.h"
#include "lib/exec/remap_files.h"
#include "lib/job/compare.h"
#include "lib/model/account.h"
#include "lib/model/arg_table.h"
#include "lib/model/norms.h"
#include "lib/rules/rules.h"
#include "lib/train/run_values.h"

/* ---- the tensors that a model needs ---- */

#define MAX_NAMED 3

/* The reaction to a difference. */
enum verdict { IGNORED, NOTED, REFUSED };

static const struct strictness {
    const char *name;
    enum verdict run_alone, checkpoint_alone;
} strictnesses[] = {
    {"assume_ok_unexpected", REFUSED, IGNORED},
    {"raise_unexpected", REFUSED, IGNORED},
    {"raise_all", REFUSED, REFUSED},
    {"log_unexpected", NOTED, IGNORED},
    {"log_all", NOTED, NOTED},
    {"return_unexpected", NOTED, IGNORED},
    {"return_all", NOTED, NOTED},
    {"ignore_all", IGNORED, IGNORED},
};

/* Differences so far. */
struct fitting {
    const struct strictness *by;
    struct dcpk_bytes *notes;
    struct dcpk_bytes refused; /* the first three */
    uint64_t n_refused;
    bool is_state; /* optimizer state is among them */
};

/* NULL: there is none of that name. */
static const struct strictness *strictness_named(const char *name)
{
    if (name == NULL)
        return &strictnesses[0];
    for (size_t i = 0; i < DCPK_COUNT(strictnesses); i++)
        if (strcmp(strictnesses[i].name, name) == 0)
            return &strictnesses[i];
    return NULL;
}

bool dcpk_resume_keeps(const char *strictness)
{
    const struct strictness *by = strictness_named(strictness);

    return by != NULL && by->run_alone != REFUSED;
}

static dcpk_status find_strictness(const char *name, const struct strictness **found,
                                   struct dcpk_error *err)
{
    *found = strictness_named(name);
    if (*found != NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "'%s' is not a strictness: they are assume_ok_unexpected, log_unexpected, "
                     "log_all, raise_unexpected, raise_all, return_unexpected, return_all, "
                     "ignore_all",
                     name);
}

static void fitting_add(struct fitting *f, enum verdict verdict, const char *sentence)
{
    if (verdict == NOTED)
        dcpk_bytes_printf(f->notes, "%s\n", sentence);
    if (verdict != REFUSED)
        return;
    if (f->n_refused < MAX_NAMED)
        dcpk_bytes_printf(&f->refused, "%s%s", dcpk_joint(f->n_refused > 0, "; "), sentence);
    f->n_refused++;
}

/* The view's tensor for one that a run asks for: its parameter's value, or its state. NULL: there
 * is none. */
static const struct dcpk_model_tensor *resume_find(const struct dcpk_model *model,
                                                   const char *param, enum dcpk_role role)
{
    const char *state = role == DCPK_STATE ? DCPK_MEMORY_STATE : NULL;
    uint64_t found;
    uint32_t tensor;

    if (!dcpk_map_get(&model->param_by_name, param, strlen(param), &found))
        return NULL;
    if (role == DCPK_WEIGHT || role == DCPK_MASTER)
        return dcpk_model_value(model, &model->params[found]);
    tensor = dcpk_model_find(model, (uint32_t)found, role, state);
    return tensor == DCPK_NO_TENSOR ? NULL : &model->tensors[tensor];
}

static const char *fit_role(enum dcpk_role role)
{
    if (role == DCPK_WEIGHT || role == DCPK_MASTER)
        return "value";
    return role == DCPK_STATE ? DCPK_MEMORY_STATE : dcpk_role_name(role);
}

static void fit_asked(struct fitting *f, const struct dcpk_memory_tensor *asked,
                      const struct dcpk_model *model)
{
    const struct dcpk_model_tensor *have = resume_find(model, asked->param, asked->role);
    const bool is_value = asked->role == DCPK_WEIGHT || asked->role == DCPK_MASTER;
    const struct dcpk_shard *shard = asked->shard;
    char sentence[512], a[64], b[64];

    if (have == NULL) {
        snprintf(sentence, sizeof sentence, "the checkpoint has no %s of '%s'",
                 fit_role(asked->role), asked->param);
        f->is_state |= f->by->run_alone == REFUSED && !is_value;
        fitting_add(f, f->by->run_alone, sentence);
    } else if (!dcpk_shape_equal(have->shape, have->rank, shard->shape, shard->rank)) {
        snprintf(sentence, sizeof sentence, "'%s' is %s in the checkpoint and %s in the model",
                 asked->param, dcpk_shape_format(have->shape, have->rank, a, sizeof a),
                 dcpk_shape_format(shard->shape, shard->rank, b, sizeof b));
        fitting_add(f, REFUSED, sentence);
    }
}

/* True if the tensor is named: if a parameter's value does not fit, it alone is. */
static bool fit_is_named(const struct dcpk_memory_tensor *asked, const struct dcpk_model *model)
{
    const struct dcpk_model_tensor *value = resume_find(model, asked->param, DCPK_WEIGHT);

    return asked->role != DCPK_WEIGHT && asked->role != DCPK_MASTER &&
           (value == NULL ||
            !dcpk_shape_equal(value->shape, value->rank, asked->shard->shape, asked->shard->rank));
}

/* Parameters that no rank asks for. */
static dcpk_status fit_held(struct fitting *f, const struct dcpk_memory_index *asked,
                            const struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_map names = {0};
    char sentence[512];
    uint64_t found;
    bool existed;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < asked->n_tensors && st == DCPK_OK; i++)
        st = dcpk_map_put(&names, asked->tensors[i].param, strlen(asked->tensors[i].param), i,
                          &existed, &found, err);
    for (size_t p = 0; p < model->n_params && st == DCPK_OK; p++) {
        const char *name = model->params[p].name;

        if (dcpk_map_get(&names, name, strlen(name), &found))
            continue;
        snprintf(sentence, sizeof sentence, "the model has no '%s', which the checkpoint has",
                 name);
        fitting_add(f, f->by->checkpoint_alone, sentence);
    }
    dcpk_map_release(&names);
    return st;
}

static dcpk_status fail_fit(const struct fitting *f, struct dcpk_error *err)
{
    unsigned fixes = DCPK_FIX_MODEL_FLAGS;

    if (dcpk_bytes_status(&f->refused, err) != DCPK_OK)
        return err->status;
    if (f->is_state)
        fixes |= DCPK_FIX_NO_LOAD_OPTIM;
    return dcpk_fail_fix(err, DCPK_EMISMATCH, fixes,
                         "the checkpoint does not fit the model, in %" PRIu64 " tensor%s%s: %.*s",
                         f->n_refused, f->n_refused == 1 ? "" : "s",
                         f->n_refused > MAX_NAMED ? ", the first" : "", (int)f->refused.n_bytes,
                         (const char *)f->refused.data);
}

/* Compare what ranks ask for with what the view of the checkpoint has. */
static dcpk_status resume_check_fit(const struct dcpk_memory_index *asked,
                                    const struct dcpk_model *model, const char *strictness,
                                    struct dcpk_bytes *notes, struct dcpk_error *err)
{
    struct fitting f = {.notes = notes};
    dcpk_status st = find_strictness(strictness, &f.by, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < asked->n_tensors; i++)
        if (!fit_is_named(&asked->tensors[i], model))
            fit_asked(&f, &asked->tensors[i], model);
    st = fit_held(&f, asked, model, err);
    if (st == DCPK_OK && f.n_refused > 0)
        st = fail_fit(&f, err);
    dcpk_bytes_release(&f.refused);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(notes, err);
    return st;
}

/* Objects that are open while a run resumes. */
struct resuming {
    const struct dcpk_saved_run *run;
    struct dcpk_bytes *notes;
    struct dcpk_arena *arena;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    struct dcpk_shard *list;
    size_t n;
    struct dcpk_memory_index asked; /* by all ranks */
};

static bool resume_has_state(const struct resuming *r)
{
    const struct dcpk_train_files *files = &r->run->state->config->files;

    return !files->no_load_optim && !files->is_finetune;
}

static dcpk_status resume_open(struct resuming *r, struct dcpk_error *err)
{
    const struct dcpk_train_config *config = r->run->state->config;
    const struct dcpk_rule_options rules = {.impl = config->model.impl};
    const unsigned flags = resume_has_state(r) ? 0 : DCPK_MODEL_WEIGHTS_ONLY;
    struct dcpk_env alone = *r->run->env;

    alone.ranks = NULL; /* threads of one process see the same files */
    r->arena = dcpk_arena_new();
    if (dcpk_env_open(&alone, config->files.load, NULL, NULL, &r->ckpt, err) ||
        dcpk_checkpoint_check_cover(r->ckpt, err) ||
        dcpk_model_read(r->ckpt, flags, &r->model, err) ||
        dcpk_model_check_optimizer(r->model, err) || dcpk_model_check_known(r->model, err) ||
        dcpk_rules_apply(r->model, &rules, err))
        return err->status;
    return dcpk_train_list(r->run, resume_has_state(r) ? 0 : DCPK_LIST_NO_STATE, r->arena, &r->list,
                           &r->n, err);
}

/* Rows of padding come and go with tensor parallelism; those of tokens do not. */
static dcpk_status resume_pad_vocab(struct resuming *r, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &r->run->state->config->model;
    const int64_t n_rows = dcpk_rules_vocab_rows(r->model);

    if (n_rows == m->padded_vocab || n_rows < m->vocab_size)
        return DCPK_OK;
    return dcpk_rules_vocab_resize(r->model, m->padded_vocab, m->vocab_size, err);
}

/*
 * Checks properties that no shape shows: layers that a shorter model would leave out, heads of
 * another width. Source: check_checkpoint_args (megatron/training/checkpointing.py @core_v0.19.0),
 * which passes over a fine-tuning run.
 */
static dcpk_status resume_check_args(const struct resuming *r, struct dcpk_error *err)
{
    const struct dcpk_train_config *config = r->run->state->config;
    const struct dcpk_value *attrs = dcpk_value_attrs(r->model->args);
    const struct {
        const char *name;
        int64_t number;
    } asked[] = {{"num_layers", config->model.layers},
                 {"hidden_size", config->model.hidden},
                 {"num_attention_heads", config->model.heads}};
    int64_t saved;

    for (size_t i = 0; i < DCPK_COUNT(asked) && !config->files.is_finetune; i++)
        if (dcpk_value_as_int(dcpk_value_get(attrs, asked[i].name), &saved) &&
            saved != asked[i].number)
            return dcpk_fail_fix(err, DCPK_EMISMATCH, DCPK_FIX_MODEL_FLAGS,
                                 "%s value from checkpoint (%" PRId64
                                 ") is not equal to the input argument value (%" PRId64 ")",
                                 asked[i].name, saved, asked[i].number);
    return DCPK_OK;
}

/*
 * Refuses a run whose args decide that the same weights compute something else, and, where it is
 * fine-tuned, weights of a model with something that this loop lacks (lib/model/arg_table.h).
 */
static dcpk_status resume_check_deciding(const struct resuming *r, struct dcpk_error *err)
{
    const struct dcpk_train_config *config = r->run->state->config;
    const struct dcpk_value *saved = dcpk_value_attrs(r->model->args), *own;
    const struct dcpk_train_progress none = {0};
    const char *name;

    if (saved == NULL)
        return DCPK_OK;
    own = dcpk_value_attrs(dcpk_train_args_make(config, &none, r->arena, err));
    if (err->status != DCPK_OK)
        return err->status;
    for (size_t at = 0; (name = dcpk_args_next_difference(saved, own, &at)) != NULL;) {
        const bool is_lacking = !dcpk_arg_is_given(own, name);

        if (is_lacking || !config->files.is_finetune)
            return dcpk_fail_fix(
                err, DCPK_EMISMATCH, DCPK_FIX_MODEL_FLAGS, "args.%s of the checkpoint %s", name,
                is_lacking ? "is not what this program computes" : "is not equal to this run's");
    }
    return DCPK_OK;
}

/* Checks the boxes that all ranks ask for against the tensors of the view. */
static dcpk_status resume_check_boxes(struct resuming *r, struct dcpk_error *err)
{
    const char *strictness = r->run->state->config->files.strictness;

    if (dcpk_memory_index_gather(r->run->env->ranks, r->list, r->n, r->arena, &r->asked, err))
        return err->status;
    return resume_check_fit(&r->asked, r->model, strictness, r->notes, err);
}

/* Collective inside the work: what was damaged on its way is not trained on. */
static dcpk_status resume_check_items(const struct resuming *r, struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    dcpk_status st;

    if (!r->run->state->config->files.checks_input)
        return DCPK_OK;
    st = dcpk_exec_new(r->ckpt, r->run->env, &exec, err);
    if (st == DCPK_OK)
        st = dcpk_exec_check_items(exec, NULL, err);
    dcpk_exec_free(exec);
    return st;
}

/* Collective inside the work: checksums, masters that were found by inference, then all names and
 * shapes. */
static dcpk_status resume_check(struct resuming *r, struct dcpk_error *err)
{
    /* The model multiplies by norms' weights as they are: those stored less one get it back. */
    if (resume_check_items(r, err) ||
        dcpk_check_masters(r->model, r->run->env, DCPK_MASTERS_SAMPLE, err) ||
        resume_pad_vocab(r, err) || dcpk_norms_center(r->model, false, err) ||
        resume_check_boxes(r, err) || resume_check_args(r, err))
        return err->status;
    return resume_check_deciding(r, err);
}

/* ---- tensors ---- */

/* Makes views of the tensors that any rank asks for and that the checkpoint has. This rank's list
 * keeps the boxes of these. */
static dcpk_status resume_make_views(struct resuming *r, struct dcpk_remap_view **views,
                                     size_t *n_views, struct dcpk_error *err)
{
    const struct dcpk_model_tensor *tensor;
    enum dcpk_role role;
    const char *param;
    size_t n = 0;

    *views = dcpk_arena_array(r->arena, r->asked.n_tensors, sizeof **views, err);
    if (*views == NULL || r->run->state->math->ops->wait(r->run->state->math, err))
        return err->status;
    for (size_t i = 0; i < r->asked.n_tensors; i++) {
        const struct dcpk_memory_tensor *asked = &r->asked.tensors[i];

        tensor = resume_find(r->model, asked->param, asked->role);
        if (tensor == NULL)
            continue;
        (*views)[*n_views] = (struct dcpk_remap_view){asked->shard->name, dcpk_model_view(tensor)};
        (*views)[(*n_views)++].view.dtype = asked->shard->dtype; /* one cast, not two */
    }
    for (size_t i = 0; i < r->n; i++) {
        if (!dcpk_memory_name(r->list[i].name, &role, &param))
            return dcpk_shards_fail(r->list[i].holder, err);
        if (resume_find(r->model, param, role) != NULL)
            r->list[n++] = r->list[i];
    }
    r->n = n;
    return DCPK_OK;
}

/* More does not load faster (tests/bench/README.md). */
#define RING_BYTES      (UINT64_C(128) << 20)
#define HOST_RING_BYTES (UINT64_C(4) << 20)

/*
 * Collective. Each rank reads all that it wants: ranks of FSDP want different bytes, and memory
 * that others map may not be freed while they have it.
 */
static dcpk_status resume_read(struct resuming *r, struct dcpk_error *err)
{
    struct dcpk_remap_files_options options = {.env = r->run->env,
                                               .ckpt = r->ckpt,
                                               .device = r->run->state->math->device,
                                               .path = DCPK_REMAP_STAGED,
                                               .ring_bytes = DCPK_REMAP_MIN_RING_BYTES};
    const uint64_t max_bytes = options.device->ops->is_host ? HOST_RING_BYTES : RING_BYTES;
    struct dcpk_remap_files *files = NULL;
    struct dcpk_remap_view *views = NULL;
    dcpk_status st = resume_make_views(r, &views, &options.n_views, err);

    options.views = views;
    for (size_t i = 0; i < r->asked.n_parts && options.ring_bytes < max_bytes; i++)
        options.ring_bytes += dcpk_shard_bytes(r->asked.parts[i].shard);
    options.ring_bytes = dcpk_min_u64(options.ring_bytes, max_bytes);
    if (dcpk_ranks_agree(r->run->env->ranks, st, err))
        return err->status;
    st = dcpk_remap_files_new(&options, r->list, r->n, &files, err);
    if (st == DCPK_OK)
        st = dcpk_remap_files_run(files, err);
    dcpk_remap_files_free(files);
    return st;
}

/* ---- the rest ---- */

/* `step` of the groups, which all have the same. */
static dcpk_status resume_read_step(const struct resuming *r, int64_t *steps,
                                    struct dcpk_error *err)
{
    double step = -1.0, other;

    (void)dcpk_value_as_float(r->model->common_step, &step);
    for (size_t g = 0; g < r->model->n_groups; g++) {
        if (!dcpk_value_as_float(dcpk_value_get(r->model->groups[g], "step"), &other))
            continue;
        if (step >= 0.0 && other != step)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "parameter groups have made %.17g and %.17g steps: a run has one "
                             "number of them",
                             step, other);
        step = other;
    }
    if (!(step >= 0.0) || step != floor(step) || step > (double)DCPK_MAX_SAMPLES)
        return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_NO_LOAD_OPTIM,
                             "the checkpoint has optimizer state, but no step of its groups");
    *steps = (int64_t)step;
    return DCPK_OK;
}

static dcpk_status resume_read_progress(const struct resuming *r,
                                        struct dcpk_train_progress *progress,
                                        struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(r->model->args);

    if (!dcpk_value_as_int(r->model->iteration, &progress->iteration))
        progress->iteration = r->ckpt->iteration;
    if (progress->iteration < 0)
        return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_FINETUNE,
                             "the checkpoint has no iteration to continue from");
    if (!dcpk_value_as_int(dcpk_value_get(attrs, "consumed_train_samples"),
                           &progress->consumed_samples))
        return dcpk_fail_fix(
            err, DCPK_EFORMAT, DCPK_FIX_FINETUNE,
            "args of the checkpoint have no consumed_train_samples: the next sample is not known");
    if (progress->iteration > DCPK_MAX_SAMPLES || progress->consumed_samples < 0 ||
        progress->consumed_samples > DCPK_MAX_SAMPLES)
        return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_FINETUNE,
                             "the checkpoint has iteration %" PRId64 " after %" PRId64 " samples, "
                             "more than a run can count",
                             progress->iteration, progress->consumed_samples);
    if (!dcpk_value_as_float(r->model->flops, &progress->flops))
        progress->flops = 0; /* as Megatron, which only reports them */
    return DCPK_OK;
}

/* Megatron-FSDP's checkpoints keep none: a run then begins with that of its options, and notes
 * it. */
static dcpk_status resume_read_scale(const struct resuming *r, struct dcpk_loss_scale *scale,
                                     struct dcpk_error *err)
{
    if (r->run->state->config->precision.compute != DCPK_F16)
        return DCPK_OK;
    if (r->model->scaler != NULL)
        return dcpk_train_scaler_read(r->model->scaler, scale, err);
    dcpk_bytes_printf(
        r->notes,
        "the checkpoint has no state of the loss scale: it starts from initial_loss_scale\n");
    return dcpk_bytes_status(r->notes, err);
}

static dcpk_status resume_read_state(const struct resuming *r, struct dcpk_train_progress *progress,
                                     struct dcpk_schedule *schedule, struct dcpk_loss_scale *scale,
                                     struct dcpk_error *err)
{
    if (r->run->state->config->files.is_finetune)
        return DCPK_OK;
    if (resume_read_progress(r, progress, err))
        return err->status;
    if (!resume_has_state(r))
        return DCPK_OK;
    if (r->model->scheduler == NULL)
        return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_NO_LOAD_OPTIM,
                             "the checkpoint has no state of the learning rate's schedule");
    if (resume_read_step(r, &progress->adam_steps, err) || resume_read_scale(r, scale, err) ||
        dcpk_schedule_load(r->model->scheduler, &r->run->state->config->optim, schedule, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_train_resume(const struct dcpk_saved_run *run, struct dcpk_bytes *notes,
                              struct dcpk_error *err)
{
    struct resuming r = {.run = run, .notes = notes};
    struct dcpk_train_progress progress = {0};
    struct dcpk_schedule schedule = *run->schedule;
    struct dcpk_loss_scale scale = *run->loss_scale;
    dcpk_status st = resume_open(&r, err);

    if (st == DCPK_OK)
        st = dcpk_ranks_check_checkpoint(run->env->ranks, r.ckpt, err);
    st = dcpk_ranks_agree(run->env->ranks, st, err);
    if (st == DCPK_OK)
        st = dcpk_ranks_agree(run->env->ranks, resume_check(&r, err), err);
    if (st == DCPK_OK)
        st = resume_read(&r, err);
    if (st == DCPK_OK)
        st = resume_read_state(&r, &progress, &schedule, &scale, err);
    st = dcpk_ranks_agree(run->env->ranks, st, err);
    if (st == DCPK_OK) {
        *run->progress = progress;
        *run->schedule = schedule;
        *run->loss_scale = scale;
    }
    dcpk_memory_index_release(&r.asked);
    dcpk_model_free(r.model);
    dcpk_checkpoint_close(r.ckpt);
    dcpk_arena_free(r.arena);
    if (st != DCPK_OK)
        dcpk_context(err, "resuming from '%s'", run->state->config->files.load);
    return st;
}
