/* SPDX-License-Identifier: Apache-2.0 */
/* hf_files.c - what is next to tensors: config.json, the caller's own, files of a tokenizer. */
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config.h"
#include "formats/safetensors/hf_model.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_ASSET_BYTES (UINT64_C(1) << 30)

/* Python writes infinity as a bare word, as in time_step_limit of Nemotron-H; JSON has a number
 * that is too large for a double. As many bytes. */
static void spell_infinities(char *text, size_t n_bytes)
{
    static const char word[] = "Infinity", number[] = "1e999   ";
    bool in_string = false;

    for (size_t i = 0; i < n_bytes; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && n_bytes - i >= strlen(word) &&
                 memcmp(text + i, word, strlen(word)) == 0)
            memcpy(text + i, number, strlen(number));
    }
}

static dcpk_status hf_read_config(struct dcpk_store *store, const char *name,
                                  struct dcpk_json **config, struct dcpk_error *err)
{
    struct dcpk_source *source;
    char *text = NULL;
    size_t n_bytes;

    if (dcpk_store_find(store, name, &source, err) == DCPK_OK &&
        dcpk_source_slurp(source, DCPK_HF_MAX_CONFIG_BYTES, &text, &n_bytes, err) == DCPK_OK) {
        spell_infinities(text, n_bytes);
        (void)dcpk_json_parse(text, n_bytes, config, err);
    }
    dcpk_free(text);
    return err->status;
}

dcpk_status dcpk_hf_document_read(struct dcpk_store *store, struct dcpk_json **config,
                                  struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    static const char *const names[] = {DCPK_HF_CONFIG, DCPK_HF_INNER "/" DCPK_HF_CONFIG,
                                        DCPK_HF_IN_MODEL "/" DCPK_HF_CONFIG};

    *config = NULL;
    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        if (dcpk_store_look(store, names[i], &kind, err))
            return err->status;
        if (kind == DCPK_PATH_FILE)
            return hf_read_config(store, names[i], config, err);
    }
    return DCPK_OK;
}

dcpk_status dcpk_hf_load_config(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_json *config;

    *value = NULL;
    if (dcpk_hf_document_read(ckpt->store, &config, err) == DCPK_OK && config != NULL) {
        if (dcpk_json_kind(config) != DCPK_JSON_OBJECT)
            (void)dcpk_fail(err, DCPK_EFORMAT, DCPK_HF_CONFIG " is not an object");
        else
            *value = dcpk_hf_value(arena, config, err);
    }
    dcpk_json_free(config);
    return err->status;
}

dcpk_status dcpk_hf_file_read(const char *path, struct dcpk_json **base, struct dcpk_error *err)
{
    const char *name = dcpk_name_last(path);
    struct dcpk_store *store = NULL;
    char dir[4096] = ".";

    if ((size_t)(name - path) >= sizeof dir)
        return dcpk_fail(err, DCPK_EUSAGE, "the path '%.80s...' is too long", path);
    if (name > path) {
        memcpy(dir, path, (size_t)(name - path));
        dir[name - path] = '\0';
    }
    if (dcpk_store_open(dir, &store, err) == DCPK_OK)
        (void)hf_read_config(store, name, base, err);
    dcpk_store_close(store);
    if (err->status != DCPK_OK)
        dcpk_context(err, "reading the configuration '%s'", path);
    return err->status;
}

/* True for a folder of Hugging Face's own. */
static bool is_own_folder(const struct dcpk_format *format)
{
    return format->is_model && format->container == NULL;
}

dcpk_status dcpk_hf_document_find(struct dcpk_checkpoint *ckpt, struct dcpk_json **config,
                                  struct dcpk_error *err)
{
    const struct dcpk_family_settings *given = &ckpt->given.family;
    struct dcpk_store *store = NULL;

    *config = NULL;
    if (is_own_folder(ckpt->format) && dcpk_hf_document_read(ckpt->store, config, err))
        return err->status;
    if (*config != NULL && given->config != NULL)
        dcpk_checkpoint_note_once(ckpt,
                                  "the model is read by the " DCPK_HF_CONFIG " of its folder, "
                                  "not by the one that is given");
    if (*config != NULL)
        return DCPK_OK;
    if (given->config != NULL)
        return dcpk_hf_file_read(given->config, config, err);
    if (given->assets != NULL && dcpk_store_open(given->assets, &store, err) == DCPK_OK)
        (void)dcpk_hf_document_read(store, config, err);
    dcpk_store_close(store);
    if (err->status != DCPK_OK || *config != NULL || is_own_folder(ckpt->format))
        return err->status;
    return dcpk_hf_document_read(ckpt->store, config, err);
}

dcpk_status dcpk_hf_base_find(struct dcpk_output *out, struct dcpk_json **base,
                              struct dcpk_error *err)
{
    const struct dcpk_format *from = out->source->format;

    *base = NULL;
    if (out->target.family.config != NULL)
        return dcpk_hf_file_read(out->target.family.config, base, err);
    if (!dcpk_format_has_config(from))
        return DCPK_OK;
    return dcpk_hf_document_find(out->source, base, err);
}

bool dcpk_hf_is_asset(const char *name)
{
    static const char *const names[] = {
        "generation_config.json",  "tokenizer.model",  "vocab.json", "merges.txt",
        "special_tokens_map.json", "added_tokens.json"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    if (strchr(name, '/') != NULL || dcpk_ends_with(name, ".py"))
        return false;
    return (dcpk_starts_with(name, "tokenizer") && dcpk_ends_with(name, ".json")) ||
           dcpk_starts_with(name, "chat_template.");
}

static dcpk_status put_asset(struct dcpk_output *out, struct dcpk_store *store, const char *name,
                             struct dcpk_error *err)
{
    const char *kept = dcpk_arena_strdup(out->arena, dcpk_name_last(name), err);
    struct dcpk_source *source;
    char *data = NULL;
    size_t n_bytes = 0;

    if (dcpk_store_leads_to_private(store, name, NULL))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' links to a file that fewer users may read than the folder: replace "
                         "the link by a file",
                         name);
    if (kept == NULL || dcpk_store_find(store, name, &source, err) ||
        dcpk_source_slurp(source, MAX_ASSET_BYTES, &data, &n_bytes, err))
        return err->status;
    (void)dcpk_output_put_small_file(out, kept, data, n_bytes, err);
    dcpk_free(data);
    return err->status;
}

/* Puts the files of a tokenizer in `folder` of the store, whose names have `prefix` there, next to
 * the tensors. *n: counts them. */
static dcpk_status put_assets(struct dcpk_output *out, struct dcpk_store *store, const char *folder,
                              const char *prefix, size_t *n, struct dcpk_error *err)
{
    const bool is_source = store == out->source->store;
    char **names = NULL;
    size_t n_names = 0;

    if (dcpk_store_list_in(store, folder, &names, &n_names, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < n_names && err->status == DCPK_OK; i++) {
        char path[512];
        const int length = snprintf(path, sizeof path, "%s%s", prefix, names[i]);

        if (!dcpk_hf_is_asset(names[i]) || length < 0 || (size_t)length >= sizeof path ||
            (is_source && dcpk_checkpoint_skips_private(out->source, path, NULL)))
            continue;
        (void)put_asset(out, store, path, err);
        *n += 1;
    }
    dcpk_free(names);
    return err->status;
}

/* The tokenizer of the source: its own, or one in the folder of Megatron-Bridge or of verl. */
static dcpk_status put_source_assets(struct dcpk_output *out, size_t *n, struct dcpk_error *err)
{
    static const struct {
        const char *folder, *prefix;
        bool is_of_models;
    } places[] = {{".", "", true},
                  {DCPK_HF_INNER, DCPK_HF_INNER "/", true},
                  {DCPK_HF_IN_MODEL, DCPK_HF_IN_MODEL "/", true},
                  {"tokenizer", "tokenizer/", false}};
    const bool is_model = dcpk_format_has_config(out->source->format);
    struct dcpk_store *store = out->source->store;

    for (size_t i = 0; i < DCPK_COUNT(places) && *n == 0; i++) {
        enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

        if (places[i].is_of_models != is_model)
            continue;
        if (dcpk_store_look(store, places[i].folder, &kind, err) ||
            (kind == DCPK_PATH_FOLDER &&
             put_assets(out, store, places[i].folder, places[i].prefix, n, err)))
            return err->status;
    }
    return DCPK_OK;
}

/* Without a file of a tokenizer a folder is given for its config.json, or by mistake. */
static dcpk_status check_no_asset(struct dcpk_output *out, struct dcpk_store *store,
                                  struct dcpk_error *err)
{
    enum dcpk_path_kind own = DCPK_PATH_FILE, kind = DCPK_PATH_NOTHING;

    if (out->source->format->is_model && out->source->format->container == NULL &&
        dcpk_store_look(out->source->store, DCPK_HF_CONFIG, &own, err) != DCPK_OK)
        return err->status;
    if ((out->source->format->container != NULL || own != DCPK_PATH_FILE) &&
        dcpk_store_look(store, DCPK_HF_CONFIG, &kind, err) != DCPK_OK)
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EUSAGE, "it holds no file of a tokenizer");
    dcpk_output_event(out, DCPK_EVENT_NOTE, "tokenizer", "the folder has no tokenizer");
    return DCPK_OK;
}

dcpk_status dcpk_hf_assets_put(struct dcpk_output *out, struct dcpk_error *err)
{
    const char *dir = out->target.family.assets;
    struct dcpk_store *store = NULL;
    size_t n = 0;

    if (dir != NULL) {
        if (dcpk_store_open(dir, &store, err) == DCPK_OK &&
            put_assets(out, store, ".", "", &n, err) == DCPK_OK && n == 0)
            (void)check_no_asset(out, store, err);
        dcpk_store_close(store);
        if (err->status != DCPK_OK)
            dcpk_context(err, "copying files of '%s'", dir);
        return err->status;
    }
    if (put_source_assets(out, &n, err) == DCPK_OK && n == 0)
        dcpk_output_event(out, DCPK_EVENT_NOTE, "tokenizer", "the folder has no tokenizer");
    return err->status;
}
