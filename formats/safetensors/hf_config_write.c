/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_write.c - config.json of a run, laid over one that the caller has. */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/text.h"
#include "lib/model/sizes.h"

static void write_remark(const struct dcpk_hf_export *export, struct dcpk_arena *arena,
                         const char *key, const struct dcpk_value *older,
                         const struct dcpk_value *value)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char *text;

    if (export->remark == NULL)
        return;
    text = dcpk_arena_printf(arena, &err, "is %s in the given config.json, and args make it %s",
                             dcpk_hf_show(arena, older), dcpk_hf_show(arena, value));
    export->remark(export->context, key, dcpk_text_or(text, "differs from the given config.json"));
}

/* The given config's own rope against ours, whichever spelling it has. */
static void compare_rope(const struct dcpk_hf_export *export, const struct dcpk_hf_view *view,
                         const struct dcpk_dict *made, struct dcpk_arena *arena)
{
    const struct dcpk_value *scaling = dcpk_dict_get(made, "rope_scaling");
    const struct dcpk_value *theta = dcpk_dict_get(made, "rope_theta");
    const char *kind = dcpk_value_as_str(dcpk_value_get(scaling, "rope_type"));

    if (theta == NULL)
        return;
    if (view->theta != NULL && !dcpk_value_same(view->theta, theta))
        write_remark(export, arena, "rope_theta", view->theta, theta);
    if (strcmp(view->rope_kind, dcpk_text_or(kind, "default")) != 0) {
        write_remark(export, arena, "rope_scaling", view->rope, scaling);
        return;
    }
    for (size_t i = 0; kind != NULL && i < scaling->n; i++) {
        const struct dcpk_value_pair *pair = &scaling->as.pairs[i];
        const char *key = dcpk_value_as_str(pair->key);
        const struct dcpk_value *older = dcpk_value_get(view->rope, key);

        if (older != NULL && !dcpk_value_same(older, pair->value))
            write_remark(export, arena, key, older, pair->value);
    }
}

/* A key of the given config.json that is not written. why NULL: what is written has it
 * elsewhere. */
static void leave_out(const struct dcpk_hf_export *export, struct dcpk_dict *all, const char *key,
                      const char *why)
{
    if (why != NULL && export->remark != NULL && dcpk_dict_get(all, key) != NULL)
        export->remark(export->context, key, why);
    dcpk_dict_remove(all, key);
}

/* Other names of what is written: of any release, and those that a row of the map reads. */
static void remove_aliases(const struct dcpk_hf_export *export, struct dcpk_dict *all,
                           const struct dcpk_dict *made)
{
    const char *alias;

    for (size_t i = 0; i < made->n; i++) {
        const char *key = dcpk_value_as_str(made->pairs[i].key);

        for (size_t j = 0; (alias = dcpk_hf_alias(key, j)) != NULL; j++)
            if (strcmp(alias, key) != 0 && dcpk_dict_get(made, alias) == NULL)
                dcpk_dict_remove(all, alias);
    }
    for (size_t i = 0; i < export->map->n_config; i++)
        for (size_t j = 0; j < export->map->config[i].n_keys; j++)
            if (dcpk_dict_get(made, export->map->config[i].keys[j]) == NULL)
                dcpk_dict_remove(all, export->map->config[i].keys[j]);
}

/*
 * Rope is written as rope_theta and rope_scaling, a share of the head at the top as transformers 4
 * has it. A length at the top that is not the one in rope_scaling contradicts it.
 */
static dcpk_status respell_rope(const struct dcpk_hf_export *export,
                                const struct dcpk_hf_view *view, struct dcpk_dict *all,
                                const struct dcpk_dict *made)
{
    static const char factor[] = "partial_rotary_factor";
    static const char length[] = "original_max_position_embeddings";
    const struct dcpk_value *share = dcpk_hf_view_get(view, factor);
    const struct dcpk_value *scaling = dcpk_dict_get(made, "rope_scaling");

    leave_out(export, all, "rope_parameters", NULL);
    if (!dcpk_value_is_none(scaling) &&
        !dcpk_value_same(dcpk_dict_get(all, length), dcpk_value_get(scaling, length)))
        leave_out(export, all, length, "is left out: args make another rope_scaling");
    if (share == NULL)
        return DCPK_OK;
    return dcpk_dict_set(all, factor, share);
}

/* Leave out what has another name in what is written, or no longer fits it. */
static void remove_stale(const struct dcpk_hf_export *export, struct dcpk_dict *all,
                         const struct dcpk_dict *made)
{
    const struct dcpk_value *types = dcpk_dict_get(all, "layer_types");
    const struct dcpk_value *layers = dcpk_dict_get(made, "num_hidden_layers");

    leave_out(export, all, "quantization_config", "is left out: the weights are not quantized");
    leave_out(export, all, "auto_map", "is left out: programs are not copied");
    leave_out(export, all, "transformers_weights", "is left out: the weights are in other files");
    remove_aliases(export, all, made);
    if (types != NULL && types->kind == DCPK_V_LIST && layers != NULL &&
        !dcpk_value_same(layers, &(struct dcpk_value)DCPK_HF_WHOLE((int64_t)types->n)))
        leave_out(export, all, "layer_types", "is left out: it has another number of layers");
}

/* The computed keys over those of `base`; each that differs is a remark. */
static dcpk_status lay_over(const struct dcpk_hf_export *export, const struct dcpk_dict *made,
                            struct dcpk_dict *all, struct dcpk_error *err)
{
    const struct dcpk_value *base = dcpk_hf_value(all->arena, export->base, err);
    struct dcpk_hf_faults faults = {0};
    struct dcpk_hf_view view;

    if (base == NULL)
        return err->status;
    dcpk_dict_put_all(all, base);
    dcpk_hf_view_init(&view, base, all->arena, &faults);
    if (dcpk_hf_faults_end(&faults, err))
        return dcpk_context(err, "the given config.json");
    compare_rope(export, &view, made, all->arena);
    if (respell_rope(export, &view, all, made))
        return err->status;
    remove_stale(export, all, made);
    for (size_t i = 0; i < made->n; i++) {
        const char *key = dcpk_value_as_str(made->pairs[i].key);
        const struct dcpk_value *older = dcpk_hf_view_get(&view, key);

        if (older != NULL && !dcpk_starts_with(key, "rope_") &&
            !dcpk_value_same(older, made->pairs[i].value))
            write_remark(export, all->arena, key, older, made->pairs[i].value);
        if (dcpk_dict_set(all, key, made->pairs[i].value))
            return err->status;
    }
    return DCPK_OK;
}

/* Checks the keys kept from `base`: one may mean what no arg of ours does, and the model then
 * differs. */
static dcpk_status check_laid_over(const struct dcpk_hf_export *export,
                                   const struct dcpk_value *config, struct dcpk_arena *arena,
                                   struct dcpk_error *err)
{
    if (dcpk_hf_config_check(export->map, config, arena, err))
        dcpk_context(
            err, "the given config.json, overridden by args: remove the keys that contradict args");
    return err->status;
}

/* Puts the parts that args do not give: the class, the sizes that the caller knows. */
static dcpk_status put_wanted(struct dcpk_hf_exporting *m, const struct dcpk_hf_export *export,
                              struct dcpk_error *err)
{
    const struct dcpk_value *name = dcpk_value_str(m->arena, export->map->architectures[0], err);

    if (name == NULL ||
        dcpk_dict_set(&m->config, "architectures",
                      dcpk_value_seq(m->arena, DCPK_V_LIST, &name, 1, err)) ||
        dcpk_dict_set(&m->config, "model_type",
                      dcpk_value_str(m->arena, export->map->model_type, err)) ||
        dcpk_dict_set(&m->config, "torch_dtype",
                      dcpk_value_str(m->arena, dcpk_dtype_name(export->dtype), err)) ||
        dcpk_dict_set(&m->config, "vocab_size", dcpk_value_int(m->arena, export->vocab_size, err)))
        return err->status;
    /* transformers takes 32000 for an absent one in Phi-3, and stops where there is no such row. */
    if (export->base == NULL && dcpk_dict_set(&m->config, "pad_token_id", dcpk_value_none()))
        return err->status;
    for (size_t i = 0; i < export->map->n_config; i++) {
        const struct dcpk_hf_row *row = &export->map->config[i];

        if (strcmp(row->args[0], "mtp_num_layers") == 0 &&
            dcpk_dict_set(&m->config, row->keys[0], dcpk_value_int(m->arena, export->n_mtp, err)))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status compute(struct dcpk_hf_exporting *m, const struct dcpk_hf_export *export,
                           struct dcpk_error *err)
{
    (void)dcpk_hf_config_compute(m, err);
    (void)dcpk_hf_faults_end(&m->faults, err);
    if (err->status == DCPK_OK)
        return put_wanted(m, export, err);
    return dcpk_context(err, "writing args as config.json of family '%s'", export->map->family);
}

/* A model that Megatron computes may be one that the class refuses. */
static void remark_class(const struct dcpk_hf_export *export, const struct dcpk_value *config,
                         struct dcpk_arena *arena)
{
    struct dcpk_error why = DCPK_ERROR_INIT;

    if (export->remark != NULL && dcpk_hf_class_takes(config, arena, &why) == DCPK_EMISMATCH)
        export->remark(export->context, "transformers 5.23 stops at this config.json", why.text);
}

/* quantization_config, as transformers and vLLM read it. */
static dcpk_status put_blocks(struct dcpk_dict *config, const struct dcpk_fp8_format *fp8,
                              struct dcpk_error *err)
{
    struct dcpk_arena *arena = config->arena;
    struct dcpk_dict all = {.arena = arena, .err = err};
    const struct dcpk_value *size = dcpk_value_int(arena, DCPK_FP8_BLOCK, err), *sizes[2];

    if (fp8->variant == DCPK_FP8_NONE)
        return DCPK_OK;
    if (size == NULL)
        return err->status;
    sizes[0] = sizes[1] = size;
    dcpk_dict_put(&all, "activation_scheme", dcpk_value_str(arena, "dynamic", err));
    dcpk_dict_put(&all, "fmt", dcpk_value_str(arena, "e4m3", err));
    dcpk_dict_put(&all, "quant_method", dcpk_value_str(arena, "fp8", err));
    if (fp8->is_ue8m0)
        dcpk_dict_put(&all, "scale_fmt", dcpk_value_str(arena, "ue8m0", err));
    dcpk_dict_put(&all, "weight_block_size", dcpk_value_seq(arena, DCPK_V_LIST, sizes, 2, err));
    return dcpk_dict_set(config, "quantization_config", dcpk_dict_end(&all));
}

/* Appends a document as transformers writes one. */
static void put_document(const struct dcpk_hf_export *export, const struct dcpk_value *dict,
                         struct dcpk_arena *arena, struct dcpk_bytes *text, struct dcpk_error *err)
{
    struct dcpk_json_out out;

    remark_class(export, dict, arena);
    dcpk_json_out_init(&out, text, 2);
    out.is_python = true;
    dcpk_value_to_json(dict, &out);
    dcpk_bytes_u8(text, '\n');
    (void)dcpk_bytes_status(text, err);
}

/* Keys of a model that was quantised, and those of the dtype. */
static dcpk_status change_dtype(const struct dcpk_hf_export *export, struct dcpk_dict *config,
                                struct dcpk_error *err)
{
    const bool is_new = dcpk_dict_get(config, "dtype") != NULL;

    dcpk_dict_remove(config, "quantization_config");
    if (is_new)
        dcpk_dict_remove(config, "torch_dtype");
    return dcpk_dict_set(config, is_new ? "dtype" : "torch_dtype",
                         dcpk_value_str(config->arena, dcpk_dtype_name(export->dtype), err));
}

static dcpk_status copy_base(const struct dcpk_hf_export *export, struct dcpk_bytes *text,
                             struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_dict config = {.arena = arena, .err = err};
    const struct dcpk_value *members, *dict;

    members = dcpk_hf_value(arena, export->base, err);
    if (members == NULL)
        goto out;
    dcpk_dict_put_all(&config, members);
    if ((!export->is_as_stored && change_dtype(export, &config, err)) ||
        (export->vocab_size > 0 &&
         dcpk_dict_set(&config, "vocab_size", dcpk_value_int(arena, export->vocab_size, err))) ||
        put_blocks(&config, &export->fp8, err))
        goto out;
    dict = dcpk_dict_end(&config);
    if (dict != NULL)
        put_document(export, dict, arena, text, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}

dcpk_status dcpk_hf_config_write(const struct dcpk_hf_export *export, struct dcpk_bytes *text,
                                 struct dcpk_error *err)
{
    struct dcpk_hf_traps traps = {
        .attrs = export->args, .remark = export->remark, .context = export->context};
    struct dcpk_hf_exporting m = {.map = export->map, .attrs = export->args};
    struct dcpk_arena *arena;
    struct dcpk_dict all;
    const struct dcpk_value *dict;

    if (export->keeps_base)
        return copy_base(export, text, err);
    arena = dcpk_arena_new();
    m.arena = traps.arena = arena;
    all = m.config = (struct dcpk_dict){.arena = arena, .err = err};
    if (compute(&m, export, err))
        goto out;
    if (export->base == NULL)
        all = m.config;
    else if (lay_over(export, &m.config, &all, err))
        goto out;
    dcpk_hf_traps_remark(&traps);
    if (put_blocks(&all, &export->fp8, err))
        goto out;
    dcpk_dict_sort(&all);
    dict = dcpk_dict_end(&all);
    if (dict == NULL || (export->base != NULL && check_laid_over(export, dict, arena, err)))
        goto out;
    put_document(export, dict, arena, text, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}

/* --- the vocabulary --- */

/* The rows that the given config.json has, which the caller may not contradict; 0: it has none. */
static dcpk_status base_rows(const struct dcpk_hf_vocab *vocab, int64_t *n, struct dcpk_error *err)
{
    const struct dcpk_json *node = NULL;

    *n = 0;
    if (vocab->base != NULL)
        node = dcpk_json_member(vocab->base, "vocab_size");
    if (node == NULL)
        return DCPK_OK;
    if (!dcpk_json_int(node, n) || *n < 1)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'vocab_size' of the given config.json is not a number of rows");
    if (vocab->given > 0 && vocab->given != *n)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "a vocabulary of %" PRId64
                         " is asked for, and 'vocab_size' of the given config.json is %" PRId64,
                         vocab->given, *n);
    return DCPK_OK;
}

dcpk_status dcpk_hf_vocab_size(const struct dcpk_hf_vocab *vocab, int64_t *n_rows,
                               struct dcpk_error *err)
{
    int64_t n;

    if (base_rows(vocab, &n, err))
        return err->status;
    if (n == 0)
        n = vocab->given;
    if (n == 0 && !dcpk_value_as_int(dcpk_value_get(vocab->args, "vocab_size"), &n)) {
        n = vocab->stored_rows;
        if (vocab->remark != NULL)
            vocab->remark(vocab->context, "vocab_size",
                          "is not known: all stored rows are written, padding too");
    }
    if (n < 1 || n > vocab->stored_rows)
        return dcpk_fail_fix(err, DCPK_EMISMATCH, DCPK_FIX_VOCAB_SIZE,
                             "a vocabulary of %" PRId64 " rows, and the checkpoint has %" PRId64, n,
                             vocab->stored_rows);
    if (dcpk_tokens_fit(vocab->args, n, err))
        return err->status;
    *n_rows = n;
    return DCPK_OK;
}
