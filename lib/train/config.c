/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - sizes that Megatron derives from a configuration. */
/*
 *   vocabulary    ceil to vocab_divisible_by * tp
 *   bucket        40 million elements, or a million for each data-parallel rank
 *   queue         10^9 elements, or two units
 *
 * Sources: fsdp/src/megatron_fsdp/param_and_grad_buffer.py, megatron_fsdp.py @core_v0.19.0.
 */
#include "lib/train/config.h"

#include "lib/base/order.h"

#define LEAST_QUEUE_ELEMS INT64_C(1000000000)

const char *const dcpk_strategy_names[DCPK_N_STRATEGIES] = {
    [DCPK_NO_SHARD] = "no_shard",
    [DCPK_OPTIM] = "optim",
    [DCPK_OPTIM_GRADS] = "optim_grads",
    [DCPK_OPTIM_GRADS_PARAMS] = "optim_grads_params",
};

int64_t dcpk_train_padded_vocab(const struct dcpk_train_model *model, int64_t tp)
{
    const int64_t block = model->vocab_divisible_by * tp;

    return (model->vocab_size + block - 1) / block * block;
}

int dcpk_train_count_moments(const struct dcpk_train_optim *optim)
{
    if (optim->kind == DCPK_ADAM)
        return 2;
    return optim->momentum != 0;
}

int64_t dcpk_train_bucket_elems(const struct dcpk_train_config *config, int64_t pp,
                                bool overlaps_reduce)
{
    const int64_t asked = config->fsdp.bucket_elems;

    if (pp > 0)
        return 0;
    if (asked >= 0)
        return asked;
    if (!overlaps_reduce)
        return 0;
    return dcpk_grid_bucket_elems(config->layout.dp * config->layout.cp);
}

int64_t dcpk_train_queue_elems(const struct dcpk_train_config *config, int64_t n_units,
                               int64_t n_elems)
{
    if (config->fsdp.unit_elems > 0)
        return config->fsdp.unit_elems;
    if (n_units == 0)
        return LEAST_QUEUE_ELEMS;
    return dcpk_max_i64(LEAST_QUEUE_ELEMS, 2 * (n_elems / n_units));
}
