/* SPDX-License-Identifier: Apache-2.0 */
/* feed_views.c - stored tensors as they are, or through the canonical view as a format has them. */
#include "lib/base/alloc.h"
#include "lib/job/feed_views_priv.h"
#include "lib/model/account.h"
#include "lib/rules/rules.h"

dcpk_status dcpk_feed_views_begin(struct dcpk_feed_views **views, struct dcpk_error *err)
{
    struct dcpk_feed_views *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->arena = dcpk_arena_new();
    *views = made;
    return DCPK_OK;
}

dcpk_status dcpk_feed_views_add(struct dcpk_feed_views *views, const struct dcpk_remap_view *view,
                                struct dcpk_error *err)
{
    if (dcpk_grow(&views->views, &views->capacity, views->n, sizeof *view, err) == DCPK_OK)
        views->views[views->n++] = *view;
    return err->status;
}

static dcpk_status see_stored(struct dcpk_feed_views *made, const struct dcpk_checkpoint *ckpt,
                              struct dcpk_error *err)
{
    for (uint32_t i = 0; i < ckpt->n_tensors; i++) {
        struct dcpk_remap_view view = {.name = ckpt->tensors[i].key};

        if (dcpk_checkpoint_tensor_left_out(ckpt, i) != NULL)
            continue;
        if (dcpk_view_stored(ckpt, i, made->arena, &view.view, err) ||
            dcpk_feed_views_add(made, &view, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Every name of every tensor of the output. */
static dcpk_status take_output(struct dcpk_feed_views *made, struct dcpk_error *err)
{
    const struct dcpk_output *output = made->output;
    size_t n = 0;

    for (size_t i = 0; i < output->n_tensors; i++)
        n += output->tensors[i].n_keys;
    made->of = dcpk_arena_array(made->arena, n, sizeof *made->of, err);
    if (made->of == NULL)
        return err->status;
    for (size_t i = 0; i < output->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &output->tensors[i];
        struct dcpk_remap_view view = {.view = {.dtype = t->dtype,
                                                .rank = t->rank,
                                                .shape = t->shape,
                                                .pieces = t->pieces,
                                                .n_pieces = t->n_pieces,
                                                .literal = t->literal}};

        for (size_t k = 0; k < t->n_keys; k++) {
            view.name = t->keys[k];
            made->of[made->n] = t;
            if (dcpk_feed_views_add(made, &view, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

void dcpk_feed_drop_masters(struct dcpk_model *model)
{
    for (size_t i = 0; i < model->n_params; i++)
        if (model->params[i].tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR)
            model->params[i].tensor[DCPK_MASTER] = DCPK_NO_TENSOR;
}

static dcpk_status see_as(struct dcpk_feed_views *made, struct dcpk_checkpoint *ckpt,
                          const struct dcpk_format *as, const char *family, unsigned flags,
                          struct dcpk_error *err)
{
    const bool only_weights = (flags & DCPK_FEED_WEIGHTS) != 0;
    static const struct dcpk_rule_options rules;

    if (!dcpk_format_is_target(as) || as->mapping->from_model == NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "%s is read, not written", as->name);
    if (dcpk_model_read(ckpt, only_weights ? DCPK_MODEL_WEIGHTS_ONLY : 0, &made->model, err) ||
        (!as->is_model && dcpk_model_check_optimizer(made->model, err)) ||
        dcpk_model_check_known(made->model, err) || dcpk_rules_apply(made->model, &rules, err) ||
        dcpk_output_new(ckpt, as, &made->output, err))
        return dcpk_context(err, "reading '%s' as %s", dcpk_store_path(ckpt->store), as->name);
    if (family != NULL) {
        made->output->target.family.family = dcpk_arena_strdup(made->arena, family, err);
        if (made->output->target.family.family == NULL)
            return err->status;
    }
    if (only_weights)
        dcpk_feed_drop_masters(made->model);
    if (as->mapping->from_model(made->model, made->output, err))
        return dcpk_context(err, "reading '%s' as %s", dcpk_store_path(ckpt->store), as->name);
    return take_output(made, err);
}

dcpk_status dcpk_feed_views_new(struct dcpk_checkpoint *ckpt, const struct dcpk_format *as,
                                const char *family, unsigned flags, struct dcpk_feed_views **views,
                                struct dcpk_error *err)
{
    struct dcpk_feed_views *made;
    dcpk_status st;

    if (dcpk_feed_views_begin(&made, err))
        return err->status;
    st = dcpk_checkpoint_check_cover(ckpt, err);
    if (st == DCPK_OK && as == NULL)
        st = see_stored(made, ckpt, err);
    else if (st == DCPK_OK)
        st = see_as(made, ckpt, as, family, flags, err);
    if (st == DCPK_OK)
        *views = made;
    else
        dcpk_feed_views_free(made);
    return st;
}

void dcpk_feed_views_free(struct dcpk_feed_views *views)
{
    if (views == NULL)
        return;
    dcpk_feed_views_free(views->inner);
    dcpk_output_free(views->output);
    dcpk_model_free(views->model);
    dcpk_arena_free(views->arena);
    dcpk_free(views->views);
    dcpk_free(views);
}

const struct dcpk_remap_view *dcpk_feed_views(const struct dcpk_feed_views *views, size_t *n)
{
    *n = views->n;
    return views->views;
}

bool dcpk_feed_views_are_local(const struct dcpk_feed_views *views)
{
    if (views->is_of_rank)
        return true;
    for (size_t i = 0; views->of != NULL && i < views->n; i++)
        if (views->of[i]->written_shape != NULL)
            return true;
    return false;
}
