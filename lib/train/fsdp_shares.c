/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_shares.c - groups of parameters, and numbers of ranks, from a configuration alone. */
#include "lib/train/fsdp_shares.h"

enum dcpk_strategy dcpk_fsdp_strategy(const struct dcpk_train_config *config)
{
    if (config->fsdp.mode == DCPK_MODE_MEGATRON_FSDP)
        return config->fsdp.strategy;
    if (config->fsdp.has_distributed_optimizer)
        return DCPK_OPTIM;
    return DCPK_NO_SHARD;
}

bool dcpk_fsdp_has_units(const struct dcpk_train_config *config)
{
    return config->fsdp.mode == DCPK_MODE_MEGATRON_FSDP &&
           dcpk_fsdp_strategy(config) != DCPK_NO_SHARD;
}

/* Ranks that the optimizer's state of experts, or of the rest, is cut over. */
static int64_t count_shards(const struct dcpk_train_config *config, bool is_expert)
{
    const struct dcpk_grid *l = &config->layout;
    const int64_t n = l->dp * l->cp;

    if (dcpk_fsdp_strategy(config) == DCPK_NO_SHARD)
        return 1;
    if (l->instances > 1 && !config->fsdp.is_outer_sharded)
        return n / l->instances;
    if (l->instances == 1 && is_expert)
        return n / l->ep;
    return n;
}

static bool share_has_copies(const struct dcpk_train_config *config)
{
    return config->layout.pp > 1 && (config->model.is_tied || config->model.mtp_layers > 0);
}

bool dcpk_fsdp_is_copied(const struct dcpk_train_config *config,
                         const struct dcpk_train_param *param)
{
    return param->is_shared || (param->kind == DCPK_P_EMBEDDING && share_has_copies(config));
}

struct dcpk_fsdp_param dcpk_fsdp_flat(const struct dcpk_train_config *config,
                                      const struct dcpk_train_param *param)
{
    const bool is_expert = param->expert >= 0;
    const bool is_alone =
        dcpk_fsdp_strategy(config) != DCPK_NO_SHARD && dcpk_fsdp_is_copied(config, param);
    const uint64_t kind = (uint64_t)!is_alone << 1 | (uint64_t)is_expert;
    int64_t unit = -1;

    if (dcpk_fsdp_has_units(config))
        unit = param->unit;
    return (struct dcpk_fsdp_param){.name = param->live,
                                    .shape = param->shape,
                                    .rank = param->rank,
                                    .group = (uint64_t)(unit + 1) << 2 | kind,
                                    .is_in_unit = unit >= 0,
                                    .n_shards = count_shards(config, is_expert)};
}
