/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c - room for microbatches, and their samples. */
#include "lib/train/batches.h"

#include "lib/train/optim.h"

dcpk_status dcpk_batches_make(const struct dcpk_train_config *config, struct dcpk_arena *arena,
                              struct dcpk_batches *batches, struct dcpk_error *err)
{
    const struct dcpk_train_data *data = &config->data;
    const size_t n = (size_t)(data->micro_batch * config->model.seq_length);
    struct dcpk_batches b = {.n = data->global_batch / (data->micro_batch * config->layout.dp)};
    const size_t n_places = n * (size_t)b.n;

    b.list = dcpk_arena_array(arena, (size_t)b.n, sizeof *b.list, err);
    b.tokens = dcpk_arena_array(arena, n_places, sizeof *b.tokens, err);
    b.labels = dcpk_arena_array(arena, n_places, sizeof *b.labels, err);
    b.mask = dcpk_arena_array(arena, n_places, sizeof *b.mask, err);
    if (b.list == NULL || b.tokens == NULL || b.labels == NULL || b.mask == NULL)
        return err->status;
    for (size_t k = 0; k < (size_t)b.n; k++)
        b.list[k] = (struct dcpk_gpt_batch){
            .tokens = b.tokens + k * n, .labels = b.labels + k * n, .mask = b.mask + k * n};
    *batches = b;
    return DCPK_OK;
}

dcpk_status dcpk_batches_read(const struct dcpk_batches *batches,
                              const struct dcpk_train_config *config,
                              const struct dcpk_tokens *tokens, const struct dcpk_microbatch *first,
                              double scale, struct dcpk_error *err)
{
    const struct dcpk_train_data *data = &config->data;
    const size_t seq = (size_t)config->model.seq_length;
    const size_t n = (size_t)data->micro_batch * seq;
    struct dcpk_microbatch microbatch = *first;

    for (; microbatch.number < batches->n; microbatch.number++) {
        const int64_t number = dcpk_tokens_first(data, &microbatch);
        const size_t k = (size_t)microbatch.number;

        for (int64_t i = 0; i < data->micro_batch; i++) {
            const size_t at = k * n + (size_t)i * seq;
            const struct dcpk_sample sample = {batches->tokens + at, batches->labels + at,
                                               batches->mask + at};

            if (dcpk_tokens_read(tokens, number + i, &sample, err) != DCPK_OK)
                return err->status;
        }
        batches->list[k].factor = dcpk_loss_factor(config, scale, batches->mask + k * n, n);
    }
    return DCPK_OK;
}
