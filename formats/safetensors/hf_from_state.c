/* SPDX-License-Identifier: Apache-2.0 */
/* hf_from_state.c - parameter groups and steps of an optimizer, by the names of parameters. */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_writing.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* Names of the trained tensors of a group. */
struct members {
    const char **list;
    size_t n;
};

/* Fields that torch's optimizers do not have: Megatron's, and TE's. */
static bool is_foreign(const char *name)
{
    static const char *const names[] = {
        "params",          "step",       "wd_mult", "lr_mult",        "is_expert_parallel",
        "is_decoupled_lr", "max_lr",     "min_lr",  "default_config", "bias_correction",
        "pre_wd_mult",     "pre_lr_mult"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Every tensor once: experts of one tensor are of the first. */
static dcpk_status find_members(const struct dcpk_hf_writing *e, uint32_t group,
                                struct members *members, struct dcpk_error *err)
{
    members->n = 0;
    members->list = dcpk_arena_array(e->out->arena, e->bindings.n * DCPK_HF_MAX_PARTS,
                                     sizeof *members->list, err);
    if (members->list == NULL)
        return err->status;
    for (size_t i = 0; i < e->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &e->bindings.list[i];

        if (e->states[i] == DCPK_NO_PARAM || (b->rule->flags & DCPK_HF_COPY) != 0 ||
            b->expert > 0 || e->model->params[e->states[i]].group != group)
            continue;
        for (size_t p = 0; p < b->rule->n_hf; p++)
            members->list[members->n++] = b->hf[p];
    }
    return DCPK_OK;
}

static dcpk_status put_step(struct dcpk_hf_writing *e, uint32_t group,
                            const struct members *members, struct dcpk_error *err)
{
    struct dcpk_out_tensor out = {.dtype = DCPK_F32, .n_keys = members->n};
    const char **keys = dcpk_arena_array(e->out->arena, members->n, sizeof *keys, err);
    float *literal = dcpk_arena_alloc(e->out->arena, sizeof *literal, err);
    double step;

    if (keys == NULL || literal == NULL)
        return err->status;
    if (!dcpk_value_as_float(dcpk_value_get(e->model->groups[group], "step"), &step)) {
        dcpk_output_event(e->out, DCPK_EVENT_NOTE, "step",
                          "parameter group %" PRIu32 " of the source has no step", group);
        return DCPK_OK;
    }
    for (size_t i = 0; i < members->n; i++) {
        keys[i] = dcpk_arena_printf(e->out->arena, err, "%s.state.%s.step", e->state_prefix,
                                    members->list[i]);
        if (keys[i] == NULL)
            return err->status;
    }
    *literal = (float)step;
    out.keys = keys;
    out.literal = literal;
    return dcpk_output_add_tensor(e->out, &out, err);
}

/* A field of a group under every member, and under its number where names are not torchtitan's: a
 * run asks for the one or the other, by its flatten_optimizer_state_dict. */
static dcpk_status put_field(struct dcpk_hf_writing *e, size_t number,
                             const struct members *members, const struct dcpk_value_pair *field,
                             struct dcpk_error *err)
{
    const bool is_params = strcmp(dcpk_value_as_str(field->key), "params") == 0;
    const size_t n = is_params ? 0 : members->n;
    uint32_t payload;

    if (dcpk_output_add_payload(e->out, field->value, NULL, &payload, err))
        return err->status;
    for (size_t i = e->scheme->is_flattened; i <= n; i++) {
        const char *key;

        if (i > 0)
            key = dcpk_arena_printf(e->out->arena, err, "%s.param_groups.%s", e->state_prefix,
                                    members->list[i - 1]);
        else
            key = dcpk_arena_printf(e->out->arena, err, "%s.param_groups.%zu", e->state_prefix,
                                    number);
        if (key == NULL ||
            dcpk_output_add_field(e->out, key, dcpk_value_as_str(field->key), payload, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The list of members, where a group has a number. */
static dcpk_status put_params(struct dcpk_hf_writing *e, size_t number,
                              const struct members *members, struct dcpk_error *err)
{
    const struct dcpk_value **names =
        dcpk_arena_array(e->out->arena, members->n, sizeof *names, err);
    struct dcpk_value_pair field = {dcpk_value_str(e->out->arena, "params", err), NULL};

    if (names == NULL || field.key == NULL)
        return err->status;
    for (size_t i = 0; i < members->n; i++) {
        names[i] = dcpk_value_str(e->out->arena, members->list[i], err);
        if (names[i] == NULL)
            return err->status;
    }
    field.value = dcpk_value_seq(e->out->arena, DCPK_V_LIST, names, members->n, err);
    if (field.value == NULL)
        return err->status;
    return put_field(e, number, members, &field, err);
}

dcpk_status dcpk_hf_put_groups(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    size_t number = 0;

    for (uint32_t g = 0; g < e->model->n_groups; g++) {
        const struct dcpk_value *group = e->model->groups[g];
        struct members members;

        if (find_members(e, g, &members, err))
            return err->status;
        if (members.n == 0)
            continue;
        if (put_step(e, g, &members, err) ||
            (!e->scheme->is_flattened && put_params(e, number, &members, err)))
            return err->status;
        for (size_t i = 0; i < group->n; i++) {
            const char *name = dcpk_value_as_str(group->as.pairs[i].key);

            if (name != NULL && !is_foreign(name) &&
                put_field(e, number, &members, &group->as.pairs[i], err))
                return err->status;
        }
        number++;
    }
    return DCPK_OK;
}
