/* SPDX-License-Identifier: Apache-2.0 */
/* args_fit.c - sizes by args against the shapes that are stored. */
#include "lib/rules/args_fit.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/model/sizes.h"
#include "lib/rules/expect.h"
#include "lib/rules/mesh.h"
#include "lib/tensor/box.h"

#define DECODER "decoder.layers."
#define EXPERTS "mlp.experts."

/* The name after that of its layer, and the layer's number; -1: outside the decoder's layers. */
static const char *split_layer(const char *name, int64_t *layer)
{
    const char *at = name + strlen(DECODER);

    *layer = -1;
    if (!dcpk_starts_with(name, DECODER) || *at < '0' || *at > '9')
        return name;
    for (*layer = 0; *at >= '0' && *at <= '9' && *layer < INT32_MAX; at++)
        *layer = *layer * 10 + (*at - '0');
    return *at == '.' ? at + 1 : at;
}

/* True if the rest of a name means this parameter. An expert's ends in its number. */
static bool is_named(const struct dcpk_expected_param *param, const char *rest)
{
    const size_t n = strlen(param->te);

    if (!(param->flags & DCPK_EXPECTED_EXPERT))
        return strcmp(param->te, rest) == 0;
    if (!dcpk_starts_with(rest, EXPERTS))
        return false;
    rest += strlen(EXPERTS);
    return strncmp(rest, param->te, n) == 0 && rest[n + strspn(rest + n, "0123456789")] == '\0';
}

/* NULL: args ask for no such parameter. */
static const struct dcpk_expected_param *find_param(const struct dcpk_expected *expected,
                                                    const char *name)
{
    int64_t number;
    const char *rest = split_layer(name, &number);

    for (size_t l = 0; l < expected->n_layers; l++) {
        const struct dcpk_expected_layer *layer = &expected->layers[l];
        const bool is_decoder = layer->section == DCPK_DECODER_LAYERS;

        if (is_decoder != (number >= 0) || (is_decoder && layer->number != number) ||
            layer->section == DCPK_MTP_LAYERS)
            continue;
        for (size_t k = 0; k < layer->kind->n_params; k++)
            if (is_named(&layer->kind->params[k], rest))
                return &layer->kind->params[k];
    }
    return NULL;
}

/* Rows of a vocabulary are padded to what a target asks for: its columns count. */
static bool has_shape(const struct dcpk_model_tensor *value,
                      const struct dcpk_expected_param *param)
{
    const int first = (param->flags & DCPK_EXPECTED_VOCAB) ? 1 : 0;

    if (value->rank != param->rank)
        return false;
    for (int i = first; i < param->rank; i++)
        if (value->shape[i] != param->shape[i])
            return false;
    return true;
}

/* Parameters that a layer of that kind has in every model: without one the kind differs. */
static bool shows_kind(const char *name)
{
    static const char *const names[] = {"mlp.linear_fc1.weight", "mlp.router.weight",
                                        "self_attention.linear_qkv.weight"};
    int64_t number;
    const char *rest = split_layer(name, &number);

    for (size_t i = 0; number >= 0 && i < DCPK_COUNT(names); i++)
        if (strcmp(names[i], rest) == 0)
            return true;
    return false;
}

static dcpk_status check_shapes(const struct dcpk_model *model,
                                const struct dcpk_expected *expected, struct dcpk_error *err)
{
    char asked[256], stored[256];

    for (size_t p = 0; p < model->n_params; p++) {
        const char *name = model->params[p].name;
        const struct dcpk_model_tensor *value = dcpk_model_value(model, &model->params[p]);
        const struct dcpk_expected_param *param = find_param(expected, name);

        if (value != NULL && param == NULL && shows_kind(name))
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "the given args contradict what is stored: they have no '%s'", name);
        if (value != NULL && param != NULL && !has_shape(value, param))
            return dcpk_fail(
                err, DCPK_EMISMATCH,
                "sizes of the given args contradict what is stored: '%s' would be %s, and is %s",
                name, dcpk_shape_format(param->shape, param->rank, asked, sizeof asked),
                dcpk_shape_format(value->shape, value->rank, stored, sizeof stored));
    }
    return DCPK_OK;
}

/* Layers of the decoder that are stored; 0: none. */
static int64_t count_layers(const struct dcpk_model *model)
{
    int64_t n = 0, layer;

    for (size_t p = 0; p < model->n_params; p++) {
        (void)split_layer(model->params[p].name, &layer);
        n = dcpk_max_i64(n, layer + 1);
    }
    return n;
}

static dcpk_status fit_check_rows(const struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_value *given = dcpk_value_attrs(model->ckpt->given.args);
    const int64_t rows = dcpk_rules_vocab_rows(model);
    int64_t asked;

    if (rows == 0 || model->ckpt->format->is_model)
        return DCPK_OK; /* a model has no padding, which args may have */
    if (dcpk_value_as_int(dcpk_value_get(given, "padded_vocab_size"), &asked) && asked != rows)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "padded_vocab_size of the given args is %" PRId64 ", and %" PRId64
                         " rows are stored",
                         asked, rows);
    return dcpk_tokens_fit(given, rows, err);
}

dcpk_status dcpk_rules_args_fit(const struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    const int64_t n_layers = count_layers(model);
    struct dcpk_expected expected = {0};
    struct dcpk_arena *arena;

    if (model->ckpt->given.args == NULL || attrs == NULL)
        return DCPK_OK;
    arena = dcpk_arena_new(0, err);
    if (arena == NULL || dcpk_rules_expect(attrs, &model->layout, arena, &expected, err) ||
        expected.unknown != NULL)
        goto out;
    if (n_layers > 0 && n_layers != expected.n_decoder_layers)
        dcpk_fail(err, DCPK_EMISMATCH,
                  "the given args have %" PRId64 " layers, and %" PRId64 " are stored",
                  expected.n_decoder_layers, n_layers);
    else if (fit_check_rows(model, err) == DCPK_OK)
        (void)check_shapes(model, &expected, err);
out:
    dcpk_arena_free(arena);
    return err->status;
}
