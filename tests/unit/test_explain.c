/* SPDX-License-Identifier: Apache-2.0 */
/* test_explain.c - what a configuration would hold and send: tables, limits, the layout that fits.
 */
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/knobs/knobs.h"
#include "lib/train/explain.h"
#include "lib/train/fits.h"
#include "tests/check.h"

static struct dcpk_error err;
static struct dcpk_arena *arena;
static struct dcpk_train_knobs knobs;

/* The complete example of the guide of Megatron-Bridge, as flags, on 8 ranks. */
struct setting {
    const char *name, *text;
};
static const struct setting example[] = {
    {"num_layers", "32"},
    {"hidden_size", "4096"},
    {"num_attention_heads", "32"},
    {"seq_length", "2048"},
    {"vocab_size", "32000"},
    {"tensor_model_parallel_size", "2"},
    {"untie_embeddings_and_output_weights", "true"},
    {"bf16", "true"},
    {"use_megatron_fsdp", "true"},
    {"micro_batch_size", "2"},
    {"global_batch_size", "32"},
    {"train_iters", "10000"},
};

/* more: the last has no name. */
static const struct dcpk_train_config *example_on(int64_t n_ranks, const struct setting *more)
{
    const struct dcpk_train_environment environment = {.n_ranks = n_ranks};
    struct dcpk_train_notices notices = {.n = 0};

    dcpk_error_clear(&err);
    dcpk_train_knobs_init(&knobs, arena);
    for (size_t i = 0; i < DCPK_COUNT(example); i++)
        CHECK_OK(dcpk_train_knobs_set(&knobs, example[i].name, example[i].text, &err),
                 example[i].name);
    for (; more->name != NULL; more++)
        CHECK_OK(dcpk_train_knobs_set(&knobs, more->name, more->text, &err), more->name);
    CHECK_OK(dcpk_train_knobs_check(&knobs, &environment, &notices, &err), "example");
    return &knobs.config;
}

static const struct dcpk_train_config *example_with(const struct setting *more)
{
    return example_on(8, more);
}

static const struct dcpk_train_config *example_config(void)
{
    return example_with(&(struct setting){NULL, NULL});
}

static const char *json_of(const struct dcpk_doc *doc, struct dcpk_bytes *bytes)
{
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, bytes, 0);
    CHECK_OK(dcpk_doc_json(doc, &j, &err), "JSON");
    dcpk_bytes_u8(bytes, 0);
    return (const char *)bytes->data;
}

static dcpk_status gather(void *to, const char *text, size_t n_bytes, struct dcpk_error *e)
{
    dcpk_bytes_put(to, text, n_bytes);
    (void)e;
    return DCPK_OK;
}

static const char *text_of(const struct dcpk_doc *doc, struct dcpk_bytes *bytes)
{
    const struct dcpk_doc_out out = {.write = gather, .to = bytes};

    CHECK_OK(dcpk_doc_text(doc, &out, &err), "text");
    dcpk_bytes_u8(bytes, 0);
    return (const char *)bytes->data;
}

/*
 * A layer of a tensor-parallel half: qkv 6144 x 4096, proj 4096 x 2048, fc1 10880 x 4096, fc2
 * 4096 x 5440, norms 8192: 100409344; 32 of them, twice 16000 x 4096, the last norm 4096.
 */
static void S4_21_complete_example(void **state)
{
    const struct dcpk_train_config *c = example_config();
    const int64_t n = 32 * INT64_C(100409344) + 2 * 16000 * INT64_C(4096) + 4096;
    struct dcpk_bytes bytes = {0};
    struct dcpk_doc doc = {0};
    char wanted[128];

    (void)state;
    dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 20});
    CHECK_OK(dcpk_train_explain_memory(c, 0, &doc, &err), "example");
    snprintf(wanted, sizeof wanted, "\"main_bytes\": %" PRId64, 4 * n);
    CHECK(strstr(json_of(&doc, &bytes), wanted) != NULL, "fp32 weights without sharding");
    CHECK(strstr((const char *)bytes.data, "limit_bytes") == NULL, "no limit was asked for");
    dcpk_bytes_release(&bytes);
    dcpk_doc_release(&doc);
}

/* The same model: one rank saves all of it, or each of four a part; fp32 weights, two moments. */
static void copy_of_a_save(void **state)
{
    const int64_t n = 32 * INT64_C(100409344) + 2 * 16000 * INT64_C(4096) + 4096;
    struct dcpk_train_config c = *example_config();
    struct dcpk_train_footprint most;

    (void)state;
    c.fsdp.strategy = DCPK_NO_SHARD;
    CHECK_OK(dcpk_train_footprint_most(&c, DCPK_OF_THIS_RUN, &most, &err), "whole");
    CHECK_EQ_INT(most.save_copy_bytes, 12 * n, "whole");
    c.optim.kind = DCPK_SGD;
    c.optim.momentum = 0;
    CHECK_OK(dcpk_train_footprint_most(&c, DCPK_OF_THIS_RUN, &most, &err), "no moments");
    CHECK_EQ_INT(most.save_copy_bytes, 4 * n, "no moments");
    c.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    CHECK_OK(dcpk_train_footprint_most(&c, DCPK_OF_THIS_RUN, &most, &err), "a part");
    CHECK(most.save_copy_bytes >= (uint64_t)n, "the part of the rank that has most");
    CHECK(most.save_copy_bytes < (uint64_t)(2 * n), "about a quarter");
}

/* One sample more than the largest micro batch does not fit. */
static void largest_batch_of(enum dcpk_footprint_of of)
{
    const uint64_t limit = UINT64_C(80) << 30;
    struct dcpk_train_config c = *example_config();
    int64_t micro_batch;
    uint64_t need;

    CHECK_OK(dcpk_train_largest_batch(&c, of, limit, &micro_batch, &err), "80 GiB");
    CHECK(micro_batch > 0, "80 GiB");
    c.data.micro_batch = micro_batch;
    CHECK_OK(dcpk_train_need(&c, of, &need, &err), "largest");
    CHECK(need <= limit, "the largest fits");
    c.data.micro_batch++;
    CHECK_OK(dcpk_train_need(&c, of, &need, &err), "one more");
    CHECK(need > limit, "one more does not");
    CHECK_OK(dcpk_train_largest_batch(&c, of, UINT64_C(1) << 30, &micro_batch, &err), "1 GiB");
    CHECK_EQ_INT(micro_batch, 0, "1 GiB");
}

static void S4_36_largest_batch(void **state)
{
    (void)state;
    largest_batch_of(DCPK_OF_THIS_RUN);
    largest_batch_of(DCPK_OF_MEGATRON);
}

static void smallest_layout_of(enum dcpk_footprint_of of)
{
    const uint64_t limit = UINT64_C(40) << 30;
    struct dcpk_train_config c = *example_config();
    struct dcpk_grid layout;
    uint64_t need;

    CHECK_OK(dcpk_train_smallest_layout(&c, of, limit, &layout, &err), "40 GiB");
    CHECK(layout.tp >= 1 && layout.dp >= 1, "40 GiB");
    c.layout = layout;
    CHECK_OK(dcpk_train_need(&c, of, &need, &err), "found");
    CHECK(need <= limit, "what was found fits");
    /* Half the ranks, by any tensor parallelism. */
    for (int64_t tp = 1; tp <= layout.tp * layout.dp / 2; tp *= 2) {
        c.layout.tp = tp;
        c.layout.dp = layout.tp * layout.dp / 2 / tp;
        CHECK_OK(dcpk_train_need(&c, of, &need, &err), "half");
        CHECK(tp > 8 || need > limit, "half the ranks do not fit");
    }
    CHECK_OK(dcpk_train_smallest_layout(&c, of, 1024, &layout, &err), "1 KiB");
    CHECK_EQ_INT(layout.tp, 0, "1 KiB");
}

static void S0_34_smallest_layout(void **state)
{
    (void)state;
    smallest_layout_of(DCPK_OF_THIS_RUN);
    smallest_layout_of(DCPK_OF_MEGATRON);
}

/* What the search is given, on how many ranks, and what it finds. */
static const struct {
    const char *label;
    struct setting more[5];
    int64_t n_ranks, tp, dp;
    uint64_t limit_bytes;
} searches[] = {
    {"three stages of six layers",
     {{"num_layers", "6"}, {"pipeline_model_parallel_size", "3"}, {"global_batch_size", "0"}},
     12,
     1,
     1,
     UINT64_C(80) << 30},
    {"the batch leaves one or three",
     {{"num_layers", "8"},
      {"global_batch_size", "6"},
      {"tensor_model_parallel_size", "1"},
      {"virtual_slices", "1"}},
     3,
     1,
     3,
     UINT64_C(24) << 30},
    {"two virtual slices",
     {{"num_layers", "8"}, {"global_batch_size", "2"}, {"virtual_slices", "2"}},
     2,
     0, /* one rank has no room, and four tensor-parallel ones would */
     0,
     UINT64_C(14) << 30},
    {"experts on three ranks",
     {{"num_experts", "3"}, {"expert_model_parallel_size", "3"}, {"global_batch_size", "0"}},
     6,
     1,
     3,
     UINT64_C(1) << 37},
};

static void finds_what_train_takes(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(searches); i++) {
        const char *label = searches[i].label;
        struct dcpk_grid layout;

        CHECK_OK(dcpk_train_smallest_layout(example_on(searches[i].n_ranks, searches[i].more),
                                            DCPK_OF_MEGATRON, searches[i].limit_bytes, &layout,
                                            &err),
                 label);
        CHECK_EQ_INT(layout.tp, searches[i].tp, label);
        CHECK_EQ_INT(layout.dp, searches[i].dp, label);
    }
}

/* What is not done yet is advised, what is done is not. */
static void S4_43_advice(void **state)
{
    struct dcpk_train_config c = *example_config();
    struct dcpk_doc doc = {0};
    struct dcpk_bytes bytes = {0};
    const char *text;

    (void)state;
    dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 20});
    c.fsdp.recomputes = true;
    c.fsdp.strategy = DCPK_OPTIM;
    CHECK_OK(dcpk_train_explain_memory(&c, UINT64_C(1) << 30, &doc, &err), "1 GiB");
    text = text_of(&doc, &bytes);
    CHECK(strstr(text, "strategy optim_grads_params shards most") != NULL, text);
    CHECK(strstr(text, "a smaller micro_batch_size") != NULL, text);
    CHECK(strstr(text, "recompute_granularity") == NULL, text);
    CHECK(strstr(text, "use_megatron_fsdp is off") == NULL, text);
    CHECK(strstr(text, "fsdp_double_buffer") == NULL, "weights are kept whole");
    dcpk_bytes_release(&bytes);
    dcpk_doc_release(&doc);
    c.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 20});
    CHECK_OK(dcpk_train_explain_memory(&c, UINT64_C(1) << 30, &doc, &err), "1 GiB");
    text = text_of(&doc, &bytes);
    CHECK(strstr(text, "fsdp_double_buffer") != NULL, text);
    dcpk_bytes_release(&bytes);
    dcpk_doc_release(&doc);
}

/* Seconds are bytes by bandwidth. */
static void S4_34_traffic(void **state)
{
    const struct dcpk_train_config *c = example_config();
    struct dcpk_train_footprint first;
    uint64_t gathered, reduced;
    struct dcpk_bytes bytes = {0};
    struct dcpk_doc doc = {0};
    char wanted[128], seconds[32];

    (void)state;
    CHECK_OK(dcpk_train_footprint(c, 0, DCPK_OF_MEGATRON, &first, &err), "example");
    gathered = first.sent.n_bytes[DCPK_FSDP_GATHER];
    reduced = first.sent.n_bytes[DCPK_FSDP_REDUCE];
    dcpk_format_double((double)(gathered + reduced) / 50e9, seconds);
    dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 20});
    CHECK_OK(dcpk_train_explain_comm(c, 50e9, &doc, &err), "50 GB/s");
    snprintf(wanted, sizeof wanted, "\"reduce_bytes\": %" PRIu64 ", \"seconds\": %s", reduced,
             seconds);
    if (strstr(json_of(&doc, &bytes), wanted) == NULL)
        fail_msg("no '%s' in %s", wanted, (const char *)bytes.data);
    dcpk_bytes_release(&bytes);
    dcpk_doc_release(&doc);
}

/* Both tables as JSON; released by the caller. */
static struct dcpk_bytes explained(const struct dcpk_train_config *c)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_doc doc = {0};

    dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 20});
    CHECK_OK(dcpk_train_explain_memory(c, 0, &doc, &err), "memory");
    CHECK_OK(dcpk_train_explain_comm(c, 0, &doc, &err), "traffic");
    (void)json_of(&doc, &bytes);
    dcpk_doc_release(&doc);
    return bytes;
}

/* The rows of a strategy are the same in both documents. */
static void check_rows(const struct dcpk_bytes *one, const struct dcpk_bytes *other, int strategy)
{
    const char *a = (const char *)one->data, *b = (const char *)other->data;
    char head[64];

    snprintf(head, sizeof head, "\"strategy\": \"%s\"", dcpk_strategy_names[strategy]);
    for (int table = 0; table < 2; table++) {
        size_t n;

        a = strstr(a + 1, head);
        b = strstr(b + 1, head);
        CHECK(a != NULL && b != NULL, head);
        n = strcspn(a, "}");
        if (n != strcspn(b, "}") || memcmp(a, b, n) != 0)
            fail_msg("%.*s\nis not\n%.*s", (int)n, a, (int)strcspn(b, "}"), b);
    }
}

/* Whatever is configured, a column is what its strategy would be with Megatron-FSDP. Embeddings
 * outside units pass the size of a bucket, so that overlap moves what fills buffers up. */
static void columns_are_runs(void **state)
{
    static const struct setting rows = {"vocab_size", "64016"}, end = {NULL, NULL},
                                pad = {"make_vocab_size_divisible_by", "1"};
    const struct setting runs[][5] = {
        {rows, pad, {"overlap_grad_reduce", "false"}, end},
        {rows, pad, {"overlap_grad_reduce", "true"}, end},
        {rows, pad, {"use_megatron_fsdp", "false"}, end},
        {rows, pad, {"use_megatron_fsdp", "false"}, {"use_distributed_optimizer", "true"}, end},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(runs); i++) {
        const struct dcpk_train_config c = *example_with(runs[i]);
        struct dcpk_bytes all = explained(&c);

        for (int s = 0; s < DCPK_N_STRATEGIES; s++) {
            const struct setting own[] = {
                rows,
                pad,
                {"data_parallel_sharding_strategy", dcpk_strategy_names[s]},
                {"overlap_grad_reduce", i == 1 ? "true" : "false"},
                end};
            struct dcpk_bytes one;

            if (c.fsdp.mode == DCPK_MODE_DDP && s == (int)c.fsdp.strategy)
                continue;
            one = explained(example_with(own));
            check_rows(&all, &one, s);
            dcpk_bytes_release(&one);
        }
        dcpk_bytes_release(&all);
    }
}

/* Exact sums are this loop's: columns of Megatron have the dtypes that are asked for. */
static void columns_have_dtypes_asked_for(void **state)
{
    static const struct setting end = {NULL, NULL}, native = {"reduce", "native"};
    static const struct setting ddp = {"use_megatron_fsdp", "false"};
    const struct setting asked[][4] = {
        {ddp, {"grad_reduce_in_bf16", "true"}, end},
        {{"megatron_fsdp_main_grads_dtype", "bf16"}, end},
        {{"megatron_fsdp_grad_comm_dtype", "bf16"}, end},
    };
    struct dcpk_bytes plain = explained(example_config());

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(asked); i++) {
        struct setting with_native[4] = {native};
        struct dcpk_bytes exact = explained(example_with(asked[i])), other;
        const char *at;

        for (size_t j = 0; j < 3; j++)
            with_native[1 + j] = asked[i][j];
        other = explained(example_with(with_native));
        for (int s = 0; s < DCPK_N_STRATEGIES; s++)
            check_rows(&exact, &other, s);
        at = strstr((const char *)exact.data, "\"volumes\"");
        CHECK(strncmp(at, strstr((const char *)plain.data, "\"volumes\""), 400) != 0,
              asked[i][0].name);
        dcpk_bytes_release(&exact);
        dcpk_bytes_release(&other);
    }
    dcpk_bytes_release(&plain);
}

/* The choice and the advice of a document; released by the caller. */
static struct dcpk_bytes advice_of(const struct setting *more, int64_t n_ranks,
                                   uint64_t limit_bytes)
{
    struct dcpk_bytes bytes = {0}, advice = {0};
    struct dcpk_doc doc = {0};
    const char *at;

    dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 20});
    CHECK_OK(dcpk_train_explain_memory(example_on(n_ranks, more), limit_bytes, &doc, &err),
             "advice");
    at = strstr(json_of(&doc, &bytes), "\"advice\": ");
    CHECK(at != NULL, "there is advice");
    dcpk_bytes_put(&advice, at, (size_t)(strstr(at, "\"fits\"") - at));
    dcpk_bytes_u8(&advice, 0);
    dcpk_bytes_release(&bytes);
    dcpk_doc_release(&doc);
    return advice;
}

/* The mode that is configured does not change the advice, at the size of every kind of it. Buffers
 * of Megatron-FSDP are padded to all ranks. */
static void advice_of_every_mode(void **state)
{
    static const struct setting modes[][4] = {
        {{"global_batch_size", "0"}, {NULL, NULL}},
        {{"global_batch_size", "0"}, {"use_megatron_fsdp", "false"}, {NULL, NULL}},
        {{"global_batch_size", "0"},
         {"use_megatron_fsdp", "false"},
         {"use_distributed_optimizer", "true"},
         {NULL, NULL}},
    };
    static const struct {
        uint64_t limit_bytes;
        const char *choice;
    } cases[] = {{UINT64_C(400) << 30, "\"ddp\""},
                 {UINT64_C(60) << 30, "\"distributed_optimizer\""},
                 {UINT64_C(1) << 30, "\"more_ranks\""}};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_bytes one = advice_of(modes[0], 2048, cases[i].limit_bytes);

        CHECK(strstr((const char *)one.data, cases[i].choice) != NULL, (const char *)one.data);
        for (size_t m = 1; m < DCPK_COUNT(modes); m++) {
            struct dcpk_bytes other = advice_of(modes[m], 2048, cases[i].limit_bytes);

            CHECK_EQ_STR((const char *)other.data, (const char *)one.data, cases[i].choice);
            dcpk_bytes_release(&other);
        }
        dcpk_bytes_release(&one);
    }
}

/* Megatron-FSDP has no stages: it is advised with one. The sizes of a layout are a product. */
static void advice_with_stages(void **state)
{
    static const struct setting stages[] = {{"pipeline_model_parallel_size", "2"},
                                            {"context_parallel_size", "2"},
                                            {"global_batch_size", "0"},
                                            {"use_megatron_fsdp", "false"},
                                            {NULL, NULL}};
    struct dcpk_bytes advice = advice_of(stages, 16, UINT64_C(14) << 30);
    const char *text = (const char *)advice.data, *at = strstr(text, "fits on ");
    long long n, tp, cp, dp;

    (void)state;
    CHECK(strstr(text, "\"more_ranks\"") != NULL, text);
    CHECK(strstr(text, "and Megatron-FSDP has no pipeline stages; ") != NULL, text);
    CHECK(at != NULL, text);
    CHECK_EQ_INT(sscanf(at,
                        "fits on %lld ranks as tensor %lld, context %lld, pipeline 1, data %lld",
                        &n, &tp, &cp, &dp),
                 4, text);
    CHECK_EQ_INT(n, tp * cp * dp, text);
    CHECK_EQ_INT(cp, 2, text);
    dcpk_bytes_release(&advice);
    advice = advice_of(stages, 16, UINT64_C(30) << 30);
    CHECK(strstr((const char *)advice.data, "\"distributed_optimizer\"") != NULL, "30 GiB");
    dcpk_bytes_release(&advice);
}

/* n lines from `line` on end in one column. */
static void check_columns(const char *line, size_t n)
{
    const size_t columns = strcspn(line, "\n");

    for (size_t i = 0; i < n; i++) {
        CHECK_EQ_INT(strcspn(line, "\n"), columns, line);
        line += columns + 1;
    }
}

/* Figures stand under their titles whatever their size, and no line is longer than a terminal. */
static void tables_keep_columns(void **state)
{
    struct dcpk_train_config c = *example_config();
    static const int64_t hidden[] = {64, 4096, 65536};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(hidden); i++) {
        struct dcpk_bytes bytes = {0};
        struct dcpk_doc doc = {0};
        const char *text;

        c.model.hidden = hidden[i];
        c.model.ffn = 3 * hidden[i];
        dcpk_doc_init(&doc, "train", &(struct dcpk_doc_style){.label_columns = 22});
        CHECK_OK(dcpk_train_explain_memory(&c, UINT64_C(1) << 33, &doc, &err), "memory");
        CHECK_OK(dcpk_train_explain_comm(&c, 50e9, &doc, &err), "traffic");
        text = text_of(&doc, &bytes);
        check_columns(strstr(text, "\nweights ") + 1, 8);
        check_columns(strstr(text, "\ngathered ") + 1, 3);
        while (*text != '\0') {
            CHECK(strcspn(text, "\n") <= 100, text);
            text += strcspn(text, "\n");
            text += *text != '\0';
        }
        dcpk_bytes_release(&bytes);
        dcpk_doc_release(&doc);
    }
}

static int set_up(void **state)
{
    (void)state;
    arena = dcpk_arena_new();
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    dcpk_arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S4_21_complete_example),
        cmocka_unit_test(S4_36_largest_batch),
        cmocka_unit_test(S0_34_smallest_layout),
        cmocka_unit_test(S4_43_advice),
        cmocka_unit_test(S4_34_traffic),
        cmocka_unit_test(copy_of_a_save),
        cmocka_unit_test(tables_keep_columns),
        cmocka_unit_test(columns_are_runs),
        cmocka_unit_test(finds_what_train_takes),
        cmocka_unit_test(advice_of_every_mode),
        cmocka_unit_test(columns_have_dtypes_asked_for),
        cmocka_unit_test(advice_with_stages),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
