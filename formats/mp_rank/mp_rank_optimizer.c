/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_optimizer.c - state by numbers of a rank's parameters, which become names. */
#include <inttypes.h>
#include <string.h>

#include "formats/mp_rank/mp_rank_priv.h"
#include "lib/base/text.h"
#include "lib/model/numbered.h"

#define MASTERS "fp32_from_fp16_params"

/* The optimizer at hand, of a rank's file. */
struct numbered_reading {
    struct dcpk_mp_reading *r;
    struct dcpk_arena *arena;
    const struct dcpk_value *groups;
    struct dcpk_mp_tensors params; /* its file's tensors, less buffers */
    struct dcpk_numbered numbered; /* whose indices are these */
};

void dcpk_mp_optimizers(const struct dcpk_value *file, const struct dcpk_value *optimizers[2])
{
    const struct dcpk_value *all = dcpk_value_get(file, "optimizer");

    optimizers[0] = all;
    optimizers[1] = NULL;
    if (all == NULL || all->kind != DCPK_V_LIST)
        return;
    optimizers[0] = dcpk_value_at(all, 0);
    optimizers[1] = dcpk_value_at(all, 1);
}

const struct dcpk_value *dcpk_mp_inner(const struct dcpk_value *optimizer)
{
    const struct dcpk_value *inner = dcpk_value_get(optimizer, "optimizer");

    return inner != NULL ? inner : optimizer;
}

/* The parameters, in the order in which modules register them. */
static dcpk_status list_params(struct numbered_reading *o, const struct dcpk_value *file,
                               struct dcpk_error *err)
{
    struct dcpk_mp_tensors all;
    struct dcpk_numbered_param *params;

    if (dcpk_mp_list(o->r, file, o->arena, &all, err))
        return err->status;
    params = dcpk_arena_array(o->arena, all.n, sizeof *params, err);
    if (params == NULL)
        return err->status;
    o->params = (struct dcpk_mp_tensors){all.list, 0};
    for (size_t i = 0; i < all.n; i++) {
        if (all.list[i].is_buffer)
            continue;
        params[o->params.n] =
            (struct dcpk_numbered_param){all.list[i].local->rank, all.list[i].is_expert};
        o->params.list[o->params.n++] = all.list[i];
    }
    return dcpk_numbered_find(o->groups, params, o->params.n, o->arena, &o->numbered, err);
}

static const struct dcpk_mp_tensor *param_of(const struct numbered_reading *o,
                                             const struct dcpk_value *number)
{
    int64_t n = -1;

    if (!dcpk_value_as_int(number, &n) || n < 0 || (uint64_t)n >= o->numbered.n)
        return NULL;
    return &o->params.list[o->numbered.param_of[n]];
}

static dcpk_status add_state(struct numbered_reading *o, const struct dcpk_mp_tensor *param,
                             const char *state, const struct dcpk_value *value,
                             struct dcpk_error *err)
{
    const char *key;

    if (value->kind != DCPK_V_TENSOR)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the optimizer's %.100s of '%.200s' is not a "
                         "tensor",
                         state, param->name);
    key = dcpk_arena_printf(o->arena, err, "optimizer.state.%s.%s", state, param->name);
    if (key == NULL)
        return err->status;
    return dcpk_mp_add(o->r, param, value->as.tensor, key, err);
}

/* The states of one number. A step is that of all (dcpk_mp_load_common). */
static dcpk_status add_param(struct numbered_reading *o, const struct dcpk_value_pair *of,
                             struct dcpk_error *err)
{
    const struct dcpk_mp_tensor *param = param_of(o, of->key);

    if (param == NULL || of->value->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it has state for a parameter that is in no "
                         "group");
    for (size_t i = 0; i < of->value->n; i++) {
        const char *state = dcpk_value_as_str(of->value->as.pairs[i].key);

        if (state == NULL || strchr(state, '.') != NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "a state of a parameter has no plain name");
        if (strcmp(state, "step") != 0 &&
            add_state(o, param, state, of->value->as.pairs[i].value, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Masters of the parameters of group g that have 16 bits, in its order. */
static dcpk_status add_masters(struct numbered_reading *o, const struct dcpk_value *masters,
                               size_t g, struct dcpk_error *err)
{
    const struct dcpk_value *numbers = dcpk_value_get(dcpk_value_at(o->groups, g), "params");
    const struct dcpk_value *list = dcpk_value_at(masters, g);
    size_t n = 0;

    for (size_t i = 0; i < numbers->n; i++) {
        const struct dcpk_mp_tensor *param = param_of(o, numbers->as.items[i]);
        const struct dcpk_value *master = dcpk_value_at(list, n);

        if (param->local->dtype != DCPK_BF16 && param->local->dtype != DCPK_F16)
            continue;
        if (master == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, MASTERS " has too few tensors for group %zu",
                             g);
        if (add_state(o, param, "fp32_param", master, err))
            return err->status;
        n++;
    }
    if (list != NULL && list->kind == DCPK_V_LIST && list->n == n)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, MASTERS " does not have %zu tensors for group %zu", n,
                     g);
}

static dcpk_status read_optimizer(struct numbered_reading *o, const struct dcpk_value *file,
                                  const struct dcpk_value *optimizer, struct dcpk_error *err)
{
    const struct dcpk_value *inner = dcpk_mp_inner(optimizer);
    const struct dcpk_value *states = dcpk_value_get(inner, "state");
    const struct dcpk_value *masters = dcpk_value_get(optimizer, MASTERS);

    if (states == NULL || states->kind != DCPK_V_DICT)
        return DCPK_OK;
    o->groups = dcpk_value_get(inner, "param_groups");
    if (list_params(o, file, err))
        return err->status;
    for (size_t i = 0; i < states->n; i++)
        if (add_param(o, &states->as.pairs[i], err))
            return err->status;
    for (size_t g = 0; masters != NULL && g < o->groups->n; g++)
        if (add_masters(o, masters, g, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_mp_add_optimizer(struct dcpk_mp_reading *r, const struct dcpk_value *file,
                                  struct dcpk_arena *arena, struct dcpk_error *err)
{
    struct numbered_reading o = {.r = r, .arena = arena};
    const struct dcpk_value *optimizers[2];

    dcpk_mp_optimizers(file, optimizers);
    for (size_t i = 0; i < 2; i++)
        if (optimizers[i] != NULL && read_optimizer(&o, file, optimizers[i], err))
            return err->status;
    return DCPK_OK;
}
