/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - what a conversion will be: source, view, rules, target, plan. */
#include "lib/job/convert.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/target.h"
#include "lib/model/account.h"

/* The caller's checkpoint is a source without a path. */
static dcpk_status take_opened(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const char *name = dcpk_store_path(c->options->opened->store);
    const size_t n = strlen(name) + 1;

    c->source.folder = dcpk_alloc(n, err);
    if (c->source.folder == NULL)
        return err->status;
    memcpy(c->source.folder, name, n);
    c->ckpt = c->options->opened;
    c->source.iteration = c->ckpt->iteration;
    return DCPK_OK;
}

/* A folder of PEFT's, or the checkpoint of a run with an adapter alone; all of it is read, for it
 * is small, and its checksums are compared. */
static dcpk_status open_adapter(struct dcpk_conversion *c, const char *path, struct dcpk_error *err)
{
    struct dcpk_env env = c->options->env;
    struct dcpk_checkpoint *adapter;
    struct dcpk_exec *exec = NULL;

    if ((c->options->out != NULL && dcpk_run_check_apart(path, c->options->out, err)) ||
        dcpk_env_open(&env, path, NULL, NULL, &c->ckpt->adapter, err))
        return err->status;
    adapter = c->ckpt->adapter;
    env.ranks = NULL;
    if ((adapter->format->check_whole == NULL || adapter->format->check_whole(adapter, err) == 0) &&
        dcpk_checkpoint_check_cover(adapter, err) == DCPK_OK &&
        dcpk_exec_new(adapter, &env, &exec, err) == DCPK_OK)
        (void)dcpk_exec_check_items(exec, NULL, err);
    dcpk_exec_free(exec);
    return err->status;
}

static dcpk_status convert_open_source(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_convert_options *o = c->options;
    struct dcpk_open_options given = o->given;

    if (o->opened != NULL)
        return take_opened(c, err);
    if ((o->out != NULL && dcpk_run_check_apart(o->in, o->out, err)) ||
        dcpk_env_open(&o->env, o->in, o->from, &c->source, &c->ckpt, err))
        return err->status;
    if (o->given.lora.merges && !c->ckpt->format->is_model)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' has the format %s, but adapters merge only into models with Hugging "
                         "Face's names",
                         o->in, c->ckpt->format->name);
    if (o->given.lora.adapter != NULL && open_adapter(c, o->given.lora.adapter, err))
        return dcpk_context(err, "the adapter '%s'", o->given.lora.adapter);
    if (o->given.family.config != NULL && !dcpk_format_has_config(c->ckpt->format) &&
        !o->to->is_model)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "a config.json is given, and neither %s nor %s is a format of models",
                         c->ckpt->format->name, o->to->name);
    given.lora.goes_along = o->to->mapping->writes_adapter && !given.lora.merges;
    return dcpk_checkpoint_give(c->ckpt, &given, err);
}

/* True if the options change something although the format stays the same. */
static bool changes_something(const struct dcpk_convert_options *options)
{
    return options->target.mesh.tp > 0 || options->target.mesh.dp > 0 ||
           options->target.generation != NULL || options->target.optimizer_layout != NULL ||
           options->rules.vocab.divisible_by > 0 || options->model_prefix != NULL ||
           options->state_prefix != NULL || options->given.n_drops > 0 ||
           ((options->flags & DCPK_CONVERT_WEIGHTS_ONLY) != 0 && !options->to->is_model) ||
           options->to->container != NULL || options->given.lora.merges ||
           (options->given.decisions & ~(unsigned)DCPK_ACCEPT_GTP) != 0 ||
           options->target.family.dtype != DCPK_DTYPE_NONE ||
           options->target.family.fp8.variant != DCPK_FP8_NONE ||
           options->target.family.config != NULL || options->target.family.assets != NULL ||
           options->target.family.max_file_bytes > 0;
}

/* A checkpoint that keeps nothing of a run (Megatron-FSDP v2's own save_checkpoint) has the
 * iteration of its folder's name. */
static dcpk_status name_iteration(struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct dcpk_model *model = c->model;

    if (model->iteration != NULL || model->version != NULL || model->scheduler != NULL ||
        c->source.iteration < 0)
        return DCPK_OK;
    model->iteration = dcpk_value_int(model->arena, c->source.iteration, err);
    if (model->iteration == NULL)
        return err->status;
    dcpk_output_event(c->out, DCPK_EVENT_NOTE, "iteration",
                      "the input stores no iteration: it is the folder's, %" PRId64,
                      c->source.iteration);
    return DCPK_OK;
}

/* A model's optimizer is left out, and with it masters, unless they are asked for. */
static unsigned view_flags(const struct dcpk_convert_options *o, const struct dcpk_format *from)
{
    const bool needs_masters = o->target.family.dtype == DCPK_F32;
    unsigned flags = 0;

    if ((o->flags & DCPK_CONVERT_WEIGHTS_ONLY) != 0 ||
        (o->to->is_model && o->to->container == NULL && !needs_masters))
        flags |= DCPK_MODEL_WEIGHTS_ONLY;
    if ((o->flags & DCPK_CONVERT_KEEP_OTHER) != 0)
        flags |= DCPK_MODEL_KEEPS_OTHER;
    if ((dcpk_format_stays_in_family(from, o->to) ||
         (o->given.lora.merges && from->is_model && o->to->is_model) ||
         (from == o->to && from->is_model && o->target.family.family == NULL)) &&
        !o->target.family.without_mtp)
        flags |= DCPK_MODEL_OF_FAMILY;
    return flags;
}

/*
 * A model has a row for each token, which its format cuts; a run pads them: to Megatron's usual
 * multiple where none is given.
 */
static struct dcpk_rule_options fit_rules(const struct dcpk_convert_options *o,
                                          const struct dcpk_format *from)
{
    struct dcpk_rule_options rules = o->rules;

    if (from->is_model && rules.vocab.divisible_by == 0)
        rules.vocab.divisible_by = DCPK_USUAL_DIVISIBLE_BY;
    if (o->to->is_model)
        rules.vocab = (struct dcpk_vocab){0};
    return rules;
}

/* Args that a checkpoint does not have are next to those that it has. */
static dcpk_status put_command_line(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const char *text = c->model->command_line;

    if (text == NULL || c->options->to->is_model)
        return DCPK_OK;
    if (text[0] != '\n')
        dcpk_output_event(c->out, DCPK_EVENT_NOTE, "command line",
                          "in addition to the checkpoint's args Megatron needs: %.*s",
                          (int)strcspn(text, "\n"), text);
    return dcpk_output_put_small_file(c->out, DCPK_COMMAND_LINE_NAME, text, strlen(text), err);
}

/* The canonical view, with the rules applied, as keys and pieces of the target format. */
static dcpk_status map_through_model(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_convert_options *o = c->options;
    const struct dcpk_format *from = c->ckpt->format;
    const struct dcpk_rule_options rules = fit_rules(o, from);

    if ((o->flags & DCPK_CONVERT_KEEP_OTHER) != 0 && !(from->is_model && o->to->is_model))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "only formats with Hugging Face's names keep tensors that no map knows, "
                         "and %s is not one",
                         from->is_model ? o->to->name : from->name);
    if (dcpk_model_read(c->ckpt, view_flags(o, from), &c->model, err))
        return err->status;
    if (c->model->foreign != NULL && !o->to->is_model)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "Megatron core has no model of family %s: %s",
                         c->model->family, c->model->foreign);
    if ((!o->to->is_model && dcpk_model_check_optimizer(c->model, err)) ||
        dcpk_model_check_known(c->model, err))
        return err->status;
    if (from == o->to && !c->model->needs_rewrite && !changes_something(o))
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REWRITE, "the checkpoint is %s already",
                             from->name);
    if (dcpk_rules_apply(c->model, &rules, err) || name_iteration(c, err) ||
        o->to->mapping->from_model(c->model, c->out, err) || put_command_line(c, err))
        return err->status;
    return DCPK_OK;
}

static bool account_loss(void *context, const struct dcpk_report_loss *loss)
{
    dcpk_account_key(context, loss->key, loss->key_bytes);
    return true;
}

/*
 * Nothing is dropped silently: every tensor of the source is in the output or in the report with a
 * reason. (Objects are taken apart by the formats, which report what they leave.)
 */
static dcpk_status check_account(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct dcpk_account account = {0};
    dcpk_status st = dcpk_account_init(&account, c->ckpt, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < c->out->n_tensors; i++)
        dcpk_account_pieces(&account, c->out->tensors[i].pieces, c->out->tensors[i].n_pieces);
    if (c->model != NULL)
        dcpk_account_left(&account, c->model);
    dcpk_report_each_loss(c, account_loss, &account);
    for (size_t i = 0; i < c->ckpt->n_tensors && st == DCPK_OK; i++)
        if (!account.tensors[i])
            st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                           "'%s' would be lost: no rule covers it (please report this)",
                           c->ckpt->tensors[i].key);
    dcpk_account_release(&account);
    return st;
}

/* An output without a tensor of the source is not a checkpoint: there is nothing to load. */
static dcpk_status check_not_empty(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    for (size_t i = 0; i < c->out->n_tensors; i++)
        if (c->out->tensors[i].n_pieces > 0)
            return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "the output would hold no tensor of the input's %zu",
                     c->ckpt->n_tensors);
}

/* The iteration for the output's name: the folder's or tracker's, else the one in the state. */
static int64_t conversion_iteration(const struct dcpk_conversion *c)
{
    int64_t iteration = c->source.iteration;

    if (c->ckpt->format->is_model && (c->model == NULL || !c->model->has_optimizer))
        return DCPK_ITERATION_RELEASE;
    if (iteration == DCPK_ITERATION_UNKNOWN && c->model != NULL)
        dcpk_value_as_int(c->model->iteration, &iteration);
    return dcpk_max_i64(iteration, DCPK_ITERATION_UNKNOWN);
}

/* Formats do not know the rules' enum. */
static const char *impl_name(enum dcpk_impl impl)
{
    if (impl == DCPK_IMPL_TE)
        return "te";
    return impl == DCPK_IMPL_LOCAL ? "local" : NULL;
}

/* Judges whether the output will load, on the given mesh, or on that of the output's args. */
static dcpk_status judge_output(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_check_options options = {
        .impl = c->out->target.impl, .is_planned = true, .mesh = c->out->target.mesh};
    struct dcpk_holding holding = {.format = c->out->format};
    dcpk_status st = DCPK_OK;

    if (dcpk_format_has_loaders(c->out->format))
        st = dcpk_holding_of_output(&holding, c->out, err);
    if (st == DCPK_OK)
        st = dcpk_verdict_of_plan(&holding, &options, &c->verdict, err);
    dcpk_holding_release(&holding);
    return st;
}

/*
 * A model's configuration became args, and its tensors parameters: those that Megatron makes of
 * these args, of their shapes, or its files contradict each other. A model that args do not
 * describe wholly is held to what they do.
 */
static dcpk_status check_made_args(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_verdict *v = &c->verdict;
    const char *before = ": ";

    if (!c->ckpt->format->is_model || v->arena == NULL || v->n_lacking[DCPK_FOR_WEIGHTS] == 0)
        return DCPK_OK;
    dcpk_fail(err, DCPK_EMISMATCH,
              "the tensors are not what the configuration asks for, in %" PRIu64 " places",
              v->n_lacking[DCPK_FOR_WEIGHTS]);
    for (const struct dcpk_check_finding *f = v->findings; f != NULL; f = f->next)
        if (f->purpose == DCPK_FOR_WEIGHTS && (f->loaders & v->loader) != 0) {
            dcpk_append(err, "%s'%s' %s", before, f->key, f->text);
            before = "; ";
        }
    return err->status;
}

static dcpk_status convert_find_target(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_convert_options *o = c->options;
    const struct dcpk_target_options where = {.in = o->in,
                                              .source = &c->source,
                                              .out = o->out,
                                              .is_model = c->out->format->is_model,
                                              .iteration = conversion_iteration(c),
                                              .policy = o->tracker,
                                              .flags = o->folder_flags,
                                              .formats = o->env.formats};

    if (o->out == NULL)
        return DCPK_OK;
    if (dcpk_target_find(&where, &c->target, err) != DCPK_OK)
        return err->status;
    if (c->target.is_archive && dcpk_ranks_count(o->env.ranks) > 1)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "an archive is written by one process: start one, or write a folder");
    return DCPK_OK;
}

/* The output, empty, for a target as the options have it. */
static dcpk_status new_output(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_convert_options *o = c->options;

    if (dcpk_output_new(c->ckpt, o->to, &c->out, err) != DCPK_OK)
        return err->status;
    c->out->model_prefix = o->model_prefix;
    c->out->state_prefix = o->state_prefix;
    c->out->target = o->target;
    c->out->target.impl = impl_name(o->rules.impl);
    return DCPK_OK;
}

static dcpk_status map_keys(struct dcpk_conversion *c, struct dcpk_error *err)
{
    const struct dcpk_convert_options *o = c->options;
    dcpk_status st;

    if (o->mapping != NULL)
        st = o->mapping->from_keys(c->out, o->mapping_options, err);
    else if (o->to->mapping->from_keys != NULL)
        st = o->to->mapping->from_keys(c->out, NULL, err);
    else
        st = map_through_model(c, err);
    if (st != DCPK_OK)
        dcpk_context(err, "converting '%s'", c->source.folder);
    return st;
}

dcpk_status dcpk_conversion_plan(struct dcpk_conversion *c,
                                 const struct dcpk_convert_options *options, struct dcpk_error *err)
{
    c->options = options;
    if (!dcpk_format_is_target(options->to))
        return dcpk_fail(err, DCPK_EUSAGE, "%s is read, not written", options->to->name);
    if (convert_open_source(c, err) || dcpk_checkpoint_check_cover(c->ckpt, err) ||
        new_output(c, err) || map_keys(c, err) || convert_find_target(c, err) ||
        check_account(c, err) || check_not_empty(c, err))
        return err->status;
    c->out->identity = dcpk_output_identity(c->out);
    if (dcpk_plan_build(c->out, err) || dcpk_conversion_can_check(c, err) || judge_output(c, err) ||
        check_made_args(c, err))
        return err->status;
    dcpk_plan_totals(c->out, &c->totals);
    return DCPK_OK;
}

dcpk_status dcpk_conversion_check_space(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    return dcpk_check_space(&c->target, c->totals.file_bytes, err);
}

void dcpk_conversion_free(struct dcpk_conversion *c)
{
    dcpk_compare_release(&c->proof);
    dcpk_bytes_release(&c->hashes);
    dcpk_verdict_release(&c->verdict);
    dcpk_output_free(c->out);
    dcpk_model_free(c->model);
    if (c->options != NULL && c->options->opened == NULL)
        dcpk_checkpoint_close(c->ckpt);
    dcpk_run_release(&c->target);
    dcpk_run_release(&c->source);
}

/* ---- an entry for every key ---- */

const struct dcpk_tensor *dcpk_report_source(const struct dcpk_conversion *c,
                                             const struct dcpk_out_tensor *t)
{
    if (t->n_pieces == 0 || t->pieces[0].src == DCPK_PIECE_FILL)
        return NULL;
    return &c->ckpt->tensors[t->pieces[0].src];
}

/* Names beyond the first of each object payload. */
static uint64_t count_object_aliases(const struct dcpk_output *out)
{
    return out->n_objects > out->n_payloads ? out->n_objects - out->n_payloads : 0;
}

static bool count_one(void *context, const struct dcpk_report_loss *loss)
{
    uint64_t *n = context;

    (void)loss;
    ++*n;
    return true;
}

void dcpk_report_count(const struct dcpk_conversion *c, struct dcpk_report_counts *counts)
{
    *counts = (struct dcpk_report_counts){.aliased = count_object_aliases(c->out)};
    for (size_t i = 0; i < c->out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &c->out->tensors[i];
        const struct dcpk_tensor *source = dcpk_report_source(c, t);

        counts->aliased += t->n_keys - 1;
        if (source == NULL) {
            counts->made++;
            continue;
        }
        counts->cast += source->dtype != t->dtype;
        if (strcmp(source->key, t->keys[0]) == 0)
            counts->kept++;
        else
            counts->renamed++;
    }
    for (size_t i = 0; i < c->out->n_payloads; i++)
        counts->made += c->out->payloads[i].source == NULL;
    dcpk_report_each_loss(c, count_one, &counts->dropped);
}

/*
 * The losses of a model's list, which are all harmless or all not. Returns false when `each` does.
 */
static bool each_note(const struct dcpk_note *notes, bool is_harmless, dcpk_report_take *take,
                      void *context)
{
    for (const struct dcpk_note *note = notes; note != NULL; note = note->next) {
        struct dcpk_report_loss loss = {.key = note->text, .is_harmless = is_harmless};

        loss.reason = dcpk_model_drop_reason(note, &loss.key_bytes);
        if (!take(context, &loss))
            return false;
    }
    return true;
}

bool dcpk_report_each_loss(const struct dcpk_conversion *c, dcpk_report_take *take, void *context)
{
    if (c->model != NULL && !(each_note(c->model->omitted, true, take, context) &&
                              each_note(c->model->dropped, false, take, context)))
        return false;
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next) {
        const struct dcpk_report_loss loss = {event->key, strlen(event->key), event->text,
                                              event->kind == DCPK_EVENT_OMITTED};

        if (event->kind != DCPK_EVENT_NOTE && !take(context, &loss))
            return false;
    }
    return true;
}
