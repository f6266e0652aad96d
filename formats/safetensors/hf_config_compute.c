/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_compute.c - the keys of config.json that args give, and whether args are of a
 * family. */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/text.h"
#include "lib/model/norms.h"

#define LACKING 10 /* an arg that a family lacks counts as so many values that differ */

static bool map_names(const struct dcpk_hf_map *map, const char *arg)
{
    for (size_t i = 0; i < map->n_config; i++)
        for (size_t j = 0; j < map->config[i].n_args; j++)
            if (strcmp(map->config[i].args[j], arg) == 0)
                return true;
    return dcpk_value_get(map->args, arg) != NULL || dcpk_value_get(map->set, arg) != NULL ||
           (map->rope_theta != NULL && strcmp(map->rope_theta, arg) == 0);
}

/* True if the map has a row, a value or a kind of rope for it, by one of its names. */
static bool map_expresses(const struct dcpk_hf_map *map, const struct dcpk_arg *arg)
{
    return map_names(map, arg->name) || (arg->twin != NULL && map_names(map, arg->twin)) ||
           dcpk_hf_ropes_name(map, arg->name); /* hf_rope.c chooses the kind */
}

/* Checks the map's requirements on args. */
static void check_args_asked(struct dcpk_hf_exporting *m)
{
    const struct dcpk_value *asked = m->map->args;

    for (size_t i = 0; i < asked->n; i++) {
        const char *name = dcpk_value_as_str(asked->as.pairs[i].key);
        const struct dcpk_value *value = dcpk_arg_value(m->attrs, name);

        if (dcpk_hf_arg_is_moot(m->attrs, name))
            continue;
        if (strcmp(name, DCPK_ARG_NORM_1P) == 0) /* weights are written as the family's are */
            continue;
        if (!dcpk_value_same(value, asked->as.pairs[i].value))
            dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "%s is %s, and family '%s' has %s", name,
                          dcpk_hf_show(m->arena, value), m->map->family,
                          dcpk_hf_show(m->arena, asked->as.pairs[i].value));
    }
}

/* An arg that decides, is off its default, and that the map does not express. */
static void check_args_unnamed(struct dcpk_hf_exporting *m)
{
    for (size_t i = 0; i < dcpk_n_args; i++) {
        const struct dcpk_arg *arg = &dcpk_args[i];

        if (!dcpk_arg_is_off(arg, m->attrs) || map_expresses(m->map, arg))
            continue;
        m->n_lacking++;
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "%s is %s, which family '%s' does not have",
                      arg->name, dcpk_hf_show(m->arena, dcpk_arg_value(m->attrs, arg->name)),
                      m->map->family);
    }
}

/* A family without a size of heads has hidden_size / num_attention_heads. */
static void check_args_head_dim(struct dcpk_hf_exporting *m)
{
    const struct dcpk_value *size = dcpk_value_get(m->attrs, "kv_channels");
    int64_t channels, hidden, heads;

    if (map_names(m->map, "kv_channels") || map_names(m->map, "kv_lora_rank") ||
        !dcpk_value_as_int(size, &channels) ||
        !dcpk_value_as_int(dcpk_value_get(m->attrs, "hidden_size"), &hidden) ||
        !dcpk_value_as_int(dcpk_value_get(m->attrs, "num_attention_heads"), &heads) || heads < 1)
        return;
    if (hidden % heads != 0 || hidden / heads != channels)
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                      "kv_channels is %" PRId64 ", and family '%s' has hidden_size %" PRId64
                      " over %" PRId64 " heads",
                      channels, m->map->family, hidden, heads);
}

bool dcpk_hf_is_greedy(const struct dcpk_hf_map *map, const struct dcpk_value *method)
{
    const struct dcpk_value *used = method;

    if (dcpk_value_is_none(used))
        used = dcpk_value_get(map->hf, "topk_method");
    return strcmp(dcpk_text_or(dcpk_value_as_str(used), ""), "greedy") == 0;
}

/* Groups count with a number of them to pick alone
 * (megatron/core/transformer/moe/moe_utils.py@core_v0.19.0, topk_routing_with_score_function). */
static void check_args_groups(struct dcpk_hf_exporting *m)
{
    const struct dcpk_value *groups = dcpk_value_get(m->attrs, "moe_router_num_groups");

    if (dcpk_value_is_none(dcpk_value_get(m->attrs, "num_experts")) || dcpk_value_is_none(groups))
        return;
    if (dcpk_hf_is_greedy(m->map, NULL))
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                      "moe_router_num_groups is %s, and family '%s' picks experts among all",
                      dcpk_hf_show(m->arena, groups), m->map->family);
    else if (dcpk_value_is_none(dcpk_value_get(m->attrs, "moe_router_group_topk")))
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                      "moe_router_num_groups is %s without moe_router_group_topk",
                      dcpk_hf_show(m->arena, groups));
}

bool dcpk_hf_weighs_one_expert(const struct dcpk_value *attrs)
{
    const char *score = dcpk_value_as_str(dcpk_arg_value(attrs, "moe_router_score_function"));
    int64_t topk;

    return !dcpk_value_is_none(dcpk_value_get(attrs, "num_experts")) &&
           dcpk_value_as_int(dcpk_arg_value(attrs, "moe_router_topk"), &topk) && topk == 1 &&
           (!dcpk_value_is_true(attrs, "moe_router_pre_softmax") ||
            strcmp(dcpk_text_or(score, ""), "softmax") != 0);
}

static void check_args_topk(struct dcpk_hf_exporting *m)
{
    if (dcpk_hf_weighs_one_expert(m->attrs))
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                      "moe_router_topk is 1: Megatron weighs the expert by its score, and family "
                      "'%s' gives it all of the weight",
                      m->map->family);
}

dcpk_status dcpk_hf_config_compute(struct dcpk_hf_exporting *m, struct dcpk_error *err)
{
    check_args_asked(m);
    check_args_unnamed(m);
    check_args_head_dim(m);
    check_args_groups(m);
    check_args_topk(m);
    for (size_t i = 0; i < m->map->n_config; i++)
        if (dcpk_hf_row_export(m, &m->map->config[i], err) || err->status != DCPK_OK)
            return err->status;
    if (dcpk_hf_rope_export(m, err))
        return err->status;
    for (size_t i = 0; i < m->map->hf->n; i++)
        if (dcpk_hf_key_export(m, dcpk_value_as_str(m->map->hf->as.pairs[i].key),
                               m->map->hf->as.pairs[i].value, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_hf_args_hold(const struct dcpk_hf_map *map, const struct dcpk_value *args,
                              size_t *distance, struct dcpk_error *err)
{
    struct dcpk_hf_exporting m = {.map = map, .attrs = args};
    struct dcpk_arena *arena = dcpk_arena_new();

    m.arena = m.config.arena = arena;
    if (dcpk_hf_config_compute(&m, err) == DCPK_OK && m.faults.n > 0)
        (void)dcpk_fail(err, DCPK_EMISMATCH, "%.*s", (int)m.faults.first_bytes,
                        (const char *)m.faults.text.data);
    *distance = m.faults.n + LACKING * m.n_lacking;
    dcpk_bytes_release(&m.faults.text);
    dcpk_arena_free(arena);
    return err->status;
}
