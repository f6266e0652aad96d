/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_converted.c - reads what Megatron's converter from torch_dist leaves. */
#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_rows.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_EXPERTS (1 << 16)

dcpk_status dcpk_fsdp_split_numbered(struct dcpk_arena *arena, struct dcpk_fsdp_key *parts,
                                     struct dcpk_error *err)
{
    const char *digits = parts->end + strlen(parts->end);
    const char *state, *name;
    enum dcpk_role role;

    while (digits > parts->end + 1 && isdigit((unsigned char)digits[-1]))
        digits--;
    if (parts->role != DCPK_STATE || *digits == '\0' || strstr(parts->name, "mlp.experts.") == NULL)
        return DCPK_OK;
    state = dcpk_arena_strndup(arena, parts->end + 1, (size_t)(digits - parts->end) - 1, err);
    name = dcpk_arena_printf(arena, err, "%s%s", parts->name, digits);
    if (state == NULL || name == NULL)
        return err->status;
    role = dcpk_fsdp_role(state);
    if (role == DCPK_STATE)
        return DCPK_OK;
    parts->role = role;
    parts->state = NULL;
    parts->name = name;
    return DCPK_OK;
}

/* ---- one tensor of several parameters, several of one ---- */

/* "decoder.layers.0.mlp.experts.experts.linear_fc1.weight" [E, ...] -> "...mlp.experts.linear_fc1.
 * weight<e>" (T3): homogeneous MoE layers, of which only the layers were taken apart. */
static dcpk_status add_experts(struct dcpk_fsdp_reader *r, uint32_t source, const char *name,
                               const char *at, const struct dcpk_model_tensor *tensor,
                               struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    const char *rest = at + strlen(".experts.experts.");

    if (stored->rank < 2 || stored->shape[0] > MAX_EXPERTS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "not of the form [experts, ...]");
    for (int64_t e = 0; e < stored->shape[0]; e++) {
        const struct dcpk_sources slice = {.tensor = &source, .n = 1, .at = &e, .n_lead = 1};
        struct dcpk_model_tensor one = *tensor;
        const char *expert = dcpk_arena_printf(model->arena, err, "%.*s.experts.%s%" PRId64,
                                               (int)(at - name), name, rest, e);

        if (expert == NULL || dcpk_rows_read(model, &slice, &one, err) ||
            dcpk_fsdp_add_named(model, &one, expert, err))
            return err->status;
    }
    return DCPK_OK;
}

/* "X.in_proj.weight.<part>": the first part brings the others; what lacks one stays unknown. */
static dcpk_status fsdp_add_parts(struct dcpk_fsdp_reader *r, const char *key_name,
                                  const struct dcpk_found_parts *found,
                                  const struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    const struct dcpk_sources sources = {.tensor = found->tensor, .n = found->n};
    struct dcpk_model_tensor whole = *tensor;
    const char *name = dcpk_arena_strndup(r->model->arena, key_name, found->whole_bytes, err);

    r->has_parts = true;
    if (name == NULL || dcpk_rows_read(r->model, &sources, &whole, err))
        return err->status;
    return dcpk_fsdp_add_named(r->model, &whole, name, err);
}

dcpk_status dcpk_fsdp_add_converted(struct dcpk_fsdp_reader *r, uint32_t source,
                                    const struct dcpk_fsdp_key *parts,
                                    const struct dcpk_model_tensor *tensor, bool *is_done,
                                    struct dcpk_error *err)
{
    const char *experts = strstr(parts->name, ".experts.experts.");
    const struct dcpk_part_key key = {parts->prefix, parts->name, parts->end};
    struct dcpk_found_parts found;

    *is_done = true;
    if (experts != NULL)
        return add_experts(r, source, parts->name, experts, tensor, err);
    if (dcpk_parts_find(r->model, source, &key, &found, err))
        return err->status;
    *is_done = parts->name[found.whole_bytes] != '\0';
    if (!*is_done || found.n == 0 || found.tensor[0] != source)
        return DCPK_OK;
    return fsdp_add_parts(r, parts->name, &found, tensor, err);
}

/* ---- training state ---- */

/* The step of a parameter of its own: the same for all, as the groups have it in later releases. */
static dcpk_status take_step(struct dcpk_fsdp_reader *r, uint32_t source, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    const char *key = model->ckpt->tensors[source].key;
    const struct dcpk_value *step;
    double old, now;

    if (dcpk_model_read_step(model, source, &step, err))
        return err->status;
    if (r->step != NULL && dcpk_value_as_float(r->step, &old) && dcpk_value_as_float(step, &now) &&
        old != now)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is %g, that of another parameter %g", key,
                         now, old);
    r->step = step;
    return DCPK_OK;
}

/* "param_state.<i>.step" is in the view as a field of the groups. */
static dcpk_status carry_step(struct dcpk_fsdp_reader *r, uint32_t source, struct dcpk_error *err)
{
    dcpk_model_carry(r->model, r->model->ckpt->tensors[source].key);
    return take_step(r, source, err);
}

dcpk_status dcpk_fsdp_map_scalar(struct dcpk_fsdp_reader *r, uint32_t source, bool *is_known,
                                 struct dcpk_error *err)
{
    const char *key = r->model->ckpt->tensors[source].key;
    int64_t optimizer;
    const char *rest = dcpk_fsdp_skip_optimizer(key, &optimizer);

    *is_known = true;
    if (rest != NULL && dcpk_starts_with(rest, "optimizer."))
        rest += strlen("optimizer.");
    if (rest != NULL && dcpk_starts_with(rest, "param_state.") && dcpk_ends_with(rest, ".step")) {
        if ((r->model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0)
            return carry_step(r, source, err);
        dcpk_model_omit(r->model, key, dcpk_reason_weights_only);
    } else if (rest != NULL && dcpk_starts_with(rest, "grad_scaler.")) {
        dcpk_model_omit(r->model, key, "the loss scaler's state: Megatron-FSDP keeps none");
    } else {
        *is_known = false;
    }
    return DCPK_OK;
}

static int compare_listed(const void *left, const void *right)
{
    const struct dcpk_fsdp_listed *a = left, *b = right;

    return DCPK_ORDER_BY_3(a, b, optimizer, group, object);
}

/* All fields, sorted by group; owned by the caller. */
static dcpk_status find_listed(const struct dcpk_checkpoint *ckpt, struct dcpk_fsdp_listed **list,
                               size_t *n, struct dcpk_error *err)
{
    size_t capacity = 0;

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        struct dcpk_fsdp_listed listed = {.object = i};

        if (!dcpk_fsdp_split_listed(ckpt->objects[i].key, &listed) ||
            dcpk_checkpoint_object_left_out(ckpt, i) != NULL)
            continue;
        if (dcpk_grow(list, &capacity, *n, sizeof **list, err))
            return err->status;
        (*list)[(*n)++] = listed;
    }
    if (*n > 0)
        qsort(*list, *n, sizeof **list, compare_listed);
    return DCPK_OK;
}

/* The names of numbers (dcpk_torch_dcp_number). */
static dcpk_status name_numbers(const struct dcpk_fsdp_reader *r, const struct dcpk_value *numbers,
                                const struct dcpk_value **names, struct dcpk_error *err)
{
    struct dcpk_arena *arena = r->model->arena;
    const struct dcpk_value **list = dcpk_arena_array(arena, numbers->n, sizeof *list, err);

    for (size_t i = 0; list != NULL && i < numbers->n; i++) {
        int64_t number = 0;

        dcpk_value_as_int(numbers->as.items[i], &number);
        list[i] = dcpk_value_str(arena, r->numbers->names[number], err);
        if (list[i] == NULL)
            return err->status;
    }
    if (list == NULL)
        return err->status;
    *names = dcpk_value_seq(arena, DCPK_V_LIST, list, numbers->n, err);
    return dcpk_made(*names, err);
}

/* One group: the names of its parameters, as torch's get_optimizer_state_dict lists them
 * (Megatron-FSDP v2); NULL where they are numbers that nothing gives a name. */
static dcpk_status find_names(struct dcpk_fsdp_reader *r, const struct dcpk_fsdp_listed *fields,
                              size_t n, const struct dcpk_value **names, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->model->ckpt;

    *names = NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].field, "params") == 0 &&
            dcpk_model_need(r->model, &ckpt->objects[fields[i].object], names, err))
            return err->status;
    if (*names != NULL && r->numbers != NULL)
        return name_numbers(r, *names, names, err);
    if (*names != NULL && ((*names)->kind != DCPK_V_LIST || (*names)->n == 0 ||
                           dcpk_value_as_str((*names)->as.items[0]) == NULL))
        *names = NULL;
    return DCPK_OK;
}

/* The parameters that `names` list have group g, and the step of all of them is r->step, if they
 * have one each (torch's AdamW). */
static dcpk_status take_named(struct dcpk_fsdp_reader *r, const struct dcpk_value *names,
                              uint32_t g, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;

    for (size_t i = 0; i < names->n; i++) {
        const char *name = dcpk_value_as_str(names->as.items[i]);
        uint32_t params[2];
        size_t n = 0;

        if (name == NULL)
            return dcpk_fail(err, DCPK_EFORMAT, "group %" PRIu32 ": parameter %zu has no name", g,
                             i);
        if (dcpk_fsdp_group_params(model, name, params, &n, err))
            return err->status;
        for (size_t p = 0; p < n; p++) {
            const uint32_t step = model->params[params[p]].tensor[DCPK_STEP];

            model->params[params[p]].group = g;
            if (step != DCPK_NO_TENSOR && take_step(r, model->tensors[step].pieces[0].src, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

/* The fields of one group as a dict. */
static dcpk_status make_group(struct dcpk_fsdp_reader *r, const struct dcpk_fsdp_listed *fields,
                              size_t n, const struct dcpk_value **group, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    struct dcpk_dict made = {.arena = model->arena, .err = err};
    bool has_step = false;

    for (size_t i = 0; i < n; i++) {
        const struct dcpk_object *object = &model->ckpt->objects[fields[i].object];
        const struct dcpk_value *value;

        if (dcpk_starts_with(fields[i].field, "params"))
            continue;
        has_step |= strcmp(fields[i].field, "step") == 0;
        if (dcpk_model_need(model, object, &value, err))
            return err->status;
        dcpk_dict_put(&made, fields[i].field, value);
    }
    if (!has_step)
        dcpk_dict_put(&made, "step", r->step);
    *group = dcpk_dict_end(&made);
    return dcpk_made(*group, err);
}

/* One group, from its fields: who has it, and its dict in the model. */
static dcpk_status add_listed_group(struct dcpk_fsdp_reader *r,
                                    const struct dcpk_fsdp_listed *fields, size_t n,
                                    struct dcpk_error *err)
{
    const struct dcpk_value *group, *names;

    if (find_names(r, fields, n, &names, err) ||
        (names != NULL && take_named(r, names, (uint32_t)r->model->n_groups, err)) ||
        make_group(r, fields, n, &group, err))
        return err->status;
    return dcpk_model_add_group(r->model, group, err);
}

dcpk_status dcpk_fsdp_read_listed_groups(struct dcpk_fsdp_reader *r, struct dcpk_error *err)
{
    struct dcpk_fsdp_listed *list = NULL;
    size_t n = 0;

    (void)find_listed(r->model->ckpt, &list, &n, err);
    for (size_t i = 0, end; i < n && err->status == DCPK_OK; i = end) {
        for (end = i + 1; end < n && list[end].optimizer == list[i].optimizer &&
                          list[end].group == list[i].group;
             end++)
            ;
        (void)add_listed_group(r, list + i, end - i, err);
    }
    dcpk_free(list);
    return err->status;
}
