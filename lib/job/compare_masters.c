/* SPDX-License-Identifier: Apache-2.0 */
/* compare_masters.c - compares a model's weights with their rounded masters. */
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"

/*
 * At each end of a tensor, or at one of a small one: a vector is compared whole, a matrix where two
 * small reads reach. A master at a wrong place differs in nearly every element.
 */
#define SAMPLE_BYTES 1024

/* Masters that do not fit their weights. */
struct misfits {
    size_t n_compared, n_different; /* parameters */
    struct dcpk_tensor_pair first;  /* the first that differs */
    struct dcpk_compare how;
};

static dcpk_status compare_master_pairs(const struct dcpk_tensor_pairs *pairs,
                                        struct dcpk_exec *exec, enum dcpk_masters_extent extent,
                                        struct misfits *found, struct dcpk_error *err)
{
    static const struct dcpk_tolerance by_value = {0, 0};
    const struct dcpk_pairs_options how = {.left = exec,
                                           .right = exec,
                                           .is_measured = true,
                                           .tolerance = &by_value,
                                           .sample_bytes =
                                               extent == DCPK_MASTERS_ALL ? 0 : SAMPLE_BYTES};
    struct dcpk_compare *results = dcpk_alloc_array(pairs->n, sizeof *results, err);
    dcpk_status st;

    if (results == NULL)
        return err->status;
    st = dcpk_pairs_compare(pairs, &how, results, NULL, err);
    found->n_compared = pairs->n;
    for (size_t i = 0; i < pairs->n && st == DCPK_OK; i++)
        if (!results[i].equal && found->n_different++ == 0) {
            found->first = pairs->list[i];
            found->how = results[i];
        }
    dcpk_free(results);
    return st;
}

static dcpk_status find_misfits(const struct dcpk_model *model, struct dcpk_exec *exec,
                                enum dcpk_masters_extent extent, struct misfits *found,
                                struct dcpk_error *err)
{
    struct dcpk_tensor_pairs pairs = {0};
    dcpk_status st = dcpk_pairs_add_masters(&pairs, model, NULL, err);

    *found = (struct misfits){0};
    if (st == DCPK_OK && pairs.n > 0)
        st = compare_master_pairs(&pairs, exec, extent, found, err);
    dcpk_free(pairs.list);
    return st;
}

/* "'x.weight'[3, 5] is 0.5, its master 0.25 (2 of 9 parameters differ)". */
static dcpk_status describe(const struct misfits *found, struct dcpk_exec *exec,
                            struct dcpk_error *err)
{
    char place[DCPK_PLACE_BYTES], values[2][DCPK_VALUE_BYTES];

    if (dcpk_pair_place(&found->first, exec, found->how.first_different, place, values, err))
        return err->status;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "a weight is not its rounded master: '%s'%s is %s, its master %s; %zu of %zu "
                     "parameters differ",
                     found->first.name, place, values[0], values[1], found->n_different,
                     found->n_compared);
}

/* True if the masters fit in a view of the same checkpoint with other decisions. *other: that view,
 * of the weights and masters alone; dcpk_model_free. */
static bool fits_with(const struct dcpk_model *model, const struct dcpk_env *env,
                      unsigned decisions, struct dcpk_model **other, struct dcpk_error *why)
{
    struct dcpk_checkpoint *ckpt = model->ckpt;
    const unsigned before = ckpt->given.decisions;
    struct misfits found = {0};
    struct dcpk_exec *exec = NULL;

    ckpt->given.decisions = decisions;
    if (dcpk_model_read(ckpt, model->flags | DCPK_MODEL_WEIGHTS_ONLY, other, why) == DCPK_OK &&
        dcpk_exec_new(ckpt, env, &exec, why) == DCPK_OK)
        (void)find_misfits(*other, exec, DCPK_MASTERS_SAMPLE, &found, why);
    dcpk_exec_free(exec);
    ckpt->given.decisions = before;
    return why->status == DCPK_OK && found.n_different == 0;
}

/* For fully_reshardable: Megatron may have moved the state. Returns true if that explains all
 * misfits. */
static bool explain_moved(const struct dcpk_model *model, const struct dcpk_env *env,
                          struct dcpk_error *err)
{
    const unsigned other = model->ckpt->given.decisions ^ DCPK_REPAIR_PADDING;
    struct dcpk_error why = DCPK_ERROR_INIT;
    struct dcpk_model *moved = NULL;
    const bool fits = fits_with(model, env, other, &moved, &why);

    if (fits && model->repaired != NULL)
        dcpk_append(err, ": as they are stored they fit, so there is nothing to repair");
    else if (fits) {
        dcpk_append(err,
                    ": Megatron saved the optimizer's state at wrong places (core 0.15 to 0.19.2, "
                    "padding of DDP buckets: %" PRIu64
                    " elements of each state were moved, %" PRIu64 " of them are lost)",
                    moved->repaired->n_moved, moved->repaired->n_lost);
        err->fixes |= DCPK_FIX_REPAIR;
    } else if (why.status != DCPK_OK && why.status != DCPK_EUSAGE)
        dcpk_append(err,
                    " (whether Megatron moved them over the padding of DDP buckets is not "
                    "known: %s)",
                    why.text);
    dcpk_model_free(moved);
    return fits;
}

/* Explains the differences and their remedy, as far as the bytes show it. */
static void explain(const struct dcpk_model *model, const struct dcpk_env *env,
                    struct dcpk_error *err)
{
    if (strcmp(model->optimizer_layout, "fully_reshardable") == 0 && explain_moved(model, env, err))
        return;
    if (model->needs_proof) {
        dcpk_append(err, ": the optimizer's state is not at the inferred place, or the weights "
                         "were changed after the last step");
        err->fixes |= DCPK_FIX_WEIGHTS_ONLY;
        return;
    }
    dcpk_append(err, ": the weights were changed after the last step, or the optimizer's state is "
                     "not that of this model");
    err->fixes |= DCPK_FIX_TRUST;
}

/* Compare all of a view that was inferred or repaired, of others what is asked for. */
static enum dcpk_masters_extent extent_of(const struct dcpk_model *model,
                                          enum dcpk_masters_extent asked)
{
    if (model->needs_proof || model->repaired != NULL)
        return DCPK_MASTERS_ALL;
    return asked;
}

/* exec: of the model's checkpoint, made since its views were. */
static dcpk_status check_with(const struct dcpk_model *model, struct dcpk_exec *exec,
                              enum dcpk_masters_extent extent, struct misfits *found,
                              struct dcpk_error *err)
{
    if (find_misfits(model, exec, extent_of(model, extent), found, err))
        return err->status;
    if (found->n_compared == 0 && (model->needs_proof || model->repaired != NULL))
        return dcpk_fail(err, DCPK_EMISMATCH, "no weight has a master, so nothing can be proven");
    if (found->n_different > 0)
        return describe(found, exec, err);
    return DCPK_OK;
}

dcpk_status dcpk_check_masters_with(const struct dcpk_model *model, const struct dcpk_env *env,
                                    struct dcpk_exec *exec, enum dcpk_masters_extent extent,
                                    struct dcpk_error *err)
{
    struct misfits found = {0};
    dcpk_status st = check_with(model, exec, extent, &found, err);

    if (st == DCPK_EMISMATCH && found.n_different > 0)
        explain(model, env, err);
    if (st != DCPK_OK)
        dcpk_context(err, "comparing masters with weights of '%s'",
                     dcpk_store_path(model->ckpt->store));
    return st;
}

dcpk_status dcpk_check_masters(const struct dcpk_model *model, const struct dcpk_env *env,
                               enum dcpk_masters_extent extent, struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    dcpk_status st = dcpk_exec_new(model->ckpt, env, &exec, err);

    if (st == DCPK_OK)
        st = dcpk_check_masters_with(model, env, exec, extent, err);
    dcpk_exec_free(exec);
    return st;
}

dcpk_status dcpk_look_at_masters(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                                 struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;
    dcpk_status st = DCPK_OK;

    if (ckpt->format->mapping != NULL && !ckpt->format->is_model &&
        dcpk_model_read(ckpt, DCPK_MODEL_WEIGHTS_ONLY, &model, &ignored) == DCPK_OK)
        st = dcpk_check_masters(model, env, DCPK_MASTERS_SAMPLE, err);
    dcpk_model_free(model);
    return st;
}
