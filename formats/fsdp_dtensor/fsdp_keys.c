/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_keys.c - takes keys apart: Megatron-FSDP's own, and those that Megatron's converter leaves.
 */
#include "formats/fsdp_dtensor/fsdp_keys.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

enum dcpk_role dcpk_fsdp_role(const char *state)
{
    static const struct {
        const char *name;
        enum dcpk_role role;
    } roles[] = {{"exp_avg", DCPK_EXP_AVG},  {"exp_avg_sq", DCPK_EXP_AVG_SQ},
                 {"step", DCPK_STEP},        {"master_param", DCPK_MASTER},
                 {"param", DCPK_MASTER}, /* Megatron's converter (FORMAT.md 12.2, T5) */
                 {"fp32_param", DCPK_MASTER}};

    for (size_t i = 0; i < DCPK_COUNT(roles); i++)
        if (strcmp(state, roles[i].name) == 0)
            return roles[i].role;
    return DCPK_STATE;
}

const char *dcpk_fsdp_skip_q(const char *rest)
{
    if (dcpk_starts_with(rest, FD_Q_LOW))
        return rest + strlen(FD_Q_LOW);
    if (dcpk_starts_with(rest, FD_Q_FP32))
        return rest + strlen(FD_Q_FP32);
    return rest;
}

const char *dcpk_fsdp_skip_optimizer(const char *key, int64_t *optimizer)
{
    const char *rest;

    *optimizer = 0;
    if (!dcpk_starts_with(key, "optimizer."))
        return NULL;
    rest = key + strlen("optimizer.");
    if (!isdigit((unsigned char)*rest))
        return rest;
    *optimizer = dcpk_take_number(&rest);
    return *optimizer >= 0 && *rest == '.' ? rest + 1 : NULL;
}

bool dcpk_fsdp_split_listed(const char *key, struct dcpk_fsdp_listed *listed)
{
    static const char list[] = "param_groups.";
    const char *rest = dcpk_fsdp_skip_optimizer(key, &listed->optimizer);

    if (rest != NULL && dcpk_starts_with(rest, "optimizer."))
        rest += strlen("optimizer.");
    if (rest == NULL || !dcpk_starts_with(rest, list))
        return false;
    rest += strlen(list);
    listed->group = dcpk_take_number(&rest);
    listed->field = rest + 1;
    return listed->group >= 0 && *rest == '.';
}

bool dcpk_fsdp_is_listed_group(const char *key)
{
    struct dcpk_fsdp_listed listed;

    return dcpk_fsdp_split_listed(key, &listed);
}

bool dcpk_fsdp_is_left_over(const char *key)
{
    int64_t optimizer;
    const char *rest = dcpk_fsdp_skip_optimizer(key, &optimizer);

    return dcpk_starts_with(key, "content_metadata.") ||
           dcpk_starts_with(key, "rerun_state_machine.") ||
           (rest != NULL && strcmp(rest, "param_state_sharding_type") == 0);
}

bool dcpk_fsdp_is_converted(const struct dcpk_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_fsdp_is_left_over(ckpt->objects[i].key) ||
            dcpk_fsdp_is_listed_group(ckpt->objects[i].key))
            return true;
    return false;
}

bool dcpk_fsdp_is_misplaced(const char *name)
{
    static const char experts[] = "mlp.experts.";
    const char *single = strstr(name, experts);

    return dcpk_starts_with(name, "optimizer.") ||
           (dcpk_starts_with(name, "chained_") && strstr(name, ".optimizer.") != NULL) ||
           (single != NULL && isdigit((unsigned char)single[strlen(experts)]));
}
