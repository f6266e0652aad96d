/* SPDX-License-Identifier: Apache-2.0 */
/* mixed_rows.c - options of Megatron under which rows of fused weights are stored mixed. */
#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/rules/rules.h"

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
