/* SPDX-License-Identifier: Apache-2.0 */
/* peft.c - the row of adapters of PEFT (LoRA): a folder of their own, or taken out of the
 * checkpoint of a run. */
#include <string.h>

#include "formats/formats.h"
#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/safetensors_header.h"

#include "lib/base/text.h"

static const char reason_base[] = "of the model that the adapter changes, not of the adapter";

/* ---- reading ---- */

/* Notes its rank and base, by its configuration; one that cannot be read is a fault of merging. */
static void note_adapter(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_json *doc = NULL;
    int64_t rank = 0;
    double alpha = 0;

    if (dcpk_json_read(ckpt->store, DCPK_PEFT_CONFIG, DCPK_HF_MAX_CONFIG_BYTES, &doc, &err) ||
        dcpk_json_kind(doc) != DCPK_JSON_OBJECT) {
        dcpk_checkpoint_note(ckpt, "this is an adapter of PEFT, without a sound " DCPK_PEFT_CONFIG);
    } else {
        (void)dcpk_json_int(dcpk_json_member(doc, "r"), &rank);
        (void)dcpk_json_double(dcpk_json_member(doc, "lora_alpha"), &alpha);
        dcpk_checkpoint_note(
            ckpt, "this is an adapter of PEFT (%.60s), rank %lld, alpha %g, of the base '%.200s'",
            dcpk_text_or(dcpk_json_string(dcpk_json_member(doc, "peft_type")), "?"),
            (long long)rank, alpha,
            dcpk_text_or(dcpk_json_string(dcpk_json_member(doc, "base_model_name_or_path")), "?"));
    }
    dcpk_json_free(doc);
}

static bool peft_fits(struct dcpk_checkpoint *ckpt)
{
    if (ckpt->n_files != 1 || strcmp(dcpk_source_name(ckpt->files[0]), DCPK_PEFT_FILE) != 0)
        return false;
    note_adapter(ckpt);
    return true;
}

static dcpk_status peft_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                 struct dcpk_error *err)
{
    (void)ckpt;
    (void)model;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LORA,
                         "it is an adapter of PEFT (LoRA), not a model");
}

static const char *peft_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                         const struct dcpk_value *common)
{
    (void)ckpt;
    (void)common;
    return "none";
}

/* ---- writing ---- */

/* An adapter on its way out of the checkpoint of a run. */
struct taking {
    struct dcpk_output *out;
    struct dcpk_lora_name first;
    bool is_beside;       /* its base, which the output is */
    bool is_folder;       /* the source is a folder of PEFT's: its keys stay */
    const char **modules; /* last parts of the names of those with matrices, and of whole ones */
    bool *is_saved;
    size_t n_modules;
};

/* Remembers the last part of a module's name. */
static dcpk_status module_note(struct taking *t, const char *name,
                               const struct dcpk_lora_name *part, struct dcpk_error *err)
{
    const char *module = dcpk_arena_strndup(t->out->arena, name, part->n_module, err);
    const char *last = module == NULL ? NULL : strrchr(module, '.');
    const bool is_saved = part->part == DCPK_LORA_SAVED;

    if (module == NULL)
        return err->status;
    last = last == NULL ? module : last + 1;
    for (size_t i = 0; i < t->n_modules; i++)
        if (t->is_saved[i] == is_saved && strcmp(t->modules[i], last) == 0)
            return DCPK_OK;
    t->is_saved[t->n_modules] = is_saved;
    t->modules[t->n_modules++] = last;
    return DCPK_OK;
}

/* A tensor as it is stored, under the key that PEFT saves it under: that of a run without its name
 * of the adapter (peft 0.21.2, utils/save_and_load.py). */
static dcpk_status part_put(struct taking *t, uint32_t source, const char *name,
                            const struct dcpk_lora_name *part, struct dcpk_error *err)
{
    struct dcpk_output *out = t->out;
    const struct dcpk_tensor *stored = &out->source->tensors[source];
    struct dcpk_piece *piece = dcpk_arena_alloc(out->arena, sizeof *piece, err);
    const char **key = dcpk_arena_alloc(out->arena, sizeof *key, err);
    const enum dcpk_dtype dtype = out->target.family.dtype;
    struct dcpk_out_tensor tensor = {.n_keys = 1,
                                     .dtype = dtype != DCPK_DTYPE_NONE ? dtype : stored->dtype,
                                     .rank = stored->rank,
                                     .shape = stored->shape,
                                     .pieces = piece,
                                     .n_pieces = 1};
    struct dcpk_box whole;

    if (piece == NULL || key == NULL || module_note(t, name, part, err))
        return err->status;
    dcpk_box_whole(stored->shape, stored->rank, &whole);
    *key = stored->key;
    if (!t->is_folder)
        *key =
            dcpk_arena_printf(out->arena, err, DCPK_PEFT_PREFIX "%.*s%s%s%s", (int)part->n_module,
                              name, dcpk_joint(part->part != DCPK_LORA_SAVED, part->word),
                              dcpk_joint(*part->rest != '\0', "."), part->rest);
    if (*key == NULL || dcpk_piece_make(out->arena, source, &whole, &whole, piece, err))
        return err->status;
    tensor.keys = key;
    return dcpk_output_add_tensor(out, &tensor, err);
}

static dcpk_status tensor_take(struct taking *t, uint32_t source, struct dcpk_error *err)
{
    const char *key = t->out->source->tensors[source].key;
    const char *name = key, *prefix;
    struct dcpk_lora_name part;

    if (!t->is_folder)
        name = dcpk_hf_unwrap(t->out->arena, key, err);
    if (name == NULL)
        return err->status;
    prefix = strstr(name, DCPK_PEFT_PREFIX);
    if (prefix != NULL)
        name = prefix + strlen(DCPK_PEFT_PREFIX);
    dcpk_lora_name_parse(name, &part);
    if (!t->is_folder && (part.part == DCPK_LORA_BASE || strstr(key, ".state.") != NULL)) {
        if (!t->is_beside)
            dcpk_output_event(t->out, DCPK_EVENT_OMITTED, key, "%s", reason_base);
        return DCPK_OK;
    }
    if (part.part == DCPK_LORA_OTHER || prefix == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_DROP,
                             "'%s' is not of a plain LoRA adapter with PEFT's names "
                             "('" DCPK_PEFT_PREFIX "')",
                             key);
    if ((!t->is_folder || part.part < DCPK_LORA_SAVED) &&
        dcpk_lora_check_one(&t->first, &part, err))
        return err->status;
    if (part.part == DCPK_LORA_BASE && strrchr(name, '.') != NULL) { /* whole, in a folder */
        part.part = DCPK_LORA_SAVED;
        part.n_module = (size_t)(strrchr(name, '.') - name);
    }
    return part_put(t, source, name, &part, err);
}

/* Names of modules, of those with matrices or of whole ones. */
static void put_modules(const struct taking *t, const char *key, bool is_saved,
                        struct dcpk_json_out *j)
{
    dcpk_json_put_key(j, key);
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < t->n_modules; i++)
        if (t->is_saved[i] == is_saved)
            dcpk_json_put_string(j, t->modules[i]);
    dcpk_json_end_array(j);
}

/* PEFT's own document goes along; of verl's, with a rank and an alpha, one is made. PEFT has the
 * usual values for what it lacks. */
static dcpk_status adapter_put_config(const struct taking *t, const struct dcpk_lora_config *config,
                                      struct dcpk_error *err)
{
    const struct dcpk_value *value = dcpk_hf_value(t->out->arena, config->doc, err);
    const char *task = dcpk_json_string(dcpk_json_member(config->doc, "task_type"));
    struct dcpk_bytes text = {0};
    struct dcpk_json_out j;

    if (value == NULL)
        return err->status;
    dcpk_json_out_init(&j, &text, 2);
    j.is_python = true;
    if (dcpk_json_member(config->doc, "peft_type") != NULL) {
        dcpk_value_to_json(value, &j);
    } else {
        dcpk_json_begin_object(&j);
        dcpk_json_add_string(&j, "bias", "none");
        dcpk_json_put_key(&j, "lora_alpha");
        dcpk_value_to_json(dcpk_value_get(value, "lora_alpha"), &j);
        put_modules(t, "modules_to_save", true, &j);
        dcpk_json_add_string(&j, "peft_type", "LORA");
        dcpk_json_add_int(&j, "r", (int64_t)config->rank);
        put_modules(t, "target_modules", false, &j);
        dcpk_json_add_string(&j, "task_type", task);
        dcpk_json_end_object(&j);
    }
    dcpk_bytes_u8(&text, '\n');
    if (dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_output_put_small_file(
            t->out, t->is_beside ? DCPK_PEFT_FOLDER DCPK_PEFT_CONFIG : DCPK_PEFT_CONFIG, text.data,
            text.n_bytes, err);
    dcpk_bytes_release(&text);
    return err->status;
}

/* Biases that were trained lie in the model, without PEFT's name of the adapter. */
static dcpk_status check_biases(const struct taking *t, const struct dcpk_lora_config *config,
                                struct dcpk_error *err)
{
    const char *bias = dcpk_json_string(dcpk_json_member(config->doc, "bias"));

    if (t->is_beside || bias == NULL || strcmp(bias, "none") == 0)
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LORA,
                         "\"bias\" is '%.60s': biases of the model were trained too, which the "
                         "adapter alone would lose",
                         bias);
}

dcpk_status dcpk_peft_put(struct dcpk_output *out, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = out->source;
    const struct dcpk_tensor *first = dcpk_lora_find(ckpt);
    const size_t n_before = out->n_tensors;
    struct dcpk_lora_config config = {0};
    struct taking t = {.out = out,
                       .is_beside = out->format != &dcpk_format_peft,
                       .is_folder = ckpt->format == &dcpk_format_peft};

    if (first == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the checkpoint has no tensors of an adapter (lora_A)");
    t.modules = dcpk_arena_array(out->arena, ckpt->n_tensors, sizeof *t.modules, err);
    t.is_saved = dcpk_arena_array(out->arena, ckpt->n_tensors, sizeof *t.is_saved, err);
    if (t.modules != NULL && t.is_saved != NULL &&
        dcpk_lora_config_read(ckpt, ckpt->store, first->key, &config, err) == DCPK_OK &&
        check_biases(&t, &config, err) == DCPK_OK) {
        for (uint32_t i = 0; i < ckpt->n_tensors && err->status == DCPK_OK; i++)
            if (dcpk_checkpoint_tensor_left_out(ckpt, i) == NULL)
                (void)tensor_take(&t, i, err);
        if (err->status == DCPK_OK)
            (void)adapter_put_config(&t, &config, err);
    }
    dcpk_lora_config_release(&config);
    if (t.is_beside)
        out->n_of_adapter = out->n_tensors - n_before;
    return err->status;
}

static dcpk_status peft_from_keys(struct dcpk_output *out, const void *options,
                                  struct dcpk_error *err)
{
    const struct dcpk_open_options *given = &out->source->given;

    (void)options;
    if (out->source->format == &dcpk_format_peft && given->lora.config == NULL &&
        given->n_drops == 0 && out->target.family.dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the adapter is peft already, and no option (dtype, drop, "
                         "adapter-config) changes it: copy the folder");
    return dcpk_peft_put(out, err);
}

/* ---- the row ---- */

static const struct dcpk_mark marks[] = {
    {DCPK_MARK_CHECKPOINT, DCPK_PEFT_FILE, NULL, NULL},
    {0},
};

static const struct dcpk_format_mapping mapping = {.to_model = peft_to_model,
                                                   .from_keys = peft_from_keys,
                                                   .check_class = dcpk_peft_check,
                                                   .optimizer_layout = peft_optimizer_layout};

const struct dcpk_format dcpk_format_peft = {
    .name = "peft",
    .other_names = "lora",
    .summary = "a LoRA adapter of PEFT: " DCPK_PEFT_FILE " and " DCPK_PEFT_CONFIG,
    .marks = marks,
    .container = &dcpk_format_safetensors,
    .fits = peft_fits,
    .mapping = &mapping,
    DCPK_SAFETENSORS_CONTAINER,
};
