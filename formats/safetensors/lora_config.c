/* SPDX-License-Identifier: Apache-2.0 */
/* lora_config.c - adapter_config.json: what a LoRA adapter is, and all kinds that it is not. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/safetensors/hf_model.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"

#define MAX_PATTERNS 4096 /* each is searched for in the name of each module */

/* ---- kinds that are refused ---- */

/* True for what Python takes as true. */
static bool is_set(const struct dcpk_json *node)
{
    bool truth = false;
    double number = 0;

    if (node == NULL)
        return false;
    switch (dcpk_json_kind(node)) {
    case DCPK_JSON_BOOL:
        return dcpk_json_bool(node, &truth) && truth;
    case DCPK_JSON_NUMBER:
        return !dcpk_json_double(node, &number) || number != 0;
    case DCPK_JSON_STRING:
        return *dcpk_json_string(node) != '\0';
    case DCPK_JSON_ARRAY:
    case DCPK_JSON_OBJECT:
        return dcpk_json_first(node) != NULL;
    case DCPK_JSON_NULL:
        break;
    }
    return false;
}

static bool is_one_of(const char *key, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* True for fields that make another kind of adapter where they are set. Source: peft 0.21.2,
 * tuners/lora/config.py; further ones by the endings of their names. */
static bool changes_kind(const char *key)
{
    static const char *const kinds[] = {"lora_bias", DCPK_LORA_TARGETS, "layer_replication",
                                        "trainable_token_indices", "alora_invocation_tokens"};
    static const char *const plain[] = {"use_rslora",     "eva_config",   "corda_config",
                                        "lora_ga_config", "loftq_config", "runtime_config"};

    if (is_one_of(key, plain, DCPK_COUNT(plain)))
        return false;
    return is_one_of(key, kinds, DCPK_COUNT(kinds)) || dcpk_starts_with(key, "use_") ||
           dcpk_ends_with(key, "_config");
}

/* These take a part of the base's weights out before training (peft 0.21.2, tuners/lora/layer.py),
 * so that the adapter does not fit the base as it was published. */
static bool changes_base(const char *init)
{
    static const char *const kinds[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

    for (size_t i = 0; i < DCPK_COUNT(kinds); i++)
        if (init != NULL && dcpk_starts_with(init, kinds[i]))
            return true;
    return false;
}

/* Two kinds are known where the files have what they need: the changed base of a run that is
 * merged, and the nested names of experts' matrices in PEFT's folder. */
static dcpk_status lora_check_kind(const struct dcpk_checkpoint *ckpt, const struct dcpk_json *doc,
                                   struct dcpk_error *err)
{
    const bool of_run = ckpt->given.lora.merges && ckpt->given.lora.adapter == NULL;
    const bool is_folder = ckpt->format == &dcpk_format_peft ||
                           (ckpt->adapter != NULL && ckpt->adapter->format == &dcpk_format_peft);
    const struct dcpk_json *kind = dcpk_json_member(doc, "peft_type");
    const char *init = dcpk_json_string(dcpk_json_member(doc, "init_lora_weights"));

    if (kind != NULL && strcmp(dcpk_text_or(dcpk_json_string(kind), "?"), "LORA") != 0)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "\"peft_type\" is '%.60s': only plain LoRA is converted (PEFT merges others: "
            "merge_and_unload())",
            dcpk_text_or(dcpk_json_string(kind), "?"));
    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL; m = dcpk_json_next(m))
        if (changes_kind(dcpk_json_key(m)) && is_set(m) &&
            !(is_folder && strcmp(dcpk_json_key(m), DCPK_LORA_TARGETS) == 0))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "\"%.60s\" is set: only plain LoRA is converted (PEFT merges others: "
                             "merge_and_unload())",
                             dcpk_json_key(m));
    if (!of_run && changes_base(init))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "\"init_lora_weights\" is '%.60s', which changed the base: save the "
                         "adapter with path_initial_model_for_weight_conversion",
                         init);
    return DCPK_OK;
}

/* ---- numbers ---- */

/* A rank is a whole number from 1 on, alpha any but 0. */
static dcpk_status number_read(const struct dcpk_json *node, const char *name, bool is_rank,
                               double *number, struct dcpk_error *err)
{
    int64_t whole = 0;
    const bool is_whole = dcpk_json_int(node, &whole) && whole >= 1 && whole <= INT32_MAX;

    if (dcpk_json_double(node, number) && isfinite(*number) && *number != 0 &&
        (is_whole || !is_rank))
        return DCPK_OK;
    if (node == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%.60s\" is missing", name);
    return dcpk_fail(err, DCPK_EFORMAT, "\"%.60s\" is not %s", name,
                     is_rank ? "a rank from 1 on" : "a number other than 0");
}

/* PEFT's get_pattern_key: re.match(rf"(.*\.)?({key})$", module), peft 0.21.2 utils/other.py. */
static dcpk_status pattern_read(const struct dcpk_json *node, bool is_rank,
                                struct dcpk_lora_pattern *pattern, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};

    dcpk_bytes_printf(&text, "^(?:(.*\\.)?(%s)$)", dcpk_json_key(node));
    if (number_read(node, dcpk_json_key(node), is_rank, &pattern->value, err) == DCPK_OK &&
        dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_regex_new((const char *)text.data, text.n_bytes, &pattern->regex, err);
    if (err->status == DCPK_EUSAGE)
        err->status = DCPK_EFORMAT; /* it is the file's fault, not the user's */
    dcpk_bytes_release(&text);
    return err->status;
}

static dcpk_status patterns_read(const struct dcpk_json *doc, const char *name, bool is_rank,
                                 struct dcpk_lora_patterns *patterns, struct dcpk_error *err)
{
    const struct dcpk_json *node = dcpk_json_member(doc, name);
    size_t n = 0;

    if (!is_set(node))
        return DCPK_OK;
    if (dcpk_json_kind(node) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is not an object", name);
    for (const struct dcpk_json *m = dcpk_json_first(node); m != NULL; m = dcpk_json_next(m))
        n++;
    if (n > MAX_PATTERNS)
        return dcpk_fail(err, DCPK_ERANGE, "\"%s\" has %zu patterns, the limit is %d", name, n,
                         MAX_PATTERNS);
    patterns->list = dcpk_alloc_array(n, sizeof *patterns->list, err);
    for (const struct dcpk_json *m = dcpk_json_first(node); m != NULL && err->status == DCPK_OK;
         m = dcpk_json_next(m))
        (void)pattern_read(m, is_rank, &patterns->list[patterns->n++], err);
    for (size_t i = 0; i < n && err->status == DCPK_OK; i++)
        dcpk_regex_share(patterns->list[i].regex, n);
    if (err->status != DCPK_OK)
        dcpk_context(err, "\"%s\"", name);
    return err->status;
}

/* The value for a module: of the first pattern that matches, else `value` as it was. */
static dcpk_status patterns_find(const struct dcpk_lora_patterns *patterns, const char *module,
                                 double *value, struct dcpk_error *err)
{
    bool found = false;

    for (size_t i = 0; i < patterns->n && !found; i++) {
        if (dcpk_regex_search(patterns->list[i].regex, module, &found, err) != DCPK_OK) {
            if (err->status == DCPK_EUSAGE)
                err->status = DCPK_EFORMAT;
            return err->status;
        }
        if (found)
            *value = patterns->list[i].value;
    }
    return DCPK_OK;
}

static void patterns_release(struct dcpk_lora_patterns *patterns)
{
    for (size_t i = 0; i < patterns->n; i++)
        dcpk_regex_free(patterns->list[i].regex);
    dcpk_free(patterns->list);
}

dcpk_status dcpk_lora_scale(const struct dcpk_lora_config *config, const char *module, int64_t rank,
                            float *scale, struct dcpk_error *err)
{
    double asked = config->rank, alpha = config->alpha;

    if (patterns_find(&config->ranks, module, &asked, err) ||
        patterns_find(&config->alphas, module, &alpha, err))
        return err->status;
    if (asked != (double)rank)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the rank of '%s' is %" PRId64 ", and the configuration has %g", module,
                         rank, asked);
    *scale = (float)(alpha / (config->is_rslora ? sqrt(asked) : asked));
    if (!isfinite(*scale))
        return dcpk_fail(err, DCPK_ERANGE, "alpha of '%s' is %g, which float32 cannot hold", module,
                         alpha);
    return DCPK_OK;
}

/* ---- the document ---- */

static dcpk_status find_document(const struct dcpk_checkpoint *ckpt, struct dcpk_store *store,
                                 struct dcpk_json **doc, struct dcpk_error *err)
{
    static const char *const names[] = {DCPK_PEFT_CONFIG, DCPK_VERL_CONFIG};

    if (ckpt->given.lora.config != NULL)
        return dcpk_hf_file_read(ckpt->given.lora.config, doc, err);
    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        enum dcpk_path_kind kind;

        if (dcpk_store_look(store, names[i], &kind, err))
            return err->status;
        if (kind != DCPK_PATH_FILE)
            continue;
        if (dcpk_json_read(store, names[i], DCPK_HF_MAX_CONFIG_BYTES, doc, err))
            dcpk_context(err, "reading '%s'", names[i]);
        return err->status;
    }
    return DCPK_OK;
}

static dcpk_status config_fill(const struct dcpk_checkpoint *ckpt, struct dcpk_lora_config *config,
                               struct dcpk_error *err)
{
    const struct dcpk_json *doc = config->doc;

    if (dcpk_json_kind(doc) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "it is not an object");
    if (lora_check_kind(ckpt, doc, err) ||
        number_read(dcpk_json_member(doc, "r"), "r", true, &config->rank, err) ||
        number_read(dcpk_json_member(doc, "lora_alpha"), "lora_alpha", false, &config->alpha,
                    err) ||
        patterns_read(doc, "rank_pattern", true, &config->ranks, err) ||
        patterns_read(doc, "alpha_pattern", false, &config->alphas, err))
        return err->status;
    config->is_rslora = is_set(dcpk_json_member(doc, "use_rslora"));
    config->is_turned = is_set(dcpk_json_member(doc, "fan_in_fan_out"));
    return DCPK_OK;
}

dcpk_status dcpk_lora_config_read(const struct dcpk_checkpoint *ckpt, struct dcpk_store *store,
                                  const char *key, struct dcpk_lora_config *config,
                                  struct dcpk_error *err)
{
    if (find_document(ckpt, store, &config->doc, err))
        return err->status;
    if (config->doc == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LORA,
                             "'%s' belongs to an adapter (LoRA), but no " DCPK_PEFT_CONFIG
                             " or " DCPK_VERL_CONFIG " next to it gives lora_alpha",
                             key);
    if (config_fill(ckpt, config, err))
        dcpk_context(err, "the configuration of the adapter");
    return err->status;
}

void dcpk_lora_config_release(struct dcpk_lora_config *config)
{
    patterns_release(&config->ranks);
    patterns_release(&config->alphas);
    dcpk_json_free(config->doc);
}

/* ---- names ---- */

void dcpk_lora_name_parse(const char *key, struct dcpk_lora_name *name)
{
    static const struct {
        const char *word;
        enum dcpk_lora_part part;
        bool is_parameter; /* of the module: no "weight" follows */
    } marks[] = {{".lora_A", DCPK_LORA_A, false},
                 {".lora_B", DCPK_LORA_B, false},
                 {".lora_embedding_A", DCPK_LORA_A, true},
                 {".lora_embedding_B", DCPK_LORA_B, true},
                 {".modules_to_save", DCPK_LORA_SAVED, false},
                 {".trainable_tokens_delta", DCPK_LORA_OTHER, true},
                 {".trainable_tokens_original", DCPK_LORA_OTHER, true},
                 {"lora_", DCPK_LORA_OTHER, false}};

    *name = (struct dcpk_lora_name){.part = DCPK_LORA_BASE, .n_module = strlen(key), .rest = ""};
    for (size_t i = 0; i < DCPK_COUNT(marks); i++) {
        const char *at = strstr(key, marks[i].word), *end;

        if (at == NULL)
            continue;
        end = at + strlen(marks[i].word);
        if (*end != '.' && (*end != '\0' || !marks[i].is_parameter) && i + 1 < DCPK_COUNT(marks))
            continue;
        name->part = marks[i].part;
        name->n_module = (size_t)(at - key);
        name->word = marks[i].word;
        name->is_embedding = marks[i].is_parameter;
        name->rest = end + (*end == '.');
        end = strchr(name->rest, '.');
        if (name->is_embedding && *name->rest != '\0')
            end = name->rest + strlen(name->rest);
        if (end != NULL) {
            name->adapter = name->rest;
            name->n_adapter = (size_t)(end - name->rest);
            name->rest = end + (*end == '.');
        }
        if (name->part < DCPK_LORA_SAVED && !name->is_embedding &&
            strcmp(name->rest, "weight") != 0)
            name->part = DCPK_LORA_OTHER;
        return;
    }
}

dcpk_status dcpk_lora_check_one(struct dcpk_lora_name *first, const struct dcpk_lora_name *name,
                                struct dcpk_error *err)
{
    if (first->adapter == NULL)
        *first = *name;
    if (name->n_adapter == first->n_adapter &&
        strncmp(dcpk_text_or(name->adapter, ""), dcpk_text_or(first->adapter, ""),
                name->n_adapter) == 0)
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_DROP,
                         "there are two adapters, '%.*s' and '%.*s'", (int)first->n_adapter,
                         first->adapter, (int)name->n_adapter, dcpk_text_or(name->adapter, ""));
}

const struct dcpk_tensor *dcpk_lora_find(const struct dcpk_checkpoint *ckpt)
{
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        struct dcpk_lora_name name;

        dcpk_lora_name_parse(ckpt->tensors[t].key, &name);
        if (name.part != DCPK_LORA_BASE && name.part != DCPK_LORA_SAVED &&
            strstr(ckpt->tensors[t].key, ".state.") == NULL &&
            dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL)
            return &ckpt->tensors[t];
    }
    return NULL;
}
