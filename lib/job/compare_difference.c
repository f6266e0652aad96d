/* SPDX-License-Identifier: Apache-2.0 */
/* compare_difference.c - collects what differs: parts of the answer, lists, words. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/job/compare_priv.h"
#include "lib/model/model.h"

const char *dcpk_compare_part_name(enum dcpk_compare_part part)
{
    static const char *const names[DCPK_N_COMPARED] = {
        [DCPK_COMPARED_WEIGHTS] = "weights", [DCPK_COMPARED_MASTERS] = "masters",
        [DCPK_COMPARED_MOMENTS] = "moments", [DCPK_COMPARED_TENSORS] = "tensors",
        [DCPK_COMPARED_GROUPS] = "groups",   [DCPK_COMPARED_ARGS] = "args",
        [DCPK_COMPARED_STATE] = "state",
    };

    return names[part];
}

enum dcpk_compare_part dcpk_comparing_part(const char *name, const char *part, bool is_tensor)
{
    if (part != NULL && strcmp(part, dcpk_role_name(DCPK_WEIGHT)) == 0)
        return DCPK_COMPARED_WEIGHTS;
    if (part != NULL && strcmp(part, dcpk_role_name(DCPK_MASTER)) == 0)
        return DCPK_COMPARED_MASTERS;
    if (part != NULL && strcmp(part, "parameter group") == 0)
        return DCPK_COMPARED_GROUPS;
    if (part != NULL)
        return DCPK_COMPARED_MOMENTS;
    if (is_tensor)
        return DCPK_COMPARED_TENSORS;
    if (strcmp(name, "args") == 0 || dcpk_starts_with(name, "args."))
        return DCPK_COMPARED_ARGS;
    return dcpk_starts_with(name, "param_groups") ? DCPK_COMPARED_GROUPS : DCPK_COMPARED_STATE;
}

enum dcpk_compare_part dcpk_difference_part(const struct dcpk_difference *d)
{
    const bool is_tensor = d->kind != DCPK_VALUE_DIFFERS && !d->is_value;

    return dcpk_comparing_part(d->name, d->part, is_tensor);
}

struct dcpk_differences *dcpk_comparing_list(struct dcpk_comparing *c, enum dcpk_weight weight,
                                             bool is_lacking)
{
    struct dcpk_compare_report *report = c->report;

    if (c->options->strict || weight == DCPK_COUNTS || (weight == DCPK_MAY_LACK && !is_lacking))
        return &report->differences;
    if (!c->policy->keeps_tolerated)
        return NULL;
    return weight == DCPK_IS_LAYOUT ? &report->layout : &report->tolerated;
}

dcpk_status dcpk_comparing_add(struct dcpk_comparing *c, struct dcpk_differences *list,
                               const struct dcpk_difference *d, struct dcpk_error *err)
{
    struct dcpk_arena *arena = c->report->arena;
    struct dcpk_part_result *part = &c->report->parts[dcpk_difference_part(d)];
    struct dcpk_difference *copy;

    if (list == &c->report->differences) {
        part->differs = true;
        c->report->equal = false;
    }
    if (d->kind == DCPK_ONLY_IN_A)
        part->n_only[DCPK_A]++;
    else if (d->kind == DCPK_ONLY_IN_B)
        part->n_only[DCPK_B]++;
    else if (list == &c->report->differences)
        part->n_different++;
    if (list->n++ >= c->policy->max_kept)
        return DCPK_OK;
    copy = dcpk_arena_alloc(arena, sizeof *copy, err);
    if (copy == NULL)
        return err->status;
    *copy = *d;
    copy->next = NULL;
    copy->name = dcpk_arena_strdup(arena, d->name, err);
    if (copy->name == NULL)
        return err->status;
    if (d->part != NULL && (copy->part = dcpk_arena_strdup(arena, d->part, err)) == NULL)
        return err->status;
    if (c->policy->word != NULL && d->sentence == NULL &&
        (copy->sentence = c->policy->word(arena, copy, err)) == NULL)
        return err->status;
    *list->end = copy;
    list->end = &copy->next;
    return DCPK_OK;
}

dcpk_status dcpk_comparing_print(struct dcpk_comparing *c, const char **text,
                                 struct dcpk_error *err, const char *fmt, ...)
{
    char buffer[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buffer, sizeof buffer, fmt, ap);
    va_end(ap);
    *text = dcpk_arena_strdup(c->report->arena, buffer, err);
    if (*text == NULL)
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_comparing_refuse(struct dcpk_comparing *c, const char *name,
                                  struct dcpk_error *err, const char *fmt, ...)
{
    struct dcpk_difference d = {.kind = DCPK_NOT_FAITHFUL, .name = name};
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    d.sentence = dcpk_arena_strdup(c->report->arena, text, err);
    if (d.sentence == NULL)
        return err->status;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* Shape and dtype, as the answer has them; NULL for no view. */
static dcpk_status put_view_text(struct dcpk_comparing *c, const struct dcpk_view *view,
                                 const char **text, struct dcpk_error *err)
{
    char shape[256];

    if (view == NULL)
        return DCPK_OK;
    return dcpk_comparing_print(c, text, err, "%s %s", dcpk_dtype_name(view->dtype),
                                dcpk_shape_format(view->shape, view->rank, shape, sizeof shape));
}

dcpk_status dcpk_comparing_add_tensor(struct dcpk_comparing *c, struct dcpk_differences *list,
                                      const struct dcpk_difference *d,
                                      const struct dcpk_view *const view[2], struct dcpk_error *err)
{
    struct dcpk_difference copy = *d;

    if (put_view_text(c, view[DCPK_A], &copy.a, err) ||
        put_view_text(c, view[DCPK_B], &copy.b, err))
        return err->status;
    return dcpk_comparing_add(c, list, &copy, err);
}
