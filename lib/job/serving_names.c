/* SPDX-License-Identifier: Apache-2.0 */
/* serving_names.c - the modules of vLLM and SGLang, as rows. */
/*
 * Sources: vllm/model_executor/layers/linear.py (MergedColumnParallelLinear, QKVParallelLinear,
 * RowParallelLinear: their weight loaders), layers/fused_moe/layer.py (_load_w13, _load_w2),
 * models/{llama,qwen3_moe,deepseek_v2,phi3,gpt2,qwen3_next}.py (stacked_params_mapping),
 * models/gpt_oss.py (hf_to_vllm_mapper, _load_weights_other), models/{deepseek_mtp,glm4_moe_mtp,
 * qwen3_next_mtp}.py (_rewrite_spec_layer_name, remap_weight_names);
 * SGLang has the same in python/sglang/srt/layers and models, except for fused_qkv_a_proj_with_mqa
 * (models/deepseek_v2.py), attention without a module (qwen3_next.py), w13_weight_bias
 * (gpt_oss.py), and its drafts (deepseek_nextn.py, glm4_moe_nextn.py, qwen3_next_mtp.py). Both as
 * of 2025 and 2026.
 */
#include "lib/job/serving_names.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

enum { VLLM = DCPK_SERVER_VLLM, SGLANG = DCPK_SERVER_SGLANG, BOTH = VLLM | SGLANG };

/* Modules, by the last part of their names: their cut, the module that they are a part of where all
 * parts are there, and which. order: of a matrix. */
static const struct module {
    const char *names;
    enum dcpk_cut_kind cut;
    unsigned servers;
    const char *fused;
    int part, n_parts;
    const char *order;
} modules[] =
    {
        {"q_proj", DCPK_CUT_ROWS, BOTH, "qkv_proj", 0, 3, NULL},
        {"k_proj", DCPK_CUT_KV, BOTH, "qkv_proj", 1, 3, NULL},
        {"v_proj", DCPK_CUT_KV, BOTH, "qkv_proj", 2, 3, NULL},
        {"qkv_proj", DCPK_CUT_QKV, BOTH, NULL, 0, 1, NULL},
        {"gate_proj", DCPK_CUT_ROWS, BOTH, "gate_up_proj", 0, 2, NULL},
        {"up_proj", DCPK_CUT_ROWS, BOTH, "gate_up_proj", 1, 2, NULL},
        {"gate_up_proj", DCPK_CUT_HALVES, BOTH, NULL, 0, 1, NULL},
        {"o_proj down_proj out_proj", DCPK_CUT_COLUMNS, BOTH, NULL, 0, 1, NULL},
        {"q_a_proj", DCPK_CUT_NONE, VLLM, "fused_qkv_a_proj", 0, 2, NULL},
        {"kv_a_proj_with_mqa", DCPK_CUT_NONE, VLLM, "fused_qkv_a_proj", 1, 2, NULL},
        {"q_a_proj", DCPK_CUT_NONE, SGLANG, "fused_qkv_a_proj_with_mqa", 0, 2, NULL},
        {"kv_a_proj_with_mqa", DCPK_CUT_NONE, SGLANG, "fused_qkv_a_proj_with_mqa", 1, 2, NULL},
        {"q_b_proj kv_b_proj sinks in_proj_qkvz in_proj_ba A_log dt_bias", DCPK_CUT_ROWS, BOTH,
         NULL, 0, 1, NULL},
        {"conv1d", DCPK_CUT_LINEAR, BOTH, NULL, 0, 1, NULL},
        {"c_attn", DCPK_CUT_QKV, BOTH, NULL, 0, 1, "10"},
        {"c_fc", DCPK_CUT_ROWS, BOTH, NULL, 0, 1, "10"},
        {"c_proj", DCPK_CUT_COLUMNS, BOTH, NULL, 0, 1, "10"},
        {"embed_tokens lm_head wte head", DCPK_CUT_VOCAB, BOTH, NULL, 0, 1, NULL},
        {"fc", DCPK_CUT_ROWS, VLLM, NULL, 0, 1, NULL},
        {"fc", DCPK_CUT_NONE, SGLANG, NULL, 0, 1, NULL},
        /* the gate of a router, norms, parts of multi-token prediction */
        {"gate router e_score_correction_bias shared_expert_gate input_layernorm "
         "post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm q_norm "
         "k_norm q_a_layernorm kv_a_layernorm norm wpe ln_1 ln_2 ln_f enorm hnorm eh_proj "
         "pre_fc_norm_embedding pre_fc_norm_hidden",
         DCPK_CUT_NONE, BOTH, NULL, 0, 1, NULL},
},
  of_experts[] =
      {
          {"gate_proj w1", DCPK_CUT_ROWS, BOTH, "w13_weight", 0, 2, NULL},
          {"up_proj w3", DCPK_CUT_ROWS, BOTH, "w13_weight", 1, 2, NULL},
          {"down_proj w2", DCPK_CUT_COLUMNS, BOTH, "w2_weight", 0, 1, NULL},
},
  stacked[] = {
      /* rows in pairs have an axis of 2 */
      {"gate_up_proj", DCPK_CUT_STACKED_ROWS, BOTH, "w13_weight", 0, 1, "0231"},
      {"gate_up_proj_bias", DCPK_CUT_STACKED_ROWS, VLLM, "w13_bias", 0, 1, NULL},
      {"gate_up_proj_bias", DCPK_CUT_STACKED_ROWS, SGLANG, "w13_weight_bias", 0, 1, NULL},
      {"down_proj", DCPK_CUT_STACKED_COLUMNS, BOTH, "w2_weight", 0, 1, "021"},
      {"down_proj_bias", DCPK_CUT_STACKED_FIRST, VLLM, "w2_bias", 0, 1, NULL},
      {"down_proj_bias", DCPK_CUT_STACKED_FIRST, SGLANG, "w2_weight_bias", 0, 1, NULL},
};

/* Modules that a server calls otherwise. */
static const struct renaming {
    const char *family;
    unsigned servers;
    const char *from, *to;
} renamings[] = {
    {"gpt_oss", VLLM, ".self_attn.", ".attn."},
    {"gpt_oss", VLLM, ".embed_tokens.", ".embedding."},
    {"qwen3_next", SGLANG, ".self_attn.", "."},
};

/* Where the draft has what Hugging Face's files have in a layer after the decoder's, or in "mtp.".
 * "@": the layer's number. */
static const struct draft_row {
    const char *begin, *vllm, *sglang;
} after_decoder[] =
    {
        {"embed_tokens.", "model.embed_tokens.", "model.embed_tokens."},
        {"shared_head.head.", "model.layers.@.shared_head.head.", "lm_head."},
        {"shared_head.", "model.layers.@.shared_head.", "model.shared_head."},
        {"enorm.", "model.layers.@.enorm.", "model.enorm."},
        {"hnorm.", "model.layers.@.hnorm.", "model.hnorm."},
        {"eh_proj.", "model.layers.@.eh_proj.", "model.eh_proj."},
        {"", "model.layers.@.mtp_block.", "model.decoder."},
},
  in_mtp[] = {
      {"fc.", "model.fc.", "fc."},
      {"pre_fc_norm_", "model.pre_fc_norm_", "pre_fc_norm_"},
      {"", "model.", "model."},
};

/* --- names --- */

/* "model.layers.0.mlp.experts.7.up_proj.weight" in parts. */
struct name_parts {
    const char *module; /* of n_module bytes: "up_proj", or all of the last part: "sinks" */
    size_t n_module;
    int64_t expert;      /* -1: none */
    bool is_of_experts;  /* "experts." is before it */
    const char *renamed; /* as the server has it */
    size_t n_before;     /* bytes of that before the module, or before what follows "experts." */
    const char *ending;  /* ".weight", ".bias", "" */
};

static void split_name(const char *name, struct name_parts *parts)
{
    static const char experts[] = ".experts.";
    const char *found = strstr(name, experts), *begin;

    parts->expert = -1;
    parts->is_of_experts = found != NULL;
    parts->ending = strrchr(name, '.');
    if (parts->ending == NULL ||
        (strcmp(parts->ending, ".weight") != 0 && strcmp(parts->ending, ".bias") != 0))
        parts->ending = name + strlen(name);
    for (begin = parts->ending; begin > name && begin[-1] != '.'; begin--)
        continue;
    parts->module = begin;
    parts->n_module = (size_t)(parts->ending - begin);
    if (found != NULL) {
        begin = found + strlen(experts);
        found = begin;
        parts->expert = dcpk_take_number(&found);
    }
    /* all that a renaming changes is before it */
    parts->n_before = strlen(parts->renamed) - strlen(begin);
}

static const struct module *module_find_row(const struct module *list, size_t n,
                                            enum dcpk_server server, const struct name_parts *name)
{
    for (size_t i = 0; i < n; i++) {
        const char *names = list[i].names, *word;
        size_t n_word;

        while ((list[i].servers & server) != 0 && (word = dcpk_take_word(&names, &n_word)) != NULL)
            if (n_word == name->n_module && strncmp(word, name->module, n_word) == 0)
                return &list[i];
    }
    return NULL;
}

static const struct module *find_module(enum dcpk_server server, const struct name_parts *name)
{
    if (name->expert >= 0)
        return module_find_row(of_experts, DCPK_COUNT(of_experts), server, name);
    if (name->is_of_experts)
        return module_find_row(stacked, DCPK_COUNT(stacked), server, name);
    return module_find_row(modules, DCPK_COUNT(modules), server, name);
}

/* --- drafts --- */

static const char *draft_name(const struct dcpk_served_model *model, const struct draft_row *row,
                              int64_t layer, const char *rest, struct dcpk_arena *arena,
                              struct dcpk_error *err)
{
    const char *to, *at;

    while (!dcpk_starts_with(rest, row->begin))
        row++;
    rest += strlen(row->begin);
    to = model->server == DCPK_SERVER_VLLM ? row->vllm : row->sglang;
    at = strchr(to, '@');
    if (at == NULL)
        return dcpk_arena_printf(arena, err, "draft.%s%s", to, rest);
    return dcpk_arena_printf(arena, err, "draft.%.*s%" PRId64 "%s%s", (int)(at - to), to, layer,
                             at + 1, rest);
}

/* The name in the draft; *to: NULL for what only the first layer has, else `name` outside of it. */
static dcpk_status find_draft(const struct dcpk_served_model *model, const char *name,
                              struct dcpk_arena *arena, const char **to, struct dcpk_error *err)
{
    static const char layers[] = "model.layers.", mtp[] = "mtp.";
    const char *rest = name + strlen(layers);
    int64_t layer;

    *to = name;
    if (dcpk_starts_with(name, mtp)) {
        *to = draft_name(model, in_mtp, 0, name + strlen(mtp), arena, err);
        return err->status;
    }
    if (!dcpk_starts_with(name, layers) || (layer = dcpk_take_number(&rest)) < model->n_layers ||
        *rest != '.')
        return DCPK_OK;
    if (layer > model->n_layers && model->server == DCPK_SERVER_SGLANG)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%.200s': SGLang has one layer of multi-token prediction", name);
    rest++;
    if (layer > model->n_layers && dcpk_starts_with(rest, after_decoder[0].begin)) {
        *to = NULL;
        return DCPK_OK;
    }
    *to = draft_name(model, after_decoder, layer, rest, arena, err);
    return err->status;
}

/* --- all of it --- */

static const char *rename_module(const struct dcpk_served_model *model, const char *name,
                                 struct dcpk_arena *arena, struct dcpk_error *err)
{
    for (size_t i = 0; i < DCPK_COUNT(renamings) && name != NULL; i++) {
        const struct renaming *r = &renamings[i];
        const char *found = strstr(name, r->from);

        if (found != NULL && (r->servers & model->server) != 0 &&
            strcmp(r->family, model->family) == 0)
            name = dcpk_arena_printf(arena, err, "%.*s%s%s", (int)(found - name), name, r->to,
                                     found + strlen(r->from));
    }
    return name;
}

dcpk_status dcpk_served_find(const struct dcpk_served_model *model, const char *name,
                             struct dcpk_arena *arena, struct dcpk_served *served,
                             struct dcpk_error *err)
{
    struct name_parts parts;
    const struct module *module;

    *served = (struct dcpk_served){.n_parts = 1};
    if (find_draft(model, name, arena, &parts.renamed, err) || parts.renamed == NULL)
        return err->status;
    parts.renamed = rename_module(model, parts.renamed, arena, err);
    if (parts.renamed == NULL)
        return err->status;
    split_name(name, &parts);
    module = find_module(model->server, &parts);
    if (module == NULL) /* a target that no rule knows is not found */
        return DCPK_OK;
    *served = (struct dcpk_served){.name = parts.renamed,
                                   .alone = parts.renamed,
                                   .expert = parts.expert,
                                   .number = module->part,
                                   .n_parts = module->n_parts,
                                   .cut = module->cut,
                                   .order = module->order};
    if (!parts.is_of_experts && !dcpk_starts_with(name, "transformer."))
        served->order = NULL; /* only GPT-2's Conv1D has its axes swapped; StarCoder2 is Linear */
    if (module->fused != NULL)
        served->name = dcpk_arena_printf(arena, err, "%.*s%s%s", (int)parts.n_before, parts.renamed,
                                         module->fused, parts.is_of_experts ? "" : parts.ending);
    return err->status;
}
