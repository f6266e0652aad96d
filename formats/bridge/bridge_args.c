/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_args.c - the sections of run_config.yaml as args of Megatron-LM: FORMAT.md has the
 * table. */
#include <string.h>

#include "formats/formats.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/arg_table.h"

/* Sections whose names count as args; of a name that several have the first one's value. */
static const char *const sections[] = {"model",     "optimizer", "ddp",        "scheduler",
                                       "train",     "dist",      "checkpoint", "mixed_precision",
                                       "tokenizer", "rng",       NULL};

/* Names that args spell differently, besides those of lib/model/arg_table.h. */
static const struct {
    const char *section, *name, *arg;
    bool is_negated;
} renamed[] = {
    {"model", "gated_linear_unit", "swiglu", false},
    {"model", "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights", true},
    {"model", "layernorm_epsilon", "norm_epsilon", false},
    {"ddp", "bucket_size", "ddp_bucket_size", false},
    {"ddp", "num_buckets", "ddp_num_buckets", false},
};
#define N_RENAMED (DCPK_COUNT(renamed))

#define MAX_ARGS 4096 /* megatron/training/arguments.py has about 700 */

struct taking {
    struct dcpk_arena *arena;
    struct dcpk_value_pair *pairs;
    size_t n, capacity;
};

static bool has_arg(const struct taking *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(dcpk_value_as_str(t->pairs[i].key), name) == 0)
            return true;
    return false;
}

static dcpk_status add_arg(struct taking *t, const char *name, const struct dcpk_value *value,
                           struct dcpk_error *err)
{
    if (value == NULL)
        return err->status;
    if (has_arg(t, name))
        return DCPK_OK;
    if (t->n == t->capacity)
        return dcpk_fail(err, DCPK_ERANGE, "it names more than %zu args", t->capacity);
    t->pairs[t->n].key = dcpk_value_str(t->arena, name, err);
    t->pairs[t->n].value = value;
    return dcpk_made(t->pairs[t->n++].key, err);
}

/* {"_target_": "torch.bfloat16", "_call_": false} -> torch.bfloat16; NULL: something else. */
static const struct dcpk_value *dtype_of(struct dcpk_arena *arena, const struct dcpk_value *value,
                                         struct dcpk_error *err)
{
    const char *target = dcpk_value_as_str(dcpk_value_get(value, "_target_"));
    enum dcpk_dtype dtype;

    if (target == NULL || !dcpk_starts_with(target, "torch."))
        return NULL;
    dtype = dcpk_dtype_from_name(target + strlen("torch."));
    if (dtype == DCPK_DTYPE_NONE)
        return NULL;
    return dcpk_value_global(arena, "torch", dcpk_dtype_name(dtype), err);
}

/* The last part of a function's name: {"_target_": "torch.nn.functional.silu"} -> "silu". NULL: it
 * is no function by its name alone. */
static const char *function_of(const struct dcpk_value *value)
{
    const char *name = dcpk_value_as_str(value), *dot;

    if (name == NULL)
        name = dcpk_value_as_str(dcpk_value_get(value, "_target_"));
    if (name == NULL)
        return NULL;
    dot = strrchr(name, '.');
    return dot == NULL ? name : dot + 1;
}

/* The part of it that args can hold: numbers, texts, None, lists of these, dtypes. NULL: functions,
 * enumerations, objects. */
static const struct dcpk_value *arg_of(struct dcpk_arena *arena, const struct dcpk_value *value,
                                       struct dcpk_error *err)
{
    if (value->kind == DCPK_V_DICT)
        return dtype_of(arena, value, err);
    for (size_t i = 0; value->kind == DCPK_V_LIST && i < value->n; i++)
        if (value->as.items[i]->kind == DCPK_V_DICT || value->as.items[i]->kind == DCPK_V_LIST)
            return NULL;
    return value;
}

/* A field by the name that args have for it. An object that decides the model stays as its text,
 * which differs from every default. */
static dcpk_status take_field(struct taking *t, const struct dcpk_value *members, const char *field,
                              const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *taken = arg_of(t->arena, value, err);
    const char *name;

    if (err->status != DCPK_OK || dcpk_arg_of_field(members, field, &name, err) || name == NULL)
        return err->status;
    if (taken == NULL && dcpk_arg_find(name) != NULL)
        taken = dcpk_value_str(t->arena, dcpk_text_or(function_of(value), "an object"), err);
    if (taken == NULL)
        return err->status;
    return add_arg(t, name, taken, err);
}

static dcpk_status section_take(struct taking *t, const char *section,
                                const struct dcpk_value *members,
                                const struct dcpk_value_pair *pair, struct dcpk_error *err)
{
    const char *name = dcpk_value_as_str(pair->key);
    const struct dcpk_value *value = pair->value;
    bool b;

    if (name == NULL || name[0] == '_' ||
        (strcmp(section, "model") == 0 && strcmp(name, "activation_func") == 0))
        return DCPK_OK; /* take_activation */
    for (size_t i = 0; i < N_RENAMED; i++) {
        if (strcmp(renamed[i].name, name) != 0 || strcmp(renamed[i].section, section) != 0)
            continue;
        if (renamed[i].is_negated && dcpk_value_as_bool(value, &b))
            value = dcpk_value_bool(!b);
        return take_field(t, members, renamed[i].arg, value, err);
    }
    return take_field(t, members, name, value, err);
}

/*
 * Args have an activation as flags, a configuration as a function and gated_linear_unit
 * (megatron/training/arguments.py@core_v0.19.0, core_transformer_config_from_args). A pair without
 * flags keeps the function's name: no model that is known by its args has it.
 */
static dcpk_status take_activation(struct taking *t, const struct dcpk_value *model,
                                   struct dcpk_error *err)
{
    static const struct {
        const char *function;
        bool is_gated;
        const char *flag; /* NULL: swiglu, or none for GELU */
    } known[] = {
        {"silu", true, NULL},
        {"gelu", false, NULL},
        {"quick_gelu", true, "quick_geglu"},
        {"squared_relu", false, "squared_relu"},
        {"relu2", false, "squared_relu"},
    };
    const struct dcpk_value *given = dcpk_value_get(model, "activation_func");
    const char *function = dcpk_text_or(function_of(given), "an object");
    const bool is_gated = dcpk_value_is_true(model, "gated_linear_unit");

    if (dcpk_value_is_none(given))
        return DCPK_OK;
    for (size_t i = 0; i < DCPK_COUNT(known); i++) {
        if (strcmp(known[i].function, function) != 0 || known[i].is_gated != is_gated ||
            dcpk_value_is_true(given, "_partial_"))
            continue;
        if (known[i].flag == NULL || add_arg(t, "swiglu", dcpk_value_bool(false), err))
            return err->status;
        return add_arg(t, known[i].flag, dcpk_value_bool(true), err);
    }
    return add_arg(t, "activation_func", dcpk_value_str(t->arena, function, err), err);
}

/* Layers that are not those of Megatron core's GPT, as a run's --spec has them. */
static dcpk_status take_layers(struct taking *t, const struct dcpk_value *model,
                               struct dcpk_error *err)
{
    static const char *const plain[] = {
        "default_layer_spec",
        "transformer_engine_layer_spec",
        "transformer_engine_full_layer_spec",
        "local_layer_spec",
        "modelopt_transformer_layer_spec",
        "get_gpt_decoder_block_spec",
        "get_gpt_layer_local_spec",
        "get_gpt_layer_with_transformer_engine_spec",
        "get_transformer_block_with_experimental_attention_variant_spec",
    };
    const struct dcpk_value *given = dcpk_value_get(model, "transformer_layer_spec");
    const char *function = dcpk_text_or(function_of(given), "an object");

    if (dcpk_value_is_none(given))
        return DCPK_OK;
    for (size_t i = 0; i < DCPK_COUNT(plain); i++)
        if (strcmp(plain[i], function) == 0)
            return DCPK_OK;
    return add_arg(t, "spec", dcpk_value_str(t->arena, function, err), err);
}

/* The base provider has no max_position_embeddings: it makes positions for seq_length
 * (src/megatron/bridge/models/gpt_provider.py, GPTModelProvider.provide). */
static dcpk_status take_positions(struct taking *t, const struct dcpk_value *model,
                                  struct dcpk_error *err)
{
    const struct dcpk_value *length = dcpk_value_get(model, "seq_length");

    if (dcpk_value_is_none(length))
        return DCPK_OK;
    return add_arg(t, "max_position_embeddings", length, err);
}

/*
 * Rows of the vocabulary with its padding: calculate_padded_vocab_size
 * (megatron/training/vocab_utils.py) where the provider asks for it, else the vocabulary itself.
 */
static dcpk_status add_padded_vocabulary(struct taking *t, const struct dcpk_value *model,
                                         struct dcpk_error *err)
{
    const int64_t divisor = dcpk_value_int_or(model, "make_vocab_size_divisible_by", 128);
    const int64_t tp = dcpk_value_int_or(model, "tensor_model_parallel_size", 1);
    int64_t rows = dcpk_value_int_or(model, "vocab_size", 0);

    if (rows < 1 || rows > INT32_MAX || divisor < 1 || tp < 1 || divisor > INT32_MAX / tp)
        return DCPK_OK;
    if (dcpk_value_is_true(model, "should_pad_vocab"))
        rows = (rows + divisor * tp - 1) / (divisor * tp) * (divisor * tp);
    return add_arg(t, "padded_vocab_size", dcpk_value_int(t->arena, rows, err), err);
}

static dcpk_status take_sections(struct taking *t, const struct dcpk_value *config,
                                 struct dcpk_error *err)
{
    const struct dcpk_value *model = dcpk_value_get(config, "model");

    if (take_activation(t, model, err) || take_layers(t, model, err))
        return err->status;
    for (const char *const *name = sections; *name != NULL; name++) {
        const struct dcpk_value *section = dcpk_value_get(config, *name);

        if (section == NULL || section->kind != DCPK_V_DICT)
            continue;
        for (size_t i = 0; i < section->n; i++)
            if (section_take(t, *name, section, &section->as.pairs[i], err) != DCPK_OK)
                return err->status;
    }
    if (take_positions(t, model, err))
        return err->status;
    return add_padded_vocabulary(t, model, err);
}

dcpk_status dcpk_bridge_read_args(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                                  const struct dcpk_value **args, struct dcpk_error *err)
{
    const struct dcpk_value *config, *model;
    struct taking t = {.arena = arena};

    if (dcpk_bridge_parse(text, n_bytes, arena, &config, err) != DCPK_OK)
        return err->status;
    if (config->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a mapping of names to values");
    t.capacity = MAX_ARGS;
    t.pairs = dcpk_arena_array(arena, t.capacity, sizeof *t.pairs, err);
    if (t.pairs == NULL)
        return err->status;
    model = dcpk_value_get(config, "model");
    if (model != NULL && model->kind == DCPK_V_DICT) {
        if (take_sections(&t, config, err) != DCPK_OK)
            return err->status;
    } else {
        for (size_t i = 0; i < config->n; i++)
            if (section_take(&t, "", config, &config->as.pairs[i], err) != DCPK_OK)
                return err->status;
    }
    if (t.n == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it names no args");
    *args = dcpk_value_namespace(arena, t.pairs, t.n, err);
    return dcpk_made(*args, err);
}
