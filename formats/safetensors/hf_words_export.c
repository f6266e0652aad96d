/* SPDX-License-Identifier: Apache-2.0 */
/* hf_words_export.c - the keys of config.json that args give: the words of a map's rows, and
 * whether args are of a family. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/norms.h"
#include "lib/model/sizes.h"

/* Keys that transformers 5 refuses a whole number for. */
static bool is_float_key(const char *key)
{
    static const char *const floats[] = {
        "rms_norm_eps",
        "norm_eps",
        "layer_norm_epsilon",
        "layer_norm_eps",
        "initializer_range",
        "routed_scaling_factor",
        "router_aux_loss_coef",
        "swiglu_limit",
        "swiglu_alpha",
        "partial_rotary_factor",
        "rope_theta",
        "factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "low_freq_factor",
        "high_freq_factor",
    };

    for (size_t i = 0; i < DCPK_COUNT(floats); i++)
        if (strcmp(floats[i], key) == 0)
            return true;
    return false;
}

/* True if JSON and the family can hold the value: no tensor, class or number that is not finite. */
static bool is_plain(const struct dcpk_value *value)
{
    if (value->kind == DCPK_V_FLOAT)
        return isfinite(value->as.f);
    return value->kind == DCPK_V_NONE || value->kind == DCPK_V_BOOL || value->kind == DCPK_V_INT ||
           value->kind == DCPK_V_STR;
}

/* True if an arg's value is of its kind. */
static bool is_of_kind(const char *name, const struct dcpk_value *value)
{
    const struct dcpk_arg *arg = dcpk_arg_find(name);
    int64_t number;

    if (value->kind == DCPK_V_NONE || (arg != NULL && arg->kind == DCPK_ARG_ANY))
        return true;
    if (arg == NULL)
        return is_plain(value);
    if (arg->kind == DCPK_ARG_INT)
        return value->kind == DCPK_V_INT && dcpk_value_as_int(value, &number) && number >= 0;
    if (arg->kind == DCPK_ARG_FLOAT)
        return (value->kind == DCPK_V_FLOAT || value->kind == DCPK_V_INT) && is_plain(value);
    return value->kind == (arg->kind == DCPK_ARG_BOOL ? DCPK_V_BOOL : DCPK_V_STR);
}

dcpk_status dcpk_hf_key_export(struct dcpk_hf_exporting *m, const char *key,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    if (value != NULL && !is_plain(value))
        return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                             "'%s' would be %s, which config.json cannot hold", key,
                             dcpk_hf_show(m->arena, value));
    if (value != NULL && value->kind == DCPK_V_INT && is_float_key(key))
        value = dcpk_value_float(m->arena, (double)value->as.i, err);
    return dcpk_dict_set(&m->config, key, value);
}

/* The width of dense layers is nothing where no layer is dense: it may share a key with the
 * experts'. */
static bool yields_to_experts(const struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row)
{
    return strcmp(row->args[0], "moe_ffn_hidden_size") == 0 &&
           dcpk_value_same(dcpk_arg_value(m->attrs, "moe_layer_freq"),
                           &dcpk_arg_find("moe_layer_freq")->by_default);
}

static dcpk_status put_key(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                           const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *older = dcpk_dict_get(&m->config, row->keys[0]);

    if (value == NULL)
        return err->status;
    if (older != NULL && !dcpk_value_same(older, value) && !yields_to_experts(m, row))
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "'%s' would be %s, and by %s it is %s: the family has one for both",
                      row->keys[0], dcpk_hf_show(m->arena, older), row->args[0],
                      dcpk_hf_show(m->arena, value));
    return dcpk_hf_key_export(m, row->keys[0], value, err);
}

static dcpk_status fault_inexpressible(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                       const struct dcpk_value *value)
{
    return dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED, "%s is %s, which '%s' cannot express",
                         row->args[0], dcpk_hf_show(m->arena, value), row->keys[0]);
}

static dcpk_status export_copy(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_arg *arg = dcpk_arg_find(row->args[0]);

    if (value->kind != DCPK_V_NONE || (arg != NULL && (arg->flags & DCPK_ARG_NULLABLE)))
        return put_key(m, row, value, err);
    return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "args have no %s", row->args[0]);
}

/* The product is what the family takes null for. */
static dcpk_status export_or_mul(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t number, other;

    if (dcpk_value_as_int(value, &number) &&
        dcpk_value_as_int(dcpk_arg_value(m->attrs, row->arg), &other) && other > 0 &&
        number % row->factor == 0 && number / row->factor == other)
        value = dcpk_value_none();
    return put_key(m, row, value, err);
}

static dcpk_status export_or_none(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    if (value->kind == DCPK_V_NONE)
        value = dcpk_value_int(m->arena, 0, err);
    return put_key(m, row, value, err);
}

static dcpk_status export_groups(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    if (value->kind == DCPK_V_NONE)
        value = dcpk_value_int(m->arena, 1, err);
    return put_key(m, row, value, err);
}

static dcpk_status export_not(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                              const struct dcpk_value *value, struct dcpk_error *err)
{
    return put_key(m, row, dcpk_value_bool(dcpk_value_same(value, dcpk_value_none())), err);
}

static dcpk_status export_head_dim(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                   const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t hidden, heads;

    if (value->kind != DCPK_V_NONE)
        return put_key(m, row, value, err);
    if (!dcpk_value_as_int(dcpk_arg_value(m->attrs, "hidden_size"), &hidden) ||
        !dcpk_value_as_int(dcpk_arg_value(m->attrs, "num_attention_heads"), &heads) || heads < 1)
        return fault_inexpressible(m, row, value);
    return put_key(m, row, dcpk_value_int(m->arena, hidden / heads, err), err);
}

/* (W - 1, 0), as a tuple or a list; -1 to the left: none. */
static dcpk_status export_window(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t left, right;

    if (value->kind == DCPK_V_NONE)
        return put_key(m, row, value, err);
    if (dcpk_value_at(value, 2) != NULL || !dcpk_value_as_int(dcpk_value_at(value, 0), &left) ||
        !dcpk_value_as_int(dcpk_value_at(value, 1), &right) || left < -1 || left >= INT32_MAX ||
        right != 0)
        return fault_inexpressible(m, row, value);
    if (left == -1)
        return put_key(m, row, dcpk_value_none(), err);
    return put_key(m, row, dcpk_value_int(m->arena, left + 1, err), err);
}

static dcpk_status export_times(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *unit = dcpk_arg_value(m->attrs, row->arg);
    int64_t number, one;

    if (value->kind == DCPK_V_NONE)
        return put_key(m, row, value, err);
    if (dcpk_value_as_int(value, &number) && dcpk_value_as_int(unit, &one) && one > 0 &&
        number > 0 && number % one == 0)
        return put_key(m, row, dcpk_value_int(m->arena, number / one, err), err);
    return dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                         "%s is %s, which is not a multiple of %s, %s: '%s' counts these",
                         row->args[0], dcpk_hf_show(m->arena, value), row->arg,
                         dcpk_hf_show(m->arena, unit), row->keys[0]);
}

/* A reason becomes a fault, except that memory is short. */
static dcpk_status take_why(struct dcpk_hf_exporting *m, const struct dcpk_error *why,
                            struct dcpk_error *err)
{
    if (why->status == DCPK_ENOMEM)
        *err = *why;
    else
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "%s", why->text);
    return err->status;
}

/* Finds the layers that have experts; false: a fault, or err. */
static bool find_layers(struct dcpk_hf_exporting *m, const bool **is_moe, int64_t *n_layers,
                        struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;

    if (!dcpk_value_as_int(dcpk_arg_value(m->attrs, "num_layers"), n_layers))
        return false; /* its own row is the fault */
    if (dcpk_hf_moe_layers(m->attrs, *n_layers, m->arena, is_moe, &why) == DCPK_OK)
        return true;
    (void)take_why(m, &why, err);
    return false;
}

/* Zeros, then ones. */
static dcpk_status export_leading(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t n_layers, n_dense = 0;
    const bool *is_moe;

    if (!find_layers(m, &is_moe, &n_layers, err))
        return err->status;
    while (n_dense < n_layers && !is_moe[n_dense])
        n_dense++;
    for (int64_t i = n_dense; i < n_layers; i++)
        if (!is_moe[i])
            return fault_inexpressible(m, row, value);
    return put_key(m, row, dcpk_value_int(m->arena, n_dense, err), err);
}

/* Step 1 and the list of those without. */
static dcpk_status export_sparse(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value **dense;
    int64_t n_layers;
    const bool *is_moe;
    size_t n = 0;

    (void)value;
    if (!find_layers(m, &is_moe, &n_layers, err))
        return err->status;
    dense = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *dense, err);
    if (dense == NULL)
        return err->status;
    for (int64_t i = 0; i < n_layers; i++)
        if (!is_moe[i]) {
            dense[n] = dcpk_value_int(m->arena, i, err);
            if (dense[n++] == NULL)
                return err->status;
        }
    if (put_key(m, row, dcpk_value_int(m->arena, 1, err), err))
        return err->status;
    return dcpk_dict_set(&m->config, row->keys[1],
                         dcpk_value_seq(m->arena, DCPK_V_LIST, dense, n, err));
}

/* The list of kinds, and the interval of an arg that is one. */
static dcpk_status export_linear(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *linear = dcpk_value_str(m->arena, "linear_attention", err);
    const struct dcpk_value *full = dcpk_value_str(m->arena, "full_attention", err);
    struct dcpk_error why = DCPK_ERROR_INIT;
    const struct dcpk_value **kinds;
    const bool *is_linear;
    int64_t n_layers;

    if (!dcpk_value_as_int(dcpk_arg_value(m->attrs, "num_layers"), &n_layers))
        return DCPK_OK; /* its own row is the fault */
    if (dcpk_hf_linear_layers(m->attrs, n_layers, m->arena, &is_linear, &why))
        return take_why(m, &why, err);
    kinds = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *kinds, err);
    if (linear == NULL || full == NULL || kinds == NULL)
        return err->status;
    for (int64_t i = 0; i < n_layers; i++)
        kinds[i] = is_linear[i] ? linear : full;
    if (value->kind == DCPK_V_INT && put_key(m, row, value, err))
        return err->status;
    return dcpk_dict_set(&m->config, row->keys[1],
                         dcpk_value_seq(m->arena, DCPK_V_LIST, kinds, (size_t)n_layers, err));
}

/* Writes 1 for a layer with rotary embeddings, else 0. By an interval, each such layer has none. */
static dcpk_status export_rope_layers(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                      const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *bits[] = {dcpk_value_int(m->arena, 0, err),
                                       dcpk_value_int(m->arena, 1, err)};
    const struct dcpk_value **items;
    int64_t n_layers, every = INT64_MAX;
    bool *is_bare;

    if (!dcpk_value_as_int(dcpk_arg_value(m->attrs, "num_layers"), &n_layers) || n_layers < 1)
        return DCPK_OK; /* its own row is the fault */
    items = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *items, err);
    is_bare = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *is_bare, err);
    if (items == NULL || is_bare == NULL || bits[0] == NULL || bits[1] == NULL)
        return err->status;
    if (dcpk_value_is_none(value) || (dcpk_value_as_int(value, &every) && every >= 1))
        for (int64_t i = 0; i < n_layers; i++)
            is_bare[i] = (i + 1) % every == 0;
    else if (!dcpk_moe_layers_read(value, is_bare, (size_t)n_layers))
        return fault_inexpressible(m, row, value);
    for (int64_t i = 0; i < n_layers; i++)
        items[i] = bits[!is_bare[i]];
    return dcpk_dict_set(&m->config, row->keys[1],
                         dcpk_value_seq(m->arena, DCPK_V_LIST, items, (size_t)n_layers, err));
}

static dcpk_status export_enum(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    for (size_t i = 0; i < row->value->n; i++)
        if (dcpk_value_same(row->value->as.pairs[i].value, value))
            return put_key(m, row, row->value->as.pairs[i].key, err);
    return fault_inexpressible(m, row, value);
}

/* Without the ends of pipeline stages. */
static dcpk_status export_pattern(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    const char *symbols = NULL;
    int64_t n_layers;

    if (!dcpk_value_as_int(dcpk_arg_value(m->attrs, "num_layers"), &n_layers))
        return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "args have no num_layers");
    if (dcpk_hf_layer_symbols(m->attrs, n_layers, m->arena, &symbols, &why) == DCPK_ENOMEM)
        *err = why;
    else if (why.status != DCPK_OK)
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "%s", why.text);
    else if (symbols == NULL)
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "args have no %s", row->args[0]);
    else if (strspn(symbols, "M*-E") != strlen(symbols))
        return fault_inexpressible(m, row, value);
    else
        return put_key(m, row, dcpk_value_str(m->arena, symbols, err), err);
    return err->status;
}

/* None is twice the hidden size over the size of a head: `expand` of
 * megatron/core/ssm/mamba_mixer.py@core_v0.19.0. */
static dcpk_status export_mamba_heads(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                      const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t hidden, size;

    if (value->kind != DCPK_V_NONE)
        return put_key(m, row, value, err);
    if (!dcpk_value_as_int(dcpk_arg_value(m->attrs, "hidden_size"), &hidden) ||
        !dcpk_value_as_int(dcpk_arg_value(m->attrs, "mamba_head_dim"), &size) || size < 1 ||
        hidden < 1 || hidden > INT32_MAX || 2 * hidden % size != 0)
        return fault_inexpressible(m, row, value);
    return put_key(m, row, dcpk_value_int(m->arena, 2 * hidden / size, err), err);
}

/* The arg of keys[0] under the further key. */
static dcpk_status export_hf_only(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    (void)value;
    return dcpk_hf_key_export(m, row->args[0], dcpk_arg_value(m->attrs, row->keys[0]), err);
}

static dcpk_status (*const export_words[DCPK_HF_N_HOWS])(struct dcpk_hf_exporting *m,
                                                         const struct dcpk_hf_row *row,
                                                         const struct dcpk_value *value,
                                                         struct dcpk_error *err) = {
    [DCPK_HF_HOW_COPY] = export_copy,         [DCPK_HF_HOW_OR] = export_copy,
    [DCPK_HF_HOW_OR_ARG] = export_copy,       [DCPK_HF_HOW_OR_MUL] = export_or_mul,
    [DCPK_HF_HOW_OR_NONE] = export_or_none,   [DCPK_HF_HOW_NOT] = export_not,
    [DCPK_HF_HOW_HEAD_DIM] = export_head_dim, [DCPK_HF_HOW_WINDOW] = export_window,
    [DCPK_HF_HOW_TIMES] = export_times,       [DCPK_HF_HOW_LEADING] = export_leading,
    [DCPK_HF_HOW_SPARSE] = export_sparse,     [DCPK_HF_HOW_ROPE_LAYERS] = export_rope_layers,
    [DCPK_HF_HOW_GROUPS] = export_groups,     [DCPK_HF_HOW_ENUM] = export_enum,
    [DCPK_HF_HOW_HF_ONLY] = export_hf_only,   [DCPK_HF_HOW_LINEAR] = export_linear,
    [DCPK_HF_HOW_PATTERN] = export_pattern,   [DCPK_HF_HOW_MAMBA_HEADS] = export_mamba_heads,
};

/* One row: args become a key of config.json, or a fault. Errors: DCPK_ENOMEM. */
static dcpk_status row_export(struct dcpk_hf_exporting *m, const struct dcpk_hf_row *row,
                              struct dcpk_error *err)
{
    const char *name = row->args[0];
    const struct dcpk_value *value;

    if (dcpk_hf_arg_is_moot(m->attrs, name))
        return DCPK_OK;
    for (size_t i = 0; i < row->n_args; i++)
        if (!dcpk_value_is_none(dcpk_value_get(m->attrs, row->args[i]))) {
            name = row->args[i];
            break;
        }
    value = dcpk_arg_value(m->attrs, name);
    if (is_of_kind(name, value))
        return export_words[row->how](m, row, value, err);
    return dcpk_hf_fault(&m->faults, DCPK_EMISMATCH, "%s is %s, which is not what the arg holds",
                         name, dcpk_hf_show(m->arena, value));
}

/* ---- whether args are of a family, and all keys that they give ---- */

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

bool dcpk_hf_first_shares(const struct dcpk_value *attrs)
{
    int64_t every, first;

    return dcpk_value_as_int(dcpk_arg_value(attrs, "dsa_indexer_topk_freq"), &every) && every > 1 &&
           dcpk_value_as_int(dcpk_arg_value(attrs, "dsa_indexer_skip_topk_offset"), &first) &&
           first == 0;
}

static void check_args_indexers(struct dcpk_hf_exporting *m)
{
    if (dcpk_hf_first_shares(m->attrs))
        dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                      "dsa_indexer_skip_topk_offset is 0, and layers share indexers: family '%s' "
                      "means another layer by it, the same by 1",
                      m->map->family);
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
    check_args_indexers(m);
    for (size_t i = 0; i < m->map->n_config; i++)
        if (row_export(m, &m->map->config[i], err) || err->status != DCPK_OK)
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

    m.arena = arena;
    m.config = (struct dcpk_dict){.arena = arena, .err = err};
    if (dcpk_hf_config_compute(&m, err) == DCPK_OK && m.faults.n > 0)
        (void)dcpk_fail(err, DCPK_EMISMATCH, "%.*s", (int)m.faults.first_bytes,
                        (const char *)m.faults.text.data);
    *distance = m.faults.n + LACKING * m.n_lacking;
    dcpk_bytes_release(&m.faults.text);
    dcpk_arena_free(arena);
    return err->status;
}
