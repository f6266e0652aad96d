/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_check.c - rules in their order, then the config that a run uses. */
/*
 *                   main parameters   main gradients            on their way
 *   Megatron-FSDP   fp32, or compute  megatron_fsdp_main_grads  megatron_fsdp_grad_comm
 *   DDP             fp32              fp32; bf16 with           as they are added up
 *                                     grad_reduce_in_bf16
 *   reduce exact    as above          integers                  integers
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs_priv.h"

#define MAX_EXACT_LSB 62 /* integers have 63 bits */

/* ---- dtypes, as words ---- */

static const char *number_of_model(const struct dcpk_train_knobs *k)
{
    if (k->is_fp16)
        return "fp16";
    if (k->is_bf16)
        return "bf16";
    return "fp32";
}

/* The word, or a different one for "auto". */
static const char *number_or(const char *word, const char *automatic)
{
    return strcmp(word, "auto") == 0 ? automatic : word;
}

static const char *number_of_main_params(const struct dcpk_train_knobs *k)
{
    if (!k->preserves_fp32)
        return number_of_model(k);
    return number_or(k->main_params, number_of_model(k));
}

static const char *number_of_main_grads(const struct dcpk_train_knobs *k)
{
    return number_or(k->main_grads, number_of_model(k));
}

/* ---- conditions ---- */

/* The surroundings that a run is checked in. */
struct scene {
    struct dcpk_train_knobs *knobs;
    const struct dcpk_train_environment *environment;
};

/* False for NULL. */
static bool rule_text_is(const char *text, const char *word, size_t n_bytes)
{
    return text != NULL && strlen(text) == n_bytes && memcmp(text, word, n_bytes) == 0;
}

/* NCCL_ALGO, if a token of it is not a deterministic algorithm. */
static const char *scene_other_nccl(const struct scene *s)
{
    const char *at = s->environment->nccl_algo;

    while (at != NULL) {
        const size_t n = strcspn(at, ",");

        if (!dcpk_option_has_word("Ring CollnetDirect CollnetChain ^NVLS", at, n))
            return s->environment->nccl_algo;
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return NULL;
}

/* The setting that rules refuse, if it is among those from `at` on. at: NULL: there are none. */
static const char *scene_segments(const char *at)
{
    const char *const word = "expandable_segments:True";

    while (at != NULL) {
        const size_t n = strcspn(at, ",");

        if (rule_text_is(word, at, n))
            return word;
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return NULL;
}

/* Names a property of the model that this loop lacks. Args of a checkpoint set it before flags
 * (knobs_take.c). */
static const char *scene_lacking(const struct dcpk_train_knobs *k)
{
    if (strcmp(k->normalization, "RMSNorm") != 0)
        return "LayerNorm is";
    if (strcmp(k->position_embedding, "rope") != 0)
        return "positions other than rotary ones are";
    if (!k->is_swiglu)
        return "an MLP that is not gated is";
    if (k->adds_bias)
        return "biases of linear layers are";
    return NULL;
}

/* A value that a term looks at. */
struct operand {
    bool is_there, is_given, is_text;
    double number; /* of a flag 0 or 1; the largest of several rows */
    const char *text;
};

/* A name in capitals. */
static struct operand scene_read(const struct scene *s, const char *name, size_t n_bytes)
{
    const struct {
        const char *name, *text;
    } all[] = {
        {"CUDA_DEVICE_MAX_CONNECTIONS", s->environment->max_connections},
        {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", s->environment->te_algo},
        {"CUBLAS_WORKSPACE_CONFIG", s->environment->cublas_config},
        {"OTHER_NCCL_ALGO", scene_other_nccl(s)},
        {"CUDA_SEGMENTS", scene_segments(s->environment->alloc_conf)},
        {"ANY_SEGMENTS", scene_segments(s->environment->alloc_any)},
        {"LACKING", scene_lacking(s->knobs)},
        {"UNREAD", s->knobs->unread},
        {"MAIN_PARAMS", number_of_main_params(s->knobs)},
        {"MAIN_GRADS", number_of_main_grads(s->knobs)},
    };

    for (size_t i = 0; i < DCPK_COUNT(all); i++)
        if (rule_text_is(all[i].name, name, n_bytes))
            return (struct operand){.is_there = true, .is_text = true, .text = all[i].text};
    if (rule_text_is("GPU", name, n_bytes))
        return (struct operand){.is_there = true, .number = s->environment->gpu_major};
    return (struct operand){.is_there = false};
}

/* Adds the field of a row. */
static void operand_add(struct operand *r, const struct dcpk_option *row, const void *field)
{
    double number = 0;

    r->is_there = true;
    r->is_text = dcpk_option_is_text(row);
    if (r->is_text)
        r->text = *(const char *const *)field;
    else if (row->kind == DCPK_OPTION_FLAG)
        number = *(const bool *)field;
    else if (row->kind == DCPK_OPTION_NUMBER)
        number = *(const double *)field;
    else
        number = (double)*(const int64_t *)field;
    if (number > r->number)
        r->number = number;
}

bool dcpk_knob_rule_names(const struct dcpk_option *row, const char *name, size_t n_bytes)
{
    const char *dot = memchr(name, '.', n_bytes);
    const size_t n_section = dot == NULL ? 0 : (size_t)(dot - name) + 1;

    if (dot != NULL && !dcpk_option_has_word(row->sections, name, n_section - 1))
        return false;
    return rule_text_is(row->name, name + n_section, n_bytes - n_section);
}

static struct operand operand_read(const struct scene *s, const char *name, size_t n_bytes)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *row;
    struct operand r = {0};

    while ((row = dcpk_knob_next_row(&walk)) != NULL)
        if (dcpk_knob_rule_names(row, name, n_bytes)) {
            operand_add(&r, row, (const char *)s->knobs + row->at_bytes);
            r.is_given |= s->knobs->given[walk.number];
        }
    if (!r.is_there)
        r = scene_read(s, name, n_bytes);
    assert(r.is_there);
    return r;
}

/* A term: !, ?, the name, and what it is compared with. */
static bool term_holds(const struct scene *s, const char *term, size_t n_bytes)
{
    const bool is_negated = *term == '!', asks_given = term[is_negated] == '?';
    const char *name = term + is_negated + asks_given, *value, *end = term + n_bytes;
    const size_t n_name = dcpk_min_size(strcspn(name, "=<>"), (size_t)(end - name));
    const struct operand r = operand_read(s, name, n_name);
    bool holds = r.text != NULL || r.number != 0;

    value = name + n_name + 1;
    if (asks_given)
        holds = r.is_given;
    else if (value < end && r.is_text)
        holds = rule_text_is(r.text, value, (size_t)(end - value));
    else if (value < end && value[-1] == '=')
        holds = r.number == strtod(value, NULL);
    else if (value < end)
        holds = value[-1] == '<' ? r.number < strtod(value, NULL) : r.number > strtod(value, NULL);
    return holds != is_negated;
}

/* True if one of the alternatives holds. All terms are looked at: a wrong name is found at once. */
static bool condition_holds(const struct scene *s, const char *when)
{
    const char *term;
    bool holds = true;
    size_t n;

    while ((term = dcpk_take_word(&when, &n)) != NULL) {
        if (*term != '|')
            holds = term_holds(s, term, n) && holds;
        else if (holds)
            return true;
        else
            holds = true;
    }
    return holds;
}

/* ---- rules ---- */

/* The text with its value instead of "{}". NULL and err: no memory. */
static const char *rule_sentence(const struct dcpk_knob_rule *rule, const struct scene *s,
                                 struct dcpk_error *err)
{
    const char *gap = strstr(rule->text, "{}");

    if (gap == NULL)
        return rule->text;
    return dcpk_arena_printf(s->knobs->arena, err, "%.*s%s%s", (int)(gap - rule->text), rule->text,
                             operand_read(s, rule->value, strlen(rule->value)).text, gap + 2);
}

/* Sets "name=value name=value": every row of each name. */
static dcpk_status rule_set(struct dcpk_train_knobs *knobs, const char *set, struct dcpk_error *err)
{
    const char *name;
    size_t n;

    while ((name = dcpk_take_word(&set, &n)) != NULL) {
        const size_t n_name = strcspn(name, "=");
        const char *value =
            dcpk_arena_strndup(knobs->arena, name + n_name + 1, n - n_name - 1, err);
        struct dcpk_knob_walk walk = {0};
        const struct dcpk_option *row;
        bool is_set = false;

        if (value == NULL)
            return err->status;
        while ((row = dcpk_knob_next_row(&walk)) != NULL)
            if (dcpk_knob_rule_names(row, name, n_name))
                is_set = dcpk_option_read(row, value, knobs);
        assert(is_set);
    }
    return DCPK_OK;
}

dcpk_status dcpk_train_notices_add(struct dcpk_train_notices *notices, const char *text,
                                   struct dcpk_error *err)
{
    if (notices->n == DCPK_MAX_NOTICES)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "more than %d notices: leave out the knobs that have no effect",
                         DCPK_MAX_NOTICES);
    notices->texts[notices->n++] = text;
    return DCPK_OK;
}

bool dcpk_knob_rule_holds(const struct dcpk_knob_rule *rule, struct dcpk_train_knobs *knobs,
                          const struct dcpk_train_environment *environment)
{
    return condition_holds(&(struct scene){knobs, environment}, rule->when);
}

const char *dcpk_knob_rule_sentence(const struct dcpk_knob_rule *rule,
                                    struct dcpk_train_knobs *knobs,
                                    const struct dcpk_train_environment *environment,
                                    struct dcpk_error *err)
{
    return rule_sentence(rule, &(struct scene){knobs, environment}, err);
}

static dcpk_status rules_apply(const struct dcpk_knob_rule *rules, const struct scene *s,
                               struct dcpk_train_notices *notices, struct dcpk_error *err)
{
    for (const struct dcpk_knob_rule *rule = rules; rule->id != NULL; rule++) {
        const char *text;

        if (!condition_holds(s, rule->when))
            continue;
        text = rule_sentence(rule, s, err);
        if (text == NULL)
            return err->status;
        if (rule->remedy != NULL)
            return dcpk_fail(err, DCPK_EUSAGE, "%s; %s", text, rule->remedy);
        if ((rule->set != NULL && rule_set(s->knobs, rule->set, err) != DCPK_OK) ||
            dcpk_train_notices_add(notices, text, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* Every knob that was given and does nothing. */
static dcpk_status notices_of_no_effect(struct dcpk_train_knobs *knobs,
                                        struct dcpk_train_notices *notices, struct dcpk_error *err)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;

    while ((knob = dcpk_knob_next(&walk)) != NULL) {
        const char *text;

        if (!knobs->given[walk.number] || knob->effect != DCPK_KNOB_NO_EFFECT)
            continue;
        text = dcpk_arena_printf(knobs->arena, err, "%s has no effect here: %s", knob->name,
                                 knob->help);
        if (text == NULL || dcpk_train_notices_add(notices, text, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* ---- optimizer and schedule ---- */

static bool course_changes_decay(const struct dcpk_train_knobs *k)
{
    return strcmp(k->config.optim.wd_style, "constant") != 0;
}

/* Source: validate_args (megatron/training/arguments.py), optimizer_param_scheduler.py. */
static const char *course_of_schedule(const struct dcpk_train_knobs *k)
{
    const struct dcpk_train_optim *o = &k->config.optim;
    const bool has_start = dcpk_knobs_was_given(k, "start_weight_decay");
    const bool has_end = dcpk_knobs_was_given(k, "end_weight_decay");

    if (o->min_lr > o->lr)
        return "min_lr is above lr; lower it";
    if (o->warmup_fraction > 0 && o->warmup_iters > 0)
        return "can only specify one of lr-warmup-fraction and lr-warmup-iters; leave one out";
    if (o->warmup_fraction > 1)
        return "lr_warmup_fraction is above 1; it is a share of the decay";
    if (strcmp(o->lr_style, "WSD") == 0 && o->wsd_iters == 0)
        return "lr_decay_style is WSD without lr_wsd_decay_iters; set it";
    if (!course_changes_decay(k) && (has_start || has_end))
        return "start_weight_decay and end_weight_decay are for a weight decay that changes; set "
               "weight_decay, or weight_decay_incr_style";
    if (course_changes_decay(k) && !(has_start && has_end))
        return "weight_decay_incr_style needs start_weight_decay and end_weight_decay; set both";
    if (o->overrides_schedule && o->uses_saved_schedule)
        return "both override and use-checkpoint are set.; leave one of "
               "override_opt_param_scheduler and use_checkpoint_opt_param_scheduler out";
    return NULL;
}

static const char *course_of_numbers(const struct dcpk_train_knobs *k)
{
    const struct dcpk_train_optim *o = &k->config.optim;

    if (o->beta1 >= 1 || o->beta2 >= 1)
        return "adam_beta1 or adam_beta2 is 1 or more; a decay is less";
    if (k->exact_lsb > MAX_EXACT_LSB)
        return "exact_lsb is above 62; the integers have 63 bits";
    if (k->config.data.exit_at > k->config.data.train_iters)
        return "exit_at is above train_iters; lower it";
    if (k->config.precision.min_scale <= 0 ||
        k->config.precision.initial_scale < k->config.precision.min_scale)
        return "initial_loss_scale is below min_loss_scale, or that is 0; raise it";
    return NULL;
}

static dcpk_status course_check(struct dcpk_train_knobs *knobs, struct dcpk_error *err)
{
    const char *fault = course_of_schedule(knobs);
    struct dcpk_train_optim *o = &knobs->config.optim;

    if (fault == NULL)
        fault = course_of_numbers(knobs);
    if (fault != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s", fault);
    if (!course_changes_decay(knobs)) {
        o->start_wd = o->weight_decay;
        o->end_wd = o->weight_decay;
    }
    return DCPK_OK;
}

/* ---- enumerations ---- */

/* The number of `word` among words, of which one is right. */
static int course_number(const char *const *words, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0)
            return (int)i;
    return 0;
}

static void course_resolve_fsdp(struct dcpk_train_knobs *k)
{
    struct dcpk_train_fsdp *f = &k->config.fsdp;

    f->mode = DCPK_MODE_DDP;
    f->asks_overlap = f->overlaps_reduce;
    f->strategy =
        (enum dcpk_strategy)course_number(dcpk_strategy_names, DCPK_N_STRATEGIES, k->strategy);
    f->recomputes = k->recompute != NULL;
    f->is_outer_sharded = strcmp(k->outer_strategy, "optim") == 0;
    if (!dcpk_knobs_was_given(k, "ddp_bucket_size"))
        f->bucket_elems = -1;
    if (k->use_fsdp_in_dist || k->use_fsdp_in_ddp) {
        f->mode = DCPK_MODE_MEGATRON_FSDP;
        f->overlaps_reduce |= f->strategy >= DCPK_OPTIM_GRADS;
        f->overlaps_gather |= f->strategy >= DCPK_OPTIM_GRADS_PARAMS;
        return;
    }
    f->strategy = DCPK_NO_SHARD;
    if (f->has_distributed_optimizer)
        f->strategy = DCPK_OPTIM;
}

/* Only torch_dist has more than one, and only of a distributed optimizer; generation A has its
 * own. */
static void course_resolve_optimizer_layout(struct dcpk_train_knobs *k)
{
    static const char *const layouts[] = {"fully_reshardable", "dp_reshardable", "flattened"};
    struct dcpk_train_files *files = &k->config.files;

    files->optimizer_layout = DCPK_FULLY_RESHARDABLE;
    if (k->optimizer_layout != NULL)
        files->optimizer_layout =
            (enum dcpk_optimizer_layout)course_number(layouts, 3, k->optimizer_layout);
    else if (k->config.fsdp.mode == DCPK_MODE_DDP && k->config.fsdp.has_distributed_optimizer &&
             !k->is_fully_reshardable && strcmp(files->ckpt_format, "torch_dist") == 0)
        files->optimizer_layout = DCPK_DP_RESHARDABLE;
    if (files->optimizer_layout == DCPK_DP_RESHARDABLE && k->optimizer_layout == NULL &&
        strcmp(files->generation, "A") == 0)
        files->optimizer_layout = DCPK_FLATTENED;
}

static enum dcpk_dtype number_dtype(const char *word)
{
    if (strcmp(word, "bf16") == 0)
        return DCPK_BF16;
    if (strcmp(word, "fp16") == 0)
        return DCPK_F16;
    return DCPK_F32;
}

/* dtypes of gradients as knobs have them. */
static void course_number_grads(const struct dcpk_train_knobs *k, enum dcpk_dtype *grads,
                                enum dcpk_dtype *comm)
{
    *grads = number_dtype(number_of_main_grads(k));
    *comm = number_dtype(number_or(k->comm, number_of_main_grads(k)));
    if (k->use_fsdp_in_dist || k->use_fsdp_in_ddp)
        return;
    *grads = k->reduces_in_bf16 ? DCPK_BF16 : DCPK_F32;
    *comm = *grads;
}

/* config.fsdp.mode is set. */
static void course_resolve_numbers(struct dcpk_train_knobs *k)
{
    struct dcpk_train_precision *p = &k->config.precision;

    p->compute = number_dtype(number_of_model(k));
    p->main_params = number_dtype(number_of_main_params(k));
    if (k->config.fsdp.mode == DCPK_MODE_DDP)
        p->main_params = DCPK_F32;
    course_number_grads(k, &p->main_grads, &p->comm);
    p->is_exact = strcmp(k->reduce, "exact") == 0;
    p->exact_lsb = (int)k->exact_lsb;
}

static void course_resolve(struct dcpk_train_knobs *k)
{
    static const char *const optimizers[] = {"adam", "sgd"}, *const forms[] = {"te", "torch"};
    struct dcpk_train_config *c = &k->config;

    course_resolve_fsdp(k);
    course_resolve_numbers(k);
    c->model.is_tied = !k->is_untied;
    c->model.impl = DCPK_IMPL_TE;
    if (strcmp(k->impl, "local") == 0)
        c->model.impl = DCPK_IMPL_LOCAL;
    c->model.has_sigmoid = strcmp(k->score_function, "sigmoid") == 0;
    c->optim.kind = (enum dcpk_train_optimizer)course_number(optimizers, 2, k->optimizer);
    c->optim.form = (enum dcpk_adam_form)course_number(forms, 2, k->adam_form);
    c->data.seed = (uint64_t)k->seed;
    course_resolve_optimizer_layout(k);
    if (!k->is_strict_load)
        c->files.strictness = "ignore_all";
}

dcpk_status dcpk_train_knobs_check(struct dcpk_train_knobs *knobs,
                                   const struct dcpk_train_environment *environment,
                                   struct dcpk_train_notices *notices, struct dcpk_error *err)
{
    const struct scene s = {knobs, environment};
    struct dcpk_train_precision *p = &knobs->config.precision;

    if (rules_apply(dcpk_knob_rules_of_modes, &s, notices, err) ||
        dcpk_knobs_check_sizes(knobs, environment, err))
        return err->status;
    course_number_grads(knobs, &p->asked_grads, &p->asked_comm);
    if (rules_apply(dcpk_knob_rules, &s, notices, err) || course_check(knobs, err) ||
        notices_of_no_effect(knobs, notices, err))
        return err->status;
    course_resolve(knobs);
    return DCPK_OK;
}
