/* SPDX-License-Identifier: Apache-2.0 */
/* hf_matching.c - the configuration, the map and the names by which tensors are matched. */
#include "formats/safetensors/hf_matching.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/model/norms.h"

uint32_t dcpk_hf_matching_stored(const struct dcpk_hf_matching *m, const char *name)
{
    const struct dcpk_tensor *tensor;
    uint64_t t = DCPK_NO_TENSOR;

    if (m->state != NULL) {
        char text[512];
        const int n = snprintf(text, sizeof text, "%s.%s", name, m->state);

        (void)dcpk_map_get(&m->names.states, text, (size_t)n, &t);
        return (uint32_t)t;
    }
    if (m->names.list != NULL) {
        (void)dcpk_map_get(&m->names.by_name, name, strlen(name), &t);
        return (uint32_t)t;
    }
    tensor = dcpk_checkpoint_tensor(m->ckpt, name);
    return tensor == NULL ? DCPK_NO_TENSOR : (uint32_t)(tensor - m->ckpt->tensors);
}

const char *dcpk_hf_matching_name(const struct dcpk_hf_matching *m, size_t stored)
{
    return m->names.list == NULL ? m->ckpt->tensors[stored].key : m->names.list[stored];
}

const char *dcpk_hf_matching_absent_prefix(const struct dcpk_hf_matching *m)
{
    for (size_t t = 0; m->map->prefix != NULL && t < m->ckpt->n_tensors; t++)
        if (dcpk_hf_matching_name(m, t) != NULL &&
            dcpk_starts_with(dcpk_hf_matching_name(m, t), m->map->prefix))
            return NULL;
    return m->map->prefix;
}

static bool has_output_layer(const struct dcpk_hf_matching *m)
{
    for (size_t i = 0; i < m->map->top.n; i++) {
        const struct dcpk_hf_rule *rule = &m->map->top.list[i];

        if (strcmp(rule->mg, DCPK_HF_OUTPUT_LAYER) == 0 && (rule->flags & DCPK_HF_COPY) == 0 &&
            dcpk_hf_matching_stored(m, rule->hf[0]) != DCPK_NO_TENSOR)
            return true;
    }
    return false;
}

static void take_remark(void *context, const char *key, const char *text)
{
    dcpk_checkpoint_note_once(context, "%s: %s", key, text);
}

/* The dtype of the embedding, where config.json lacks one, or is of the published model and not of
 * the shards of a trainer. */
static enum dcpk_dtype stored_dtype(const struct dcpk_hf_matching *m,
                                    const struct dcpk_json *config)
{
    const char *prefix = dcpk_hf_matching_absent_prefix(m);

    if (m->names.list == NULL && (dcpk_json_member(config, "torch_dtype") != NULL ||
                                  dcpk_json_member(config, "dtype") != NULL))
        return DCPK_DTYPE_NONE;
    for (size_t i = 0; i < m->map->top.n; i++) {
        const struct dcpk_hf_rule *rule = &m->map->top.list[i];
        const char *name = rule->hf[0];
        uint32_t stored;

        if (prefix != NULL && dcpk_starts_with(name, prefix))
            name += strlen(prefix);
        stored = dcpk_hf_matching_stored(m, name);
        if (strcmp(rule->mg, DCPK_HF_EMBEDDING) == 0 && stored != DCPK_NO_TENSOR)
            return m->ckpt->tensors[stored].dtype;
    }
    return DCPK_DTYPE_NONE;
}

bool dcpk_hf_matching_keeps_other(const struct dcpk_hf_matching *m)
{
    return (m->model->flags & DCPK_MODEL_KEEPS_OTHER) != 0 && m->scheme == NULL;
}

static dcpk_status matching_read_scales(struct dcpk_hf_matching *m, const struct dcpk_json *config,
                                        struct dcpk_error *err)
{
    const struct dcpk_hf_scales_input settings = {.map = m->map,
                                                  .config = config,
                                                  .names = m->names.list,
                                                  .ckpt = m->ckpt,
                                                  .arena = m->model->arena,
                                                  .faults = &m->faults,
                                                  .takes_alone = dcpk_hf_matching_keeps_other(m)};

    return dcpk_hf_scales_read(&settings, &m->scaled, err);
}

/* transformers uses model_type, and so do we where no map has the class. */
static void note_class(const struct dcpk_hf_matching *m, const struct dcpk_json *config)
{
    const struct dcpk_json *list = dcpk_json_member(config, "architectures");

    if (m->ckpt->given.family.family == NULL && !dcpk_hf_config_names_map(m->map, config))
        dcpk_checkpoint_note_once(
            m->ckpt, "architectures: no family has '%.60s'; model_type makes it %s, '%s'",
            dcpk_text_or(dcpk_json_string(dcpk_json_first(list)), "?"), m->map->family,
            m->map->architectures[0]);
}

/* Trainers keep shards of float32 where the published model has another dtype. */
static void note_dtype(const struct dcpk_hf_matching *m, const struct dcpk_json *config,
                       enum dcpk_dtype stored)
{
    const char *named = dcpk_json_string(dcpk_json_member(config, "dtype"));

    if (named == NULL)
        named = dcpk_json_string(dcpk_json_member(config, "torch_dtype"));
    if (m->names.list != NULL && named != NULL && stored != DCPK_DTYPE_NONE &&
        strcmp(named, dcpk_dtype_name(stored)) != 0)
        dcpk_checkpoint_note_once(m->ckpt,
                                  "the weights are stored as %s, and config.json has %.20s",
                                  dcpk_dtype_name(stored), named);
}

/* Puts the arg for zero-centered norms under both names, if the caller gives it under either. */
static dcpk_status put_given_norms(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const struct dcpk_value *given = dcpk_value_attrs(m->ckpt->given.args);
    const struct dcpk_value *centered = dcpk_value_bool(dcpk_norms_are_centered(given));

    if (dcpk_value_get(given, DCPK_ARG_NORM_1P) == NULL &&
        dcpk_value_get(given, DCPK_ARG_ZERO_CENTERED) == NULL)
        return DCPK_OK;
    if (dcpk_model_put_arg(m->model, DCPK_ARG_NORM_1P, centered, err))
        return err->status;
    return dcpk_model_put_arg(m->model, DCPK_ARG_ZERO_CENTERED, centered, err);
}

/* With peft installed transformers 5.23 adds it (modeling_utils.py from_pretrained): two models. */
static dcpk_status refuse_adapter(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    static const char adapter[] = "adapter_config.json";
    enum dcpk_path_kind kind;

    if (dcpk_store_look(m->ckpt->store, adapter, &kind, err))
        return err->status;
    if (kind != DCPK_PATH_FILE || m->ckpt->format->container != NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "there is '%s' of PEFT with the model, and transformers loads both: merge the "
                     "adapter into the model, or remove the adapter's files",
                     adapter);
}

static dcpk_status read_document(struct dcpk_hf_matching *m, struct dcpk_json **config,
                                 struct dcpk_error *err)
{
    static const char lack[] =
        "there is no " DCPK_HF_CONFIG ", which gives the family of the model "
        "and its sizes";

    if (dcpk_hf_document_find(m->ckpt, config, err) || *config != NULL)
        return err->status;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_CONFIG,
                         "%s: copy the model's into the folder", lack);
}

/* The embedding's name by the map; NULL: it has none. */
static const char *embedding_of(const struct dcpk_hf_map *map)
{
    for (size_t i = 0; i < map->top.n; i++)
        if (strcmp(map->top.list[i].mg, DCPK_HF_EMBEDDING) == 0)
            return map->top.list[i].hf[0];
    return NULL;
}

/* True where shards have names of files: those of another class than transformers' own. */
static bool stores_embedding(const struct dcpk_hf_matching *m)
{
    const char *embedding = embedding_of(m->map);

    for (size_t t = 0; embedding != NULL && t < m->ckpt->n_tensors; t++)
        if (dcpk_hf_name_in(m->ckpt->tensors[t].key, embedding) != NULL)
            return true;
    return false;
}

/* The rules of the scheme, and the names of tensors in a trainer's checkpoint. */
static dcpk_status find_names(struct dcpk_hf_matching *m, const struct dcpk_hf_maps *maps,
                              struct dcpk_error *err)
{
    const char *embedding;

    if (m->ckpt->format->container == NULL)
        return DCPK_OK;
    if (m->scheme != NULL && dcpk_hf_maps_join(maps, m->scheme, m->model->arena, &m->map, err))
        return err->status;
    if (!stores_embedding(m) && m->scheme == NULL &&
        dcpk_hf_map_in_memory(m->model->arena, &m->map, err))
        return err->status;
    embedding = embedding_of(m->map);
    if (embedding == NULL && !dcpk_hf_map_is_any(m->map))
        embedding = "?";
    return dcpk_hf_names_find(m->ckpt, m->model->arena, embedding, &m->names, err);
}

/* A model that no map describes has what every reader asks for, and no more. */
static dcpk_status put_any_args(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    struct dcpk_arena *arena = m->model->arena;
    enum dcpk_dtype dtype = DCPK_F32;
    struct dcpk_dict args = {.arena = arena, .err = err};

    for (size_t t = m->ckpt->n_tensors; t-- > 0;)
        if (dcpk_hf_matching_name(m, t) != NULL && dcpk_dtype_is_float(m->ckpt->tensors[t].dtype))
            dtype = m->ckpt->tensors[t].dtype;
    dcpk_dict_put(&args, "num_layers", dcpk_value_int(arena, 1, err));
    dcpk_dict_put(&args, "params_dtype",
                  dcpk_value_global(arena, "torch", dcpk_dtype_name(dtype), err));
    if (err->status != DCPK_OK)
        return err->status;
    m->model->args = dcpk_value_namespace(arena, args.pairs, args.n, err);
    return dcpk_made(m->model->args, err);
}

dcpk_status dcpk_hf_matching_read_config(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const struct dcpk_family_settings *settings = &m->ckpt->given.family;
    struct dcpk_hf_import import = {.remark = take_remark, .context = m->ckpt};
    const struct dcpk_value *attrs;
    struct dcpk_hf_maps maps;
    struct dcpk_json *config;

    if (refuse_adapter(m, err) || read_document(m, &config, err))
        return err->status;
    if (dcpk_hf_maps_load(settings->maps, m->model->arena, &maps, err) ||
        (dcpk_hf_matching_keeps_other(m) && dcpk_hf_maps_add_any(&maps, m->model->arena, err)) ||
        dcpk_hf_config_find_map(&maps, settings->family, config, &m->map, err) ||
        find_names(m, &maps, err))
        goto out;
    if (!dcpk_hf_map_is_any(m->map))
        note_class(m, config);
    if (m->map->foreign != NULL) /* args do not describe it: only tensors matter */
        m->model->flags |= DCPK_MODEL_OF_FAMILY;
    import.map = m->map;
    import.config = config;
    import.has_lm_head = has_output_layer(m);
    import.dtype = stored_dtype(m, config);
    note_dtype(m, config, import.dtype);
    import.is_lenient = (m->model->flags & DCPK_MODEL_OF_FAMILY) != 0;
    if (dcpk_hf_map_is_any(m->map))
        (void)put_any_args(m, err);
    else
        (void)dcpk_hf_config_to_args(&import, m->model->arena, &m->model->args, err);
    if (err->status != DCPK_OK)
        goto out;
    attrs = dcpk_value_attrs(m->model->args);
    m->dtype = dcpk_dtype_from_name(dcpk_value_get(attrs, "params_dtype")->as.global.name);
    if (dcpk_model_merge_given_args(m->model, err) || put_given_norms(m, err))
        goto out;
    attrs = dcpk_value_attrs(m->model->args);
    if (dcpk_hf_sizes_read(attrs, m->model->arena, &m->sizes, err) == DCPK_OK)
        (void)matching_read_scales(m, config, err);
out:
    dcpk_json_free(config);
    return err->status;
}

dcpk_status dcpk_hf_find_args(struct dcpk_checkpoint *ckpt, bool has_lm_head, enum dcpk_dtype dtype,
                              const struct dcpk_value **args, struct dcpk_error *err)
{
    const struct dcpk_family_settings *settings = &ckpt->given.family;
    struct dcpk_hf_import import = {.has_lm_head = has_lm_head, .dtype = dtype};
    struct dcpk_hf_maps maps;
    struct dcpk_json *config;

    *args = NULL;
    import.remark = take_remark;
    import.context = ckpt;
    if (dcpk_hf_document_find(ckpt, &config, err) || config == NULL)
        return err->status;
    import.config = config;
    if (dcpk_hf_maps_load(settings->maps, ckpt->arena, &maps, err) == DCPK_OK &&
        dcpk_hf_config_find_map(&maps, settings->family, config, &import.map, err) == DCPK_OK)
        (void)dcpk_hf_config_to_args(&import, ckpt->arena, args, err);
    dcpk_json_free(config);
    return err->status;
}
