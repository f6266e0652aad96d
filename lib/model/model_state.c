/* SPDX-License-Identifier: Apache-2.0 */
/* model_state.c - training state of the canonical view: objects that may be unreadable, RNG states
 * by rank. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/model/model.h"

dcpk_status dcpk_model_load(struct dcpk_model *model, const struct dcpk_object *object,
                            const struct dcpk_value **value, struct dcpk_error *err)
{
    dcpk_status st = dcpk_by_place_load(&model->loaded, model->ckpt, object, value, err);

    if (!dcpk_status_is_content(st))
        return st;
    dcpk_model_drop(model, object->key, err->text);
    *err = (struct dcpk_error)DCPK_ERROR_INIT;
    *value = NULL;
    return DCPK_OK;
}

dcpk_status dcpk_model_need(struct dcpk_model *model, const struct dcpk_object *object,
                            const struct dcpk_value **value, struct dcpk_error *err)
{
    if (dcpk_by_place_load(&model->loaded, model->ckpt, object, value, err) != DCPK_OK)
        dcpk_context(err, "object '%s'", object->key);
    return err->status;
}

/* --- RNG states --- */

#define RANK_BYTES 96

/* The name of a rank in rng_by_rank; n_dp 0: of all of its (pp, tp). */
static size_t rank_name(const struct dcpk_rng *rng, char name[RANK_BYTES])
{
    return (size_t)snprintf(name, RANK_BYTES, "%" PRId64 ".%" PRId64 ".%" PRId64 ".%" PRId64,
                            rng->pp, rng->tp, rng->n_dp == 0 ? 0 : rng->dp, rng->n_dp);
}

/* The name of the first data-parallel rank, of however many. */
static size_t first_name(const struct dcpk_rng *rng, char name[RANK_BYTES])
{
    return (size_t)snprintf(name, RANK_BYTES, "%" PRId64 ".%" PRId64, rng->pp, rng->tp);
}

static dcpk_status put_rank(struct dcpk_model *model, const char *name, size_t n, bool *existed,
                            struct dcpk_error *err)
{
    const char *copy = dcpk_arena_strndup(model->arena, name, n, err);
    uint64_t found;

    if (copy == NULL)
        return err->status;
    return dcpk_map_put(&model->rng_by_rank, copy, n, model->n_rng, existed, &found, err);
}

dcpk_status dcpk_model_add_rng(struct dcpk_model *model, const struct dcpk_rng *rng, bool *existed,
                               struct dcpk_error *err)
{
    char name[RANK_BYTES];
    bool has_first;

    if (dcpk_grow(&model->rng, &model->rng_capacity, model->n_rng, sizeof *model->rng, err) ||
        put_rank(model, name, rank_name(rng, name), existed, err))
        return err->status;
    if (*existed)
        return DCPK_OK;
    if (rng->n_dp > 0 && rng->dp == 0 &&
        put_rank(model, name, first_name(rng, name), &has_first, err) != DCPK_OK)
        return err->status;
    model->rng[model->n_rng++] = *rng;
    return DCPK_OK;
}

const struct dcpk_rng *dcpk_model_rng(const struct dcpk_model *model, const struct dcpk_rng *rank)
{
    const struct dcpk_rng of_all = {.pp = rank->pp, .tp = rank->tp};
    char name[RANK_BYTES];
    uint64_t i;

    if (dcpk_map_get(&model->rng_by_rank, name, rank_name(rank, name), &i) ||
        dcpk_map_get(&model->rng_by_rank, name, rank_name(&of_all, name), &i) ||
        dcpk_map_get(&model->rng_by_rank, name, first_name(rank, name), &i))
        return &model->rng[i];
    return NULL;
}

void dcpk_model_clear_rng(struct dcpk_model *model)
{
    dcpk_map_release(&model->rng_by_rank);
    model->n_rng = 0;
}
