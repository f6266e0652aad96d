/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - the checks of a checkpoint, one after the other. */
#include "lib/job/verify.h"

#include <inttypes.h>

#include "lib/ckpt/overlaps.h"
#include "lib/ckpt/unknown.h"
#include "lib/exec/ranks.h"
#include "lib/exec/side_files.h"

/* State of all checks. */
struct verifying {
    struct dcpk_checkpoint *ckpt;
    const struct dcpk_verify_options *options;
    struct dcpk_verification *v;
};

/* The error of a check that is made now. */
static struct dcpk_error *outcome_begin(struct dcpk_outcome *outcomes, enum dcpk_verify_check check)
{
    outcomes[check].is_made = true;
    return &outcomes[check].err;
}

void dcpk_verify_metadata(struct dcpk_checkpoint *ckpt, struct dcpk_outcome *outcomes)
{
    struct dcpk_error *whole = outcome_begin(outcomes, DCPK_VERIFY_WHOLE);

    if (ckpt->format->check_whole != NULL) /* parts lost with a file show in no other */
        (void)ckpt->format->check_whole(ckpt, whole);
    (void)dcpk_checkpoint_check_cover(ckpt, outcome_begin(outcomes, DCPK_VERIFY_COVER));
    (void)dcpk_check_overlaps(ckpt, outcome_begin(outcomes, DCPK_VERIFY_OVERLAPS));
}

static void check_pickles(struct verifying *w)
{
    struct dcpk_error *err = outcome_begin(w->v->outcomes, DCPK_VERIFY_PICKLES);
    const struct dcpk_env *env = &w->options->env;

    dcpk_progress_begin(&env->progress, "reading objects");
    if (dcpk_check_values(w->ckpt, w->ckpt->format->is_known, &env->progress, err) == DCPK_OK)
        (void)dcpk_side_files_check(w->ckpt->store, env->side_files, err);
}

static void check_items(struct verifying *w)
{
    struct dcpk_error *err = outcome_begin(w->v->outcomes, DCPK_VERIFY_CHECKSUMS);
    const struct dcpk_env *env = &w->options->env;
    struct dcpk_exec_stats stats = {0};
    struct dcpk_exec *exec = NULL;

    dcpk_progress_begin(&env->progress, "reading");
    if (dcpk_exec_new(w->ckpt, env, &exec, err) == DCPK_OK)
        (void)dcpk_exec_check_items(exec, &stats, err);
    (void)dcpk_ranks_agree(env->ranks, err->status, err);
    dcpk_exec_free(exec);
    w->v->has_checksums = stats.checked_bytes > 0 || w->ckpt->n_chunks == 0;
    w->v->item_bytes = stats.item_bytes;
}

static void check_list(struct verifying *w)
{
    struct dcpk_outcome *outcome = &w->v->outcomes[DCPK_VERIFY_INTEGRITY];
    const struct dcpk_env *env = &w->options->env;
    struct dcpk_error *err = &outcome->err;
    struct dcpk_exec *exec = NULL;
    bool is_there = false;

    dcpk_progress_begin(&env->progress, "hashing files");
    if (dcpk_exec_new(w->ckpt, env, &exec, err) == DCPK_OK &&
        dcpk_exec_find_integrity(exec, &is_there, err) == DCPK_OK && is_there)
        (void)dcpk_exec_check_integrity(exec, &w->v->n_listed, err);
    (void)dcpk_ranks_agree(env->ranks, err->status, err);
    dcpk_exec_free(exec);
    outcome->is_made = is_there || err->status != DCPK_OK;
}

static void check_against(struct verifying *w)
{
    struct dcpk_error *err = outcome_begin(w->v->outcomes, DCPK_VERIFY_AGAINST);
    const struct dcpk_verify_options *o = w->options;
    const struct dcpk_compare_options options = {.policy = DCPK_COMPARE_FAITHFUL,
                                                 .weights_only =
                                                     (o->flags & DCPK_VERIFY_WEIGHTS_ONLY) != 0,
                                                 .vocab_size = o->vocab_size,
                                                 .env = o->env};
    const struct dcpk_compare_report *proof = &w->v->proof;

    dcpk_progress_begin(&o->env.progress, "comparing");
    (void)dcpk_compare_checkpoints(w->ckpt, o->source, &options, &w->v->proof, err);
    w->v->is_compared = dcpk_ranks_agree(o->env.ranks, err->status, err) == DCPK_OK;
    if (w->v->is_compared && !proof->equal)
        dcpk_fail(err, DCPK_EMISMATCH, "%" PRIu64 " differences from '%s', the first: %s",
                  proof->differences.n, o->source_name, proof->differences.first->sentence);
}

/* True if all checks hold. Rank 0 has made all of them, and shares its answer with all. */
static bool all_hold(const struct verifying *w)
{
    struct dcpk_ranks *ranks = w->options->env.ranks;
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool hold = true;

    for (int i = 0; i < DCPK_N_VERIFY_CHECKS; i++)
        hold = hold && w->v->outcomes[i].err.status == DCPK_OK;
    (void)dcpk_ranks_first(ranks, &hold, sizeof hold, DCPK_OK, &err);
    return hold;
}

/* Runs only after all checks passed, so that the list vouches for sound files alone. */
static void write_list(struct verifying *w)
{
    struct dcpk_error *err = outcome_begin(w->v->outcomes, DCPK_VERIFY_WRITTEN);
    const struct dcpk_env *env = &w->options->env;
    struct dcpk_exec *exec = NULL;

    dcpk_progress_begin(&env->progress, "hashing files");
    if (dcpk_exec_new(w->ckpt, env, &exec, err) == DCPK_OK)
        (void)dcpk_exec_add_integrity(exec, &w->v->n_written, err);
    (void)dcpk_ranks_agree(env->ranks, err->status, err);
    dcpk_exec_free(exec);
}

void dcpk_verify(struct dcpk_checkpoint *ckpt, const struct dcpk_verify_options *options,
                 struct dcpk_verification *v)
{
    const bool writes_list = (options->flags & DCPK_VERIFY_WRITE_LIST) != 0;
    struct verifying w = {ckpt, options, v};

    if (dcpk_ranks_self(options->env.ranks) == 0) {
        dcpk_verify_metadata(ckpt, v->outcomes);
        check_pickles(&w);
    }
    check_items(&w);
    if (!writes_list)
        check_list(&w);
    if (options->source != NULL)
        check_against(&w);
    if (writes_list && all_hold(&w))
        write_list(&w);
}

dcpk_status dcpk_verification_status(const struct dcpk_verification *v, struct dcpk_error *err)
{
    for (int i = 0; i < DCPK_N_VERIFY_CHECKS; i++)
        if (v->outcomes[i].err.status != DCPK_OK) {
            *err = v->outcomes[i].err;
            return err->status;
        }
    return DCPK_OK;
}

void dcpk_verification_release(struct dcpk_verification *v)
{
    dcpk_compare_release(&v->proof);
}

dcpk_status dcpk_check_input(struct dcpk_exec *exec, struct dcpk_input_check *check,
                             struct dcpk_error *err)
{
    struct dcpk_exec_stats stats = {0};
    bool has_integrity = false;
    size_t n_listed = 0;

    if (dcpk_exec_check_items(exec, &stats, err) ||
        dcpk_exec_find_integrity(exec, &has_integrity, err) ||
        (has_integrity && dcpk_exec_check_integrity(exec, &n_listed, err)))
        return err->status;
    *check = (struct dcpk_input_check){true, stats.checked_bytes, n_listed};
    return DCPK_OK;
}
