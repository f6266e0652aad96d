/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_import.c - args for a model with a given config.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/sizes.h"

#define SLIDING "sliding_attention"

/* The value of a key; of one that is not there, what the class takes for it, or NULL. */
static const struct dcpk_value *key_value(const struct dcpk_hf_importing *m, const char *key)
{
    const struct dcpk_value *value = dcpk_hf_view_get(&m->view, key);

    return value != NULL ? value : dcpk_value_get(m->in->map->usual, key);
}

/* True if windows begin after the last layer, as in the classes that know max_window_layers. */
static bool windows_never_begin(const struct dcpk_hf_importing *m)
{
    int64_t n_layers, first;

    return dcpk_value_as_int(dcpk_hf_view_get(&m->view, "num_hidden_layers"), &n_layers) &&
           dcpk_value_as_int(key_value(m, "max_window_layers"), &first) && first >= n_layers;
}

/* Keys whose value the family fixes. */
static void check_keys_fixed(struct dcpk_hf_importing *m)
{
    const struct dcpk_value *fixed = m->in->map->hf;

    for (size_t i = 0; i < fixed->n; i++) {
        const char *key = dcpk_value_as_str(fixed->as.pairs[i].key);
        const struct dcpk_value *value = key_value(m, key);

        if (strcmp(key, "sliding_window") == 0 && windows_never_begin(m))
            continue;
        if (value != NULL && !dcpk_value_same(value, fixed->as.pairs[i].value))
            dcpk_hf_fault(&m->faults, DCPK_EMISMATCH,
                          "'%s' is %s, which Megatron has no args for; family '%s' has %s", key,
                          dcpk_hf_show(m->arena, value), m->in->map->family,
                          dcpk_hf_show(m->arena, fixed->as.pairs[i].value));
    }
}

static bool rows_have(const struct dcpk_hf_map *map, const char *key)
{
    for (size_t i = 0; i < map->n_config; i++)
        for (size_t j = 0; j < map->config[i].n_keys; j++)
            if (strcmp(map->config[i].keys[j], key) == 0)
                return true;
    return false;
}

/*
 * Keys that change what a model computes and that no map has to name: at these values alone does
 * Megatron compute the same (NULL: at none). transformers 5.23: rope_interleave in
 * modeling_deepseek_v3, the factor in modeling_rope_utils, head_dim in configuration_deepseek_v3,
 * biases in modeling_qwen2_moe, is_causal, windows and chunks in masking_utils and cache_utils,
 * per_layer_config in configuration_utils.
 */
static void check_keys_unnamed(struct dcpk_hf_importing *m)
{
    static const struct dcpk_value yes = {.kind = DCPK_V_BOOL, .as.b = true};
    static const struct dcpk_value one = {.kind = DCPK_V_INT, .as.i = 1};
    const struct dcpk_value *attrs = m->in->map->args;
    const bool has_switch = dcpk_value_get(m->in->map->hf, "use_sliding_window") != NULL ||
                            dcpk_value_get(m->in->map->hf, "sliding_window") != NULL;
    const struct {
        const char *key;
        const struct dcpk_value *value;
        bool counts;
    } keys[] = {
        {"rope_interleave", &yes, dcpk_value_is_true(attrs, "multi_latent_attention")},
        {"partial_rotary_factor", &one, m->in->map->rope_theta != NULL},
        {"head_dim", dcpk_hf_view_get(&m->view, "qk_rope_head_dim"),
         dcpk_value_is_true(attrs, "multi_latent_attention")},
        {"qkv_bias", dcpk_value_get(attrs, "add_qkv_bias"),
         dcpk_value_get(attrs, "add_qkv_bias") != NULL},
        {"is_causal", &yes, true},
        {"sliding_window", NULL, !has_switch},
        {"attention_chunk_size", NULL, true},
        {"index_topk_pattern", NULL, true},
        {"per_layer_config", NULL, true},
    };

    for (size_t i = 0; i < DCPK_COUNT(keys); i++) {
        const struct dcpk_value *value = dcpk_hf_view_get(&m->view, keys[i].key);

        if (!keys[i].counts || dcpk_value_is_none(value) || rows_have(m->in->map, keys[i].key))
            continue;
        if (keys[i].value == NULL || !dcpk_value_same(value, keys[i].value))
            dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                          "'%s' is %s, which Megatron has no args for; family '%s' has %s",
                          keys[i].key, dcpk_hf_show(m->arena, value), m->in->map->family,
                          keys[i].value == NULL ? "none" : dcpk_hf_show(m->arena, keys[i].value));
    }
}

/* transformers loads that file (modeling_utils@5.23, _get_resolved_checkpoint_files). */
static void check_weights_file(struct dcpk_hf_importing *m)
{
    const struct dcpk_value *file = dcpk_hf_view_get(&m->view, "transformers_weights");

    if (!dcpk_value_is_none(file))
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "'transformers_weights' is %s, which transformers loads in place of the "
                      "files that are read here: give that file the usual name, and remove the key",
                      dcpk_hf_show(m->arena, file));
}

/* Groups are of one size, of two experts at least, whose scores rank a group. */
static void check_group_sizes(struct dcpk_hf_importing *m, const struct dcpk_value *groups)
{
    int64_t n_groups, n_experts, n_picked = 1;

    (void)dcpk_value_as_int(dcpk_dict_get(&m->args, "moe_router_group_topk"), &n_picked);
    if (!dcpk_value_as_int(groups, &n_groups) || n_groups < 1 ||
        !dcpk_value_as_int(dcpk_dict_get(&m->args, "num_experts"), &n_experts))
        return;
    if (n_experts % n_groups != 0 || n_experts / n_groups < 2 || n_picked > n_groups)
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT,
                      "%" PRId64 " experts cannot form %" PRId64
                      " groups of two or more with %" PRId64 " picked",
                      n_experts, n_groups, n_picked);
}

/* Checks groups of experts: where experts are picked among all, groups have no meaning, but
 * Megatron would use them. */
static void check_groups(struct dcpk_hf_importing *m)
{
    const struct dcpk_value *method = dcpk_hf_view_get(&m->view, "topk_method");
    const struct dcpk_value *groups = dcpk_dict_get(&m->args, "moe_router_num_groups");

    if (dcpk_hf_is_greedy(m->in->map, method) && !dcpk_value_is_none(groups))
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "'n_group' is %s, and 'topk_method' \"greedy\" does not look at groups: "
                      "write 1",
                      dcpk_hf_show(m->arena, groups));
    else if (!dcpk_value_is_none(groups))
        check_group_sizes(m, groups);
}

static void check_attrs(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_dict(m->arena, m->args.pairs, m->args.n, err);

    if (attrs != NULL && dcpk_hf_weighs_one_expert(attrs))
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "'num_experts_per_tok' is 1: family '%s' gives the expert all of the weight, "
                      "which Megatron has no args for",
                      m->in->map->family);
    if (attrs != NULL && dcpk_hf_first_shares(attrs))
        dcpk_hf_fault(
            &m->faults, DCPK_EUNSUPPORTED,
            "'index_skip_topk_offset' is 0, and the first layer has no other's indexer to "
            "share: write 1");
}

static void check_quantization(struct dcpk_hf_importing *m)
{
    const struct dcpk_value *how = dcpk_hf_view_get(&m->view, "quantization_config");
    const struct dcpk_value *method = dcpk_value_get(how, "quant_method");
    const char *text = dcpk_text_or(dcpk_value_as_str(method), "");

    if (!dcpk_value_is_none(how) && strcmp(text, "fp8") != 0 && strcmp(text, "mxfp4") != 0)
        dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                      "'quantization_config' has quant_method %s; fp8 and mxfp4 can be read",
                      dcpk_hf_show(m->arena, method));
}

/* The kind of attention by the window and its frequency. */
static const char *attention_kind(const struct dcpk_value *args, int64_t layer)
{
    const int64_t every = dcpk_value_int_or(args, "window_attn_skip_freq", 0);

    if (dcpk_value_is_str(dcpk_value_get(args, "experimental_attention_variant"), "dsa"))
        return "indexed_attention";
    if (dcpk_value_is_none(dcpk_value_get(args, "window_size")) ||
        (every >= 1 && (layer + 1) % every == 0))
        return "full_attention";
    return SLIDING;
}

/* Whether the layer picks tokens itself (configuration_glm_moe_dsa.py). */
static const char *indexer_kind(const struct dcpk_value *args, int64_t layer)
{
    return dcpk_layer_has_indexer(args, layer) ? "full" : "shared";
}

static const char *mlp_kind(const struct dcpk_value *args, int64_t layer)
{
    const struct dcpk_value *freq = dcpk_value_get(args, "moe_layer_freq");
    int64_t on = 1; /* an import has 1 or a list */

    (void)dcpk_value_as_int(dcpk_value_at(freq, (size_t)layer), &on);
    return on != 0 ? "sparse" : "dense";
}

/* A list under `key`, of a class that reads it, has the kinds of layers that the args give. */
static void check_kinds_of(struct dcpk_hf_importing *m, const char *key,
                           const char *(*kind_of)(const struct dcpk_value *args, int64_t layer))
{
    const struct dcpk_value args = {.kind = DCPK_V_DICT, .n = m->args.n, .as.pairs = m->args.pairs};
    const struct dcpk_value *kinds = dcpk_hf_view_get(&m->view, key);

    if (dcpk_value_is_none(kinds) || rows_have(m->in->map, key))
        return;
    if (kinds->kind != DCPK_V_LIST ||
        !dcpk_value_same(dcpk_value_get(&args, "num_layers"),
                         &(struct dcpk_value){.kind = DCPK_V_INT, .as.i = (int64_t)kinds->n})) {
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is %s, not a list of all layers", key,
                      dcpk_hf_show(m->arena, kinds));
        return;
    }
    for (size_t i = 0; i < kinds->n; i++)
        if (!dcpk_value_is_str(kinds->as.items[i], kind_of(&args, (int64_t)i))) {
            dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                          "'%s' has %s in layer %zu, which Megatron has no args for in family '%s'",
                          key, dcpk_hf_show(m->arena, kinds->as.items[i]), i, m->in->map->family);
            return;
        }
}

/* Query heads share keys in equal groups. */
static void check_heads(struct dcpk_hf_importing *m)
{
    int64_t heads, groups;

    if (dcpk_value_as_int(dcpk_dict_get(&m->args, "num_attention_heads"), &heads) &&
        dcpk_value_as_int(dcpk_dict_get(&m->args, "num_query_groups"), &groups) && groups > 0 &&
        heads % groups != 0)
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT,
                      "%" PRId64 " heads are not a multiple of %" PRId64 " key and value heads",
                      heads, groups);
}

/* --- what every import has --- */

static dcpk_status put_dtype(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const struct dcpk_value *named = dcpk_hf_view_get(&m->view, "torch_dtype");
    const char *text = dcpk_text_or(dcpk_value_as_str(named), "float32");
    enum dcpk_dtype dtype = m->in->dtype;
    const struct dcpk_value *params;

    if (!dcpk_value_is_none(named) && named->kind != DCPK_V_STR)
        text = "?";
    if (dtype == DCPK_DTYPE_NONE)
        dtype = dcpk_dtype_from_name(dcpk_starts_with(text, "torch.") ? text + 6 : text);
    if (dtype != DCPK_F32 && dtype != DCPK_BF16 && dtype != DCPK_F16)
        return dcpk_hf_fault(&m->faults, DCPK_EUNSUPPORTED,
                             "'torch_dtype' is %s, not float32, bfloat16 or float16",
                             dcpk_hf_show(m->arena, named));
    params = dcpk_value_global(m->arena, "torch", dcpk_dtype_name(dtype), err);
    if (params == NULL || dcpk_dict_set(&m->args, "params_dtype", params) ||
        dcpk_dict_set(&m->args, "bf16", dcpk_value_bool(dtype == DCPK_BF16)))
        return err->status;
    return dcpk_dict_set(&m->args, "fp16", dcpk_value_bool(dtype == DCPK_F16));
}

/* The first key that is present; if none is, the value that a row has set, or 0. */
static dcpk_status put_dropout(struct dcpk_hf_importing *m, const char *arg, const char *key,
                               const char *other_key, struct dcpk_error *err)
{
    const struct dcpk_value *value = dcpk_hf_view_get(&m->view, key);
    double rate = 0;

    if (value == NULL)
        value = dcpk_hf_view_get(&m->view, other_key);
    if (dcpk_value_is_none(value) && dcpk_dict_get(&m->args, arg) != NULL)
        return DCPK_OK;
    if (!dcpk_value_is_none(value) &&
        (!dcpk_value_as_float(value, &rate) || !(rate >= 0) || rate > 1)) {
        dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'%s' is %s, not a rate from 0 to 1", key,
                      dcpk_hf_show(m->arena, value));
        rate = 0;
    }
    return dcpk_dict_set(&m->args, arg, dcpk_value_float(m->arena, rate, err));
}

static dcpk_status put_vocab(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const struct dcpk_value *size = dcpk_hf_view_get(&m->view, "vocab_size");
    int64_t n;

    if (size == NULL || size->kind != DCPK_V_INT || !dcpk_value_as_int(size, &n) || n < 1 ||
        n > INT32_MAX)
        return dcpk_hf_fault(&m->faults, DCPK_EFORMAT, "'vocab_size' is %s, not a number of rows",
                             dcpk_hf_show(m->arena, size));
    if (dcpk_dict_set(&m->args, "vocab_size", size))
        return err->status;
    return dcpk_dict_set(&m->args, "padded_vocab_size", size);
}

/*
 * Puts args that every run has. add_position_embedding is true for rotary embeddings too: the
 * parser stops for YaRN without (megatron/training/arguments.py@core_v0.19.0, validate_args).
 * use_rotary_position_embeddings overrides position_embedding_type, so it is true for "rope" alone.
 */
static dcpk_status put_common(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    static const struct {
        const char *name;
        int64_t value;
    } ints[] = {
        {"tensor_model_parallel_size", 1},
        {"pipeline_model_parallel_size", 1},
        {"expert_model_parallel_size", 1},
        {"context_parallel_size", 1},
        {"world_size", 1},
        {"data_parallel_size", 1},
        {"consumed_train_samples", 0},
        {"consumed_valid_samples", 0},
        {"iteration", 0},
        {"make_vocab_size_divisible_by", 128},
    };
    static const struct {
        const char *name;
        bool value;
    } bools[] = {
        {"no_save_optim", true},
        {"no_save_rng", true},
        {"add_position_embedding", true},
        {"rotary_interleaved", false},
    };
    const bool is_rope =
        dcpk_value_is_str(dcpk_dict_get(&m->args, "position_embedding_type"), "rope");
    const struct dcpk_value *length = dcpk_dict_get(&m->args, "max_position_embeddings");

    for (size_t i = 0; i < DCPK_COUNT(ints); i++)
        if (dcpk_dict_set(&m->args, ints[i].name, dcpk_value_int(m->arena, ints[i].value, err)))
            return err->status;
    for (size_t i = 0; i < DCPK_COUNT(bools); i++)
        if (dcpk_dict_get(&m->args, bools[i].name) == NULL &&
            dcpk_dict_set(&m->args, bools[i].name, dcpk_value_bool(bools[i].value)))
            return err->status;
    if (dcpk_dict_get(&m->args, "rotary_percent") == NULL &&
        dcpk_dict_set(&m->args, "rotary_percent", dcpk_value_float(m->arena, 1, err)))
        return err->status;
    if (length != NULL && dcpk_dict_set(&m->args, "seq_length", length))
        return err->status;
    if (dcpk_dict_set(&m->args, "use_rotary_position_embeddings", dcpk_value_bool(is_rope)) ||
        put_dropout(m, "attention_dropout", "attention_dropout", "attn_pdrop", err) ||
        put_dropout(m, "hidden_dropout", "resid_pdrop", "hidden_dropout", err) || put_dtype(m, err))
        return err->status;
    return put_vocab(m, err);
}

/* One group of several is not None, as one of one is: Megatron would look at all of them. */
static dcpk_status put_group_topk(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    if (dcpk_value_is_none(dcpk_dict_get(&m->args, "moe_router_num_groups")) ||
        !dcpk_value_is_none(dcpk_dict_get(&m->args, "moe_router_group_topk")))
        return DCPK_OK;
    return dcpk_dict_set(&m->args, "moe_router_group_topk", dcpk_value_int(m->arena, 1, err));
}

/* A name of another release gets the value too. */
static dcpk_status put_twins(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    for (size_t i = 0; i < dcpk_n_args; i++) {
        const struct dcpk_value *value = dcpk_dict_get(&m->args, dcpk_args[i].name);

        if (dcpk_args[i].twin != NULL && value != NULL &&
            dcpk_dict_set(&m->args, dcpk_args[i].twin, value))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status import_all(struct dcpk_hf_importing *m, struct dcpk_error *err)
{
    const struct dcpk_hf_map *map = m->in->map;

    check_keys_fixed(m);
    check_keys_unnamed(m);
    check_weights_file(m);
    check_quantization(m);
    for (size_t i = 0; i < map->n_config; i++)
        if (dcpk_hf_row_import(m, &map->config[i], err) || err->status != DCPK_OK)
            return err->status;
    if (dcpk_dict_set_all(&m->args, map->args) || dcpk_dict_set_all(&m->args, map->set) ||
        dcpk_hf_rope_import(m, err) || put_common(m, err))
        return err->status;
    check_groups(m);
    check_kinds_of(m, "layer_types", attention_kind);
    check_kinds_of(m, "indexer_types", indexer_kind);
    check_kinds_of(m, "mlp_layer_types", mlp_kind);
    check_heads(m);
    check_attrs(m, err);
    if (err->status != DCPK_OK || put_group_topk(m, err))
        return err->status;
    return put_twins(m, err);
}

static void remark_tie(const struct dcpk_hf_importing *m)
{
    const bool is_untied = dcpk_value_same(
        dcpk_dict_get(&m->args, "untie_embeddings_and_output_weights"), dcpk_value_bool(true));

    if (m->in->remark != NULL && m->in->has_lm_head && !is_untied &&
        dcpk_hf_view_get(&m->view, "tie_word_embeddings") == NULL)
        m->in->remark(m->in->context, "tie_word_embeddings",
                      "config.json has none; the embedding is taken as the output layer");
}

/* All of `config`, or faults. */
static dcpk_status import_config(struct dcpk_hf_importing *m, const struct dcpk_value *config,
                                 struct dcpk_error *err)
{
    m->faults.skips_unsupported = m->in->is_lenient;
    dcpk_hf_view_init(&m->view, config, m->arena, &m->faults);
    (void)import_all(m, err);
    return dcpk_hf_faults_end(&m->faults, err);
}

dcpk_status dcpk_hf_config_check(const struct dcpk_hf_map *map, const struct dcpk_value *config,
                                 struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_hf_import import = {.map = map};
    struct dcpk_hf_importing m = {
        .in = &import, .arena = arena, .args = {.arena = arena, .err = err}};

    return import_config(&m, config, err);
}

dcpk_status dcpk_hf_config_to_args(const struct dcpk_hf_import *import, struct dcpk_arena *arena,
                                   const struct dcpk_value **args, struct dcpk_error *err)
{
    struct dcpk_hf_importing m = {
        .in = import, .arena = arena, .args = {.arena = arena, .err = err}};
    struct dcpk_hf_traps traps = {
        .is_import = true, .remark = import->remark, .context = import->context, .arena = arena};
    const struct dcpk_value *config;

    if (dcpk_json_kind(import->config) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "config.json is not an object");
    config = dcpk_hf_value(arena, import->config, err);
    if (config == NULL)
        return err->status;
    if (import_config(&m, config, err))
        return dcpk_context(err, "config.json of family '%s'", import->map->family);
    remark_tie(&m);
    *args = dcpk_value_namespace(arena, m.args.pairs, m.args.n, err);
    if (*args == NULL)
        return err->status;
    traps.attrs = dcpk_value_attrs(*args);
    if (!import->is_lenient)
        dcpk_hf_traps_remark(&traps);
    return DCPK_OK;
}

/* --- which map --- */

static bool names_architecture(const struct dcpk_hf_map *map, const struct dcpk_json *list)
{
    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return false;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list))
        for (size_t i = 0; i < map->n_architectures; i++)
            if (dcpk_json_string(list) != NULL &&
                strcmp(map->architectures[i], dcpk_json_string(list)) == 0)
                return true;
    return false;
}

/* A critic or reward model: the body of a family under another head. */
static bool is_classifier(const struct dcpk_json *list)
{
    const char *name = NULL;

    if (list != NULL && dcpk_json_kind(list) == DCPK_JSON_ARRAY)
        name = dcpk_json_string(dcpk_json_first(list));
    return name != NULL && dcpk_ends_with(name, "Classification");
}

static bool names_type(const struct dcpk_hf_map *map, const char *model_type)
{
    for (size_t i = 0; i < map->n_other_types; i++)
        if (strcmp(map->other_types[i], model_type) == 0)
            return true;
    return strcmp(map->model_type, model_type) == 0;
}

bool dcpk_hf_config_names_map(const struct dcpk_hf_map *map, const struct dcpk_json *config)
{
    const struct dcpk_json *list = dcpk_json_member(config, "architectures");

    return list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY ||
           dcpk_json_first(list) == NULL || names_architecture(map, list);
}

/*
 * Parts of models of these types that core 0.19 lacks (megatron/core@core_v0.19.0; the modeling
 * files of transformers 5.24). Types are parted by blanks.
 */
static const struct {
    const char *types, *has;
} lacking[] = {
    {" cohere cohere2 cohere2_vision gpt_neox gptj codegen falcon phi ",
     "attention and MLP next to each other in a layer"},
    {" gemma3n gemma3n_text ", "AltUp, LAuReL and embeddings of each layer"},
    {" kimi_linear ", "Kimi Delta Attention"},
    {" granite granitemoe granitemoeshared ", "a multiplier of residuals"},
    {" phimoe ", "a router by SparseMixer"},
    {" dbrx ", "a clip of queries, keys and values"},
    {" hunyuan_v1_dense hunyuan_v1_moe ", "norms of queries and keys after rotary embeddings"},
    {" bloom mpt ", "ALiBi"},
    {" falcon_h1 ", "attention and Mamba next to each other in a layer"},
    {" jamba mamba falcon_mamba ", "layers of Mamba-1"},
    {" minimax ", "lightning attention"},
    {" deepseek_v4 ", "hyper-connections and compressed attention"},
    {" llama4 llama4_text ", "attention in chunks of tokens"},
    {" olmo ", "norms without weights"},
    {" olmo2 olmo3 exaone4 glm4 ", "norms on the outputs of attention and MLP"},
    {" ernie4_5_moe ", "a bias that chooses experts after a softmax"},
};

/* ": its models have ..., which Megatron core 0.19 lacks", or nothing. */
static void lacking_text(const char *model_type, char *text, size_t n_text)
{
    char word[80];

    *text = '\0';
    (void)snprintf(word, sizeof word, " %.60s ", dcpk_text_or(model_type, ""));
    for (size_t i = 0; i < DCPK_COUNT(lacking); i++)
        if (strlen(word) > 2 && strstr(lacking[i].types, word) != NULL)
            (void)snprintf(text, n_text, ": its models have %s, which Megatron core 0.19 lacks",
                           lacking[i].has);
}

static dcpk_status fail_families(const struct dcpk_hf_maps *maps, dcpk_status status,
                                 struct dcpk_error *err, const char *what)
{
    (void)dcpk_fail(err, status, "%s; there are", what);
    for (size_t i = 0; i < maps->n; i++)
        dcpk_append(err, "%s %s", dcpk_joint(i > 0, ","), maps->list[i]->family);
    return err->status;
}

dcpk_status dcpk_hf_config_find_map(const struct dcpk_hf_maps *maps, const char *family,
                                    const struct dcpk_json *config, const struct dcpk_hf_map **map,
                                    struct dcpk_error *err)
{
    const char *model_type = dcpk_json_string(dcpk_json_member(config, "model_type"));
    const struct dcpk_json *classes = dcpk_json_member(config, "architectures");
    const struct dcpk_hf_map *found = NULL;

    if (family != NULL) {
        *map = dcpk_hf_maps_find(maps, family);
        if (*map == NULL)
            return fail_families(maps, DCPK_EUSAGE, err, "no map of that family");
        return DCPK_OK;
    }
    for (size_t i = 0; i < maps->n; i++)
        if (names_architecture(maps->list[i], classes)) {
            if (found != NULL)
                return dcpk_fail(err, DCPK_EUNSUPPORTED,
                                 "config.json: 'architectures' names the families '%s' and '%s'",
                                 found->family, maps->list[i]->family);
            found = maps->list[i];
        }
    for (size_t i = 0; found == NULL && model_type != NULL && i < maps->n; i++)
        if (names_type(maps->list[i], model_type))
            found = maps->list[i];
    if (found != NULL && model_type != NULL && !names_type(found, model_type))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "config.json: 'architectures' names the family '%s', but transformers "
                         "builds the model by 'model_type', '%.60s': write '%s' there, or the "
                         "class of that type",
                         found->family, model_type, found->model_type);
    if (found == NULL || (maps->any != NULL && is_classifier(classes)))
        found = maps->any;
    if (found == NULL) {
        char what[320], why[140];

        lacking_text(model_type, why, sizeof why);
        (void)snprintf(what, sizeof what,
                       "config.json: 'architectures' and 'model_type' (%.60s) are of no family%s",
                       dcpk_text_or(model_type, "absent"), why);
        (void)fail_families(maps, DCPK_EUNSUPPORTED, err, what);
        dcpk_append(err, "; convert's option keep-other keeps the names of others");
        return err->status;
    }
    *map = found;
    return DCPK_OK;
}
