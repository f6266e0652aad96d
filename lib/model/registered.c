/* SPDX-License-Identifier: Apache-2.0 */
/* registered.c - a table of Megatron's modules: what tensor parallelism cuts, and who registers
 * first. */
#include "lib/model/registered.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

enum { NONE = -1, ROWS = 0, COLUMNS = 1 };

/*
 * A module's parameters "<name>weight" and "<name>bias", or one parameter by its whole name. `te`
 * and `local` are places in the order of registration: a module's own parameters, then its children
 * as __init__ assigns them
 * (MC/transformer/{transformer_layer,attention,multi_latent_attention,mlp}.py,
 * moe/{moe_layer,shared_experts}.py, the same at 0.15.3, 0.19.0 and main;
 * MC/ssm/{mamba_layer,mamba_mixer,gated_delta_net}.py). Transformer Engine's fused linears register
 * the norm before their weight. Rows of parts (parts.h) are cut part by part.
 */
static const struct module {
    const char *name;
    int weight_axis, bias_axis;
    int te, local;
    bool te_keeps_whole; /* TELinear(parallel_mode="duplicated") */
} layer_modules[] = {
    {"input_layernorm.", NONE, NONE, -5, -5, false},
    /* MC/transformer/experimental_attention_variant/dsa.py, the same at 0.16.0 to main. */
    {"self_attention.core_attention.indexer.linear_wq_b.", NONE, NONE, -4, -4, false},
    {"self_attention.core_attention.indexer.linear_wk.", NONE, NONE, -3, -3, false},
    {"self_attention.core_attention.indexer.k_norm.", NONE, NONE, -2, -2, false},
    {"self_attention.core_attention.indexer.linear_weights_proj.", NONE, NONE, -1, -1, false},
    {"self_attention.core_attention.softmax_offset", ROWS, NONE, 1, 1, false},
    {"self_attention.linear_proj.", COLUMNS, NONE, 2, 2, false},
    {"self_attention.linear_qkv.layer_norm_", NONE, NONE, 3, -5, false},
    {"self_attention.linear_qkv.", ROWS, ROWS, 4, 4, false},
    {"self_attention.linear_q_proj.", ROWS, ROWS, 5, 5, false},
    {"self_attention.linear_q_down_proj.", ROWS, ROWS, 6, 6, true},
    {"self_attention.linear_q_up_proj.layer_norm_", NONE, NONE, 7, 13, false},
    {"self_attention.linear_q_up_proj.", ROWS, ROWS, 8, 8, false},
    {"self_attention.linear_kv_down_proj.", ROWS, ROWS, 9, 9, true},
    {"self_attention.linear_kv_up_proj.layer_norm_", NONE, NONE, 10, 15, false},
    {"self_attention.linear_kv_up_proj.", ROWS, ROWS, 11, 11, false},
    {"self_attention.q_layernorm.", NONE, NONE, 13, 13, false},
    {"self_attention.k_layernorm.", NONE, NONE, 14, 14, false},
    {"self_attention.kv_layernorm.", NONE, NONE, 15, 15, false},
    {"self_attention.dt_bias", ROWS, NONE, 1, 1, false},
    {"self_attention.A_log", ROWS, NONE, 2, 2, false},
    {"self_attention.in_proj.layer_norm_", NONE, NONE, 3, -5, false},
    {"self_attention.in_proj.", ROWS, ROWS, 4, 4, false},
    {"self_attention.conv1d.", ROWS, ROWS, 5, 5, false},
    {"self_attention.out_norm.", NONE, NONE, 6, 6, false},
    {"self_attention.out_proj.", COLUMNS, NONE, 7, 7, false},
    /* One linear layer instead of the attention (MC/models/gpt/heterogeneous). */
    {"self_attention.layer_norm_", NONE, NONE, 3, -5, false},
    {"self_attention.", ROWS, ROWS, 4, 4, false},
    {"mixer.conv1d_", ROWS, ROWS, 0, 0, false},
    {"mixer.conv1d.", ROWS, ROWS, 0, 0, false},
    {"mixer.dt_bias", ROWS, NONE, 1, 1, false},
    {"mixer.A_log", ROWS, NONE, 2, 2, false},
    {"mixer.D", ROWS, NONE, 3, 3, false},
    {"mixer.in_proj.layer_norm_", NONE, NONE, 4, 9, false},
    {"mixer.in_proj.", ROWS, ROWS, 5, 4, false},
    {"mixer.norm.", ROWS, NONE, 7, 7, false},
    {"mixer.out_proj.", COLUMNS, NONE, 8, 8, false},
    {"norm.", NONE, NONE, 9, 9, false},
    {"pre_mlp_layernorm.", NONE, NONE, 20, 20, false},
    {"mlp.router.", NONE, NONE, 21, 21, false},
    {"mlp.experts.linear_fc1.", ROWS, ROWS, 22, 22, false},
    {"mlp.experts.linear_fc2.", COLUMNS, NONE, 22, 22, false},
    {"mlp.shared_experts.gate_weight", NONE, NONE, 23, 23, false},
    {"mlp.shared_experts.linear_fc1.", ROWS, ROWS, 24, 24, false},
    {"mlp.shared_experts.linear_fc2.", COLUMNS, NONE, 25, 25, false},
    {"mlp.linear_fc1.layer_norm_", NONE, NONE, 26, 20, false},
    {"mlp.linear_fc1.", ROWS, ROWS, 27, 27, false},
    {"mlp.linear_fc2.", COLUMNS, NONE, 28, 28, false},
    {"mlp.layer_norm_", NONE, NONE, 26, 20, false}, /* one linear layer instead of the MLP */
    {"mlp.", ROWS, ROWS, 27, 27, false},
};

#define CONV_MODULE 6 /* where it stands as a module */

/* Around the inner layer of multi-token prediction (MC/transformer/multi_token_prediction.py). */
#define MTP_INNER 3
static const struct module mtp_modules[] = {
    {"enorm.", NONE, NONE, 0, 0, false},
    {"hnorm.", NONE, NONE, 1, 1, false},
    {"eh_proj.", ROWS, ROWS, 2, 2, false},
    {"final_layernorm.", NONE, NONE, 4, 4, false},
};

/*
 * Outside layers (MC/models/gpt/gpt_model.py, hybrid/hybrid_model.py); the decoder registers its
 * final norm after its layers.
 */
static const struct outer {
    enum dcpk_section section;
    struct module module;
} outer_modules[] = {
    {DCPK_EMBEDDING, {"embedding.word_embeddings.", ROWS, NONE, 0, 0, false}},
    {DCPK_EMBEDDING, {"embedding.position_embeddings.", NONE, NONE, 1, 1, false}},
    {DCPK_EMBEDDING, {"embedding.tokentype_embeddings.", NONE, NONE, 2, 2, false}},
    {DCPK_FINAL_NORM, {"decoder.final_layernorm.", NONE, NONE, 0, 0, false}},
    {DCPK_FINAL_NORM, {"decoder.final_norm.", NONE, NONE, 0, 0, false}},
    {DCPK_OUTPUT_LAYER, {"output_layer.", ROWS, ROWS, 0, 0, false}},
};

/* Persistent buffers of a layer: kept whole by every rank, in no flat buffer
 * (MC/transformer/moe/router.py). */
static const char *const buffers[] = {"mlp.router.expert_bias",
                                      "mlp.router.local_tokens_per_expert"};

/* "weight", "bias", or nothing after a parameter that belongs to no module; *leaf then points
 * after it. */
static bool take_leaf(const struct module *m, const char **leaf, bool *is_bias)
{
    *is_bias = dcpk_starts_with(*leaf, "bias");
    if (*is_bias || dcpk_starts_with(*leaf, "weight"))
        *leaf += *is_bias ? strlen("bias") : strlen("weight");
    else if (**leaf != '\0' || dcpk_ends_with(m->name, ".") || dcpk_ends_with(m->name, "_"))
        return false;
    return true;
}

/*
 * Sequential experts register expert by expert, grouped ones all of fc1 first: order[3] and [4]
 * hold which. The bias stands after its weight, in grouped linears too
 * (transformer_engine/pytorch/module/grouped_linear.py).
 */
static bool match_module(const struct module *m, const char *leaf, unsigned spec,
                         struct dcpk_registered *reg)
{
    const bool is_te = (spec & DCPK_SPEC_TE) != 0, is_grouped = (spec & DCPK_SPEC_GROUPED) != 0;
    const bool is_expert = dcpk_starts_with(m->name, "mlp.experts.");
    const int64_t is_fc2 = m->weight_axis == COLUMNS;
    bool is_bias;

    if (!take_leaf(m, &leaf, &is_bias))
        return false;
    reg->order[0] = is_te ? m->te : m->local;
    if ((spec & DCPK_SPEC_CONV_MODULE) != 0 && dcpk_starts_with(m->name, "mixer.conv1d"))
        reg->order[0] = CONV_MODULE;
    reg->order[5] = is_bias;
    if (is_bias)
        reg->tp_axis = m->bias_axis;
    else
        reg->tp_axis = m->te_keeps_whole && is_te ? NONE : m->weight_axis;
    if (is_expert) {
        reg->expert = dcpk_take_number(&leaf);
        reg->order[3] = is_grouped ? is_fc2 : reg->expert;
        reg->order[4] = is_grouped ? reg->expert : is_fc2;
    }
    return *leaf == '\0' && (!is_expert || reg->expert >= 0);
}

static bool match_table(const struct module *table, size_t n, const char *name, unsigned spec,
                        struct dcpk_registered *reg)
{
    for (size_t i = 0; i < n; i++)
        if (dcpk_starts_with(name, table[i].name))
            return match_module(&table[i], name + strlen(table[i].name), spec, reg);
    return false;
}

static bool match_layer(const char *rest, unsigned spec, struct dcpk_registered *reg)
{
    for (size_t i = 0; i < DCPK_COUNT(buffers); i++)
        if (strcmp(rest, buffers[i]) == 0) {
            reg->tp_axis = NONE;
            reg->is_buffer = true;
            return true;
        }
    return match_table(layer_modules, DCPK_COUNT(layer_modules), rest, spec, reg);
}

/* "<section><n>.": the number, and the name after it. */
static bool in_section(const char *name, const char *section, int64_t *layer, const char **rest)
{
    if (!dcpk_starts_with(name, section))
        return false;
    *rest = name + strlen(section);
    *layer = dcpk_take_number(rest);
    return *layer >= 0 && *(*rest)++ == '.';
}

/* The inner layer: a transformer layer, or a hybrid's stack of layers. */
static bool match_mtp_layer(const char *rest, unsigned spec, struct dcpk_registered *reg)
{
    static const char inner[] = "transformer_layer.", stack[] = "mtp_model_layer.";
    int64_t layer = 0;

    if (dcpk_starts_with(rest, inner))
        rest += strlen(inner);
    else if (!dcpk_starts_with(rest, stack))
        return match_table(mtp_modules, DCPK_COUNT(mtp_modules), rest, spec, reg);
    else if (!in_section(rest + strlen(stack), "layers.", &layer, &rest))
        return false;
    if (!match_layer(rest, spec, reg))
        return false;
    reg->order[2] = reg->order[0];
    reg->order[1] = layer;
    reg->order[0] = MTP_INNER;
    return true;
}

static bool match_outer(const char *name, unsigned spec, struct dcpk_registered *reg)
{
    for (size_t i = 0; i < DCPK_COUNT(outer_modules); i++) {
        const struct module *m = &outer_modules[i].module;

        if (!dcpk_starts_with(name, m->name))
            continue;
        reg->section = outer_modules[i].section;
        return match_module(m, name + strlen(m->name), spec, reg);
    }
    return false;
}

static bool module_find(const char *name, unsigned spec, struct dcpk_registered *reg)
{
    const char *rest;

    if (in_section(name, "decoder.layers.", &reg->layer, &rest)) {
        reg->section = DCPK_DECODER_LAYERS;
        return match_layer(rest, spec, reg);
    }
    if (in_section(name, "mtp.layers.", &reg->layer, &rest)) {
        reg->section = DCPK_MTP_LAYERS;
        return match_mtp_layer(rest, spec, reg);
    }
    reg->layer = 0;
    return match_outer(name, spec, reg);
}

bool dcpk_registered_find(const char *name, unsigned spec, struct dcpk_registered *reg)
{
    *reg = (struct dcpk_registered){.expert = -1};
    if (module_find(name, spec, reg))
        return true;
    *reg = (struct dcpk_registered){
        .section = DCPK_NO_SECTION, .tp_axis = DCPK_TP_UNKNOWN, .expert = -1};
    return false;
}

int dcpk_registered_compare(const struct dcpk_registered *a, const struct dcpk_registered *b)
{
    if (a->section != b->section)
        return DCPK_ORDER_BY(a, b, section);
    if (a->layer != b->layer)
        return DCPK_ORDER_BY(a, b, layer);
    return dcpk_compare_i64s(a->order, b->order, DCPK_COUNT(a->order));
}

/* ---- a model's parameters in their order ---- */

/* A parameter to be put into order; `param` breaks ties, so that the order is total. */
struct entry {
    struct dcpk_registered found;
    uint32_t param;
};

static int compare_registered(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = dcpk_registered_compare(&x->found, &y->found);

    return order != 0 ? order : DCPK_ORDER_BY(x, y, param);
}

static bool is_te(const struct dcpk_model *model, enum dcpk_impl impl)
{
    const char *name =
        dcpk_value_as_str(dcpk_value_get(dcpk_value_attrs(model->args), "transformer_impl"));

    if (impl != DCPK_IMPL_ANY)
        return impl == DCPK_IMPL_TE;
    return name == NULL || strcmp(name, "local") != 0;
}

/*
 * MTP's wrapper is not a unit, the transformer layer in it is one (formats/fsdp_dtensor/FORMAT.md
 * 8.2), and so is each layer of a hybrid's stack (fsdp_unit_modules,
 * fsdp/mcore_fsdp_adapter.py@0.19.0 and main).
 */
static bool is_in_unit(const struct entry *e, const char *name)
{
    return e->found.section == DCPK_DECODER_LAYERS ||
           (e->found.section == DCPK_MTP_LAYERS &&
            (strstr(name, ".transformer_layer.") != NULL ||
             strstr(name, ".mtp_model_layer.layers.") != NULL));
}

/* order[1]: of the layers inside one of MTP. */
static bool is_same_layer(const struct entry *a, const struct entry *b)
{
    return a->found.section == b->found.section && a->found.layer == b->found.layer &&
           a->found.order[1] == b->found.order[1];
}

dcpk_status dcpk_rules_parallel(struct dcpk_model *model, enum dcpk_impl impl,
                                struct dcpk_error *err)
{
    const unsigned spec = is_te(model, impl) ? DCPK_SPEC_TE | DCPK_SPEC_GROUPED : 0;
    struct entry *entries = dcpk_alloc_array(model->n_params, sizeof *entries, err);
    uint32_t unit = DCPK_NO_UNIT; /* the first one wraps to 0 */

    if (entries == NULL)
        return err->status;
    for (uint32_t i = 0; i < model->n_params; i++) {
        dcpk_registered_find(model->params[i].name, spec, &entries[i].found);
        entries[i].param = i;
    }
    qsort(entries, model->n_params, sizeof *entries, compare_registered);
    for (uint32_t i = 0; i < model->n_params; i++) {
        const struct entry *e = &entries[i];
        struct dcpk_param *p = &model->params[e->param];
        const bool starts_unit = i == 0 || !is_same_layer(e, &e[-1]) ||
                                 !is_in_unit(&e[-1], model->params[e[-1].param].name);

        p->tp_axis = e->found.tp_axis;
        p->expert = e->found.expert;
        p->place = e->found.is_buffer ? DCPK_NO_PLACE : i;
        p->unit = DCPK_NO_UNIT;
        if (is_in_unit(e, p->name))
            p->unit = starts_unit ? ++unit : unit;
    }
    dcpk_free(entries);
    return DCPK_OK;
}
