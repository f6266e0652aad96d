/* SPDX-License-Identifier: Apache-2.0 */
/* loss_factor.c - factors of losses and gradients, by the form of the loss and the dtype. */
#include "lib/train/loss_factor.h"

static double batch_places(const struct dcpk_train_config *config)
{
    return (double)(config->data.global_batch * config->model.seq_length);
}

double dcpk_loss_divisor(const struct dcpk_train_config *config)
{
    if (config->precision.compute != DCPK_F16 || config->precision.is_per_token_loss)
        return 1;
    return batch_places(config);
}

float dcpk_loss_factor(const struct dcpk_train_config *config, double scale, const float *mask,
                       size_t n)
{
    double n_tokens = 0, weight = 1;

    for (size_t i = 0; i < n; i++)
        n_tokens += (double)mask[i];
    if (!config->precision.is_per_token_loss && n_tokens > 0)
        weight = (double)n / n_tokens;
    return (float)(weight * scale / dcpk_loss_divisor(config));
}

double dcpk_gradient_factor(const struct dcpk_train_config *config, double scale, int64_t n_tokens)
{
    double n = batch_places(config);

    if (config->precision.is_per_token_loss && n_tokens > 0)
        n = (double)n_tokens;
    return dcpk_loss_divisor(config) / (n * scale);
}
