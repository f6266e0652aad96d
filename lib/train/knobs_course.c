/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_course.c - rules of optimizer and schedule, and the enumerations of the config. */
#include <string.h>

#include "lib/base/order.h"
#include "lib/train/knobs_priv.h"

#define MAX_EXACT_LSB 62 /* integers have 63 bits */

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
        return "exit_at lies behind train_iters; choose one that does not";
    if (k->config.precision.min_scale <= 0 ||
        k->config.precision.initial_scale < k->config.precision.min_scale)
        return "initial_loss_scale is below min_loss_scale, or that is 0; raise it";
    return NULL;
}

dcpk_status dcpk_knobs_check_course(struct dcpk_train_knobs *knobs, struct dcpk_error *err)
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

/* Only torch_dist has more than one, and only of a distributed optimizer; generation A has its own.
 */
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

void dcpk_knobs_resolve(struct dcpk_train_knobs *k)
{
    static const char *const optimizers[] = {"adam", "sgd"}, *const forms[] = {"te", "torch"};
    struct dcpk_train_config *c = &k->config;

    course_resolve_fsdp(k);
    dcpk_knobs_resolve_numbers(k);
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
