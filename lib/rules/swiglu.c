/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.c - finds the first linear layers of MLPs that hold gate and up rows: by args, by the
 * user's word, by their rows. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/parts.h"
#include "lib/rules/rules.h"

/*
 * True if each layer has its own sizes, which args.heterogeneous_layers_config_* list
 * (MC/transformer/heterogeneous/heterogeneous_config.py@0.12 to main).
 */
static bool is_heterogeneous(const struct dcpk_value *attrs)
{
    static const char *const names[] = {"heterogeneous_layers_config_encoded_json",
                                        "heterogeneous_layers_config_path"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        const char *text = dcpk_value_as_str(dcpk_value_get(attrs, names[i]));

        if (text != NULL && *text != '\0')
            return true;
    }
    return false;
}

/* The hidden size that args give the MLP which `name` belongs to; 0: not known. */
static int64_t ffn_size(const struct dcpk_value *attrs, const char *name)
{
    const int64_t n = dcpk_value_int_or(attrs, "ffn_hidden_size", 0);

    if (is_heterogeneous(attrs))
        return 0;
    if (strstr(name, "mlp.shared_experts.") != NULL)
        return dcpk_value_int_or(attrs, "moe_shared_expert_intermediate_size", 0);
    if (dcpk_name_is_expert(name))
        return dcpk_value_int_or(attrs, "moe_ffn_hidden_size", n);
    return n;
}

/*
 * Gated by another activation than SwiGLU, whose halves no format cuts
 * (MC/transformer/mlp.py@0.19.0 gated_linear_unit; MT/arguments.py --quick-geglu).
 */
static bool is_gated_otherwise(const struct dcpk_value *attrs)
{
    return dcpk_value_is_true(attrs, "quick_geglu") ||
           dcpk_value_is_true(attrs, "gated_linear_unit");
}

/* The rows of an fc1 prove or refute the switch where args give the hidden size. */
static dcpk_status check_rows(const struct dcpk_model *model, const struct dcpk_param *param,
                              const struct dcpk_model_tensor *tensor, bool gated,
                              struct dcpk_error *err)
{
    const int64_t rows = tensor->rank > 0 ? tensor->shape[0] : 0;
    const int64_t ffn = ffn_size(dcpk_value_attrs(model->args), param->name);
    const int64_t built = gated ? ffn : 2 * ffn; /* the rows of a model that was built otherwise */

    if (gated && rows % 2 != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "SwiGLU is on, but '%s' has %" PRId64 " rows, which are not two halves",
                         param->name, rows);
    if (!gated && is_gated_otherwise(dcpk_value_attrs(model->args)))
        return DCPK_OK;
    if (ffn > 0 && rows == built)
        return dcpk_fail_fix(err, DCPK_EMISMATCH, DCPK_FIX_SWIGLU,
                             "SwiGLU is %s, but '%s' has %" PRId64
                             " rows where args give a hidden size of %" PRId64,
                             gated ? "on" : "off", param->name, rows, ffn);
    return DCPK_OK;
}

/* The choice for the whole model. */
struct swiglu_choice {
    const struct dcpk_rule_options *options;
    bool is_given;           /* by the user: else args decide */
    bool has_args, args_say; /* args.swiglu */
    bool on;                 /* the choice in force; with modules: for those */
    bool *is_used;           /* by module: an fc1 lies in it */
};

static dcpk_status choose_swiglu(const struct dcpk_model *model,
                                 const struct dcpk_rule_options *options, struct swiglu_choice *w,
                                 struct dcpk_error *err)
{
    w->options = options;
    w->is_given = options->swiglu != DCPK_SWIGLU_AUTO || options->swiglu_modules != NULL;
    w->has_args =
        dcpk_value_as_bool(dcpk_value_get(dcpk_value_attrs(model->args), "swiglu"), &w->args_say);
    w->on = w->args_say;
    if (w->is_given)
        w->on = options->swiglu != DCPK_SWIGLU_OFF &&
                (options->swiglu_modules == NULL || options->n_swiglu_modules > 0);
    w->is_used =
        dcpk_arena_array(model->arena, options->n_swiglu_modules + 1, sizeof *w->is_used, err);
    if (w->is_used == NULL)
        return err->status;
    if (w->has_args && w->on != w->args_say)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "SwiGLU was switched %s, but the checkpoint's args say swiglu=%s",
                         w->on ? "on" : "off", w->args_say ? "True" : "False");
    return DCPK_OK;
}

/* Finds the module that the parameter is in. Modules are named as in keys of Megatron-FSDP, where
 * "model.module." is before the name, and all that name it are used. */
static dcpk_status find_swiglu_module(struct dcpk_model *model, const struct swiglu_choice *w,
                                      const char *name, bool *found, struct dcpk_error *err)
{
    const char *key = dcpk_arena_printf(model->arena, err, "model.module.%s", name);

    if (key == NULL)
        return err->status;
    *found = w->options->swiglu_modules == NULL;
    for (size_t i = 0; i < w->options->n_swiglu_modules; i++)
        if (dcpk_name_in_module(key, w->options->swiglu_modules[i]))
            *found = w->is_used[i] = true;
    return DCPK_OK;
}

/*
 * True if the parameter belongs to the model that args describe, so that args.swiglu applies to it.
 * Releases up to 0.17 split every fc1 by it, later ones those of layers whose own config sets it
 * (formats/fsdp_dtensor/FORMAT.md 5.1): a vision tower next to the language model may differ.
 */
static bool is_of_args(const char *name)
{
    static const char *const modules[] = {"decoder.", "encoder.", "mtp.", "language_model."};

    for (size_t i = 0; i < DCPK_COUNT(modules); i++)
        if (dcpk_starts_with(name, modules[i]))
            return true;
    return false;
}

/* One that is stored in halves is gated, unless args of a folder that Megatron's converter split by
 * mistake differ: its loader asks for the whole. */
static dcpk_status gate_halves(struct dcpk_model *model, struct dcpk_param *p,
                               const struct swiglu_choice *w, bool in_modules,
                               struct dcpk_error *err)
{
    if (w->is_given && (!w->on || !in_modules))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' is stored in two halves, but was not to be split", p->name);
    if (!w->is_given && w->has_args && !w->args_say) {
        p->parts = NULL;
        dcpk_checkpoint_note_once(model->ckpt, "fc1 is stored in two halves, but args say "
                                               "swiglu=False: it is taken for one matrix");
    }
    return DCPK_OK;
}

static dcpk_status gate_param(struct dcpk_model *model, struct dcpk_param *p,
                              const struct swiglu_choice *w, const struct dcpk_model_tensor *tensor,
                              struct dcpk_error *err)
{
    bool in_modules = false;

    if (find_swiglu_module(model, w, p->name, &in_modules, err) != DCPK_OK)
        return err->status;
    if (p->parts != NULL)
        return gate_halves(model, p, w, in_modules, err);
    if (!w->is_given && !w->has_args)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_SWIGLU | DCPK_FIX_ARGS,
                             "the checkpoint has no args that say whether fc1 is SwiGLU");
    if (w->on && !in_modules && w->has_args && is_of_args(p->name))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' is not in a module that is split, but args have swiglu=True: a "
                         "loader asks for its halves",
                         p->name);
    if (w->on && in_modules)
        p->parts = dcpk_gate_up;
    if (w->on && !in_modules)
        return DCPK_OK;
    return check_rows(model, p, tensor, w->on, err);
}

dcpk_status dcpk_rules_gate(struct dcpk_model *model, const struct dcpk_rule_options *options,
                            struct dcpk_error *err)
{
    struct swiglu_choice w = {.is_used = NULL};
    const char *first = NULL;

    for (size_t i = 0; i < model->n_params; i++) {
        struct dcpk_param *p = &model->params[i];
        const struct dcpk_model_tensor *tensor = dcpk_model_value(model, p);

        if (tensor == NULL || !dcpk_name_is_fc1(p->name))
            continue;
        if (first == NULL && choose_swiglu(model, options, &w, err) != DCPK_OK)
            return err->status;
        if (first == NULL)
            first = p->name;
        if (gate_param(model, p, &w, tensor, err) != DCPK_OK)
            return err->status;
    }
    for (size_t i = 0; i < options->n_swiglu_modules; i++) {
        const char *module = options->swiglu_modules[i];

        if (first == NULL)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "no fc1 lies in a module '%s', which is to be split", module);
        if (!w.is_used[i])
            return dcpk_fail(
                err, DCPK_EMISMATCH,
                "no fc1 is in a module '%s', which should be split (the first is '%s')", module,
                first);
    }
    return DCPK_OK;
}

/* ---- rows that are stored mixed ---- */

/*
 * MC/model_parallel_config.py@main: weight shards are tensor-parallel ranks times the remat size.
 * Megatron-LM #7161 (open): shards are cut across the border of gate and up rows, or of the parts
 * of in_proj; #7168 (open): rows of padding are stored as data.
 */
#define GTP                                                                                        \
    "with generalized tensor parallelism rows of fused weights are stored mixed, and padding "     \
    "with "                                                                                        \
    "them (Megatron-LM #7161, #7168)"
/* MC/transformer/transformer_config.py@main; Megatron-Bridge #5366. */
#define GLU                                                                                        \
    "gate and up rows of linear_fc1 are interleaved, which other releases read as halves "         \
    "(Megatron-Bridge #5366)"

static const struct {
    const char *name;
    const char *most; /* the arg that it must not exceed; NULL: 1 */
    const char *what;
} args_mixing[] = {
    {"gtp_weight_remat_size", NULL, GTP},
    {"expert_gtp_weight_remat_size", NULL, GTP},
    {"tensor_parallel_num_weight_shards", "tensor_model_parallel_size", GTP},
    {"expert_tensor_parallel_num_weight_shards", "expert_tensor_parallel_size", GTP},
};
static const char *const args_interleaving[] = {
    "glu_interleave_size", "moe_mlp_glu_interleave_size", "moe_shared_expert_glu_interleave_size"};

dcpk_status dcpk_rules_check_rows(const struct dcpk_value *attrs, struct dcpk_error *err)
{
    int64_t size, most;

    for (size_t i = 0; i < DCPK_COUNT(args_mixing); i++) {
        most = 1;
        if (args_mixing[i].most != NULL &&
            !dcpk_value_as_int(dcpk_value_get(attrs, args_mixing[i].most), &most))
            (void)dcpk_value_as_int(dcpk_value_get(attrs, "tensor_model_parallel_size"), &most);
        if (dcpk_value_as_int(dcpk_value_get(attrs, args_mixing[i].name), &size) && size > most)
            return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_GTP, "args.%s is %" PRId64 ": %s",
                                 args_mixing[i].name, size, args_mixing[i].what);
    }
    for (size_t i = 0; i < DCPK_COUNT(args_interleaving); i++)
        if (dcpk_value_as_int(dcpk_value_get(attrs, args_interleaving[i]), &size) && size > 0)
            return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_GTP,
                                 "args.%s is %" PRId64 ": " GLU, args_interleaving[i], size);
    return DCPK_OK;
}

dcpk_status dcpk_rules_check_model_rows(const struct dcpk_model *model, struct dcpk_error *err)
{
    if ((model->ckpt->given.decisions & DCPK_ACCEPT_GTP) != 0)
        return DCPK_OK;
    return dcpk_rules_check_rows(dcpk_value_attrs(model->args), err);
}
