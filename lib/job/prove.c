/* SPDX-License-Identifier: Apache-2.0 */
/* prove.c - a conversion held against its source: tensors bit for bit, training state by value. */
#include "lib/job/prove.h"
#include "lib/model/layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/job/pairing.h"
#include "lib/model/portable.h"
#include "lib/rules/mesh.h"
#include "lib/rules/stages.h"

/* One comparison to be made; left is of the first checkpoint named, right of the second. */
struct pair {
    const char *param;
    enum dcpk_role role;
    uint32_t left, right; /* model tensors */
};

struct pair_list {
    struct pair *list;
    size_t n, capacity;
};

struct proof {
    const struct dcpk_model *ours, *source;
    struct dcpk_prove_report *report;
    unsigned flags;                         /* enum dcpk_model_flags */
    bool has_our_groups, has_source_groups; /* every parameter there has its group */
    struct pair *pairs;                     /* ours against source */
    size_t n_pairs, pairs_capacity;
    /* weight against master of the same checkpoint: of the source's, then of ours */
    struct pair_list masters[2];
};

static void differ(struct dcpk_prove_report *report, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void differ(struct dcpk_prove_report *report, const char *fmt, ...)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_finding *finding;
    char text[1024];
    va_list ap;

    report->equal = false;
    if (report->n_differences++ >= DCPK_MAX_FINDINGS)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    finding = dcpk_arena_alloc(report->arena, sizeof *finding, &err);
    if (finding == NULL || (finding->text = dcpk_arena_strdup(report->arena, text, &err)) == NULL)
        return;
    *report->differences_end = finding;
    report->differences_end = &finding->next;
}

/* Without the optimizer a weight may be all that is left of the source's master: rounded. */
static bool is_rounded(const struct proof *p, const struct dcpk_model_tensor *ours,
                       const struct dcpk_model_tensor *source)
{
    const bool is_alone = (p->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0 || !p->source->has_optimizer;

    return is_alone && ours->role == DCPK_WEIGHT && source->role == DCPK_MASTER &&
           dcpk_dtype_is_float(ours->dtype) && dcpk_dtype_is_float(source->dtype);
}

/* Plan the comparison of one logical tensor of both sides; NO_TENSOR on one side is a difference.
 */
static dcpk_status add_pair(struct proof *p, const char *param, enum dcpk_role role, uint32_t ours,
                            uint32_t source, struct dcpk_error *err)
{
    const struct dcpk_model_tensor *a, *b;
    char x[256], y[256];
    dcpk_status st;

    if (ours == DCPK_NO_TENSOR || source == DCPK_NO_TENSOR) {
        if (ours != source)
            differ(p->report, "'%s': the %s is only in the %s", param, dcpk_role_name(role),
                   ours == DCPK_NO_TENSOR ? "source" : "checkpoint");
        return DCPK_OK;
    }
    a = &p->ours->tensors[ours];
    b = &p->source->tensors[source];
    if (!dcpk_model_same_shape(a, b) || (a->dtype != b->dtype && !is_rounded(p, a, b))) {
        differ(p->report, "'%s': the %s is %s %s, in the source %s %s", param, dcpk_role_name(role),
               dcpk_dtype_name(a->dtype), dcpk_shape_format(a->shape, a->rank, x, sizeof x),
               dcpk_dtype_name(b->dtype), dcpk_shape_format(b->shape, b->rank, y, sizeof y));
        return DCPK_OK;
    }
    st = dcpk_grow(&p->pairs, &p->pairs_capacity, p->n_pairs, sizeof *p->pairs, err);
    if (st == DCPK_OK)
        p->pairs[p->n_pairs++] = (struct pair){param, role, ours, source};
    return st;
}

/* The rounded master must be the weight: that is what training would go on from. */
static dcpk_status add_master(struct pair_list *masters, const struct dcpk_param *param,
                              struct dcpk_error *err)
{
    const uint32_t weight = param->tensor[DCPK_WEIGHT], master = param->tensor[DCPK_MASTER];
    dcpk_status st;

    if (weight == DCPK_NO_TENSOR || master == DCPK_NO_TENSOR)
        return DCPK_OK;
    st = dcpk_grow(&masters->list, &masters->capacity, masters->n, sizeof *masters->list, err);
    if (st == DCPK_OK)
        masters->list[masters->n++] = (struct pair){param->name, DCPK_MASTER, weight, master};
    return st;
}

static bool is_compared(const char *field)
{
    return field != NULL && strcmp(field, "params") != 0 && !dcpk_is_format_field(field);
}

/* The first field of the source's group that ours lacks or has otherwise; NULL: none. */
static const char *find_different_field(const struct dcpk_value *ours,
                                        const struct dcpk_value *source)
{
    for (size_t i = 0; i < source->n; i++) {
        const char *field = dcpk_value_as_str(source->as.pairs[i].key);

        if (is_compared(field) &&
            !dcpk_group_field_equal(dcpk_value_get(ours, field), source->as.pairs[i].value))
            return field;
    }
    return NULL;
}

/* Without a map a side's groups may not be derivable: then any of its groups will do. */
static bool some_group_matches(const struct proof *p, uint32_t ours, uint32_t source)
{
    for (uint32_t o = 0; o < p->ours->n_groups; o++)
        for (uint32_t s = 0; s < p->source->n_groups; s++)
            if ((o == ours || ours == DCPK_NO_GROUP) && (s == source || source == DCPK_NO_GROUP) &&
                find_different_field(p->ours->groups[o], p->source->groups[s]) == NULL)
                return true;
    return false;
}

static void compare_groups(struct proof *p, const char *name, uint32_t ours, uint32_t source)
{
    const char *field;

    p->report->n_values++;
    if ((ours == DCPK_NO_GROUP && !p->has_our_groups) ||
        (source == DCPK_NO_GROUP && !p->has_source_groups)) {
        if (!some_group_matches(p, ours, source))
            differ(p->report, "'%s': its parameter group is none of the %s", name,
                   source == DCPK_NO_GROUP ? "source's" : "checkpoint's");
        return;
    }
    if (ours == DCPK_NO_GROUP || source == DCPK_NO_GROUP) {
        if (ours != source)
            differ(p->report, "'%s': has a parameter group only in the %s", name,
                   ours == DCPK_NO_GROUP ? "source" : "checkpoint");
        return;
    }
    field = find_different_field(p->ours->groups[ours], p->source->groups[source]);
    if (field != NULL)
        differ(p->report, "'%s': '%s' of its parameter group is missing or differs", name, field);
}

static dcpk_status pair_param(struct proof *p, uint32_t s, struct dcpk_error *err)
{
    static const enum dcpk_role moments[] = {DCPK_EXP_AVG, DCPK_EXP_AVG_SQ};
    const struct dcpk_param *source = &p->source->params[s], *ours;
    uint64_t o;
    dcpk_status st;

    p->report->n_params++;
    if (!dcpk_map_get(&p->ours->param_by_name, source->name, strlen(source->name), &o)) {
        differ(p->report, "'%s' is missing", source->name);
        return DCPK_OK;
    }
    ours = &p->ours->params[o];
    st = add_pair(p, source->name, DCPK_WEIGHT, dcpk_model_value_of(p->ours, ours),
                  dcpk_model_value_of(p->source, source), err);
    for (size_t i = 0; i < 2 && st == DCPK_OK; i++)
        st = add_pair(p, source->name, moments[i], ours->tensor[moments[i]],
                      source->tensor[moments[i]], err);
    for (uint32_t t = source->tensor[DCPK_STATE]; t != DCPK_NO_TENSOR && st == DCPK_OK;
         t = p->source->tensors[t].next_state)
        st = add_pair(
            p, source->name, DCPK_STATE,
            dcpk_model_find(p->ours, (uint32_t)o, DCPK_STATE, p->source->tensors[t].state), t, err);
    if (st == DCPK_OK && p->ours->n_groups > 0 && p->source->n_groups > 0)
        compare_groups(p, source->name, ours->group, source->group);
    if (st == DCPK_OK)
        st = add_master(&p->masters[0], source, err);
    return st == DCPK_OK ? add_master(&p->masters[1], ours, err) : st;
}

/* Every stored tensor is one that a rule knows, or was left out on request. */
static void tell_unknown(struct proof *p, const struct dcpk_model *model)
{
    for (size_t i = 0; i < model->n_unknown; i++)
        differ(p->report, "'%s' of the %s is not recognised: no rule says what it is",
               model->ckpt->tensors[model->unknown[i]].key,
               model == p->source ? "source" : "checkpoint");
}

static dcpk_status pair_all(struct proof *p, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (uint32_t i = 0; i < p->source->n_params && st == DCPK_OK; i++)
        st = pair_param(p, i, err);
    for (size_t i = 0; i < p->ours->n_params && st == DCPK_OK; i++) {
        const char *name = p->ours->params[i].name;
        uint64_t s;

        if (!dcpk_map_get(&p->source->param_by_name, name, strlen(name), &s))
            differ(p->report, "'%s' is not in the source", name);
    }
    return st;
}

/* One side of a comparison. */
struct side {
    const struct dcpk_model *model;
    struct dcpk_exec *exec; /* of its checkpoint */
};

/* Compare n pairs and report those that differ. */
static dcpk_status compare_pairs(struct proof *p, const struct side *left, const struct side *right,
                                 const struct pair *pairs, size_t n, struct dcpk_error *err)
{
    struct dcpk_view *views = dcpk_alloc_array(2 * n, sizeof *views, err);
    struct dcpk_compare *results = views == NULL ? NULL : dcpk_alloc_array(n, sizeof *results, err);
    dcpk_status st = results == NULL ? err->status : DCPK_OK;

    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        int64_t n_elems = 0;

        views[i] = dcpk_model_view(&left->model->tensors[pairs[i].left]);
        views[n + i] = dcpk_model_view(&right->model->tensors[pairs[i].right]);
        st = dcpk_shape_count(views[i].shape, views[i].rank, &n_elems, err);
        p->report->tensor_bytes += (uint64_t)n_elems * dcpk_dtype_bytes(views[i].dtype);
    }
    if (st == DCPK_OK)
        st = dcpk_exec_compare(
            &(struct dcpk_view_pairs){left->exec, right->exec, views, views + n, n}, results,
            &p->report->stats, err);
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        if (!results[i].equal)
            differ(p->report,
                   "'%s': %" PRIu64 " elements of the %s differ%s, the first is number %" PRId64,
                   pairs[i].param, results[i].n_different, dcpk_role_name(pairs[i].role),
                   left->model != right->model ? ""
                   : left->model == p->source
                       ? " when rounded from the stored weight (in the source)"
                       : " when rounded from the stored weight (in the checkpoint)",
                   results[i].first_different);
    dcpk_free(views);
    dcpk_free(results);
    return st;
}

static void compare_values(struct proof *p, const char *what, const struct dcpk_value *ours,
                           const struct dcpk_value *source)
{
    if (source == NULL)
        return;
    p->report->n_values++;
    if (ours == NULL || !dcpk_value_equal(ours, source))
        differ(p->report, "%s %s", what, ours == NULL ? "is missing" : "differs");
}

/*
 * Attributes that a conversion sets: the target's mesh and padding, its format, and what says that
 * the folder has no RNG or optimizer state.
 */
static bool is_told(const struct proof *p, const char *name, const struct dcpk_value *ours)
{
    const char *format = dcpk_value_as_str(ours);
    int64_t size;
    bool on = false;

    if (name == NULL)
        return false;
    if (dcpk_is_format_arg(name))
        return dcpk_value_as_bool(ours, &on) ||
               (dcpk_value_as_int(ours, &size) && (size == 1 || size == 2)) || /* a version */
               (format != NULL && strcmp(format, p->ours->ckpt->format->name) == 0);
    if (dcpk_layout_is_arg(name) || strcmp(name, "make_vocab_size_divisible_by") == 0)
        return (dcpk_value_as_int(ours, &size) && size > 0) ||
               (ours != NULL && dcpk_stages_is_arg(name) && ours->kind == DCPK_V_NONE);
    if (dcpk_stages_is_arg(name))
        return ours != NULL &&
               (ours->kind == DCPK_V_NONE || (dcpk_value_as_bool(ours, &on) && !on));
    return dcpk_is_content_arg(name) && dcpk_value_as_bool(ours, &on) && on;
}

/* Every attribute that ours carries must be the source's; which ones were left out the conversion's
 * report says. */
static void compare_args(struct proof *p)
{
    const struct dcpk_value *ours = dcpk_value_attrs(p->ours->args),
                            *source = dcpk_value_attrs(p->source->args);

    if (ours == NULL || source == NULL) {
        if (ours != source)
            differ(p->report, "args are only in the %s", ours == NULL ? "source" : "checkpoint");
        return;
    }
    for (size_t i = 0; i < ours->n; i++) {
        const char *name = dcpk_value_as_str(ours->as.pairs[i].key);
        const struct dcpk_value *theirs = name == NULL ? NULL : dcpk_value_get(source, name);

        p->report->n_values++;
        if (is_told(p, name, ours->as.pairs[i].value))
            continue;
        if (theirs == NULL || !dcpk_value_equal(ours->as.pairs[i].value, theirs))
            differ(p->report, "args.%s %s", name == NULL ? "?" : name,
                   theirs == NULL ? "is not in the source" : "differs");
    }
}

/* Every RNG state must be the one that stands for its rank in the source. */
static void compare_rng(struct proof *p)
{
    for (size_t i = 0; i < p->ours->n_rng; i++) {
        const struct dcpk_rng *a = &p->ours->rng[i], *b = dcpk_model_rng(p->source, a);

        if (b == NULL)
            continue;
        p->report->n_values++;
        if (!dcpk_value_equal(a->states, b->states))
            differ(p->report,
                   "the RNG state of (pp, tp, dp) (%" PRId64 ", %" PRId64 ", %" PRId64 ") differs",
                   a->pp, a->tp, a->dp);
    }
}

static dcpk_status load_extra(const struct dcpk_model *model, const struct dcpk_object *object,
                              struct dcpk_arena *arena, const struct dcpk_value **value,
                              struct dcpk_error *err)
{
    return dcpk_checkpoint_load_object(model->ckpt, object, arena, value, err);
}

/* Compare the extra states of one module. One that cannot be read is dropped by a conversion, which
 * names it. */
static dcpk_status compare_extra(struct proof *p, const struct dcpk_extra *ours,
                                 const struct dcpk_extra *source, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    const struct dcpk_value *a = NULL, *b = NULL;
    dcpk_status st =
        arena == NULL ? err->status : load_extra(p->ours, ours->object, arena, &a, err);

    if (st == DCPK_OK)
        st = load_extra(p->source, source->object, arena, &b, err);
    if (st == DCPK_OK && dcpk_value_at(b, 0) == NULL) /* no list: dropped between formats */
        b = a;
    if (st == DCPK_OK) {
        compare_values(p, source->name, a, b);
    } else if (dcpk_status_is_content(st)) {
        *err = (struct dcpk_error)DCPK_ERROR_INIT;
        st = DCPK_OK;
    }
    dcpk_arena_free(arena);
    return st;
}

/* A module's extra state must be the source's where the format keeps any; fsdp_dtensor does not. */
static dcpk_status compare_extras(struct proof *p, struct dcpk_error *err)
{
    struct dcpk_by_place seen = {.arena = p->report->arena};
    struct dcpk_map by_name = {0};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < p->ours->n_extras && st == DCPK_OK; i++) {
        const char *name = p->ours->extras[i].name;
        uint64_t found;
        bool existed;

        st = dcpk_map_put(&by_name, name, strlen(name), i, &existed, &found, err);
    }
    for (size_t i = 0; i < p->source->n_extras && p->ours->n_extras > 0 && st == DCPK_OK; i++) {
        const struct dcpk_extra *source = &p->source->extras[i], *ours;
        uint64_t found;

        if (!dcpk_map_get(&by_name, source->name, strlen(source->name), &found)) {
            differ(p->report, "'%s' is missing", source->name);
            continue;
        }
        ours = &p->ours->extras[found];
        if (dcpk_by_place_get(&seen, &ours->object->place, &source->object->place, &found))
            continue; /* other names of two items that were compared */
        st = compare_extra(p, ours, source, err);
        if (st == DCPK_OK)
            st = dcpk_by_place_put(&seen, &ours->object->place, &source->object->place, 0, err);
    }
    dcpk_by_place_release(&seen);
    dcpk_map_release(&by_name);
    return st;
}

/* What only a common state has, which content_metadata tells: fsdp_dtensor has none. */
static void compare_common(struct proof *p)
{
    const struct dcpk_value *further = p->source->further;

    if (p->ours->content == NULL)
        return;
    if (p->ours->has_optimizer)
        compare_values(p, "optimizer.grad_scaler", p->ours->scaler, p->source->scaler);
    for (size_t i = 0; further != NULL && i < further->n; i++) {
        const char *name = dcpk_value_as_str(further->as.pairs[i].key);

        if (name != NULL && dcpk_value_is_portable(further->as.pairs[i].value))
            compare_values(p, name, dcpk_value_get(p->ours->further, name),
                           further->as.pairs[i].value);
    }
}

static dcpk_status compare_tensors(struct proof *p, const struct dcpk_prove_options *options,
                                   struct dcpk_error *err)
{
    struct side ours = {p->ours, NULL}, source = {p->source, NULL};
    dcpk_status st = dcpk_exec_new(p->ours->ckpt, &options->env, &ours.exec, err);

    if (st == DCPK_OK)
        st = dcpk_exec_new(p->source->ckpt, &options->env, &source.exec, err);
    if (st == DCPK_OK)
        st = compare_pairs(p, &ours, &source, p->pairs, p->n_pairs, err);
    if (st == DCPK_OK)
        st = compare_pairs(p, &source, &source, p->masters[0].list, p->masters[0].n, err);
    if (st == DCPK_OK)
        st = compare_pairs(p, &ours, &ours, p->masters[1].list, p->masters[1].n, err);
    p->report->n_tensors = p->n_pairs;
    p->report->n_masters = p->masters[0].n + p->masters[1].n;
    dcpk_exec_free(source.exec);
    dcpk_exec_free(ours.exec);
    return st;
}

/*
 * Give the source the rows that ours has, as a conversion would: added ones are zero. Those that
 * ours lacks must not be of tokens; else, and where that is not known, the shapes stay.
 */
static dcpk_status align_vocab(const struct dcpk_model *ours, struct dcpk_model *source,
                               int64_t vocab_size, struct dcpk_prove_report *report,
                               struct dcpk_error *err)
{
    const int64_t rows = dcpk_rules_vocab_rows(ours), old_rows = dcpk_rules_vocab_rows(source);
    int64_t size;
    dcpk_status st = dcpk_rules_vocab_size(source, vocab_size, &size, err);

    if (st != DCPK_OK || rows == old_rows || rows == 0 || old_rows == 0)
        return st;
    if (rows < old_rows && (size == 0 || size > rows)) {
        if (size == 0)
            differ(report,
                   "%" PRId64 " of %" PRId64 " rows of the vocabulary are missing, and neither the "
                   "source nor the caller says how many are of tokens",
                   old_rows - rows, old_rows);
        else
            differ(report, "the vocabulary has %" PRId64 " rows for %" PRId64 " tokens", rows,
                   size);
        return DCPK_OK;
    }
    report->vocab_rows = rows;
    report->source_vocab_rows = old_rows;
    return dcpk_rules_vocab_resize(source, rows, 0, err);
}

dcpk_status dcpk_prove(struct dcpk_checkpoint *ours, struct dcpk_checkpoint *source,
                       const struct dcpk_prove_options *options, struct dcpk_prove_report *report,
                       struct dcpk_error *err)
{
    struct dcpk_model *a = NULL, *b = NULL;
    struct proof p = {.report = report, .flags = options->flags};
    dcpk_status st;

    *report = (struct dcpk_prove_report){.equal = true};
    report->differences_end = &report->differences;
    report->arena = dcpk_arena_new(0, err);
    st = report->arena == NULL ? err->status : dcpk_model_of(ours, options->flags, &a, err);
    if (st == DCPK_OK)
        st = dcpk_model_of(source, options->flags, &b, err);
    if (st == DCPK_OK)
        st = dcpk_model_group(a, &p.has_our_groups, err);
    if (st == DCPK_OK)
        st = dcpk_model_group(b, &p.has_source_groups, err);
    if (st == DCPK_OK)
        st = align_vocab(a, b, options->vocab_size, report, err);
    if (st == DCPK_OK)
        st = dcpk_model_count_left(b, &report->left, err);
    if (st != DCPK_OK)
        goto out;
    p.ours = a;
    p.source = b;
    if (b->n_params == 0)
        differ(report, "the source holds no parameter of a model: there is nothing to compare");
    if (a->n_groups == 0 && b->n_groups > 0)
        differ(report, "parameter groups of the optimizer are only in the source");
    tell_unknown(&p, b);
    tell_unknown(&p, a);
    st = pair_all(&p, err);
    if (st == DCPK_OK)
        st = compare_tensors(&p, options, err);
    if (st != DCPK_OK)
        goto out;
    compare_values(&p, "iteration", a->iteration, b->iteration);
    compare_values(&p, "checkpoint_version", a->version, b->version);
    compare_values(&p, "opt_param_scheduler", a->scheduler, b->scheduler);
    compare_values(&p, "num_floating_point_operations_so_far", a->flops, b->flops);
    compare_common(&p);
    compare_args(&p);
    compare_rng(&p);
    st = compare_extras(&p, err);
out:
    dcpk_free(p.pairs);
    dcpk_free(p.masters[0].list);
    dcpk_free(p.masters[1].list);
    dcpk_model_free(a);
    dcpk_model_free(b);
    if (st != DCPK_OK)
        dcpk_context(err, "comparing '%s' with '%s'", dcpk_store_path(ours->store),
                     dcpk_store_path(source->store));
    return st;
}

void dcpk_prove_release(struct dcpk_prove_report *report)
{
    dcpk_arena_free(report->arena);
    report->arena = NULL;
}
