/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dcp.c - the scheme torch_dcp (FORMAT.md 14): state by numbers of parameters. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/numbered.h"
#include "lib/model/registered.h"

/* The state dict of torch's optimizer: that of the run in fp32, else next to its masters
 * (MC/optimizer/optimizer.py@0.19.0 FP32Optimizer, Float16OptimizerWithFloat16Params). */
#define TD_FP32 "optimizer."
#define TD_LOW  "optimizer.optimizer."

/* Where the state dict is; NULL: the keys are not of this scheme. */
static const char *find_state_dict(const struct dcpk_checkpoint *ckpt)
{
    static const struct {
        const char *prefix, *state, *groups;
    } forms[] = {{TD_FP32, TD_FP32 "state.", TD_FP32 "param_groups.0.params"},
                 {TD_LOW, TD_LOW "state.", TD_LOW "param_groups.0.params"}};
    const char *found = NULL;

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const char *key = ckpt->tensors[i].key;

        if (dcpk_starts_with(key, FD_MODEL))
            return NULL;
        for (size_t f = 0; f < DCPK_COUNT(forms) && found == NULL; f++)
            if (dcpk_starts_with(key, forms[f].state) &&
                isdigit((unsigned char)key[strlen(forms[f].state)]) &&
                dcpk_checkpoint_object(ckpt, forms[f].groups) != NULL)
                found = forms[f].prefix;
    }
    return found;
}

bool dcpk_fsdp_is_torch_dcp(const struct dcpk_checkpoint *ckpt)
{
    return find_state_dict(ckpt) != NULL;
}

/* ---- numbers ---- */

/* A weight, and when its module registers it. */
struct weight {
    struct dcpk_registered reg;
    const char *name;
    int n_axes;
};

static int compare_weights(const void *left, const void *right)
{
    const struct weight *a = left, *b = right;
    const int order = dcpk_registered_compare(&a->reg, &b->reg);

    return order != 0 ? order : strcmp(a->name, b->name);
}

/* The order of registration of the run's modules: enum dcpk_spec. */
static unsigned spec_of(const struct dcpk_model *model)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    if (dcpk_value_is_str(dcpk_value_get(attrs, "transformer_impl"), "local"))
        return 0;
    if (dcpk_value_is_true(attrs, "moe_grouped_gemm"))
        return DCPK_SPEC_TE | DCPK_SPEC_GROUPED;
    return DCPK_SPEC_TE;
}

/* The weights, less buffers, as modules register them. */
static dcpk_status list_weights(const struct dcpk_fsdp_reader *r, struct weight **weights,
                                size_t *n, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = r->model->ckpt;
    struct dcpk_arena *arena = r->model->arena;
    struct weight *list = dcpk_arena_array(arena, ckpt->n_tensors, sizeof *list, err);

    *n = 0;
    *weights = list;
    for (size_t t = 0; list != NULL && t < ckpt->n_tensors; t++) {
        const char *name = ckpt->tensors[t].key, *canonical;

        if (!dcpk_starts_with(name, r->prefixes.weight))
            continue;
        name += strlen(r->prefixes.weight);
        canonical = dcpk_name_canonical(arena, name, dcpk_name_layer_flags(name), err);
        if (canonical == NULL)
            return err->status;
        list[*n] = (struct weight){.name = name, .n_axes = ckpt->tensors[t].rank};
        if (!dcpk_registered_find(canonical, spec_of(r->model), &list[*n].reg))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "the place of '%s' in the order of registration is not known", name);
        *n += !list[*n].reg.is_buffer;
    }
    if (*n > 0)
        qsort(list, *n, sizeof *list, compare_weights);
    return dcpk_made(list, err);
}

/* {"params": [...], "wd_mult": ..., ...} of group g; *group NULL: there is none. */
static dcpk_status number_read_group(const struct dcpk_fsdp_reader *r, const char *prefix, size_t g,
                                     const struct dcpk_value **group, struct dcpk_error *err)
{
    static const char *const fields[] = {"params", "wd_mult", "is_expert_parallel"};
    struct dcpk_arena *arena = r->model->arena;
    struct dcpk_dict made = {.arena = arena, .err = err};

    *group = NULL;
    for (size_t i = 0; i < DCPK_COUNT(fields); i++) {
        const char *key =
            dcpk_arena_printf(arena, err, "%sparam_groups.%zu.%s", prefix, g, fields[i]);
        const struct dcpk_object *object;
        const struct dcpk_value *value;

        if (key == NULL)
            return err->status;
        object = dcpk_checkpoint_object(r->model->ckpt, key);
        if (object == NULL && i == 0)
            return DCPK_OK;
        if (object == NULL)
            continue;
        if (dcpk_model_need(r->model, object, &value, err))
            return err->status;
        dcpk_dict_put(&made, fields[i], value);
    }
    *group = dcpk_dict_end(&made);
    return dcpk_made(*group, err);
}

static dcpk_status fsdp_list_groups(const struct dcpk_fsdp_reader *r, const char *prefix,
                                    const struct dcpk_value **groups, struct dcpk_error *err)
{
    const struct dcpk_value **list =
        dcpk_arena_array(r->model->arena, DCPK_MAX_GROUPS, sizeof *list, err);
    size_t n = 0;

    if (list == NULL)
        return err->status;
    for (; n < DCPK_MAX_GROUPS; n++) {
        if (number_read_group(r, prefix, n, &list[n], err))
            return err->status;
        if (list[n] == NULL)
            break;
    }
    *groups = dcpk_value_seq(r->model->arena, DCPK_V_LIST, list, n, err);
    return dcpk_made(*groups, err);
}

/* The names of the parameters that have masters, in the order of groups: those in 16 bits. */
static dcpk_status find_mastered(const struct dcpk_fsdp_reader *r, const struct dcpk_value *groups,
                                 struct dcpk_numbers *numbers, struct dcpk_error *err)
{
    struct dcpk_arena *arena = r->model->arena;
    const char **names = dcpk_arena_array(arena, numbers->n, sizeof *names, err);
    size_t *ends = dcpk_arena_array(arena, groups->n, sizeof *ends, err), n = 0;

    if (names == NULL || ends == NULL)
        return err->status;
    for (size_t g = 0; g < groups->n; g++) {
        const struct dcpk_value *params = dcpk_value_get(groups->as.items[g], "params");

        for (size_t i = 0; i < params->n; i++) {
            int64_t number = 0; /* dcpk_numbered_find has checked it */
            const char *key;

            (void)dcpk_value_as_int(params->as.items[i], &number);
            key = dcpk_arena_printf(arena, err, "%s%s", r->prefixes.weight, numbers->names[number]);
            if (key == NULL)
                return err->status;
            names[n] = numbers->names[number];
            n += dcpk_checkpoint_tensor(r->model->ckpt, key)->dtype != DCPK_F32;
        }
        ends[g] = n;
    }
    numbers->mastered = names;
    numbers->mastered_ends = ends;
    numbers->n_groups = groups->n;
    return DCPK_OK;
}

static dcpk_status find_numbers(const struct dcpk_fsdp_reader *r, const char *prefix,
                                struct dcpk_numbers *numbers, struct dcpk_error *err)
{
    struct dcpk_arena *arena = r->model->arena;
    const struct dcpk_value *groups;
    struct dcpk_numbered_param *params;
    struct dcpk_numbered numbered;
    const char **names;
    struct weight *weights;
    /* Experts have groups of their own where it is more than 1. */
    const int64_t ep =
        dcpk_value_int_or(dcpk_value_attrs(r->model->args), "expert_model_parallel_size", 1);
    size_t n;

    if (list_weights(r, &weights, &n, err) || fsdp_list_groups(r, prefix, &groups, err))
        return err->status;
    params = dcpk_arena_array(arena, n, sizeof *params, err);
    if (params == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        params[i] =
            (struct dcpk_numbered_param){weights[i].n_axes, weights[i].reg.expert >= 0 && ep > 1};
    if (dcpk_numbered_find(groups, params, n, arena, &numbered, err))
        return err->status;
    names = dcpk_arena_array(arena, numbered.n, sizeof *names, err);
    for (size_t i = 0; names != NULL && i < numbered.n; i++)
        names[i] = weights[numbered.param_of[i]].name;
    numbers->names = names;
    numbers->n = numbered.n;
    if (names == NULL)
        return err->status;
    return find_mastered(r, groups, numbers, err);
}

dcpk_status dcpk_torch_dcp_number(struct dcpk_fsdp_reader *r, struct dcpk_error *err)
{
    const char *prefix = find_state_dict(r->model->ckpt);
    struct dcpk_numbers *numbers;

    if (prefix == NULL)
        return DCPK_OK;
    r->prefixes.has_q = false;
    if (r->model->ckpt->given.state_prefix == NULL)
        r->prefixes.state = dcpk_arena_printf(r->model->arena, err, "%sstate.", prefix);
    if (r->prefixes.state == NULL || (r->model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0)
        return err->status;
    numbers = dcpk_arena_alloc(r->model->arena, sizeof *numbers, err);
    if (numbers == NULL)
        return err->status;
    if (find_numbers(r, prefix, numbers, err)) {
        dcpk_context(err, "naming the optimizer's state");
        err->fixes |= DCPK_FIX_WEIGHTS_ONLY;
        return err->status;
    }
    r->numbers = numbers;
    return DCPK_OK;
}

dcpk_status dcpk_torch_dcp_name(const struct dcpk_fsdp_reader *r, const char *digits,
                                const char **name, struct dcpk_error *err)
{
    const char *end = digits;
    const int64_t number = dcpk_take_number(&end);

    if (number < 0 || *end != '\0' || (uint64_t)number >= r->numbers->n)
        return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_WEIGHTS_ONLY,
                             "'%.100s' is not the number of a group's parameter", digits);
    *name = r->numbers->names[number];
    return DCPK_OK;
}

dcpk_status dcpk_torch_dcp_master(const struct dcpk_fsdp_reader *r, const char *key,
                                  struct dcpk_fsdp_key *parts, struct dcpk_error *err)
{
    const struct dcpk_numbers *numbers = r->numbers;
    const char *end = key + strlen(FD_MASTERS);
    const int64_t group = dcpk_take_number(&end);
    size_t first = 0;
    int64_t at = -1;

    if (*end++ == '.' && group >= 0 && (uint64_t)group < numbers->n_groups)
        at = dcpk_take_number(&end);
    if (group > 0 && at >= 0)
        first = numbers->mastered_ends[group - 1];
    if (at < 0 || *end != '\0' || (uint64_t)at >= numbers->mastered_ends[group] - first)
        return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_WEIGHTS_ONLY,
                             "it is not the master of a group's 16-bit parameter");
    *parts = (struct dcpk_fsdp_key){
        .role = DCPK_MASTER, .prefix = FD_MASTERS, .name = numbers->mastered[first + (size_t)at]};
    parts->end = "";
    return DCPK_OK;
}
