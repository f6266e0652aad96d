/* SPDX-License-Identifier: Apache-2.0 */
/* hf_choose_map.c - the map by which a model is written, and the parameter of each of its rules. */
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/hf_writing.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_NEAREST 3 /* families that do not fit, named with why */

/* --- which map --- */

/* torchtitan's own export has no copies of the embedding and output layer for MTP layers
 * (StateDictAdapter.to_hf@0.3.0). A merge has no one source. */
static bool is_copy_left(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b)
{
    const struct dcpk_checkpoint *source = e->model->ckpt;

    return b->is_mtp && (b->rule->flags & DCPK_HF_COPY) != 0 && e->scheme == NULL &&
           source != NULL && source->format->is_model && source->format->container != NULL;
}

/* True where names are those of Hugging Face's files or classes, not of a scheme's own. */
static bool has_hf_names(const struct dcpk_hf_writing *e)
{
    return e->scheme == NULL || e->scheme->name == NULL;
}

/* forms: flags of rules that are written, though others that are only read are not. */
static bool is_written(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                       unsigned forms)
{
    return b->applies &&
           ((b->rule->flags & DCPK_HF_READ_ONLY) == 0 || (b->rule->flags & forms) != 0) &&
           !(b->is_mtp && e->out->target.family.without_mtp) && !is_copy_left(e, b);
}

/* Finds the parameter of a binding. In a tied model a copy of the output layer is one of the
 * embedding. */
static bool binding_find_param(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                               uint64_t *param)
{
    const struct dcpk_map *by_name = &e->model->param_by_name;

    if (dcpk_map_get(by_name, b->mg, strlen(b->mg), param))
        return true;
    return (b->rule->flags & DCPK_HF_COPY) != 0 && strcmp(b->mg, DCPK_HF_OUTPUT_LAYER) == 0 &&
           dcpk_map_get(by_name, DCPK_HF_EMBEDDING, strlen(DCPK_HF_EMBEDDING), param);
}

/* The parameters that are written in one of the forms, and by no other rule. */
static void find_formed(const struct dcpk_hf_writing *e, unsigned forms, bool *is_formed)
{
    for (size_t i = 0; i < e->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &e->bindings.list[i];
        uint64_t param;

        if ((b->rule->flags & forms) != 0 && is_written(e, b, forms) &&
            binding_find_param(e, b, &param))
            is_formed[param] = true;
    }
}

static void find_untaken(struct dcpk_hf_writing *e, const bool *is_taken)
{
    for (size_t p = 0; p < e->model->n_params; p++) {
        const char *name = e->model->params[p].name;
        const bool is_other = has_hf_names(e) && dcpk_starts_with(name, DCPK_HF_OTHER);

        if (!is_taken[p] && !is_other &&
            !(e->out->target.family.without_mtp && dcpk_starts_with(name, "mtp.")))
            dcpk_hf_fault(&e->faults, DCPK_EMISMATCH, "no rule takes '%s'", name);
    }
}

/* Every binding has its parameter, and every parameter one binding that is not a copy. */
static dcpk_status match_params(struct dcpk_hf_writing *e, unsigned forms, uint32_t **params,
                                struct dcpk_error *err)
{
    bool *is_taken = dcpk_arena_array(e->out->arena, 2 * e->model->n_params, sizeof *is_taken, err);
    uint32_t *list = dcpk_arena_array(e->out->arena, e->bindings.n, sizeof *list, err);
    bool *is_formed = is_taken + e->model->n_params;

    if (is_taken == NULL || list == NULL)
        return err->status;
    *params = list;
    find_formed(e, forms, is_formed);
    for (size_t i = 0; i < e->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &e->bindings.list[i];
        uint64_t param;

        list[i] = DCPK_NO_PARAM;
        if (!is_written(e, b, forms))
            continue;
        if (!binding_find_param(e, b, &param)) {
            dcpk_hf_fault(&e->faults, DCPK_EMISMATCH, "there is no '%s'", b->mg);
            continue;
        }
        if (is_formed[param] && (b->rule->flags & forms) == 0)
            continue;
        list[i] = (uint32_t)param;
        if ((b->rule->flags & DCPK_HF_COPY) != 0)
            continue;
        if (is_taken[param])
            dcpk_hf_fault(&e->faults, DCPK_EMISMATCH, "two rules take '%s'", b->mg);
        is_taken[param] = true;
    }
    find_untaken(e, is_taken);
    return DCPK_OK;
}

/* Checks that args meet the map, and that every rule has its parameter. */
static dcpk_status match_map(struct dcpk_hf_writing *e, const struct dcpk_hf_map *map,
                             struct dcpk_error *err)
{
    const unsigned forms =
        e->scheme != NULL && e->scheme->name == NULL ? (unsigned)DCPK_HF_IN_MEMORY : 0;
    const unsigned of_state = e->out->target.family.splits_state ? 0 : (unsigned)DCPK_HF_OF_STATE;
    struct dcpk_arena *arena = e->out->arena;

    e->map = map;
    if (!has_hf_names(e) && dcpk_hf_maps_join(&e->maps, e->scheme->name, arena, &e->map, err))
        return err->status;
    if (forms != 0 && dcpk_hf_map_in_memory(arena, &e->map, err))
        return err->status;
    if (((e->model->flags & DCPK_MODEL_OF_FAMILY) == 0 &&
         dcpk_hf_args_hold(map, dcpk_value_attrs(e->model->args), &e->distance, err)) ||
        dcpk_hf_sizes_read(dcpk_value_attrs(e->model->args), arena, &e->sizes, err) ||
        dcpk_hf_bind(e->map, &e->sizes, NULL, arena, &e->bindings, err) ||
        match_params(e, forms, &e->params, err) ||
        (e->faults.n == 0 && match_params(e, forms | of_state, &e->states, err)))
        return err->status;
    e->distance = e->faults.n;
    if (dcpk_hf_faults_end(&e->faults, err))
        dcpk_context(err, "the map of %s does not fit, in %zu places", map->family, e->distance);
    e->faults = (struct dcpk_hf_faults){.n = 0};
    return err->status;
}

/* Why a family does not fit. */
struct misfit {
    const char *family;
    size_t distance;
    struct dcpk_error why;
};

static int compare_misfits(const void *left, const void *right)
{
    const struct misfit *a = left, *b = right;

    if (a->distance != b->distance)
        return DCPK_THREE_WAY(a->distance, b->distance);
    return strcmp(a->family, b->family);
}

/* Reports why the nearest families do not fit, and the names of the others. */
static dcpk_status fail_no_family(struct misfit *misfits, size_t n, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};

    qsort(misfits, n, sizeof *misfits, compare_misfits);
    for (size_t i = 0; i < n && i < MAX_NEAREST; i++)
        dcpk_bytes_printf(&text, "%s%s: %.160s", dcpk_joint(i > 0, "; "), misfits[i].family,
                          misfits[i].why.text);
    for (size_t i = MAX_NEAREST; i < n; i++)
        dcpk_bytes_printf(&text, "%s%s", i == MAX_NEAREST ? "; further away are " : ", ",
                          misfits[i].family);
    if (dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_fail(err, DCPK_EMISMATCH, "no family fits it: %.*s", (int)text.n_bytes,
                        (const char *)text.data);
    dcpk_bytes_release(&text);
    return err->status;
}

/* The first map that fits. */
static dcpk_status find_map(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    struct misfit *misfits = dcpk_arena_array(e->out->arena, e->maps.n, sizeof *misfits, err);

    if (misfits == NULL)
        return err->status;
    for (size_t i = 0; i < e->maps.n; i++) {
        const dcpk_status st = match_map(e, e->maps.list[i], err);

        if (st == DCPK_OK || !dcpk_status_is_content(st))
            return st;
        misfits[i] = (struct misfit){e->maps.list[i]->family, e->distance, *err};
        dcpk_error_clear(err);
    }
    return fail_no_family(misfits, e->maps.n, err);
}

dcpk_status dcpk_hf_choose_map(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    const struct dcpk_family_settings *settings = &e->out->target.family;
    const char *family = dcpk_text_or(settings->family, e->model->family);
    const struct dcpk_hf_map *map;

    if (e->model->args == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_ARGS,
                             "the checkpoint has no args, and config.json is made from them");
    if (dcpk_hf_maps_load(settings->maps, e->out->arena, &e->maps, err) ||
        ((e->model->flags & DCPK_MODEL_KEEPS_OTHER) != 0 && has_hf_names(e) &&
         dcpk_hf_maps_add_any(&e->maps, e->out->arena, err)))
        return err->status;
    if (e->base != NULL) {
        if (dcpk_hf_config_find_map(&e->maps, settings->family, e->base, &map, err))
            return err->status;
        return match_map(e, map, err);
    }
    if (family == NULL)
        return find_map(e, err);
    map = dcpk_hf_maps_find(&e->maps, family); /* of a merge: that of its sources */
    if (map == NULL) {
        dcpk_fail(err, DCPK_EUSAGE, "no family is called '%s':", family);
        for (size_t i = 0; i < e->maps.n; i++)
            dcpk_append(err, " %s", e->maps.list[i]->family);
        return err->status;
    }
    return match_map(e, map, err);
}
