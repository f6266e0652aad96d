/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - what a conversion will be: source, view, rules, target, plan. */
#include "lib/exec/convert.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/exec/convert_check.h"
#include "lib/exec/space.h"
#include "lib/exec/target.h"
#include "lib/rules/inspector.h"

/* What no file of the source says. */
static void tell_source(struct dcpk_conversion *c)
{
    c->ckpt->told_bucket_elems = c->options->bucket_elems;
    c->ckpt->told_args = c->options->args;
}

static dcpk_status open_source(struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    dcpk_status st = dcpk_run_check_apart(c->options->in, c->options->out, err);

    if (st == DCPK_OK)
        st = dcpk_run_open(c->options->in, c->options->open_file, &c->options->exec.progress,
                           &c->source, &store, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_open(store, c->options->formats, c->options->from, &c->ckpt, err);
    if (st == DCPK_OK)
        tell_source(c);
    return st;
}

/* Is there something to do where the format stays the same? */
static bool changes_layout(const struct dcpk_convert_options *options)
{
    return options->target.mesh.tp > 0 || options->target.mesh.dp > 0 ||
           options->target.generation != NULL || options->rules.vocab.divisible_by > 0;
}

/* The canonical view, with the rules applied, as keys and pieces of the target format. */
static dcpk_status map_through_model(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_format *from = c->ckpt->format;
    dcpk_status st;

    if (from->to_model == NULL)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "this is a plain %s folder, no checkpoint of a Megatron model (expected keys such as "
            "'model.module.…' or a metadata.json)",
            from->name);
    if (from == c->options->to && !changes_layout(c->options))
        return dcpk_fail(err, DCPK_EUSAGE, "the checkpoint is %s already; %s write it anew",
                         from->name, from->changed_by);
    st = dcpk_model_new(c->ckpt, &c->model, err);
    if (st != DCPK_OK)
        return st;
    if ((c->options->flags & DCPK_CONVERT_WEIGHTS_ONLY) != 0)
        c->model->flags = DCPK_MODEL_WEIGHTS_ONLY;
    st = from->to_model(c->ckpt, c->model, err);
    if (st == DCPK_OK)
        st = dcpk_rules_apply(c->model, &c->options->rules, err);
    if (st == DCPK_OK)
        st = c->options->to->from_model(c->model, c->out, err);
    return st;
}

/* Keys of the source that the output accounts for. */
struct account {
    const struct dcpk_checkpoint *ckpt;
    bool *tensors; /* by index */
};

static void account_key(struct account *a, const char *key, size_t key_bytes)
{
    uint64_t i;

    if (dcpk_map_get(&a->ckpt->tensor_by_key, key, key_bytes, &i))
        a->tensors[i] = true;
}

static bool account_loss(void *context, const struct dcpk_report_loss *loss)
{
    account_key(context, loss->key, loss->key_bytes);
    return true;
}

/* A view accounts for the stored tensors that it is seen through (tensors inside objects are not
 * listed). */
static void account_source(struct account *a, uint32_t source)
{
    const struct dcpk_tensor *tensor = &a->ckpt->tensors[source];

    if (source < a->ckpt->n_tensors) {
        a->tensors[source] = true;
        return;
    }
    for (size_t i = tensor->first_chunk; i < tensor->first_chunk + tensor->n_chunks; i++) {
        const size_t of = a->ckpt->runs[i - a->ckpt->n_chunks].of;

        if (of < a->ckpt->n_chunks)
            a->tensors[a->ckpt->chunks[of].tensor] = true;
    }
}

static void account_carried(struct account *a, const struct dcpk_model *model)
{
    for (const struct dcpk_note *n = model == NULL ? NULL : model->carried; n != NULL; n = n->next)
        account_key(a, n->text, strlen(n->text));
}

static void account_written(struct account *a, const struct dcpk_output *out)
{
    for (size_t i = 0; i < out->n_tensors; i++)
        for (size_t p = 0; p < out->tensors[i].n_pieces; p++)
            if (out->tensors[i].pieces[p].src != DCPK_PIECE_FILL)
                account_source(a, out->tensors[i].pieces[p].src);
}

/*
 * Nothing is dropped silently: every tensor of the source is in the output or in the report with a
 * reason. (Objects are taken apart by the formats, which report what they leave.)
 */
static dcpk_status check_account(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct account a = {.ckpt = c->ckpt};
    dcpk_status st = DCPK_OK;

    a.tensors = dcpk_alloc(c->ckpt->n_tensors, err);
    if (a.tensors == NULL)
        return err->status;
    account_written(&a, c->out);
    account_carried(&a, c->model);
    dcpk_report_each_loss(c, account_loss, &a);
    for (size_t i = 0; i < c->ckpt->n_tensors && st == DCPK_OK; i++)
        if (!a.tensors[i])
            st = dcpk_fail(
                err, DCPK_EUNSUPPORTED,
                "'%s' would be lost: no rule says what becomes of it (please report this)",
                c->ckpt->tensors[i].key);
    dcpk_free(a.tensors);
    return st;
}

static dcpk_status map_like_inspector(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_inspector_options options = {
        .swiglu = c->options->rules.swiglu == DCPK_SWIGLU_ON,
        .swiglu_modules = c->options->rules.swiglu_modules,
        .n_swiglu_modules = c->options->rules.n_swiglu_modules,
        .model_prefix = c->options->model_prefix,
        .state_prefix = c->options->state_prefix,
        .rename_mtp = (c->options->flags & DCPK_CONVERT_RENAME_MTP) != 0,
        .has_group_map = c->options->rules.group_map != NULL,
    };
    const struct dcpk_value *common = NULL;
    dcpk_status st = DCPK_OK;

    /* It leaves RNG out, and groups that fit no loader (conversion.md section 4, T1). */
    c->out->load_needs = DCPK_LOAD_WITHOUT_OPTIM | DCPK_LOAD_WITHOUT_RNG;
    if (c->ckpt->format->load_common == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "--like-megatron-inspector converts torch_dist only, this is %s",
                         c->ckpt->format->name);
    st = c->ckpt->format->load_common(c->ckpt, c->out->arena, &common, err);
    if (st == DCPK_OK && common == NULL)
        st = dcpk_fail(err, DCPK_EFORMAT, "there is no common state");
    return st == DCPK_OK ? dcpk_inspector_map(c->out, common, &options, err) : st;
}

/* The iteration for the output's name: the folder's or tracker's, else the one in the state. */
static int64_t find_iteration(const struct dcpk_conversion *c)
{
    int64_t iteration = c->source.iteration;

    if (iteration == DCPK_ITERATION_UNKNOWN && c->model != NULL)
        dcpk_value_as_int(c->model->iteration, &iteration);
    return iteration < DCPK_ITERATION_UNKNOWN ? DCPK_ITERATION_UNKNOWN : iteration;
}

/* Formats do not know the rules' enum. */
static const char *impl_name(enum dcpk_impl impl)
{
    return impl == DCPK_IMPL_TE ? "te" : impl == DCPK_IMPL_LOCAL ? "local" : NULL;
}

dcpk_status dcpk_conversion_plan(struct dcpk_conversion *c,
                                 const struct dcpk_convert_options *options, struct dcpk_error *err)
{
    const bool like_inspector = (options->flags & DCPK_CONVERT_LIKE_INSPECTOR) != 0;
    dcpk_status st;

    c->options = options;
    if (options->to->from_model == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "the format %s is read only in this version",
                         options->to->name);
    st = open_source(c, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_check_cover(c->ckpt, err);
    if (st == DCPK_OK)
        st = dcpk_output_new(c->ckpt, options->to, &c->out, err);
    if (st != DCPK_OK)
        return st;
    c->out->model_prefix = options->model_prefix;
    c->out->state_prefix = options->state_prefix;
    c->out->target = options->target;
    c->out->target.impl = impl_name(options->rules.impl);
    st = like_inspector ? map_like_inspector(c, err) : map_through_model(c, err);
    if (st != DCPK_OK) {
        dcpk_context(err, "converting '%s'", c->source.folder);
        return st;
    }
    st = dcpk_target_find(
        options->out, find_iteration(c), options->tracker,
        ((options->flags & DCPK_CONVERT_FORCE) != 0 ? DCPK_FOLDER_REPLACE : 0u) |
            ((options->flags & DCPK_CONVERT_RESUME) != 0 ? DCPK_FOLDER_RESUME : 0u),
        &c->target, err);
    if (st == DCPK_OK)
        st = dcpk_target_check_apart(&c->target, options->in, &c->source, err);
    if (st == DCPK_OK && c->target.is_archive && dcpk_ranks_count(options->exec.ranks) > 1)
        st = dcpk_fail(err, DCPK_EUSAGE,
                       "an archive is written by one process: start one, or write a folder");
    if (st == DCPK_OK)
        st = check_account(c, err);
    c->out->identity = dcpk_output_identity(c->out);
    if (st == DCPK_OK)
        st = dcpk_plan_build(c->out, err);
    if (st == DCPK_OK)
        st = dcpk_conversion_can_check(c, err);
    if (st != DCPK_OK)
        return st;
    dcpk_plan_totals(c->out, &c->totals);
    return dcpk_check_space(&c->target, c->totals.file_bytes, err);
}

void dcpk_conversion_free(struct dcpk_conversion *c)
{
    dcpk_prove_release(&c->proof);
    dcpk_bytes_release(&c->hashes);
    dcpk_output_free(c->out);
    dcpk_model_free(c->model);
    dcpk_checkpoint_close(c->ckpt);
    dcpk_run_release(&c->target);
    dcpk_run_release(&c->source);
}
