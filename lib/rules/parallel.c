/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - a table of Megatron's modules: what tensor parallelism cuts, and who registers
 * first. */
#include "lib/rules/parallel.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"

enum { NONE = -1, ROWS = 0, COLUMNS = 1 };

/*
 * A module's parameters "<name>weight" and "<name>bias", or one parameter by its whole name. `te`
 * and `local` are places in the order of registration: a module's own parameters, then its children
 * as __init__ assigns them
 * (MC/transformer/{transformer_layer,attention,multi_latent_attention,mlp}.py,
 * moe/{moe_layer,shared_experts}.py, the same at 0.15.3, 0.19.0 and main). Transformer Engine's
 * fused linears register the norm in front of their weight.
 */
static const struct module {
    const char *name;
    int weight_axis, bias_axis;
    int te, local;
    bool te_keeps_whole; /* TELinear(parallel_mode="duplicated") */
} layer_modules[] = {
    {"input_layernorm.", NONE, NONE, 0, 0, false},
    {"self_attention.core_attention.softmax_offset", ROWS, NONE, 1, 1, false},
    {"self_attention.linear_proj.", COLUMNS, NONE, 2, 2, false},
    {"self_attention.linear_qkv.layer_norm_", NONE, NONE, 3, 0, false},
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
};

/* Around the inner layer of multi-token prediction (MC/transformer/multi_token_prediction.py). */
#define MTP_INNER 3
static const struct module mtp_modules[] = {
    {"enorm.", NONE, NONE, 0, 0, false},
    {"hnorm.", NONE, NONE, 1, 1, false},
    {"eh_proj.", ROWS, ROWS, 2, 2, false},
    {"final_layernorm.", NONE, NONE, 4, 4, false},
};

/* Outside layers (MC/models/gpt/gpt_model.py); the decoder registers its final norm behind its
 * layers. */
enum { DECODER_LAYERS = 3, MTP_LAYERS = 5, UNKNOWN = 9 };
static const struct module outer_modules[] = {
    {"embedding.word_embeddings.", ROWS, NONE, 0, 0, false},
    {"embedding.position_embeddings.", NONE, NONE, 1, 1, false},
    {"embedding.tokentype_embeddings.", NONE, NONE, 2, 2, false},
    {"decoder.final_layernorm.", NONE, NONE, 4, 4, false},
    {"output_layer.", ROWS, ROWS, 6, 6, false},
};
#define N_OF(table) (sizeof(table) / sizeof(table)[0])

/* Persistent buffers of a layer: kept whole by every rank, in no flat buffer
 * (MC/transformer/moe/router.py). */
static const char *const buffers[] = {"mlp.router.expert_bias",
                                      "mlp.router.local_tokens_per_expert"};

/*
 * An expert's parameter: sequential ones register expert by expert, grouped ones all of fc1 first.
 * order[3] and [4] say which; without experts the latter is the bias behind its weight.
 */
static bool match_leaf(const struct module *m, const char *leaf, bool is_te,
                       struct dcpk_parallel *found)
{
    const bool is_expert = dcpk_starts_with(m->name, "mlp.experts.");
    const int64_t is_fc2 = m->weight_axis == COLUMNS;
    const bool is_bias = dcpk_starts_with(leaf, "bias");

    if (is_bias || dcpk_starts_with(leaf, "weight"))
        leaf += is_bias ? strlen("bias") : strlen("weight");
    else if (*leaf != '\0' || dcpk_ends_with(m->name, ".") || dcpk_ends_with(m->name, "_"))
        return false;
    if (is_expert) {
        found->expert = dcpk_take_number(&leaf);
        found->order[3] = is_te ? is_fc2 : found->expert;
        found->order[4] = 2 * (is_te ? found->expert : is_fc2) + (int64_t)is_bias;
    } else {
        found->order[4] = is_bias;
    }
    found->tp_axis = is_bias ? m->bias_axis : m->te_keeps_whole && is_te ? NONE : m->weight_axis;
    found->order[2] = is_te ? m->te : m->local;
    return *leaf == '\0' && (!is_expert || found->expert >= 0);
}

static bool match_table(const struct module *table, size_t n, const char *name, bool is_te,
                        struct dcpk_parallel *found)
{
    for (size_t i = 0; i < n; i++)
        if (dcpk_starts_with(name, table[i].name))
            return match_leaf(&table[i], name + strlen(table[i].name), is_te, found);
    return false;
}

static bool match_layer(const char *rest, bool is_te, struct dcpk_parallel *found)
{
    for (size_t i = 0; i < N_OF(buffers); i++)
        if (strcmp(rest, buffers[i]) == 0) {
            found->tp_axis = NONE;
            found->is_buffer = true;
            return true;
        }
    return match_table(layer_modules, N_OF(layer_modules), rest, is_te, found);
}

/* "<section><n>.": the number, and the name behind it. */
static bool in_section(const char *name, const char *section, int64_t *layer, const char **rest)
{
    if (!dcpk_starts_with(name, section))
        return false;
    *rest = name + strlen(section);
    *layer = dcpk_take_number(rest);
    return *layer >= 0 && *(*rest)++ == '.';
}

static bool find(const char *name, bool is_te, struct dcpk_parallel *found)
{
    static const char inner[] = "transformer_layer.";
    const char *rest;

    if (in_section(name, "decoder.layers.", &found->order[1], &rest)) {
        found->order[0] = DECODER_LAYERS;
        return match_layer(rest, is_te, found);
    }
    if (in_section(name, "mtp.layers.", &found->order[1], &rest)) {
        found->order[0] = MTP_LAYERS;
        if (!dcpk_starts_with(rest, inner))
            return match_table(mtp_modules, N_OF(mtp_modules), rest, is_te, found);
        if (!match_layer(rest + strlen(inner), is_te, found))
            return false;
        found->order[3] += found->order[2] << 32; /* below the wrapper's own modules */
        found->order[2] = MTP_INNER;
        return true;
    }
    found->order[1] = 0;
    if (!match_table(outer_modules, N_OF(outer_modules), name, is_te, found))
        return false;
    found->order[0] = found->order[2];
    return true;
}

void dcpk_parallel_find(const char *canonical, bool is_te, struct dcpk_parallel *found)
{
    *found = (struct dcpk_parallel){.expert = -1};
    if (!find(canonical, is_te, found))
        *found =
            (struct dcpk_parallel){.tp_axis = DCPK_TP_UNKNOWN, .expert = -1, .order = {UNKNOWN}};
}

/* A parameter to be put into order; `param` breaks ties, so that the order is total. */
struct entry {
    struct dcpk_parallel found;
    uint32_t param;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    for (size_t i = 0; i < N_OF(x->found.order); i++)
        if (x->found.order[i] != y->found.order[i])
            return x->found.order[i] < y->found.order[i] ? -1 : 1;
    return (x->param > y->param) - (x->param < y->param);
}

static bool is_te(const struct dcpk_model *model, enum dcpk_impl impl)
{
    const char *name =
        dcpk_value_as_str(dcpk_value_get(dcpk_value_attrs(model->args), "transformer_impl"));

    if (impl != DCPK_IMPL_ANY)
        return impl == DCPK_IMPL_TE;
    return name == NULL || strcmp(name, "local") != 0;
}

/* MTP's wrapper is no unit, the transformer layer in it is one (fsdp_training.md 2.1). */
static bool is_in_unit(const struct entry *e, const char *name)
{
    return e->found.order[0] == DECODER_LAYERS ||
           (e->found.order[0] == MTP_LAYERS && strstr(name, ".transformer_layer.") != NULL);
}

dcpk_status dcpk_rules_parallel(struct dcpk_model *model, enum dcpk_impl impl,
                                struct dcpk_error *err)
{
    const bool te = is_te(model, impl);
    struct entry *entries = dcpk_alloc_array(model->n_params, sizeof *entries, err);
    uint32_t unit = DCPK_NO_UNIT; /* the first one wraps to 0 */

    if (entries == NULL)
        return err->status;
    for (uint32_t i = 0; i < model->n_params; i++) {
        dcpk_parallel_find(model->params[i].name, te, &entries[i].found);
        entries[i].param = i;
    }
    qsort(entries, model->n_params, sizeof *entries, compare_entries);
    for (uint32_t i = 0; i < model->n_params; i++) {
        const struct entry *e = &entries[i];
        struct dcpk_param *p = &model->params[e->param];
        const bool starts_unit = i == 0 || e->found.order[0] != e[-1].found.order[0] ||
                                 e->found.order[1] != e[-1].found.order[1] ||
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
