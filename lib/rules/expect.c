/* SPDX-License-Identifier: Apache-2.0 */
/* expect.c - the layers that args make, each of its kind; their sizes against what is stored. */
#include "lib/rules/expect.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/model/sizes.h"
#include "lib/rules/expect_priv.h"
#include "lib/rules/mesh.h"
#include "lib/tensor/box.h"

#define MAX_KINDS   64
#define MAX_LAYERS  20000   /* of a model; args come from a file */
#define MAX_EXPERTS 1000000 /* of all layers together, each of which is asked for by name */

/* True if a frequency or a list of zeros and ones picks layer `number`. */
static bool picks(const struct dcpk_value *list, int64_t number)
{
    int64_t on = 0;

    return dcpk_value_as_int(dcpk_value_at(list, (size_t)number), &on) && on != 0;
}

/* An int picks every n-th layer, from the first on (moe_layer_freq). */
static bool is_moe(const struct dcpk_arch *arch, int64_t number)
{
    const struct dcpk_value *freq = dcpk_value_get(arch->attrs, "moe_layer_freq");

    if (arch->expected->n_experts == 0)
        return false;
    if (dcpk_value_is_list(freq))
        return picks(freq, number);
    return number % dcpk_arch_int(arch, "moe_layer_freq", 1) == 0;
}

/* An int leaves out every n-th layer, from the n-th on (linear_attention_freq). */
static bool is_linear(const struct dcpk_arch *arch, int64_t number)
{
    const struct dcpk_value *freq = dcpk_value_get(arch->attrs, "linear_attention_freq");
    const int64_t n = dcpk_arch_int(arch, "linear_attention_freq", 0);

    if (dcpk_arch_text(arch, "experimental_attention_variant") == NULL || arch->expected->is_sparse)
        return false;
    if (dcpk_value_is_list(freq))
        return picks(freq, number);
    return n == 0 || (number + 1) % n != 0;
}

static unsigned softmax_attention(const struct dcpk_arch *arch)
{
    return arch->expected->is_mla ? HAS_MLA : HAS_QKV;
}

static unsigned indexer_traits(const struct dcpk_arch *arch, int64_t number)
{
    const bool has = arch->expected->is_sparse && dcpk_layer_has_indexer(arch->attrs, number);

    return has ? HAS_INDEXER : 0;
}

static unsigned layer_traits(const struct dcpk_arch *arch, int64_t number)
{
    const unsigned mlp = is_moe(arch, number) ? HAS_MOE : HAS_DENSE;

    if (is_linear(arch, number))
        return HAS_GDN | mlp;
    return softmax_attention(arch) | indexer_traits(arch, number) | mlp;
}

/* A letter of a hybrid's pattern (MC/models/hybrid/hybrid_layer_allocation.py@core_v0.19.0); 0:
 * none. */
static unsigned letter_traits(const struct dcpk_arch *arch, char letter)
{
    switch (letter) {
    case 'M':
        return HAS_MAMBA;
    case '*':
        return softmax_attention(arch);
    case '-':
        return HAS_DENSE;
    case 'E':
        return HAS_MOE;
    case 'G':
        return HAS_GDN;
    default:
        return 0;
    }
}

struct layers {
    struct dcpk_arch *arch;
    struct dcpk_expected_layer *list;
    size_t n, capacity;
};

static dcpk_status add_layer(struct layers *layers, enum dcpk_section section, int64_t number,
                             int64_t inner, unsigned traits, struct dcpk_error *err)
{
    struct dcpk_expected_layer *layer = &layers->list[layers->n];

    assert(layers->n < layers->capacity);
    *layer = (struct dcpk_expected_layer){.section = section,
                                          .number = number,
                                          .inner = inner,
                                          .is_wrapper = (traits & HAS_MTP) != 0};
    layers->n++;
    return dcpk_arch_kind(layers->arch, traits, &layer->kind, err);
}

/* Letters of a pattern up to `end`; stages of a pipeline are parted by '|'. */
static dcpk_status add_pattern(struct layers *layers, const char *pattern, size_t n,
                               enum dcpk_section section, int64_t number, struct dcpk_error *err)
{
    int64_t at = 0, inner = -1;

    for (size_t i = 0; i < n; i++) {
        const unsigned traits = letter_traits(layers->arch, pattern[i]);

        if (pattern[i] == '|')
            continue;
        if (traits == 0)
            return dcpk_arch_unknown(layers->arch, err, "layers '%c' of a hybrid model",
                                     pattern[i]);
        if (section == DCPK_DECODER_LAYERS)
            number = at;
        else
            inner = at;
        if (add_layer(layers, section, number, inner, traits, err) != DCPK_OK)
            return err->status;
        at++;
    }
    return DCPK_OK;
}

/* The part after each '/' is the stack of one layer of multi-token prediction. */
static dcpk_status add_hybrid(struct layers *layers, const char *pattern, struct dcpk_error *err)
{
    size_t n = strcspn(pattern, "/");

    if (add_pattern(layers, pattern, n, DCPK_DECODER_LAYERS, 0, err) != DCPK_OK)
        return err->status;
    layers->arch->expected->n_decoder_layers = (int64_t)layers->n;
    for (int64_t number = 0; pattern[n] == '/'; number++) {
        pattern += n + 1;
        n = strcspn(pattern, "/");
        if (add_layer(layers, DCPK_MTP_LAYERS, number, -1, HAS_MTP, err) ||
            add_pattern(layers, pattern, n, DCPK_MTP_LAYERS, number, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Layers of multi-token prediction that are stored. */
static int64_t count_mtp(const struct dcpk_arch *arch)
{
    if (!dcpk_arch_given(arch, "mtp_num_layers"))
        return 0;
    if (dcpk_arch_given(arch, "mtp_use_repeated_layer"))
        return 1;
    return dcpk_arch_int(arch, "mtp_num_layers", 0);
}

/* Each a wrapper around a layer like the decoder's last, with a number of its own. */
static dcpk_status add_mtp(struct layers *layers, int64_t n_layers, struct dcpk_error *err)
{
    const struct dcpk_arch *arch = layers->arch;
    const unsigned like = layer_traits(arch, n_layers - 1) & ~(unsigned)HAS_INDEXER;
    const int64_t n = count_mtp(arch);

    for (int64_t i = 0; i < n; i++)
        if (add_layer(layers, DCPK_MTP_LAYERS, i, -1, HAS_MTP, err) ||
            add_layer(layers, DCPK_MTP_LAYERS, i, -1, like | indexer_traits(arch, i), err))
            return err->status;
    return DCPK_OK;
}

/*
 * True if the loader stacks the decoder's layers. TransformerBlock.sharded_state_dict@0.15 to main;
 * hybrid stacks never are (formats/torch_dist/FORMAT.md 4.2).
 */
static bool is_stacked(const struct dcpk_arch *arch)
{
    static const char *const frequencies[] = {"moe_layer_freq", "linear_attention_freq"};

    for (size_t i = 0; i < 2; i++)
        if (dcpk_value_is_list(dcpk_value_get(arch->attrs, frequencies[i])) ||
            dcpk_arch_int(arch, frequencies[i], 1) > 1)
            return false;
    return !arch->expected->is_hybrid;
}

/* The pattern of a hybrid model, NULL: it is none. (0.16: hybrid_override_pattern.) */
static const char *hybrid_pattern(const struct dcpk_arch *arch)
{
    const char *pattern = dcpk_arch_text(arch, "hybrid_layer_pattern");

    if (pattern == NULL)
        pattern = dcpk_arch_text(arch, "hybrid_override_pattern");
    if (pattern != NULL && *pattern == '\0')
        return NULL;
    return pattern;
}

static dcpk_status add_layers(struct layers *layers, const char *pattern, int64_t n_layers,
                              struct dcpk_error *err)
{
    if (pattern != NULL)
        return add_hybrid(layers, pattern, err);
    for (int64_t i = 0; i < n_layers; i++)
        if (add_layer(layers, DCPK_DECODER_LAYERS, i, -1, layer_traits(layers->arch, i), err))
            return err->status;
    return add_mtp(layers, n_layers, err);
}

dcpk_status dcpk_rules_expect(const struct dcpk_value *attrs, const struct dcpk_grid *mesh,
                              struct dcpk_arena *arena, struct dcpk_expected *expected,
                              struct dcpk_error *err)
{
    struct dcpk_arch arch = {.attrs = attrs, .arena = arena, .expected = expected};
    struct layers layers = {.arch = &arch};
    const char *pattern = hybrid_pattern(&arch);
    int64_t n_layers = dcpk_arch_int(&arch, "num_layers", 0);
    const int64_t n_mtp = count_mtp(&arch);

    *expected = (struct dcpk_expected){.is_hybrid = pattern != NULL};
    expected->is_hybrid_mtp = pattern != NULL && strchr(pattern, '/') != NULL;
    if (dcpk_arch_read(&arch, mesh, err) != DCPK_OK)
        return err->status;
    if (dcpk_arch_given(&arch, "is_hybrid_model") && pattern == NULL &&
        dcpk_arch_unknown(&arch, err, "a hybrid model without its pattern of layers") != DCPK_OK)
        return err->status;
    if (pattern != NULL)
        n_layers = 2 * (int64_t)strlen(pattern);
    if (n_layers > MAX_LAYERS || n_mtp > MAX_LAYERS)
        return dcpk_arch_unknown(&arch, err, "a model of more than %d layers", MAX_LAYERS);
    if (expected->n_experts > MAX_EXPERTS / (n_layers + n_mtp + 1))
        return dcpk_arch_unknown(&arch, err, "a model of more than %d experts", MAX_EXPERTS);
    layers.capacity = (size_t)(n_layers + 2 * n_mtp) + 1; /* with the embedding */
    arch.kinds = dcpk_arena_array(arena, MAX_KINDS, sizeof *arch.kinds, err);
    layers.list = dcpk_arena_array(arena, layers.capacity, sizeof *layers.list, err);
    if (arch.kinds == NULL || layers.list == NULL)
        return err->status;
    expected->n_decoder_layers = n_layers;
    expected->is_stacked = is_stacked(&arch);
    if (add_layers(&layers, pattern, n_layers, err) ||
        add_layer(&layers, DCPK_EMBEDDING, 0, -1, HAS_OUTER, err))
        return err->status;
    expected->layers = layers.list;
    expected->n_layers = layers.n;
    return DCPK_OK;
}

/* ---- against what is stored ---- */

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
    arena = dcpk_arena_new();
    if (dcpk_rules_expect(attrs, &model->layout, arena, &expected, err) || expected.unknown != NULL)
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
