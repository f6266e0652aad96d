/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - compares two checkpoints step by step, and collects what differs. */
#include "lib/job/compare.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/compare_priv.h"
#include "lib/model/norms.h"
#include "lib/rules/mesh.h"
#include "lib/rules/rules.h"

/* ---- the answer of a comparison in one sentence ---- */

/* Kinds of state that one side may have nothing of. */
static const struct {
    enum dcpk_compare_part part;
    bool of_optimizer; /* not named where moments are lacking too */
    const char *words;
} kinds[] = {
    {DCPK_COMPARED_MOMENTS, false, "no optimizer state"},
    {DCPK_COMPARED_MASTERS, true, "no masters"},
    {DCPK_COMPARED_GROUPS, true, "no parameter groups"},
    {DCPK_COMPARED_ARGS, false, "no args"},
};

/* True if side s has nothing of a part that the other side has. */
static bool lacks_part(const struct dcpk_compare_report *report, int s, enum dcpk_compare_part p)
{
    const struct dcpk_part_result *part = &report->parts[p];

    return part->n_compared == 0 && part->n_only[s] == 0 && part->n_only[!s] > 0;
}

static bool lacks_kind(const struct dcpk_compare_report *report, int s, size_t kind)
{
    return lacks_part(report, s, kinds[kind].part) &&
           !(kinds[kind].of_optimizer && lacks_part(report, s, DCPK_COMPARED_MOMENTS));
}

bool dcpk_compare_lacks(const struct dcpk_compare_report *report)
{
    for (size_t i = 0; i < DCPK_COUNT(kinds); i++)
        if (lacks_kind(report, 0, i) || lacks_kind(report, 1, i))
            return true;
    return false;
}

/* "equal", or what of two that differ in nothing was compared. */
static const char *word_equal(const struct dcpk_compare_report *report)
{
    uint64_t n_compared = 0;

    for (int p = 0; p < DCPK_N_COMPARED; p++)
        n_compared += report->parts[p].n_compared;
    if (n_compared == 0)
        return "nothing to compare";
    if (lacks_part(report, 0, DCPK_COMPARED_MOMENTS) ||
        lacks_part(report, 1, DCPK_COMPARED_MOMENTS))
        return "weights equal";
    return dcpk_compare_lacks(report) ? "tensors equal" : "equal";
}

/* Put the answer in words, once all is compared. */
static dcpk_status comparing_verdict(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_bytes text = {0};

    if (report->equal)
        dcpk_bytes_text(&text, word_equal(report));
    else
        dcpk_bytes_printf(&text, "DIFFERENT (%" PRIu64 ")", report->differences.n);
    for (int s = 0; s < 2; s++) {
        const char *before = s == DCPK_A ? "; A has " : "; B has ";

        for (size_t i = 0; i < DCPK_COUNT(kinds); i++)
            if (lacks_kind(report, s, i)) {
                dcpk_bytes_printf(&text, "%s%s", before, kinds[i].words);
                before = ", ";
            }
    }
    report->verdict = dcpk_bytes_to_arena(&text, report->arena, err);
    return dcpk_made(report->verdict, err);
}

static dcpk_status view_models(struct dcpk_comparing *c, struct dcpk_error *err)
{
    unsigned flags = c->options->weights_only ? DCPK_MODEL_WEIGHTS_ONLY : 0;

    if (dcpk_format_stays_in_family(c->side[DCPK_A].ckpt->format, c->side[DCPK_B].ckpt->format))
        flags |= DCPK_MODEL_OF_FAMILY;
    if (c->side[DCPK_A].ckpt->format->is_model && c->side[DCPK_B].ckpt->format->is_model)
        flags |= DCPK_MODEL_KEEPS_OTHER;
    for (int s = 0; s < 2; s++)
        if (dcpk_model_read(c->side[s].ckpt, flags, &c->side[s].model, err) ||
            dcpk_rules_canonical(c->side[s].model, err))
            return err->status;
    return DCPK_OK;
}

static const char vocab_name[] = "rows of the vocabulary";

/* A lacks rows of the vocabulary that are of tokens, or may be: the shapes stay. */
static dcpk_status refuse_cut(struct dcpk_comparing *c, const int64_t rows[2], int64_t n_tokens,
                              struct dcpk_error *err)
{
    if (n_tokens > 0)
        return dcpk_comparing_refuse(c, vocab_name, err,
                                     "the vocabulary has %" PRId64 " rows for %" PRId64 " tokens",
                                     rows[DCPK_A], n_tokens);
    return dcpk_comparing_refuse(c, vocab_name, err,
                                 "%" PRId64 " of %" PRId64
                                 " rows of the vocabulary are missing, and neither the source nor "
                                 "the caller gives the number of tokens",
                                 rows[DCPK_B] - rows[DCPK_A], rows[DCPK_B]);
}

static dcpk_status add_vocab(struct dcpk_comparing *c, const int64_t rows[2],
                             struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_difference d = {.kind = DCPK_SHAPE_DIFFERS, .name = vocab_name};

    report->vocab_rows[DCPK_A] = rows[DCPK_A];
    report->vocab_rows[DCPK_B] = rows[DCPK_B];
    if (dcpk_comparing_print(c, &d.a, err, "%" PRId64, rows[DCPK_A]) ||
        dcpk_comparing_print(c, &d.b, err, "%" PRId64, rows[DCPK_B]))
        return err->status;
    return dcpk_comparing_add(c, &report->layout, &d, err);
}

/* The rows of both sides; the shorter side, which is not empty. Returns false when there is nothing
 * to even out. */
static bool vocab_differs(const struct dcpk_comparing *c, int64_t rows[2], enum dcpk_side *shorter)
{
    rows[DCPK_A] = dcpk_rules_vocab_rows(c->side[DCPK_A].model);
    rows[DCPK_B] = dcpk_rules_vocab_rows(c->side[DCPK_B].model);
    *shorter = (enum dcpk_side)(rows[DCPK_B] < rows[DCPK_A]);
    return rows[DCPK_A] != rows[DCPK_B] && rows[*shorter] > 0;
}

/* Cuts the padding of either side: the rows are of tokens alone. Where their number is not known
 * the shorter side gets zeros, which the longer one then must have. */
static dcpk_status cut_padding(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;
    int64_t rows[2], n_tokens;
    enum dcpk_side resized;

    if (dcpk_rules_vocab_size(a, c->options->vocab_size, &n_tokens, err) ||
        (n_tokens == 0 && dcpk_rules_vocab_size(b, 0, &n_tokens, err)))
        return err->status;
    if (!vocab_differs(c, rows, &resized))
        return DCPK_OK;
    if (n_tokens > rows[resized])
        n_tokens = 0;
    if (n_tokens > 0)
        resized = dcpk_other_side(resized);
    if (dcpk_rules_vocab_resize(c->side[resized].model, rows[!resized], n_tokens, err))
        return err->status;
    return add_vocab(c, rows, err);
}

/* Gives B as many rows as A; a conversion may have left out rows that are of no token. */
static dcpk_status follow_padding(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_model *b = c->side[DCPK_B].model;
    int64_t rows[2], n_tokens;
    enum dcpk_side shorter;

    if (dcpk_rules_vocab_size(b, c->options->vocab_size, &n_tokens, err))
        return err->status;
    if (!vocab_differs(c, rows, &shorter))
        return DCPK_OK;
    if (shorter == DCPK_A && (n_tokens == 0 || n_tokens > rows[DCPK_A]))
        return refuse_cut(c, rows, n_tokens, err);
    if (dcpk_rules_vocab_resize(b, rows[DCPK_A], 0, err))
        return err->status;
    return add_vocab(c, rows, err);
}

/* A model of a family has norms of one kind, and the run may have the other. */
static bool norms_differ(const struct dcpk_comparing *c, bool *a_is_centered)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;

    *a_is_centered = dcpk_norms_are_centered(dcpk_value_attrs(a->args));
    return c->with_model && a->args != NULL && b->args != NULL &&
           dcpk_norms_are_centered(dcpk_value_attrs(b->args)) != *a_is_centered;
}

/* The zero-centered side is seen with one added. */
static dcpk_status uncenter_norms(struct dcpk_comparing *c, struct dcpk_error *err)
{
    bool a_is_centered;

    if (!norms_differ(c, &a_is_centered))
        return DCPK_OK;
    return dcpk_norms_center(c->side[a_is_centered ? DCPK_A : DCPK_B].model, false, err);
}

/* The source is seen as the conversion is. */
static dcpk_status follow_norms(struct dcpk_comparing *c, struct dcpk_error *err)
{
    bool a_is_centered;

    if (!norms_differ(c, &a_is_centered))
        return DCPK_OK;
    return dcpk_norms_center(c->side[DCPK_B].model, a_is_centered, err);
}

static dcpk_status refuse_unknown(struct dcpk_comparing *c, enum dcpk_side side,
                                  const char *side_name, struct dcpk_error *err)
{
    const struct dcpk_model *model = c->side[side].model;

    for (size_t i = 0; i < model->n_unknown; i++) {
        const char *key = model->ckpt->tensors[model->unknown[i]].key;

        if (dcpk_comparing_refuse(
                c, key, err, "'%s' of the %s is not recognised: no rule covers it", key, side_name))
            return err->status;
    }
    return DCPK_OK;
}

/* Finds the reasons against A being a conversion of B that show before anything is paired. */
static dcpk_status check_models(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;
    static const char empty[] =
        "the source holds no parameter of a model: there is nothing to compare";
    static const char no_groups[] = "parameter groups of the optimizer are only in the source";

    if (dcpk_model_count_left(b, &c->report->left, err))
        return err->status;
    if (b->n_params == 0 && dcpk_comparing_refuse(c, "parameters", err, "%s", empty))
        return err->status;
    if (a->n_groups == 0 && b->n_groups > 0 && !c->with_model &&
        dcpk_comparing_refuse(c, "param_groups", err, "%s", no_groups))
        return err->status;
    if (refuse_unknown(c, DCPK_B, "source", err))
        return err->status;
    return refuse_unknown(c, DCPK_A, "checkpoint", err);
}

static dcpk_status pair_groups(struct dcpk_comparing *c, struct dcpk_error *err)
{
    if (c->with_model)
        return DCPK_OK;
    return dcpk_comparing_find_groups(c, err);
}

/* A step, and the comparisons that it is part of. */
struct step {
    dcpk_status (*run)(struct dcpk_comparing *c, struct dcpk_error *err); /* NULL: the end */
    enum {
        OF_ALL,
        OF_LENIENT, /* not of a strict one */
        OF_STATE,   /* not of one of tensors alone */
        OF_LOADED,  /* the same; not of one that is asked for as stored */
        OF_STRICT,  /* of a strict one that is not of tensors alone */
    } part;
};

static const struct step stored_steps[] = {
    {dcpk_comparing_all_stored, OF_ALL}, {dcpk_comparing_measure, OF_ALL},
    {dcpk_comparing_objects, OF_STATE},  {dcpk_comparing_configs, OF_LOADED},
    {dcpk_comparing_files, OF_STRICT},   {NULL, OF_ALL}};

/* Everything that can be paired is, before elements are read. */
static const struct step same_steps[] = {{cut_padding, OF_LENIENT},
                                         {uncenter_norms, OF_LENIENT},
                                         {dcpk_comparing_params, OF_ALL},
                                         {dcpk_comparing_rest_tensors, OF_ALL},
                                         {dcpk_comparing_measure, OF_ALL},
                                         {dcpk_comparing_state_same, OF_STATE},
                                         {dcpk_comparing_rest, OF_STRICT},
                                         {dcpk_comparing_files, OF_STRICT},
                                         {NULL, OF_ALL}};

static const struct step faithful_steps[] = {{pair_groups, OF_ALL},
                                             {follow_padding, OF_ALL},
                                             {follow_norms, OF_ALL},
                                             {check_models, OF_ALL},
                                             {dcpk_comparing_params, OF_ALL},
                                             {dcpk_comparing_bits, OF_ALL},
                                             {dcpk_comparing_state_faithful, OF_ALL},
                                             {NULL, OF_ALL}};

static bool is_part(const struct dcpk_compare_options *options, const struct step *step)
{
    switch (step->part) {
    case OF_LENIENT:
        return !options->strict;
    case OF_STATE:
        return !options->tensors_only;
    case OF_LOADED:
        return !options->tensors_only && !options->as_stored;
    case OF_STRICT:
        return options->strict && !options->tensors_only;
    case OF_ALL:
        break;
    }
    return true;
}

static dcpk_status comparing_run(struct dcpk_comparing *c, const struct step *step,
                                 struct dcpk_error *err)
{
    for (; step->run != NULL; step++)
        if (is_part(c->options, step) && step->run(c, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

/* True if both sides are views of a model. Two models of one format are compared by their own
 * names, and by their configurations. */
static bool has_views(const struct dcpk_comparing *c)
{
    const struct dcpk_format *a = c->side[DCPK_A].ckpt->format, *b = c->side[DCPK_B].ckpt->format;

    return a->mapping != NULL && b->mapping != NULL && !(a == b && a->is_model);
}

static void begin_report(struct dcpk_comparing *c)
{
    struct dcpk_compare_report *report = c->report;

    *report = (struct dcpk_compare_report){.equal = true};
    report->differences.end = &report->differences.first;
    report->tolerated.end = &report->tolerated.first;
    report->layout.end = &report->layout.first;
    report->is_logical =
        c->options->policy == DCPK_COMPARE_FAITHFUL || (!c->options->as_stored && has_views(c));
    report->arena = c->compared.arena = dcpk_arena_new();
}

static dcpk_status compare_sides(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;

    begin_report(c);
    if (report->is_logical && view_models(c, err) != DCPK_OK)
        return err->status;
    if (c->options->policy == DCPK_COMPARE_FAITHFUL)
        return comparing_run(c, faithful_steps, err);
    if (report->is_logical && c->side[DCPK_A].model->n_params == 0 &&
        c->side[DCPK_B].model->n_params == 0)
        report->is_logical = false; /* no models: nothing to pair */
    return comparing_run(c, report->is_logical ? same_steps : stored_steps, err);
}

dcpk_status dcpk_compare_checkpoints(struct dcpk_checkpoint *a, struct dcpk_checkpoint *b,
                                     const struct dcpk_compare_options *options,
                                     struct dcpk_compare_report *report, struct dcpk_error *err)
{
    struct dcpk_comparing c = {.policy = dcpk_policy_of(options->policy),
                               .options = options,
                               .report = report,
                               .side = {{.ckpt = a}, {.ckpt = b}},
                               .same_format = a->format == b->format,
                               .with_model = a->format->is_model || b->format->is_model};
    dcpk_status st;

    st = compare_sides(&c, err);
    if (st == DCPK_OK)
        st = comparing_verdict(&c, err);
    dcpk_by_place_release(&c.compared);
    dcpk_free(c.pairs.list);
    for (int s = 0; s < 2; s++)
        dcpk_model_free(c.side[s].model);
    if (st != DCPK_OK)
        dcpk_context(err, "comparing '%s' with '%s'", dcpk_store_path(a->store),
                     dcpk_store_path(b->store));
    return st;
}

dcpk_status dcpk_compare_named(const struct dcpk_named_pair *pairs, size_t n,
                               const struct dcpk_compare_options *options,
                               struct dcpk_compare_report *report, struct dcpk_error *err)
{
    const struct dcpk_compare_options own = {.as_stored = true, .strict = options->strict};
    struct dcpk_comparing c = {
        .policy = dcpk_policy_of(DCPK_COMPARE_SAME), .options = &own, .report = report};

    begin_report(&c);
    report->is_named = true;
    for (size_t i = 0; i < n; i++) {
        const enum dcpk_weight weight = pairs[i].is_tolerated ? DCPK_MAY_DIFFER : DCPK_COUNTS;

        if (dcpk_comparing_weighed(&c, weight, &pairs[i], err) != DCPK_OK)
            return err->status;
    }
    return comparing_verdict(&c, err);
}

void dcpk_compare_release(struct dcpk_compare_report *report)
{
    dcpk_arena_free(report->arena);
    report->arena = NULL;
}
