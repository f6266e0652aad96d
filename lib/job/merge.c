/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - opens the checkpoints of a merge, and pairs their parameters. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/job/compare.h"
#include "lib/job/merge_priv.h"
#include "lib/job/verify.h"
#include "lib/model/account.h"
#include "lib/model/arg_table.h"
#include "lib/model/norms.h"
#include "lib/rules/expect.h"
#include "lib/rules/rules.h"

/* Longest list in a message, which has its cause before it: more would be cut. */
#define MAX_LISTED_BYTES (DCPK_ERROR_BYTES * 3 / 4)

/* ---- opening ---- */

static dcpk_status input_view(const struct dcpk_merge_options *o, struct dcpk_merged *in,
                              struct dcpk_error *err)
{
    const unsigned flags = o->weights_only ? DCPK_MODEL_WEIGHTS_ONLY : 0;

    if (dcpk_checkpoint_give(in->ckpt, &o->given, err) ||
        dcpk_checkpoint_check_cover(in->ckpt, err) ||
        dcpk_model_read(in->ckpt, flags, &in->model, err) ||
        dcpk_model_check_known(in->model, err) || dcpk_rules_check_model_rows(in->model, err) ||
        dcpk_rules_canonical(in->model, err) || dcpk_rules_args_fit(in->model, err))
        dcpk_context(err, "merging '%s'", in->run.folder);
    return err->status;
}

static dcpk_status open_inputs(struct dcpk_merge *m, struct dcpk_error *err)
{
    const struct dcpk_merge_options *o = m->options;

    m->arena = dcpk_arena_new();
    m->inputs = dcpk_alloc_array(o->n_inputs, sizeof *m->inputs, err);
    if (m->inputs == NULL)
        return err->status;
    m->n_inputs = o->n_inputs;
    for (size_t i = 0; i < m->n_inputs; i++) {
        struct dcpk_merged *in = &m->inputs[i];

        if (dcpk_env_open(&o->env, o->inputs[i].path, NULL, &in->run, &in->ckpt, err) ||
            input_view(o, in, err))
            return err->status;
    }
    return DCPK_OK;
}

/* ---- one model ---- */

/* The differences of the inputs from the first, in words, as many as one message holds. */
struct merge_differences {
    uint64_t n, n_listed;         /* parameters, or args */
    const struct dcpk_merged *in; /* of the last one that is listed */
    struct dcpk_bytes text;
};

/* Appends the words of one more difference after its owner; NULL: only counts it. */
static struct dcpk_bytes *differences_next(struct merge_differences *d,
                                           const struct dcpk_merged *in)
{
    d->n++;
    if (d->text.n_bytes > MAX_LISTED_BYTES)
        return NULL;
    dcpk_bytes_text(&d->text, d->n_listed++ == 0 ? ": " : "; ");
    if (d->in != in)
        dcpk_bytes_printf(&d->text, "'%s' ", in->run.folder);
    d->in = in;
    return &d->text;
}

static const struct dcpk_model_tensor *find_value(const struct dcpk_model *model, const char *name)
{
    uint64_t param;

    if (!dcpk_map_get(&model->param_by_name, name, strlen(name), &param))
        return NULL;
    return dcpk_model_value(model, &model->params[param]);
}

static void put_operand(struct dcpk_bytes *text, const struct dcpk_model_tensor *value)
{
    char shape[256];

    dcpk_bytes_printf(text, "%s %s", dcpk_dtype_name(value->dtype),
                      dcpk_shape_format(value->shape, value->rank, shape, sizeof shape));
}

static bool can_sum(const struct dcpk_model_tensor *a, const struct dcpk_model_tensor *b)
{
    return dcpk_model_same_shape(a, b) && (a->dtype == b->dtype || (dcpk_dtype_is_float(a->dtype) &&
                                                                    dcpk_dtype_is_float(b->dtype)));
}

/* Parameters of `of` that `other` lacks; `in` is that of the two which is not the first input. */
static void list_lone(const struct dcpk_merged *of, const struct dcpk_merged *other,
                      const struct dcpk_merged *in, struct merge_differences *d)
{
    for (size_t p = 0; p < of->model->n_params; p++) {
        const char *name = of->model->params[p].name;
        struct dcpk_bytes *text;

        if (find_value(of->model, name) == NULL || find_value(other->model, name) != NULL)
            continue;
        text = differences_next(d, in);
        if (text != NULL)
            dcpk_bytes_printf(text, "%s '%s'", of == in ? "alone has" : "lacks", name);
    }
}

static void list_unlike(const struct dcpk_merged *first, const struct dcpk_merged *in,
                        struct merge_differences *d)
{
    for (size_t p = 0; p < first->model->n_params; p++) {
        const char *name = first->model->params[p].name;
        const struct dcpk_model_tensor *wanted = find_value(first->model, name);
        const struct dcpk_model_tensor *found = find_value(in->model, name);
        struct dcpk_bytes *text;

        if (wanted == NULL || found == NULL || can_sum(wanted, found))
            continue;
        text = differences_next(d, in);
        if (text == NULL)
            continue;
        dcpk_bytes_printf(text, "has '%s' as ", name);
        put_operand(text, found);
        dcpk_bytes_text(text, " and not ");
        put_operand(text, wanted);
    }
}

/* Tokens by the options, else by args; 0: not known. */
static dcpk_status merge_count_tokens(const struct dcpk_merge *m, const struct dcpk_merged *in,
                                      int64_t *n, struct dcpk_error *err)
{
    if (dcpk_rules_vocab_size(in->model, m->options->vocab_size, n, err))
        dcpk_context(err, "'%s'", in->run.folder);
    return err->status;
}

/* Rows of the vocabulary that are of no token are padding: as many as the first input has. */
static dcpk_status align_merged_vocab(const struct dcpk_merge *m, struct dcpk_merged *in,
                                      struct dcpk_error *err)
{
    const struct dcpk_merged *first = &m->inputs[0];
    const int64_t rows = dcpk_rules_vocab_rows(first->model);
    const int64_t least = dcpk_min_i64(rows, dcpk_rules_vocab_rows(in->model));
    int64_t n_tokens, n_others;

    if (merge_count_tokens(m, first, &n_tokens, err) || merge_count_tokens(m, in, &n_others, err))
        return err->status;
    if (n_tokens == 0)
        n_tokens = n_others;
    if (least == 0 || rows == dcpk_rules_vocab_rows(in->model) || n_tokens == 0 ||
        n_tokens > least || n_others > n_tokens)
        return DCPK_OK; /* the same rows, or other shapes, which are listed */
    return dcpk_rules_vocab_resize(in->model, rows, n_tokens, err);
}

/* Args of models of the same shapes, by which they compute something else. */
static dcpk_status list_args(const struct dcpk_merge *m, const struct dcpk_merged *in,
                             struct merge_differences *d, struct dcpk_error *err)
{
    const struct dcpk_value *wanted = dcpk_value_attrs(m->inputs[0].model->args);
    const struct dcpk_value *attrs = dcpk_value_attrs(in->model->args);
    int64_t n_tokens, n_others;
    const char *name;

    if (wanted == NULL || attrs == NULL)
        return DCPK_OK; /* a note has it */
    for (size_t at = 0; (name = dcpk_args_next_difference(wanted, attrs, &at)) != NULL;) {
        struct dcpk_bytes *text = differences_next(d, in);

        if (text != NULL)
            dcpk_bytes_printf(text, "has another args.%s", name);
    }
    if (merge_count_tokens(m, &m->inputs[0], &n_tokens, err) ||
        merge_count_tokens(m, in, &n_others, err))
        return err->status;
    if (n_tokens > 0 && n_others > 0 && n_tokens != n_others) {
        struct dcpk_bytes *text = differences_next(d, in);

        if (text != NULL)
            dcpk_bytes_printf(text, "has %" PRId64 " tokens (args.vocab_size) and not %" PRId64,
                              n_others, n_tokens);
    }
    return DCPK_OK;
}

static dcpk_status check_one_model(const struct dcpk_merge *m, uint64_t *n_different,
                                   struct dcpk_error *err)
{
    struct merge_differences d = {.n = 0};
    const char *what = "parameters";

    for (size_t i = 1; i < m->n_inputs && err->status == DCPK_OK; i++) {
        const struct dcpk_merged *first = &m->inputs[0], *in = &m->inputs[i];

        if (align_merged_vocab(m, &m->inputs[i], err))
            break;
        list_lone(first, in, in, &d);
        list_lone(in, first, in, &d);
        list_unlike(first, in, &d);
    }
    if (d.n == 0)
        what = "args";
    for (size_t i = 1; strcmp(what, "args") == 0 && i < m->n_inputs && err->status == DCPK_OK; i++)
        (void)list_args(m, &m->inputs[i], &d, err);
    *n_different = d.n;
    if (err->status == DCPK_OK && dcpk_bytes_status(&d.text, err) == DCPK_OK && d.n > 0)
        dcpk_fail(err, DCPK_EMISMATCH,
                  "they are not of one model: they differ from '%s' in %" PRIu64 " %s%.*s%s",
                  m->inputs[0].run.folder, d.n, what, (int)d.text.n_bytes,
                  (const char *)d.text.data, d.n > d.n_listed ? "; ..." : "");
    dcpk_bytes_release(&d.text);
    return err->status;
}

/* ---- how inputs store their weights and compute with them, by their args ---- */

static const struct dcpk_value *attrs_of(const struct dcpk_merged *in)
{
    return dcpk_value_attrs(in->model->args);
}

/* See by args how each input stores its weights, and set its norm_addend. Errors: DCPK_EUNSUPPORTED
 * for rows in another order than the first one's. */
static dcpk_status merge_align_args(struct dcpk_merge *merge, struct dcpk_error *err)
{
    const struct dcpk_merged *first = &merge->inputs[0];
    const struct dcpk_value *wanted = attrs_of(first);
    const bool centered = dcpk_norms_are_centered(wanted);

    for (size_t i = 1; i < merge->n_inputs; i++) {
        struct dcpk_merged *in = &merge->inputs[i];
        const struct dcpk_value *attrs = attrs_of(in);
        const char *order;

        if (wanted == NULL || attrs == NULL)
            continue;
        order = dcpk_ordering_arg(wanted, attrs);
        if (order != NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s' and '%s' have their rows in other orders, by args.%s",
                             in->run.folder, first->run.folder, order);
        if (dcpk_norms_are_centered(attrs) != centered)
            in->norm_addend = centered ? -1.0F : 1.0F;
    }
    return DCPK_OK;
}

/* *value: what an input has of a parameter, as the first one stores it; before it has an executor.
 * Errors: those of dcpk_norm_add. */
static dcpk_status merged_value(const struct dcpk_merge *merge, const struct dcpk_merged *in,
                                const struct dcpk_model_tensor *stored, const char *name,
                                struct dcpk_model_tensor *value, struct dcpk_error *err)
{
    *value = *stored;
    if (in->norm_addend == 0 || !dcpk_name_is_norm_weight(name))
        return DCPK_OK;
    if (dcpk_norm_add(in->ckpt, stored, in->norm_addend, merge->arena, value, err) != DCPK_OK)
        dcpk_context(err, "merging '%s'", in->run.folder);
    return err->status;
}

static void note_args(const struct dcpk_merge *m, const struct dcpk_merged *first,
                      const struct dcpk_merged *in)
{
    if (in->norm_addend != 0)
        dcpk_checkpoint_note(m->ckpt,
                             "weights of norms of '%s' are taken %s one, as '%s' stores them "
                             "(args.%s)",
                             in->run.folder, in->norm_addend > 0 ? "plus" : "less",
                             first->run.folder, DCPK_ARG_ZERO_CENTERED);
}

void dcpk_merge_note_args(const struct dcpk_merge *merge)
{
    const struct dcpk_merged *first = &merge->inputs[0];

    for (size_t i = 1; i < merge->n_inputs && attrs_of(first) != NULL; i++) {
        const struct dcpk_merged *in = &merge->inputs[i];

        if (attrs_of(in) == NULL)
            dcpk_checkpoint_note(merge->ckpt,
                                 "'%s' has no args: its weights are taken to be stored, and to "
                                 "compute, as those of '%s'",
                                 in->run.folder, first->run.folder);
        else
            note_args(merge, first, in);
    }
}

/* ---- sums ---- */

/* Sums are in the order of the first input's parameters. */
static dcpk_status list_sums(struct dcpk_merge *m, struct dcpk_error *err)
{
    const struct dcpk_model *first = m->inputs[0].model;

    m->params = dcpk_arena_array(m->arena, first->n_params, sizeof *m->params, err);
    if (m->params == NULL)
        return err->status;
    for (size_t p = 0; p < first->n_params; p++)
        if (dcpk_model_value(first, &first->params[p]) != NULL)
            m->params[m->n_params++] = &first->params[p];
    if (m->n_params == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' holds no weight of a model",
                         m->inputs[0].run.folder);
    return DCPK_OK;
}

/* Lists the parts that each sum takes from one input. */
static dcpk_status input_list_views(const struct dcpk_merge *m, struct dcpk_merged *in,
                                    struct dcpk_error *err)
{
    in->views = dcpk_arena_array(m->arena, m->n_params, sizeof *in->views, err);
    if (in->views == NULL)
        return err->status;
    for (size_t i = 0; i < m->n_params; i++) {
        const char *name = m->params[i]->name;
        struct dcpk_model_tensor value;

        if (merged_value(m, in, find_value(in->model, name), name, &value, err))
            return err->status;
        in->views[i] = dcpk_model_view(&value);
        if (dcpk_dtype_is_float(value.dtype))
            in->views[i].dtype = DCPK_F32;
    }
    return DCPK_OK;
}

/* The other half is the reader's of the sum. */
static uint64_t input_memory_bytes(const struct dcpk_merge *m)
{
    return dcpk_merge_env(m).memory_bytes / m->n_inputs;
}

static dcpk_status make_sum(struct dcpk_merge *m, struct dcpk_error *err)
{
    struct dcpk_sum_term terms[DCPK_MAX_MERGED];
    struct dcpk_env env = m->options->env;

    env.memory_bytes = input_memory_bytes(m);
    for (size_t i = 0; i < m->n_inputs; i++) {
        struct dcpk_merged *in = &m->inputs[i];

        if (input_list_views(m, in, err) || dcpk_exec_new(in->ckpt, &env, &in->exec, err))
            return err->status;
        terms[i] = (struct dcpk_sum_term){
            .exec = in->exec, .weight = (float)m->options->inputs[i].weight, .views = in->views};
    }
    return dcpk_weighted_sum_new(terms, m->n_inputs, m->n_params, &m->sum, err);
}

dcpk_status dcpk_merge_open(const struct dcpk_merge_options *options, struct dcpk_merge **merge,
                            uint64_t *n_different, struct dcpk_error *err)
{
    struct dcpk_merge *m = dcpk_alloc(sizeof *m, err);

    *n_different = 0;
    if (m == NULL)
        return err->status;
    m->options = options;
    if (open_inputs(m, err) || merge_align_args(m, err) || check_one_model(m, n_different, err) ||
        list_sums(m, err) || make_sum(m, err) || dcpk_merge_make(m, err)) {
        dcpk_merge_close(m);
        return err->status;
    }
    *merge = m;
    return DCPK_OK;
}

void dcpk_merge_close(struct dcpk_merge *merge)
{
    if (merge == NULL)
        return;
    dcpk_checkpoint_close(merge->ckpt);
    dcpk_weighted_sum_free(merge->sum);
    for (size_t i = 0; i < merge->n_inputs; i++) {
        dcpk_exec_free(merge->inputs[i].exec);
        dcpk_model_free(merge->inputs[i].model);
        dcpk_checkpoint_close(merge->inputs[i].ckpt);
        dcpk_run_release(&merge->inputs[i].run);
    }
    dcpk_free(merge->inputs);
    dcpk_arena_free(merge->arena);
    dcpk_free(merge);
}

struct dcpk_checkpoint *dcpk_merge_checkpoint(const struct dcpk_merge *merge)
{
    return merge->ckpt;
}

struct dcpk_env dcpk_merge_env(const struct dcpk_merge *merge)
{
    struct dcpk_env env = merge->options->env;

    if (env.memory_bytes == 0)
        env.memory_bytes = DCPK_EXEC_USUAL_MEMORY_BYTES;
    env.memory_bytes /= 2;
    return env;
}

struct dcpk_checkpoint *dcpk_merge_input(const struct dcpk_merge *merge, size_t i)
{
    return merge->inputs[i].ckpt;
}

dcpk_status dcpk_merge_prove(const struct dcpk_merge *merge, struct dcpk_error *err)
{
    for (size_t i = 0; i < merge->n_inputs; i++)
        if (dcpk_check_masters(merge->inputs[i].model, &merge->options->env, DCPK_MASTERS_SAMPLE,
                               err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_merge_check_inputs(const struct dcpk_merge *merge, struct dcpk_error *err)
{
    struct dcpk_input_check check;

    for (size_t i = 0; i < merge->n_inputs; i++)
        if (dcpk_check_input(merge->inputs[i].exec, &check, err))
            return dcpk_context(err, "checking '%s'", merge->inputs[i].run.folder);
    return DCPK_OK;
}
