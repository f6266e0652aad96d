/* SPDX-License-Identifier: Apache-2.0 */
/* drop_unknown.c - what Python would import or call, or no format has a form for, kept out of what
 * is written. */
#include "lib/model/drop_unknown.h"

#include <string.h>

#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/unknown.h"

#define SCHEDULER "opt_param_scheduler"

/* Drop `path` when the value is, or holds, what the format does not know. */
static dcpk_status judge_value(struct dcpk_model *model, const char *path,
                               const struct dcpk_value *v, bool *is_strange, struct dcpk_error *err)
{
    const char *module, *name, *reason;
    dcpk_status st =
        dcpk_value_find_unknown(v, model->ckpt->format->is_known, is_strange, &module, &name, err);

    if (st != DCPK_OK || !*is_strange)
        return st;
    reason = dcpk_arena_printf(model->arena, err,
                               "holds '%s.%s', which Python would import or call on loading",
                               module, name);
    if (reason == NULL)
        return err->status;
    dcpk_model_drop(model, path, reason);
    return DCPK_OK;
}

static dcpk_status clean_value(struct dcpk_model *model, const char *path,
                               const struct dcpk_value **v, struct dcpk_error *err)
{
    bool is_strange = false;

    if (*v == NULL)
        return DCPK_OK;
    if (judge_value(model, path, *v, &is_strange, err) != DCPK_OK)
        return err->status;
    if (is_strange)
        *v = NULL;
    return DCPK_OK;
}

/* Entries of a dict are judged one by one; anything else as a whole. */
static dcpk_status clean_dict(struct dcpk_model *model, const char *path,
                              const struct dcpk_value **v, struct dcpk_error *err)
{
    const struct dcpk_value *dict = *v;
    struct dcpk_value_pair *kept;
    size_t n = 0;

    if (dict == NULL || dict->kind != DCPK_V_DICT)
        return clean_value(model, path, v, err);
    kept = dcpk_arena_array(model->arena, dict->n, sizeof *kept, err);
    if (kept == NULL)
        return err->status;
    for (size_t i = 0; i < dict->n; i++) {
        const struct dcpk_value_pair *pair = &dict->as.pairs[i];
        const char *name = dcpk_value_as_str(pair->key);
        const struct dcpk_value *both[] = {pair->key, pair->value};
        const struct dcpk_value whole = {.kind = DCPK_V_TUPLE, .n = 2, .as.items = both};
        const char *entry =
            dcpk_arena_printf(model->arena, err, "%s.%s", path, dcpk_text_or(name, "?"));
        bool is_strange;

        if (entry == NULL || judge_value(model, entry, &whole, &is_strange, err) != DCPK_OK)
            return err->status;
        if (!is_strange)
            kept[n++] = *pair;
    }
    if (n < dict->n)
        *v = dcpk_value_dict(model->arena, kept, n, err);
    if (*v == NULL)
        return err->status;
    return DCPK_OK;
}

/* A run cannot resume from the states of only some ranks. */
static dcpk_status clean_rng(struct dcpk_model *model, struct dcpk_error *err)
{
    bool is_strange = false;

    for (size_t i = 0; i < model->n_rng && !is_strange; i++)
        if (judge_value(model, "rng_state", model->rng[i].states, &is_strange, err) != DCPK_OK)
            return err->status;
    if (is_strange)
        dcpk_model_clear_rng(model);
    return DCPK_OK;
}

/* True if every format would keep the pair under its name alone. Formats that flatten take dicts,
 * lists of values that nest and names with dots apart, and find no tensor again. */
static bool is_setting(const struct dcpk_value_pair *pair)
{
    const char *name = dcpk_value_as_str(pair->key);
    const struct dcpk_value *v = pair->value;

    if (name == NULL || *name == '\0' || strchr(name, '.') != NULL || v->kind == DCPK_V_DICT ||
        v->kind == DCPK_V_TENSOR)
        return false;
    for (size_t i = 0; v->kind == DCPK_V_LIST && i < v->n; i++) {
        const enum dcpk_value_kind item = v->as.items[i]->kind;

        if (item == DCPK_V_DICT || item == DCPK_V_LIST || item == DCPK_V_TENSOR)
            return false;
    }
    return true;
}

/* The scheduler is a dict of settings, and nothing else. */
static dcpk_status keep_settings(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_value *dict = model->scheduler;
    struct dcpk_value_pair *kept;
    size_t n = 0;

    if (dict == NULL)
        return DCPK_OK;
    model->scheduler = NULL;
    if (dict->kind != DCPK_V_DICT || dict->n == 0) {
        dcpk_model_drop(model, SCHEDULER, "is not a dict of settings by their names");
        return DCPK_OK;
    }
    kept = dcpk_arena_array(model->arena, dict->n, sizeof *kept, err);
    if (kept == NULL)
        return err->status;
    for (size_t i = 0; i < dict->n; i++) {
        const char *name = dcpk_value_as_str(dict->as.pairs[i].key), *entry;

        if (is_setting(&dict->as.pairs[i])) {
            kept[n++] = dict->as.pairs[i];
            continue;
        }
        entry = dcpk_arena_printf(model->arena, err, SCHEDULER ".%s", dcpk_text_or(name, "?"));
        if (entry == NULL)
            return err->status;
        dcpk_model_drop(model, entry, "is not a single value with a plain name");
    }
    if (n > 0)
        model->scheduler = dcpk_value_dict(model->arena, kept, n, err);
    return err->status;
}

dcpk_status dcpk_model_drop_unknown(struct dcpk_model *model, struct dcpk_error *err)
{
    int64_t iteration;

    if (clean_value(model, "iteration", &model->iteration, err) ||
        clean_value(model, "checkpoint_version", &model->version, err) ||
        clean_value(model, "num_floating_point_operations_so_far", &model->flops, err) ||
        clean_dict(model, SCHEDULER, &model->scheduler, err) || keep_settings(model, err) ||
        clean_dict(model, "optimizer.grad_scaler", &model->scaler, err) ||
        clean_value(model, "optimizer.common_step", &model->common_step, err) ||
        clean_dict(model, "common state", &model->further, err) || clean_rng(model, err))
        return err->status;
    for (size_t i = 0; i < model->n_groups; i++)
        if (clean_dict(model, "optimizer.param_groups", &model->groups[i], err) != DCPK_OK)
            return err->status;
    if (model->iteration != NULL && !dcpk_value_as_int(model->iteration, &iteration)) {
        dcpk_model_drop(model, "iteration", "is not an integer");
        model->iteration = NULL;
    }
    return DCPK_OK;
}
