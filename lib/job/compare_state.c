/* SPDX-License-Identifier: Apache-2.0 */
/* compare_state.c - compares the training state of two models: args, scheduler, RNG states, and the
 * extra states of their modules. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/job/compare_priv.h"

/* ---- extra states ---- */

static dcpk_status find_extra_states(struct dcpk_map *map, const struct dcpk_model *model,
                                     struct dcpk_error *err)
{
    bool existed;
    uint64_t found;

    for (size_t i = 0; i < model->n_extra_states; i++) {
        const char *name = model->extra_states[i].name;

        if (dcpk_map_put(map, name, strlen(name), i, &existed, &found, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status compare_loaded_extra_states(struct dcpk_comparing *c, const char *name,
                                               const struct dcpk_object *const of[2],
                                               struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_value *values[2] = {NULL, NULL};

    for (int s = 0; s < 2; s++)
        if (dcpk_checkpoint_load_object(c->side[s].ckpt, of[s], arena, &values[s], err))
            return err->status;
    if (dcpk_value_at(values[DCPK_B], 0) == NULL) /* not a list: dropped between formats */
        values[DCPK_B] = values[DCPK_A];
    return dcpk_comparing_value(c, DCPK_OF_STATE, name, NULL, values, err);
}

/*
 * A must have B's, where its format keeps any; fsdp_dtensor does not. One that cannot be read is
 * dropped by a conversion, which names it.
 */
static dcpk_status compare_converted(struct dcpk_comparing *c, const char *name,
                                     const struct dcpk_object *const of[2], struct dcpk_error *err)
{
    const struct dcpk_difference missing = {.kind = DCPK_ONLY_IN_B, .name = name};
    struct dcpk_arena *arena;
    uint64_t found;
    dcpk_status st;

    if (of[DCPK_B] == NULL || c->side[DCPK_A].model->n_extra_states == 0)
        return DCPK_OK;
    if (of[DCPK_A] == NULL)
        return dcpk_comparing_add(c, &c->report->differences, &missing, err);
    if (dcpk_by_place_get(&c->compared, &of[DCPK_A]->place, &of[DCPK_B]->place, &found))
        return DCPK_OK; /* other names of two items that were compared */
    arena = dcpk_arena_new();
    st = compare_loaded_extra_states(c, name, of, arena, err);
    dcpk_arena_free(arena);
    if (dcpk_status_is_content(st)) {
        dcpk_error_clear(err);
        st = DCPK_OK;
    }
    if (st != DCPK_OK)
        return st;
    return dcpk_by_place_put(&c->compared, &of[DCPK_A]->place, &of[DCPK_B]->place, 0, err);
}

typedef dcpk_status take_extra(struct dcpk_comparing *c, const char *name,
                               const struct dcpk_object *const of[2], struct dcpk_error *err);

static dcpk_status compare_as_object(struct dcpk_comparing *c, const char *name,
                                     const struct dcpk_object *const of[2], struct dcpk_error *err)
{
    (void)name;
    return dcpk_comparing_object(c, of, err);
}

/* The extra states of one side, with those of their names on the other; after the policy's first
 * side those that the other lacks. maps: name -> number, of each side. */
static dcpk_status walk_extra_states(struct dcpk_comparing *c, enum dcpk_side from,
                                     const struct dcpk_map maps[2], take_extra *take,
                                     struct dcpk_error *err)
{
    const enum dcpk_side to = dcpk_other_side(from);
    const struct dcpk_model *mine = c->side[from].model, *other = c->side[to].model;
    const bool paired = from != c->policy->first;

    for (size_t i = 0; i < mine->n_extra_states; i++) {
        const char *name = mine->extra_states[i].name;
        const struct dcpk_object *of[2] = {NULL, NULL};
        uint64_t found;

        of[from] = mine->extra_states[i].object;
        if (dcpk_map_get(&maps[to], name, strlen(name), &found)) {
            if (paired)
                continue;
            of[to] = other->extra_states[found].object;
        }
        if (take(c, name, of, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status compare_extra_states(struct dcpk_comparing *c, take_extra *take,
                                        struct dcpk_error *err)
{
    const enum dcpk_side first = c->policy->first;
    struct dcpk_map maps[2] = {{0}, {0}};
    dcpk_status st = find_extra_states(&maps[DCPK_A], c->side[DCPK_A].model, err);

    if (st == DCPK_OK)
        st = find_extra_states(&maps[DCPK_B], c->side[DCPK_B].model, err);
    if (st == DCPK_OK)
        st = walk_extra_states(c, first, maps, take, err);
    if (st == DCPK_OK)
        st = walk_extra_states(c, dcpk_other_side(first), maps, take, err);
    dcpk_map_release(&maps[DCPK_A]);
    dcpk_map_release(&maps[DCPK_B]);
    return st;
}

dcpk_status dcpk_comparing_extra_states(struct dcpk_comparing *c, struct dcpk_error *err)
{
    return compare_extra_states(c, compare_as_object, err);
}

/* A must have those of B where its format keeps any. */
static dcpk_status compare_converted_extra_states(struct dcpk_comparing *c, struct dcpk_error *err)
{
    return compare_extra_states(c, compare_converted, err);
}

/* ---- args, scheduler, RNG states ---- */

static dcpk_status compare_single(struct dcpk_comparing *c, enum dcpk_subject subject,
                                  const char *name, const struct dcpk_value *a,
                                  const struct dcpk_value *b, struct dcpk_error *err)
{
    const struct dcpk_value *const of[2] = {a, b};

    return dcpk_comparing_value(c, subject, name, NULL, of, err);
}

/* Entries of the common state that Megatron's own code does not make. */
static dcpk_status compare_further(struct dcpk_comparing *c, struct dcpk_error *err)
{
    static const struct dcpk_value none = {.kind = DCPK_V_DICT};
    struct dcpk_dicts entries = {"common", DCPK_OF_COMMON, {&none, &none}};

    for (int s = 0; s < 2; s++)
        if (c->side[s].model->further != NULL)
            entries.of[s] = c->side[s].model->further;
    return dcpk_comparing_dicts(c, &entries, err);
}

static dcpk_status compare_args(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_dicts attrs = {"args",
                                     DCPK_OF_ARGS,
                                     {dcpk_value_attrs(c->side[DCPK_A].model->args),
                                      dcpk_value_attrs(c->side[DCPK_B].model->args)}};

    return dcpk_comparing_dicts(c, &attrs, err);
}

/* Sets *are_models if both have a configuration of a model. A side without one is not an error. */
static dcpk_status read_both(struct dcpk_comparing *c, bool *are_models, struct dcpk_error *err)
{
    *are_models = true;
    for (int s = 0; s < 2 && *are_models; s++) {
        if (dcpk_model_read(c->side[s].ckpt, DCPK_MODEL_WEIGHTS_ONLY, &c->side[s].model, err) ==
            DCPK_OK)
            continue;
        if (!dcpk_status_is_content(err->status))
            return err->status;
        dcpk_error_clear(err);
        *are_models = false;
    }
    return DCPK_OK;
}

/*
 * Compares the models, of which weights are equal: by the args that their configurations give;
 * where one of them gives none (a family that is not known, sizes that contradict the tensors), key
 * by key.
 */
static dcpk_status compare_loaded(struct dcpk_comparing *c,
                                  const struct dcpk_value *const configs[2], struct dcpk_error *err)
{
    const struct dcpk_dicts entries = {
        "config", DCPK_OF_CONFIG, {configs[DCPK_A], configs[DCPK_B]}};
    const struct dcpk_difference single = {
        .kind = dcpk_only_in(configs[DCPK_A] == NULL), .name = "config", .is_value = true};
    bool are_models;

    if (configs[DCPK_A] == NULL && configs[DCPK_B] == NULL)
        return DCPK_OK;
    if (configs[DCPK_A] == NULL || configs[DCPK_B] == NULL)
        return dcpk_comparing_add(c, &c->report->tolerated, &single, err);
    if (dcpk_value_equal(configs[DCPK_A], configs[DCPK_B]))
        return compare_single(c, DCPK_OF_CONFIG, "config", configs[DCPK_A], configs[DCPK_B], err);
    if (read_both(c, &are_models, err))
        return err->status;
    if (are_models)
        return compare_args(c, err);
    return dcpk_comparing_dicts(c, &entries, err);
}

dcpk_status dcpk_comparing_configs(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_value *configs[2] = {NULL, NULL};

    for (int s = 0; s < 2; s++) {
        const struct dcpk_format_mapping *mapping = c->side[s].ckpt->format->mapping;

        if (mapping != NULL && mapping->load_config != NULL &&
            mapping->load_config(c->side[s].ckpt, c->report->arena, &configs[s], err))
            return err->status;
    }
    return compare_loaded(c, configs, err);
}

static void name_rng(const struct dcpk_comparing *c, const struct dcpk_rng *rng, char *name,
                     size_t n_bytes)
{
    const int64_t pp = rng->pp, tp = rng->tp, dp = rng->dp;

    if (c->policy->word != NULL)
        snprintf(name, n_bytes,
                 "the RNG state of (pp, tp, dp) (%" PRId64 ", %" PRId64 ", %" PRId64 ")", pp, tp,
                 dp);
    else if (rng->n_dp > 0)
        snprintf(name, n_bytes, "rng_state[pp %" PRId64 ", tp %" PRId64 ", dp %" PRId64 "]", pp, tp,
                 dp);
    else
        snprintf(name, n_bytes, "rng_state[pp %" PRId64 ", tp %" PRId64 "]", pp, tp);
}

/* The other side's states for a rank; NULL: none. Releases have them for each data-parallel rank,
 * or one for all. */
typedef const struct dcpk_value *find_states(const struct dcpk_model *other,
                                             const struct dcpk_rng *rng);

static const struct dcpk_value *find_any_states(const struct dcpk_model *other,
                                                const struct dcpk_rng *rng)
{
    const struct dcpk_rng *found = dcpk_model_rng(other, rng);

    return found == NULL ? NULL : found->states;
}

/* RNG states of other ranks count where they are equal, or for the first rank. */
static const struct dcpk_value *find_own_states(const struct dcpk_model *other,
                                                const struct dcpk_rng *rng)
{
    const struct dcpk_rng *found = dcpk_model_rng(other, rng);

    if (found == NULL)
        return NULL;
    if (rng->dp == 0 || (found->dp == rng->dp && found->n_dp == rng->n_dp))
        return found->states;
    return dcpk_value_equal(found->states, rng->states) ? found->states : NULL;
}

/* The RNG states of one side with those of the other; of B's, those that A has none for. */
static dcpk_status compare_rng(struct dcpk_comparing *c, enum dcpk_side from, find_states *find,
                               struct dcpk_error *err)
{
    const struct dcpk_model *mine = c->side[from].model, *other = c->side[!from].model;
    const bool same_mesh =
        mine->layout.tp == other->layout.tp && mine->layout.pp == other->layout.pp;

    for (size_t i = 0; i < mine->n_rng; i++) {
        const struct dcpk_rng *rng = &mine->rng[i];
        const struct dcpk_value *found = find(other, rng), *values[2];
        enum dcpk_subject subject = DCPK_OF_RNG;
        char name[128];

        if (from == DCPK_B && found != NULL)
            continue;
        if (found == NULL && (!same_mesh || rng->dp > 0))
            subject = DCPK_OF_NO_RANK;
        values[from] = rng->states;
        values[!from] = found;
        name_rng(c, rng, name, sizeof name);
        if (dcpk_comparing_value(c, subject, name, NULL, values, err))
            return err->status;
    }
    return DCPK_OK;
}

/* A count that only runs have: the view of a model has one that its target needs. */
static dcpk_status compare_of_run(struct dcpk_comparing *c, const char *name,
                                  const struct dcpk_value *a, const struct dcpk_value *b,
                                  struct dcpk_error *err)
{
    if (c->side[DCPK_A].ckpt->format->is_model)
        a = NULL;
    if (c->side[DCPK_B].ckpt->format->is_model)
        b = NULL;
    return compare_single(c, DCPK_OF_STATE, name, a, b, err);
}

static struct dcpk_dicts scheduler_of(const struct dcpk_comparing *c)
{
    return (struct dcpk_dicts){
        "opt_param_scheduler",
        DCPK_OF_STATE,
        {c->side[DCPK_A].model->scheduler, c->side[DCPK_B].model->scheduler}};
}

static dcpk_status compare_versions(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;

    if (compare_of_run(c, "iteration", a->iteration, b->iteration, err) ||
        compare_of_run(c, "checkpoint_version", a->version, b->version, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status compare_flops(struct dcpk_comparing *c, struct dcpk_error *err)
{
    return compare_single(c, DCPK_OF_STATE, "num_floating_point_operations_so_far",
                          c->side[DCPK_A].model->flops, c->side[DCPK_B].model->flops, err);
}

static dcpk_status compare_own_state(struct dcpk_comparing *c, struct dcpk_error *err)
{
    if (compare_single(c, DCPK_OF_SCALER, "optimizer.grad_scaler", c->side[DCPK_A].model->scaler,
                       c->side[DCPK_B].model->scaler, err) ||
        compare_further(c, err) || compare_args(c, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_comparing_state_same(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_dicts scheduler = scheduler_of(c);

    if (compare_versions(c, err) || compare_flops(c, err) ||
        dcpk_comparing_dicts(c, &scheduler, err) || compare_own_state(c, err) ||
        dcpk_comparing_groups(c, err) || compare_rng(c, DCPK_A, find_own_states, err) ||
        compare_rng(c, DCPK_B, find_own_states, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_comparing_state_faithful(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_dicts scheduler = scheduler_of(c);

    if (compare_versions(c, err) ||
        dcpk_comparing_value(c, scheduler.subject, scheduler.name, NULL, scheduler.of, err) ||
        compare_flops(c, err) || compare_own_state(c, err) ||
        compare_rng(c, DCPK_A, find_any_states, err) ||
        compare_rng(c, DCPK_B, find_any_states, err) || compare_converted_extra_states(c, err))
        return err->status;
    return DCPK_OK;
}
