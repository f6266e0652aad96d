/* SPDX-License-Identifier: Apache-2.0 */
/* pairing.c - canonical views and the parts of them that are compared. */
#include "lib/job/pairing.h"

#include <string.h>

#include "lib/model/account.h"
#include "lib/rules/rules.h"

dcpk_status dcpk_model_of(struct dcpk_checkpoint *ckpt, unsigned flags, struct dcpk_model **model,
                          struct dcpk_error *err)
{
    const dcpk_status st = dcpk_model_read(ckpt, flags, model, err);

    return st == DCPK_OK ? dcpk_rules_canonical(*model, err) : st;
}

dcpk_status dcpk_model_group(struct dcpk_model *model, bool *decided, struct dcpk_error *err)
{
    const struct dcpk_rule_options rules = {.impl = DCPK_IMPL_ANY};
    dcpk_status st = dcpk_rules_groups(model, &rules, err);

    *decided = st == DCPK_OK;
    if (st == DCPK_EUNSUPPORTED)
        *err = (struct dcpk_error)DCPK_ERROR_INIT;
    return st == DCPK_EUNSUPPORTED ? DCPK_OK : st;
}

struct dcpk_view dcpk_model_view(const struct dcpk_model_tensor *tensor)
{
    return (struct dcpk_view){.dtype = tensor->dtype,
                              .rank = tensor->rank,
                              .shape = tensor->shape,
                              .pieces = tensor->pieces,
                              .n_pieces = tensor->n_pieces};
}

uint32_t dcpk_model_value_of(const struct dcpk_model *model, const struct dcpk_param *param)
{
    const struct dcpk_model_tensor *value = dcpk_model_value(model, param);

    return value == NULL ? DCPK_NO_TENSOR : (uint32_t)(value - model->tensors);
}

bool dcpk_group_field_equal(const struct dcpk_value *a, const struct dcpk_value *b)
{
    double u, v;

    if (a == NULL || b == NULL)
        return false;
    return dcpk_value_equal(a, b) ||
           (dcpk_value_as_float(a, &u) && dcpk_value_as_float(b, &v) && u == v);
}

bool dcpk_is_format_field(const char *field)
{
    return strcmp(field, "is_expert_parallel") == 0;
}

bool dcpk_is_content_arg(const char *name)
{
    return strcmp(name, "no_save_rng") == 0 || strcmp(name, "no_save_optim") == 0;
}

bool dcpk_is_format_arg(const char *name)
{
    return strcmp(name, "ckpt_format") == 0 || strcmp(name, "use_megatron_fsdp") == 0 ||
           strcmp(name, "megatron_fsdp_version") == 0;
}
