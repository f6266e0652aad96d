/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokens.c - which samples a microbatch takes, mock samples, samples of a token file. */
#include "lib/train/tokens.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"

#define SEQ 6

static struct dcpk_train_config config_of(const char *token_file)
{
    struct dcpk_train_config config = {0};

    config.model.seq_length = SEQ;
    config.model.vocab_size = 40;
    config.data.micro_batch = 2;
    config.data.global_batch = 8;
    config.data.seed = 1234;
    config.data.token_file = token_file;
    return config;
}

/* What MegatronPretrainingSampler(total_samples=100, consumed_samples=8, micro_batch_size=2,
 * data_parallel_rank=rank, data_parallel_size=n_ranks) of core 0.19.0 yields first, second, ... */
static void takes_megatrons_samples(void **state)
{
    static const struct {
        const char *label;
        int64_t rank, n_ranks, number, first;
    } cases[] = {
        {"alone, first", 0, 1, 0, 8},    {"alone, third", 0, 1, 2, 12},
        {"0 of 2, second", 0, 2, 1, 12}, {"1 of 2, first", 1, 2, 0, 10},
        {"1 of 2, second", 1, 2, 1, 14}, {"2 of 4, first", 2, 4, 0, 12},
        {"2 of 3, third", 2, 3, 2, 24},
    };
    const struct dcpk_train_config config = config_of(NULL);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dcpk_microbatch microbatch = {8, cases[i].number, cases[i].rank,
                                                   cases[i].n_ranks};

        CHECK_EQ_INT(dcpk_tokens_first(&config.data, &microbatch), cases[i].first, cases[i].label);
    }
}

/* By the rule, with both differences, none of them twice in a row of all. */
static void mocks_by_the_rule(void **state)
{
    const struct dcpk_train_config config = config_of(NULL);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_tokens *tokens = NULL;
    int32_t t[SEQ], labels[SEQ];
    float mask[SEQ];
    const struct dcpk_sample sample = {t, labels, mask};
    int n_by[3] = {0};
    bool starts[40] = {false};
    int n_starts = 0;

    (void)state;
    CHECK_OK(dcpk_tokens_open(&config, &tokens, &err), "mock");
    for (int64_t s = 0; s < 200; s++) {
        CHECK_OK(dcpk_tokens_read(tokens, s, &sample, &err), "mock");
        CHECK(t[0] >= 0 && t[0] < 10, "begins in the first quarter");
        n_starts += !starts[t[0]];
        starts[t[0]] = true;
        CHECK(t[1] - t[0] == 1 || t[1] - t[0] == 2, "difference");
        n_by[t[1] - t[0]]++;
        for (int i = 2; i < SEQ; i++)
            CHECK_EQ_INT(t[i], (2 * t[i - 1] - t[i - 2] + 40) % 40, "rule");
        for (int i = 0; i < SEQ; i++) {
            CHECK(mask[i] == 1, "each place has a loss");
            CHECK(i == SEQ - 1 || labels[i] == t[i + 1], "label");
        }
        CHECK_EQ_INT(labels[SEQ - 1], (2 * t[SEQ - 1] - t[SEQ - 2] + 40) % 40, "last label");
    }
    CHECK_EQ_INT(n_starts, 10, "each start");
    CHECK(n_by[1] > 70 && n_by[2] > 70, "either difference about as often");
    dcpk_tokens_close(tokens);
}

/* Two samples; where the second has no loss its token is stored as -1 - t. */
static const int32_t stored[] = {1, 2, 3, 4, 5, 6, 7, 39, 0, -1 - 12, 13, -1 - 0, 8, 9};

static void write_file(char *path, const int32_t *numbers, size_t n)
{
    const int fd = mkstemp(path);
    uint8_t bytes[4 * sizeof stored];

    CHECK(fd >= 0, path);
    for (size_t i = 0; i < 4 * n; i++)
        bytes[i] = (uint8_t)((uint32_t)numbers[i / 4] >> (8 * (i % 4)));
    CHECK(write(fd, bytes, 4 * n) == (ssize_t)(4 * n), path);
    close(fd);
}

static void reads_a_file(void **state)
{
    static const int32_t want_tokens[] = {39, 0, 12, 13, 0, 8};
    static const int32_t want_labels[] = {0, 12, 13, 0, 8, 9};
    static const float want_mask[] = {1, 0, 1, 0, 1, 1};
    char path[] = "/tmp/dcpk_tokens_XXXXXX";
    const struct dcpk_train_config config = config_of(path);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_tokens *tokens = NULL;
    int32_t t[SEQ], labels[SEQ];
    float mask[SEQ];
    const struct dcpk_sample sample = {t, labels, mask};

    (void)state;
    write_file(path, stored, sizeof stored / sizeof *stored);
    CHECK_OK(dcpk_tokens_open(&config, &tokens, &err), "file");
    CHECK_OK(dcpk_tokens_read(tokens, 1, &sample, &err), "file");
    CHECK(memcmp(t, want_tokens, sizeof t) == 0, "tokens");
    CHECK(memcmp(labels, want_labels, sizeof labels) == 0, "labels");
    CHECK(memcmp(mask, want_mask, sizeof mask) == 0, "mask");
    CHECK_FAILS(dcpk_tokens_read(tokens, 2, &sample, &err), DCPK_ERANGE,
                "has 2 samples, sample 2 is asked for", "past the end");
    dcpk_tokens_close(tokens);
    unlink(path);
}

static void refuses_a_file(void **state)
{
    char cut[] = "/tmp/dcpk_tokens_XXXXXX", large[] = "/tmp/dcpk_tokens_XXXXXX";
    struct dcpk_train_config config = config_of(cut);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_tokens *tokens = NULL;
    int32_t t[SEQ], labels[SEQ];
    float mask[SEQ];
    const struct dcpk_sample sample = {t, labels, mask};

    (void)state;
    write_file(cut, stored, sizeof stored / sizeof *stored - 1);
    CHECK_FAILS(dcpk_tokens_open(&config, &tokens, &err), DCPK_EFORMAT, "52 bytes; wanted samples",
                "cut short");
    write_file(large, stored, sizeof stored / sizeof *stored);
    config = config_of(large);
    config.model.vocab_size = 39;
    CHECK_OK(dcpk_tokens_open(&config, &tokens, &err), "vocabulary");
    CHECK_FAILS(dcpk_tokens_read(tokens, 1, &sample, &err), DCPK_ERANGE, "token 0 of sample 1",
                "vocabulary");
    dcpk_tokens_close(tokens);
    unlink(cut);
    unlink(large);
    CHECK_FAILS(dcpk_tokens_open(&config, &tokens, &err), DCPK_EIO, "opening the token file",
                "missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_megatrons_samples),
        cmocka_unit_test(mocks_by_the_rule),
        cmocka_unit_test(reads_a_file),
        cmocka_unit_test(refuses_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
