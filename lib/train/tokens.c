/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - samples of a token file, and mock ones by their rule. */
#include "lib/train/tokens.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/text.h"
#include "lib/ckpt/seen.h"
#include "lib/device/philox.h"
#include "lib/io/store.h"
#include "lib/train/optim.h"

#define MAX_PATH_BYTES 4096
/* Parts the stream of mock data from those of parameters, whose keys are hashes. */
#define MOCK_KEY UINT64_C(0x746f6b656e730000) /* "tokens" */

struct dcpk_tokens {
    const struct dcpk_train_config *config;
    struct dcpk_store *store; /* NULL: mock data */
    struct dcpk_source *file;
    int64_t n_samples; /* of the file */
};

static int64_t sample_tokens(const struct dcpk_train_config *config)
{
    return config->model.seq_length + 1;
}

static dcpk_status open_file(struct dcpk_tokens *t, const char *path, struct dcpk_error *err)
{
    const uint64_t sample_bytes = (uint64_t)sample_tokens(t->config) * sizeof(int32_t);
    const char *name = dcpk_name_last(path);
    const size_t n = (size_t)(name - path);
    char folder[MAX_PATH_BYTES] = ".";
    uint64_t n_bytes;

    if (n >= sizeof folder)
        return dcpk_fail(err, DCPK_EUSAGE, "the path of the token file has %zu bytes", n);
    if (n > 0) {
        memcpy(folder, path, n);
        folder[n] = '\0';
    }
    if (dcpk_store_open(folder, &t->store, err) || dcpk_store_find(t->store, name, &t->file, err))
        return err->status;
    n_bytes = dcpk_source_bytes(t->file);
    if (n_bytes == 0 || n_bytes % sample_bytes != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "it has %" PRIu64 " bytes; wanted samples of %" PRIu64 " bytes (%" PRId64
                         " tokens of 4)",
                         n_bytes, sample_bytes, sample_tokens(t->config));
    t->n_samples = (int64_t)(n_bytes / sample_bytes);
    return DCPK_OK;
}

dcpk_status dcpk_tokens_open(const struct dcpk_train_config *config, struct dcpk_tokens **tokens,
                             struct dcpk_error *err)
{
    const char *path = config->data.token_file;
    struct dcpk_tokens *t = dcpk_alloc(sizeof *t, err);

    if (t == NULL)
        return err->status;
    t->config = config;
    if (path != NULL && open_file(t, path, err) != DCPK_OK) {
        dcpk_context(err, "opening the token file '%s'", path);
        dcpk_tokens_close(t);
        return err->status;
    }
    *tokens = t;
    return DCPK_OK;
}

dcpk_status dcpk_tokens_check_same(const struct dcpk_tokens *tokens, struct dcpk_ranks *ranks,
                                   struct dcpk_error *err)
{
    struct dcpk_hash hash;
    uint64_t number;

    if (ranks == NULL || tokens->file == NULL)
        return DCPK_OK;
    if (dcpk_seen_file(tokens->file, &hash, err) != DCPK_OK)
        return err->status;
    memcpy(&number, hash.digest, sizeof number);
    return dcpk_ranks_check_same(ranks, number, "token file", err);
}

void dcpk_tokens_close(struct dcpk_tokens *tokens)
{
    if (tokens == NULL)
        return;
    dcpk_store_close(tokens->store);
    dcpk_free(tokens);
}

int64_t dcpk_tokens_first(const struct dcpk_train_data *data,
                          const struct dcpk_microbatch *microbatch)
{
    const struct dcpk_microbatch *m = microbatch;

    assert(m->rank < m->n_ranks);
    return m->consumed + (m->number * m->n_ranks + m->rank) * data->micro_batch;
}

static void read_mock(const struct dcpk_train_config *config, int64_t number, int32_t *tokens)
{
    const struct dcpk_philox drawn =
        dcpk_philox_block(config->data.seed ^ MOCK_KEY, (uint64_t)number);
    const int64_t vocab = config->model.vocab_size, n = sample_tokens(config);
    const int64_t quarter = (vocab + 3) / 4;
    const int64_t first = (int64_t)(((uint64_t)drawn.word[0] * (uint64_t)quarter) >> 32);
    const int64_t difference = 1 + (int64_t)(drawn.word[1] >> 31);

    tokens[0] = (int32_t)first;
    tokens[1] = (int32_t)((first + difference) % vocab);
    for (int64_t i = 2; i < n; i++)
        tokens[i] = (int32_t)((2 * (int64_t)tokens[i - 1] - tokens[i - 2] + vocab) % vocab);
}

/* Stored numbers into tokens, and which of them have a loss. */
static dcpk_status decode_file(const struct dcpk_tokens *t, int64_t number, int32_t *tokens,
                               float *mask, struct dcpk_error *err)
{
    const int64_t n = sample_tokens(t->config);

    for (int64_t i = 0; i < n; i++) {
        const int32_t stored = tokens[i];

        mask[i] = (float)(stored >= 0);
        if (stored < 0)
            tokens[i] = -1 - stored;
        if (tokens[i] >= t->config->model.vocab_size)
            return dcpk_fail(err, DCPK_ERANGE,
                             "token %" PRId64 " of sample %" PRId64 " in '%s' is %" PRId32
                             ", the vocabulary has %" PRId64,
                             i, number, dcpk_source_name(t->file), tokens[i],
                             t->config->model.vocab_size);
    }
    return DCPK_OK;
}

static dcpk_status read_file(const struct dcpk_tokens *t, int64_t number, int32_t *tokens,
                             float *mask, struct dcpk_error *err)
{
    const size_t n = (size_t)sample_tokens(t->config), n_bytes = n * sizeof *tokens;
    uint8_t *const bytes = (uint8_t *)tokens;

    if (number >= t->n_samples)
        return dcpk_fail(err, DCPK_ERANGE,
                         "the token file '%s' has %" PRId64 " samples, sample %" PRId64
                         " is asked for",
                         dcpk_source_name(t->file), t->n_samples, number);
    if (dcpk_source_read(t->file, (uint64_t)number * n_bytes, bytes, n_bytes, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)dcpk_load_u32le(bytes + i * sizeof *tokens);
    return decode_file(t, number, tokens, mask, err);
}

dcpk_status dcpk_tokens_read(const struct dcpk_tokens *tokens, int64_t number,
                             const struct dcpk_sample *sample, struct dcpk_error *err)
{
    const size_t n = (size_t)tokens->config->model.seq_length;
    int32_t *stored = dcpk_alloc_array(n + 1, sizeof *stored + sizeof(float), err);
    float *mask;
    dcpk_status st = DCPK_OK;

    assert(number >= 0);
    if (stored == NULL)
        return err->status;
    mask = (float *)(stored + n + 1);
    if (tokens->file != NULL) {
        st = read_file(tokens, number, stored, mask, err);
    } else {
        read_mock(tokens->config, number, stored);
        for (size_t i = 0; i <= n; i++)
            mask[i] = 1;
    }
    if (st == DCPK_OK) {
        memcpy(sample->tokens, stored, n * sizeof *stored);
        memcpy(sample->labels, stored + 1, n * sizeof *stored);
        memcpy(sample->mask, mask + 1, n * sizeof *mask);
    }
    dcpk_free(stored);
    return st;
}

/* ---- microbatches ---- */

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
