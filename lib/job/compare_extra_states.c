/* SPDX-License-Identifier: Apache-2.0 */
/* compare_extra_states.c - compares the extra states of two models, module by module. */
#include <string.h>

#include "lib/job/compare_priv.h"

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
    arena = dcpk_arena_new(0, err);
    if (arena == NULL)
        return err->status;
    st = compare_loaded_extra_states(c, name, of, arena, err);
    dcpk_arena_free(arena);
    if (dcpk_status_is_content(st)) {
        *err = (struct dcpk_error)DCPK_ERROR_INIT;
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

dcpk_status dcpk_comparing_converted_extra_states(struct dcpk_comparing *c, struct dcpk_error *err)
{
    return compare_extra_states(c, compare_converted, err);
}
