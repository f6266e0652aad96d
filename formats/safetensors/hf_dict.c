/* SPDX-License-Identifier: Apache-2.0 */
/* hf_dict.c - faults that are collected, kinds of layers, values that mean the same. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/sizes.h"

#define MAX_SHOWN 60

dcpk_status dcpk_hf_fault(struct dcpk_hf_faults *faults, dcpk_status status, const char *fmt, ...)
{
    char text[400];
    va_list args;

    if (faults->skips_unsupported && status == DCPK_EUNSUPPORTED)
        return DCPK_OK;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (faults->n > 0)
        dcpk_bytes_text(&faults->text, "; ");
    dcpk_bytes_text(&faults->text, text);
    if (faults->n++ == 0) {
        faults->status = status;
        faults->first_bytes = faults->text.n_bytes;
    }
    return DCPK_OK;
}

dcpk_status dcpk_hf_faults_end(struct dcpk_hf_faults *faults, struct dcpk_error *err)
{
    if (faults->n > 0 && dcpk_bytes_status(&faults->text, err) == DCPK_OK)
        (void)dcpk_fail(err, faults->status, "%.*s", (int)faults->text.n_bytes,
                        (const char *)faults->text.data);
    dcpk_bytes_release(&faults->text);
    return err->status;
}

const char *dcpk_hf_show(struct dcpk_arena *arena, const struct dcpk_value *value)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes text = {0};
    struct dcpk_json_out out;
    const char *shown = NULL;

    if (value == NULL)
        return "absent";
    dcpk_json_out_init(&out, &text, 0);
    dcpk_value_to_json(value, &out);
    if (text.status == DCPK_OK)
        shown =
            dcpk_arena_printf(arena, &err, "%.*s%s", (int)dcpk_min_size(text.n_bytes, MAX_SHOWN),
                              (const char *)text.data, text.n_bytes > MAX_SHOWN ? "..." : "");
    dcpk_bytes_release(&text);
    return dcpk_text_or(shown, "?");
}

/* A number of experts that is 0 is none. */
static bool has_experts(const struct dcpk_value *attrs)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, "num_experts");
    int64_t n;

    return !dcpk_value_is_none(value) && (!dcpk_value_as_int(value, &n) || n != 0);
}

/* One for each of the layers, all false. */
static bool *layers_make(int64_t n_layers, struct dcpk_arena *arena, struct dcpk_error *err)
{
    const int64_t most = dcpk_arg_find("num_layers")->most;

    if (n_layers >= 1 && n_layers <= most)
        return dcpk_arena_array(arena, (size_t)n_layers, sizeof(bool), err);
    (void)dcpk_fail(err, DCPK_EFORMAT, "num_layers is %" PRId64 ", not from 1 to %" PRId64,
                    n_layers, most);
    return NULL;
}

static dcpk_status fail_frequency(const char *arg, const struct dcpk_value *freq, int64_t n_layers,
                                  struct dcpk_arena *arena, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EFORMAT, "%s is %s, which is not of %" PRId64 " layers", arg,
                     dcpk_hf_show(arena, freq), n_layers);
}

static const struct dcpk_value *pattern_value(const struct dcpk_value *attrs)
{
    const struct dcpk_value *pattern = dcpk_value_get(attrs, "hybrid_layer_pattern");

    if (dcpk_value_is_none(pattern))
        pattern = dcpk_value_get(attrs, "hybrid_override_pattern");
    if (dcpk_value_is_str(pattern, ""))
        return NULL;
    return pattern;
}

dcpk_status dcpk_hf_layer_symbols(const struct dcpk_value *attrs, int64_t n_layers,
                                  struct dcpk_arena *arena, const char **symbols,
                                  struct dcpk_error *err)
{
    const struct dcpk_value *pattern = pattern_value(attrs);
    const char *text = dcpk_value_as_str(pattern);
    char *made;
    size_t n = 0;

    *symbols = NULL;
    if (text == NULL)
        return DCPK_OK;
    made = dcpk_arena_strdup(arena, text, err);
    if (made == NULL)
        return err->status;
    for (; *text != '\0'; text++)
        if (*text != '|')
            made[n++] = *text;
    made[n] = '\0';
    if ((int64_t)strcspn(made, "/") != n_layers)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the pattern %s has %zu layers, and num_layers is %" PRId64,
                         dcpk_hf_show(arena, pattern), strcspn(made, "/"), n_layers);
    *symbols = made;
    return DCPK_OK;
}

bool dcpk_hf_arg_is_moot(const struct dcpk_value *attrs, const char *arg)
{
    const struct dcpk_arg *known = dcpk_arg_find(arg);
    const char *pattern = dcpk_value_as_str(pattern_value(attrs));

    return pattern != NULL && strchr(pattern, DCPK_HF_EXPERTS) == NULL && known != NULL &&
           (known->part == DCPK_PART_MOE || strcmp(known->name, "num_experts") == 0);
}

dcpk_status dcpk_hf_moe_layers(const struct dcpk_value *attrs, int64_t n_layers,
                               struct dcpk_arena *arena, const bool **is_moe,
                               struct dcpk_error *err)
{
    static const char arg[] = "moe_layer_freq";
    const struct dcpk_value *freq = dcpk_arg_value(attrs, arg);
    bool *layers = layers_make(n_layers, arena, err);
    const char *symbols;

    if (layers == NULL || dcpk_hf_layer_symbols(attrs, n_layers, arena, &symbols, err))
        return err->status;
    *is_moe = layers;
    for (int64_t i = 0; symbols != NULL && i < n_layers; i++)
        layers[i] = symbols[i] == DCPK_HF_EXPERTS;
    if (symbols != NULL)
        return DCPK_OK;
    if (has_experts(attrs) && !dcpk_moe_layers_read(freq, layers, (size_t)n_layers))
        return fail_frequency(arg, freq, n_layers, arena, err);
    return DCPK_OK;
}

dcpk_status dcpk_hf_linear_layers(const struct dcpk_value *attrs, int64_t n_layers,
                                  struct dcpk_arena *arena, const bool **is_linear,
                                  struct dcpk_error *err)
{
    static const char arg[] = "linear_attention_freq";
    const struct dcpk_value *freq = dcpk_arg_value(attrs, arg);
    bool *layers = layers_make(n_layers, arena, err);
    int64_t every;

    if (layers == NULL)
        return err->status;
    *is_linear = layers;
    if (!dcpk_value_is_str(dcpk_value_get(attrs, "experimental_attention_variant"),
                           "gated_delta_net"))
        return DCPK_OK;
    if (dcpk_value_as_int(freq, &every) && every >= 1) {
        for (int64_t i = 0; i < n_layers; i++)
            layers[i] = (i + 1) % every != 0;
        return DCPK_OK;
    }
    if (dcpk_value_as_int(freq, &every) || !dcpk_moe_layers_read(freq, layers, (size_t)n_layers))
        return fail_frequency(arg, freq, n_layers, arena, err);
    return DCPK_OK;
}
