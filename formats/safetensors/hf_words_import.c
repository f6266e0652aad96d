/* SPDX-License-Identifier: Apache-2.0 */
/* hf_words_import.c - the words of a map's rows, from config.json to args. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/model/sizes.h"

static const struct dcpk_value *int_of(const struct dcpk_arg *arg, const struct dcpk_value *value,
                                       struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const double most = arg->most > 0 ? (double)arg->most : (double)INT32_MAX;
    double number;

    if (!dcpk_value_as_float(value, &number) || number != floor(number) || number > most ||
        number < (arg->flags & DCPK_ARG_MAY_BE_0 ? 0 : 1))
        return NULL;
    return dcpk_value_int(m->arena, (int64_t)number, err);
}

static const struct dcpk_value *float_of(const struct dcpk_arg *arg, const struct dcpk_value *value,
                                         struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    double number;

    if (!dcpk_value_as_float(value, &number) || !isfinite(number) || number < 0 ||
        (number == 0 && !(arg->flags & DCPK_ARG_MAY_BE_0)))
        return NULL;
    return dcpk_value_float(m->arena, number, err);
}

/* NULL: it is not of that kind, or err. */
static const struct dcpk_value *value_of_kind(const struct dcpk_arg *arg,
                                              const struct dcpk_value *value,
                                              struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    if (arg == NULL)
        return value;
    switch (arg->kind) {
    case DCPK_ARG_INT:
        return int_of(arg, value, m, err);
    case DCPK_ARG_FLOAT:
        return float_of(arg, value, m, err);
    case DCPK_ARG_BOOL:
        return value->kind == DCPK_V_BOOL ? value : NULL;
    case DCPK_ARG_TEXT:
        return value->kind == DCPK_V_STR ? value : NULL;
    case DCPK_ARG_ANY:
        break;
    }
    return value;
}

dcpk_status dcpk_hf_arg_import(struct dcpk_hf_importing *m, const char *key, const char *arg,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    static const char *const kinds[] = {"a value", "a whole number that Megatron takes",
                                        "a number that Megatron takes", "true or false", "text"};
    const struct dcpk_arg *known = dcpk_arg_find(arg);
    const struct dcpk_value *fits;

    if (value->kind == DCPK_V_NONE && (known == NULL || known->by_default.kind == DCPK_V_NONE))
        return dcpk_dict_set(&m->args, arg, value);
    fits = value_of_kind(known, value, m, err);
    if (fits != NULL)
        return dcpk_dict_set(&m->args, arg, fits);
    if (err->status == DCPK_OK)
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is %s, not %s", key,
                      dcpk_hf_show(m->arena, value), kinds[known->kind]);
    return err->status;
}

static dcpk_status put_args(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                            const struct dcpk_value *value, struct dcpk_error *err)
{
    if (value == NULL)
        return err->status;
    for (size_t i = 0; i < row->n_args; i++) {
        const struct dcpk_value *before = dcpk_dict_get(&m->args, row->args[i]);

        if (before != NULL && before->kind == DCPK_V_BOOL && !dcpk_value_same(before, value))
            dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                          "'%s' is %s, and by another key args.%s is %s", row->keys[0],
                          dcpk_hf_show(m->arena, value), row->args[i],
                          dcpk_hf_show(m->arena, before));
        if (dcpk_hf_arg_import(m, row->keys[0], row->args[i], value, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status fault_kind(struct dcpk_hf_importing *m, const char *key,
                              const struct dcpk_value *value, const char *wanted)
{
    return dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is %s, not %s", key,
                         dcpk_hf_show(m->arena, value), wanted);
}

/* A positive number among the args that are there. */
static bool arg_int(const struct dcpk_hf_importing *m, const char *arg, int64_t *out)
{
    return dcpk_value_as_int(dcpk_dict_get(&m->args, arg), out) && *out > 0;
}

/* The other arg times the factor; where it is not there, a fault names it already. */
static dcpk_status import_product(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, int64_t factor,
                                  struct dcpk_error *err)
{
    int64_t other;

    if (!arg_int(m, row->arg, &other))
        return DCPK_OK;
    if (factor < 1 || other > INT32_MAX / factor)
        return dcpk_hf_fault(&m->faults, DCPK_EFORMAT,
                             "'%s' is %s: %" PRId64 " times %s, %" PRId64
                             ", is not a whole number that Megatron takes",
                             row->keys[0], dcpk_hf_show(m->arena, value), factor, row->arg, other);
    return put_args(m, row, dcpk_value_int(m->arena, other * factor, err), err);
}

static dcpk_status import_times(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t n;

    if (value->kind == DCPK_V_NONE)
        return put_args(m, row, value, err);
    if (value->kind != DCPK_V_INT || !dcpk_value_as_int(value, &n) || n < 1)
        return fault_kind(m, row->keys[0], value, "a whole number from 1 on");
    return import_product(m, row, value, n, err);
}

static dcpk_status import_head_dim(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                   const struct dcpk_value *by_default, struct dcpk_error *err)
{
    int64_t hidden, heads;

    (void)by_default;
    if (!arg_int(m, "hidden_size", &hidden) || !arg_int(m, "num_attention_heads", &heads))
        return DCPK_OK;
    if (hidden % heads == 0)
        return put_args(m, row, dcpk_value_int(m->arena, hidden / heads, err), err);
    return dcpk_hf_fault(&m->faults, DCPK_EFORMAT,
                         "'%s' is missing, and hidden_size %" PRId64
                         " is not a multiple of %" PRId64 " heads",
                         row->keys[0], hidden, heads);
}

/* A window of W tokens, the token itself among them, is W - 1 to its left. */
static dcpk_status import_window(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *sides[2];
    int64_t width;

    if (value->kind == DCPK_V_NONE)
        return put_args(m, row, value, err);
    if (value->kind != DCPK_V_INT || !dcpk_value_as_int(value, &width) || width < 1 ||
        width > INT32_MAX)
        return fault_kind(m, row->keys[0], value, "a number of tokens");
    sides[0] = dcpk_value_int(m->arena, width - 1, err);
    sides[1] = dcpk_value_int(m->arena, 0, err);
    if (sides[0] == NULL || sides[1] == NULL)
        return err->status;
    return put_args(m, row, dcpk_value_seq(m->arena, DCPK_V_TUPLE, sides, 2, err), err);
}

/* Zeros and ones. */
static dcpk_status put_layers(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                              const bool *layers, size_t n, struct dcpk_error *err)
{
    const struct dcpk_value **items = dcpk_arena_array(m->arena, n, sizeof *items, err);
    const struct dcpk_value *zero = dcpk_value_int(m->arena, 0, err);
    const struct dcpk_value *one = dcpk_value_int(m->arena, 1, err);

    if (items == NULL || zero == NULL || one == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        items[i] = layers[i] ? one : zero;
    return put_args(m, row, dcpk_value_seq(m->arena, DCPK_V_LIST, items, n, err), err);
}

/* Zeros and ones, or 1 where every layer has experts. */
static dcpk_status put_frequency(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const bool *is_moe, size_t n, struct dcpk_error *err)
{
    size_t n_moe = 0;

    for (size_t i = 0; i < n; i++)
        n_moe += is_moe[i];
    if (n_moe == n)
        return put_args(m, row, dcpk_value_int(m->arena, 1, err), err);
    if (n_moe == 0)
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED, "'%s' leaves no layer with experts",
                      row->keys[0]);
    return put_layers(m, row, is_moe, n, err);
}

static dcpk_status import_leading(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    int64_t n_layers, n_dense;
    bool *is_moe;

    if (value->kind != DCPK_V_INT || !dcpk_value_as_int(value, &n_dense) || n_dense < 0)
        return fault_kind(m, row->keys[0], value, "a number of layers");
    if (!arg_int(m, "num_layers", &n_layers))
        return DCPK_OK;
    is_moe = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *is_moe, err);
    if (is_moe == NULL)
        return err->status;
    for (int64_t i = n_dense; i < n_layers; i++)
        is_moe[i] = true;
    return put_frequency(m, row, is_moe, (size_t)n_layers, err);
}

/* Every step-th layer, from the step-th on, without those of the list. */
static dcpk_status import_sparse(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *unused, struct dcpk_error *err)
{
    const struct dcpk_value *step = dcpk_hf_view_get(&m->view, row->keys[0]);
    const struct dcpk_value *list = dcpk_hf_view_get(&m->view, row->keys[1]);
    int64_t n_layers, every = 1, layer;
    bool *is_moe;

    (void)unused;
    if (!dcpk_value_is_none(step) &&
        (step->kind != DCPK_V_INT || !dcpk_value_as_int(step, &every) || every < 1))
        return fault_kind(m, row->keys[0], step, "a number of layers");
    if (!dcpk_value_is_none(list) && list->kind != DCPK_V_LIST)
        return fault_kind(m, row->keys[1], list, "a list of layers");
    if (!arg_int(m, "num_layers", &n_layers))
        return DCPK_OK;
    is_moe = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *is_moe, err);
    if (is_moe == NULL)
        return err->status;
    for (int64_t i = 0; i < n_layers; i++)
        is_moe[i] = (i + 1) % every == 0;
    for (size_t i = 0; !dcpk_value_is_none(list) && i < list->n; i++) {
        if (list->as.items[i]->kind != DCPK_V_INT ||
            !dcpk_value_as_int(list->as.items[i], &layer) || layer < 0 || layer >= n_layers)
            return fault_kind(m, row->keys[1], list, "a list of layers that the model has");
        is_moe[layer] = false;
    }
    return put_frequency(m, row, is_moe, (size_t)n_layers, err);
}

/* Reads a list of kinds: is_linear by layer, and the interval by which transformers makes it, 0
 * where there is none. False: it is not a list of the layers. */
static bool read_kinds(const struct dcpk_value *kinds, int64_t n_layers, bool *is_linear,
                       int64_t *interval)
{
    int64_t n_first = 0;

    if (kinds->kind != DCPK_V_LIST || (int64_t)kinds->n != n_layers)
        return false;
    for (size_t i = 0; i < kinds->n; i++) {
        is_linear[i] = dcpk_value_is_str(kinds->as.items[i], "linear_attention");
        if (!is_linear[i] && !dcpk_value_is_str(kinds->as.items[i], "full_attention"))
            return false;
    }
    while (n_first < n_layers && is_linear[n_first])
        n_first++;
    *interval = n_first + 1;
    for (int64_t i = 0; i < n_layers; i++)
        if (is_linear[i] != ((i + 1) % (n_first + 1) != 0))
            *interval = 0;
    return true;
}

/* Zeros and ones, or the interval where there is one: every n-th layer is full. */
static dcpk_status import_linear(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *unused, struct dcpk_error *err)
{
    const struct dcpk_value *every = dcpk_hf_view_get(&m->view, row->keys[0]);
    const struct dcpk_value *kinds = dcpk_hf_view_get(&m->view, row->keys[1]);
    int64_t n_layers, interval = 0, given = 0;
    bool *is_linear;

    (void)unused;
    if (!dcpk_value_is_none(every) &&
        (every->kind != DCPK_V_INT || !dcpk_value_as_int(every, &given) || given < 1))
        return fault_kind(m, row->keys[0], every, "a number of layers");
    if (!arg_int(m, "num_layers", &n_layers))
        return DCPK_OK;
    if (dcpk_value_is_none(kinds))
        return put_args(m, row, given > 0 ? every : row->value, err);
    is_linear = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *is_linear, err);
    if (is_linear == NULL)
        return err->status;
    if (!read_kinds(kinds, n_layers, is_linear, &interval))
        return fault_kind(m, row->keys[1], kinds,
                          "a list of 'linear_attention' and 'full_attention' of all layers");
    if (given > 0 && given != interval && (given <= n_layers || interval <= n_layers))
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is %" PRId64 ", and '%s' is %s: keep one",
                      row->keys[0], given, row->keys[1], dcpk_hf_show(m->arena, kinds));
    if (interval > 0)
        return put_args(m, row, dcpk_value_int(m->arena, interval, err), err);
    return put_layers(m, row, is_linear, (size_t)n_layers, err);
}

/* A list of 1 (rotary embeddings) and 0, or each interval-th layer has none. The arg has a list of
 * the opposite (no_rope_freq, megatron/core/transformer/transformer_config.py@core_v0.19.0). */
static dcpk_status import_rope_layers(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                      const struct dcpk_value *unused, struct dcpk_error *err)
{
    const struct dcpk_value *every = dcpk_hf_view_get(&m->view, row->keys[0]);
    const struct dcpk_value *list = dcpk_hf_view_get(&m->view, row->keys[1]);
    int64_t n_layers, interval, n_bare = 0;
    bool *is_bare;

    (void)unused;
    if (dcpk_value_is_none(every))
        every = row->value;
    if (every->kind != DCPK_V_INT || !dcpk_value_as_int(every, &interval) || interval < 1)
        return fault_kind(m, row->keys[0], every, "a number of layers");
    if (!arg_int(m, "num_layers", &n_layers))
        return DCPK_OK;
    is_bare = dcpk_arena_array(m->arena, (size_t)n_layers, sizeof *is_bare, err);
    if (is_bare == NULL)
        return err->status;
    if (!dcpk_value_is_none(list) &&
        (list->kind != DCPK_V_LIST || !dcpk_moe_layers_read(list, is_bare, (size_t)n_layers)))
        return fault_kind(m, row->keys[1], list, "a list of 0 and 1 of all layers");
    for (int64_t i = 0; i < n_layers; i++) {
        is_bare[i] = dcpk_value_is_none(list) ? (i + 1) % interval == 0 : !is_bare[i];
        n_bare += is_bare[i];
    }
    if (n_bare == 0)
        return put_args(m, row, dcpk_value_none(), err);
    return put_layers(m, row, is_bare, (size_t)n_layers, err);
}

static dcpk_status import_enum(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    const char *text = dcpk_value_as_str(value);
    const struct dcpk_value *found = text == NULL ? NULL : dcpk_value_get(row->value, text);

    if (found != NULL)
        return put_args(m, row, found, err);
    return dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                         "'%s' is %s, which Megatron has no args for in family '%s'", row->keys[0],
                         dcpk_hf_show(m->arena, value), m->in->map->family);
}

/* The key that the arg is also written under has its value, where it is there. */
static dcpk_status check_copy(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                              const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *copy = dcpk_value_get(m->view.top, row->args[0]);
    const struct dcpk_value *arg = dcpk_dict_get(&m->args, row->keys[0]);

    (void)value;
    if (!dcpk_value_is_none(copy) && arg != NULL && !dcpk_value_same(copy, arg))
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED, "'%s' is %s, and '%s' %s", row->args[0],
                      dcpk_hf_show(m->arena, copy), row->keys[0], dcpk_hf_show(m->arena, arg));
    return err->status;
}

/* The symbol of a kind of layers, of transformers 5.23 and 4; 0: there is none. */
static char symbol_of(const struct dcpk_value *kind)
{
    static const struct {
        const char *name;
        char symbol;
    } kinds[] = {{"linear_attention", DCPK_HF_MAMBA},
                 {"mamba", DCPK_HF_MAMBA},
                 {"full_attention", DCPK_HF_ATTENTION},
                 {"attention", DCPK_HF_ATTENTION},
                 {"mlp", DCPK_HF_MLP},
                 {"moe", DCPK_HF_EXPERTS}};

    for (size_t i = 0; i < DCPK_COUNT(kinds); i++)
        if (dcpk_value_is_str(kind, kinds[i].name))
            return kinds[i].symbol;
    return '\0';
}

/* The pattern under one of the keys as text; NULL: it is none, or err. */
static const struct dcpk_value *pattern_of(struct dcpk_hf_importing *m,
                                           const struct dcpk_value *value, struct dcpk_error *err)
{
    static const char symbols[] = {DCPK_HF_MAMBA, DCPK_HF_ATTENTION, DCPK_HF_MLP, DCPK_HF_EXPERTS,
                                   '\0'};
    const char *given = dcpk_value_as_str(value);
    char *text;

    if (given != NULL)
        return strspn(given, symbols) == strlen(given) && *given != '\0' ? value : NULL;
    if (value->kind != DCPK_V_LIST || value->n == 0)
        return NULL;
    text = dcpk_arena_alloc(m->arena, value->n + 1, err);
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < value->n; i++) {
        text[i] = symbol_of(value->as.items[i]);
        if (text[i] == '\0')
            return NULL;
    }
    text[value->n] = '\0';
    return dcpk_value_str(m->arena, text, err);
}

/* Any of the keys gives the kinds of layers, and their number; two that are there give the same. */
static dcpk_status import_pattern(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *pattern = pattern_of(m, value, err);

    if (pattern == NULL && err->status == DCPK_OK)
        return fault_kind(m, row->keys[0], value,
                          "a pattern of layers M, *, - and E, or a list of their kinds");
    if (pattern == NULL)
        return err->status;
    for (size_t i = 0; i < row->n_keys; i++) {
        const struct dcpk_value *other = dcpk_hf_view_get(&m->view, row->keys[i]);

        if (!dcpk_value_is_none(other) && !dcpk_value_same(pattern_of(m, other, err), pattern))
            dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is %s, and by another key it is %s",
                          row->keys[i], dcpk_hf_show(m->arena, other),
                          dcpk_hf_show(m->arena, pattern));
    }
    if (err->status != DCPK_OK || put_args(m, row, pattern, err))
        return err->status;
    return dcpk_hf_arg_import(
        m, row->keys[0], "num_layers",
        dcpk_value_int(m->arena, (int64_t)strlen(dcpk_value_as_str(pattern)), err), err);
}

static dcpk_status import_not(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                              const struct dcpk_value *value, struct dcpk_error *err)
{
    bool b;

    if (!dcpk_value_as_bool(value, &b))
        return fault_kind(m, row->keys[0], value, "true or false");
    return put_args(m, row, dcpk_value_bool(!b), err);
}

/* 0 or 1 is None, as a count of nothing or of one group. */
static dcpk_status import_count(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                const struct dcpk_value *value, int64_t is_none,
                                struct dcpk_error *err)
{
    int64_t n;

    if (value->kind == DCPK_V_INT && dcpk_value_as_int(value, &n) && n == is_none)
        value = dcpk_value_none();
    return put_args(m, row, value, err);
}

static dcpk_status import_copy(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    return put_args(m, row, value, err);
}

static dcpk_status import_or_none(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    return import_count(m, row, value, 0, err);
}

static dcpk_status import_groups(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *value, struct dcpk_error *err)
{
    return import_count(m, row, value, 1, err);
}

/* --- where the key is absent, or null and that means nothing of its own --- */

/* The first of the row's keys that is there; NULL: none. */
static const struct dcpk_value *row_value(const struct dcpk_hf_importing *m,
                                          const struct dcpk_hf_row *row)
{
    const struct dcpk_value *value = NULL;

    for (size_t i = 0; i < row->n_keys && value == NULL; i++)
        value = dcpk_hf_view_get(&m->view, row->keys[i]);
    return value;
}

/* Null is that arg; absent may be a number of the class. */
static dcpk_status absent_or_arg(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *by_default, struct dcpk_error *err)
{
    if (by_default != NULL && row_value(m, row) == NULL)
        return put_args(m, row, by_default, err);
    return import_product(m, row, NULL, 1, err);
}

static dcpk_status absent_or_mul(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                 const struct dcpk_value *by_default, struct dcpk_error *err)
{
    (void)by_default;
    return import_product(m, row, NULL, row->factor, err);
}

static dcpk_status absent_or_none(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *by_default, struct dcpk_error *err)
{
    return put_args(m, row, by_default != NULL ? by_default : dcpk_value_none(), err);
}

static dcpk_status absent_missing(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                  const struct dcpk_value *by_default, struct dcpk_error *err)
{
    (void)by_default;
    dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is missing: write it into config.json",
                  row->keys[0]);
    return err->status;
}

typedef dcpk_status import_word(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                                const struct dcpk_value *value, struct dcpk_error *err);

static const struct {
    import_word *present; /* of a key that is there */
    import_word *absent;  /* of one that is not; value: the row's, NULL: it has none */
    bool takes_null;      /* null is a value as others are */
} import_words[DCPK_HF_N_HOWS] = {
    [DCPK_HF_HOW_COPY] = {import_copy, absent_missing, false},
    [DCPK_HF_HOW_OR] = {import_copy, import_copy, false},
    [DCPK_HF_HOW_OR_ARG] = {import_copy, absent_or_arg, false},
    [DCPK_HF_HOW_OR_MUL] = {import_copy, absent_or_mul, false},
    [DCPK_HF_HOW_OR_NONE] = {import_or_none, absent_or_none, false},
    [DCPK_HF_HOW_NOT] = {import_not, import_not, false},
    [DCPK_HF_HOW_HEAD_DIM] = {import_copy, import_head_dim, false},
    [DCPK_HF_HOW_WINDOW] = {import_window, absent_missing, true},
    [DCPK_HF_HOW_TIMES] = {import_times, absent_missing, true},
    [DCPK_HF_HOW_LEADING] = {import_leading, absent_missing, false},
    [DCPK_HF_HOW_SPARSE] = {import_sparse, import_sparse, true},
    [DCPK_HF_HOW_LINEAR] = {import_linear, import_linear, true},
    [DCPK_HF_HOW_ROPE_LAYERS] = {import_rope_layers, import_rope_layers, true},
    [DCPK_HF_HOW_GROUPS] = {import_groups, absent_missing, true},
    [DCPK_HF_HOW_ENUM] = {import_enum, absent_missing, false},
    [DCPK_HF_HOW_PATTERN] = {import_pattern, absent_missing, false},
    [DCPK_HF_HOW_MAMBA_HEADS] = {import_copy, absent_missing, false},
    [DCPK_HF_HOW_HF_ONLY] = {check_copy, check_copy, false},
};

/* True if the row's arg may be None. */
static bool is_nullable(const struct dcpk_hf_row *row)
{
    const struct dcpk_arg *arg = dcpk_arg_find(row->args[0]);

    return row->how == DCPK_HF_HOW_COPY && arg != NULL && (arg->flags & DCPK_ARG_NULLABLE);
}

dcpk_status dcpk_hf_row_import(struct dcpk_hf_importing *m, const struct dcpk_hf_row *row,
                               struct dcpk_error *err)
{
    const struct dcpk_value *value = row_value(m, row);
    const struct dcpk_value args = {.kind = DCPK_V_DICT, .n = m->args.n, .as.pairs = m->args.pairs};

    if (dcpk_hf_arg_is_moot(&args, row->args[0]))
        return DCPK_OK;
    if (value == NULL ||
        (value->kind == DCPK_V_NONE && !import_words[row->how].takes_null && !is_nullable(row)))
        return import_words[row->how].absent(m, row, row->value, err);
    return import_words[row->how].present(m, row, value, err);
}
