/* SPDX-License-Identifier: Apache-2.0 */
/* shards_optimizer.c - the optimizer's state by numbers of parameters, which become names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/fsdp_shards/shards_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/model/optimizers.h"

struct optimizer_reading {
    struct dcpk_shards_reading *r;
    size_t n_weights;                /* tensors of the model, the first of the checkpoint's */
    const struct dcpk_value *groups; /* of rank 0 */
    const char **names;              /* by number of a parameter */
    int64_t n_params;
    size_t n_states; /* of rank 0: tensors */
};

static bool is_adapter(const char *key)
{
    return strstr(key, ".lora_") != NULL;
}

/* Parameters that are numbered. */
enum numbered { ALL_PARAMS, NOT_OUTPUT /* it is tied */, OF_ADAPTER, N_NUMBERED };

/* True if parameters are DTensors: a tensor that no mesh spreads is a buffer. */
static bool has_meshes(const struct optimizer_reading *o)
{
    size_t t = 0;

    while (t < o->n_weights && o->r->layouts[t]->n_mesh == 0)
        t++;
    return t < o->n_weights;
}

static bool is_numbered(const char *key, enum numbered which)
{
    return which == ALL_PARAMS ||
           (which == OF_ADAPTER ? is_adapter(key) : !dcpk_ends_with(key, "lm_head.weight"));
}

/* Numbers count the parameters that are trained, in the order of the model's keys: all of them, all
 * but a tied output layer, or those of an adapter (golden). */
static dcpk_status name_params(struct optimizer_reading *o, struct dcpk_error *err)
{
    const bool has_buffers = has_meshes(o);
    int64_t n = -1;

    o->names = dcpk_arena_array(o->r->rank.arena, o->n_weights, sizeof *o->names, err);
    if (o->names == NULL)
        return err->status;
    for (enum numbered which = ALL_PARAMS; which < N_NUMBERED && n != o->n_params; which++) {
        n = 0;
        for (size_t t = 0; t < o->n_weights; t++) {
            const char *key = o->r->rank.ckpt->tensors[t].key;

            if ((!has_buffers || o->r->layouts[t]->n_mesh > 0) && is_numbered(key, which))
                o->names[n++] = key;
        }
    }
    if (n != o->n_params)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it has state of %" PRId64 " parameters, and the model has %zu: which "
                         "ones they are is not stored",
                         o->n_params, o->n_weights);
    return DCPK_OK;
}

/* One group, of all parameters in their order: the numbers of several count in another order. */
static dcpk_status read_group(struct optimizer_reading *o, const struct dcpk_value *group,
                              struct dcpk_error *err)
{
    const struct dcpk_value *params = dcpk_value_get(group, "params");

    if (o->groups->kind != DCPK_V_LIST || o->groups->n != 1 || params == NULL ||
        params->kind != DCPK_V_LIST)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it must have one parameter group, because parameters are numbered in its "
                         "order");
    for (size_t i = 0; i < params->n; i++) {
        int64_t number = -1;

        if (!dcpk_value_as_int(params->as.items[i], &number) || number != (int64_t)i)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "the parameters of its group are not numbered from 0 on");
    }
    o->n_params = (int64_t)params->n;
    return name_params(o, err);
}

bool dcpk_shards_is_plain(const struct dcpk_value *value)
{
    bool is = value->kind <= DCPK_V_LIST;

    for (size_t i = 0; is && value->kind >= DCPK_V_TUPLE && i < value->n; i++)
        is = value->as.items[i]->kind < DCPK_V_TUPLE;
    return is;
}

dcpk_status dcpk_shards_add_field(struct dcpk_shards_reading *r, const char *key,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_shards_state *state = r->state;
    /* without bytes: no two objects share a place */
    const struct dcpk_object object = {.key = key, .place = {.file = r->rank.number}};

    if (dcpk_grow(&state->fields, &state->fields_capacity, state->n_fields, sizeof *state->fields,
                  err))
        return err->status;
    state->fields[state->n_fields++] = value;
    return dcpk_checkpoint_add_object(r->rank.ckpt, &object, err);
}

static dcpk_status add_field(struct optimizer_reading *o, const char *name,
                             const struct dcpk_value *value, struct dcpk_error *err)
{
    const char *key =
        dcpk_arena_printf(o->r->rank.ckpt->arena, err, "optimizer.param_groups.0.%s", name);

    if (key == NULL)
        return err->status;
    if (value->kind == DCPK_V_TENSOR) /* lr of a fused or capturable optimizer */
        return dcpk_rank_file_take(o->r, key, value, err);
    if (!dcpk_shards_is_plain(value))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the field '%.100s' of its group is not a plain value", name);
    return dcpk_shards_add_field(o->r, key, value, err);
}

/* The group of a rank after rank 0: the same, and its tensors are copies. */
static dcpk_status check_group(struct optimizer_reading *o, const struct dcpk_value *group,
                               struct dcpk_error *err)
{
    const struct dcpk_value *first = dcpk_value_at(o->groups, 0);
    bool same = group != NULL && group->kind == DCPK_V_DICT && group->n == first->n;

    for (size_t i = 0; same && i < first->n; i++) {
        const char *name = dcpk_value_as_str(first->as.pairs[i].key);
        const struct dcpk_value *value = dcpk_value_get(group, name);

        if (value != NULL && value->kind == DCPK_V_TENSOR) {
            if (add_field(o, name, value, err))
                return err->status;
            continue;
        }
        same = value != NULL && dcpk_value_equal(first->as.pairs[i].value, value);
    }
    if (!same)
        return dcpk_fail(err, DCPK_EFORMAT, "its parameter groups are not those of rank 0");
    return DCPK_OK;
}

/* The fields of the group, with names for numbers. */
static dcpk_status add_fields(struct optimizer_reading *o, const struct dcpk_value *group,
                              struct dcpk_error *err)
{
    struct dcpk_arena *arena = o->r->rank.ckpt->arena;
    const struct dcpk_value **names =
        dcpk_arena_array(arena, (size_t)o->n_params, sizeof *names, err);
    const struct dcpk_value *list;

    for (int64_t i = 0; names != NULL && i < o->n_params; i++) {
        names[i] = dcpk_value_str(arena, o->names[i], err);
        if (names[i] == NULL)
            return err->status;
    }
    if (names == NULL)
        return err->status;
    list = dcpk_value_seq(arena, DCPK_V_LIST, names, (size_t)o->n_params, err);
    if (list == NULL)
        return err->status;
    for (size_t i = 0; i < group->n; i++) {
        const char *name = dcpk_value_as_str(group->as.pairs[i].key);
        const struct dcpk_value *value = group->as.pairs[i].value;

        if (name == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "a field of its group has no name");
        if (add_field(o, name, strcmp(name, "params") == 0 ? list : value, err))
            return err->status;
    }
    return DCPK_OK;
}

/* State of a parameter: a scalar, or of the parameter's shape. */
static dcpk_status add_state(struct optimizer_reading *o, int64_t number, const char *state,
                             const struct dcpk_value *value, struct dcpk_arena *arena,
                             struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = o->r->rank.ckpt;
    const char *name = o->names[number];
    const char *key = dcpk_arena_printf(arena, err, "optimizer.state.%s.%s", name, state);
    const struct dcpk_tensor *weight, *tensor;

    if (key == NULL || dcpk_rank_file_take(o->r, key, value, err))
        return err->status;
    tensor = dcpk_checkpoint_tensor(ckpt, key);
    weight = dcpk_checkpoint_tensor(ckpt, name);
    if (tensor->rank > 0 &&
        !dcpk_shape_equal(tensor->shape, tensor->rank, weight->shape, weight->rank))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "its %.100s of parameter %" PRId64 " does not have the shape of '%s'",
                         state, number, name);
    return DCPK_OK;
}

/* Puts the optimizer after an error in its state, where it is not Adam. */
static dcpk_status name_optimizer(const struct dcpk_value *states, struct dcpk_error *err)
{
    for (size_t i = 0; i < states->n; i++) {
        const char *slot = dcpk_value_as_str(states->as.pairs[i].key);
        const char *optimizer = slot == NULL ? NULL : dcpk_optimizer_of_slot(slot);

        if (optimizer == NULL)
            continue;
        dcpk_append(err, "; the optimizer is %s, by its %.100s", optimizer, slot);
        break;
    }
    return err->status;
}

/* The states of one parameter. *n counts them. */
static dcpk_status add_param(struct optimizer_reading *o, const struct dcpk_value_pair *param,
                             struct dcpk_arena *arena, size_t *n, struct dcpk_error *err)
{
    int64_t number = -1;

    if (!dcpk_value_as_int(param->key, &number) || number < 0 || number >= o->n_params ||
        param->value->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it has state for a parameter that is in no "
                         "group");
    for (size_t i = 0; i < param->value->n; i++) {
        const char *state = dcpk_value_as_str(param->value->as.pairs[i].key);

        if (state == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "a state of a parameter has no name");
        if (add_state(o, number, state, param->value->as.pairs[i].value, arena, err))
            return name_optimizer(param->value, err);
        *n += 1;
    }
    return DCPK_OK;
}

static dcpk_status add_states(struct optimizer_reading *o, const struct dcpk_value *states,
                              struct dcpk_arena *arena, struct dcpk_error *err)
{
    size_t n = 0;

    if (states == NULL || states->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a state dict of an optimizer");
    for (size_t i = 0; i < states->n; i++)
        if (add_param(o, &states->as.pairs[i], arena, &n, err))
            return err->status;
    if (o->r->file.rank == 0)
        o->n_states = n;
    if (n != o->n_states)
        return dcpk_fail(err, DCPK_EFORMAT, "it has %zu states, and rank 0 has %zu", n,
                         o->n_states);
    return DCPK_OK;
}

/* The file of a rank; that of rank 0 decides. */
static dcpk_status read_state_dict(struct optimizer_reading *o, const struct dcpk_value *value,
                                   struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_value *groups = dcpk_value_get(value, "param_groups");

    if (groups == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a state dict of an optimizer");
    if (o->r->file.rank == 0) {
        o->groups = groups;
        if (read_group(o, dcpk_value_at(groups, 0), err) ||
            add_fields(o, dcpk_value_at(groups, 0), err))
            return err->status;
    } else if (check_group(o, groups->n == 1 ? dcpk_value_at(groups, 0) : NULL, err)) {
        return err->status;
    }
    return add_states(o, dcpk_value_get(value, "state"), arena, err);
}

static dcpk_status read_rank(struct optimizer_reading *o, int64_t rank, struct dcpk_error *err)
{
    struct dcpk_arena *own = NULL, *arena = o->r->rank.ckpt->arena; /* keeps the groups */
    const struct dcpk_value *value;
    char prefix[64];

    snprintf(prefix, sizeof prefix, DCPK_SHARDS_OPTIM "%" PRId64 "_rank_", o->r->n_ranks);
    if (rank > 0)
        arena = own = dcpk_arena_new();
    if (dcpk_rank_file_read(o->r, prefix, rank, arena, &value, err) == DCPK_OK &&
        read_state_dict(o, value, arena, err))
        dcpk_context(err, "reading '%s'", o->r->name);
    dcpk_arena_free(own);
    return err->status;
}

dcpk_status dcpk_shards_read_optimizer(struct dcpk_shards_reading *r, struct dcpk_error *err)
{
    struct optimizer_reading o = {.r = r, .n_weights = r->rank.ckpt->n_tensors};
    const struct dcpk_rank_moment weights = dcpk_rank_reading_moment(&r->rank);
    enum dcpk_path_kind kind;
    const char *first = dcpk_arena_printf(r->rank.arena, err,
                                          DCPK_SHARDS_OPTIM "%" PRId64 "_rank_0.pt", r->n_ranks);

    if (first == NULL || dcpk_store_look(r->rank.ckpt->store, first, &kind, err) ||
        kind != DCPK_PATH_FILE)
        return err->status;
    if (r->version == 1)
        (void)dcpk_fail(err, DCPK_EUNSUPPORTED,
                        "'%s': FSDP1 saves the state of flat parameters, which have no names",
                        first);
    for (int64_t rank = 0; rank < r->n_ranks && err->status == DCPK_OK; rank++)
        (void)read_rank(&o, rank, err);
    if (err->status != DCPK_OK)
        r->state->n_fields = 0;
    return dcpk_rank_reading_leave_optimizer(&r->rank, &weights, &r->state->optimizer_fault, err);
}
