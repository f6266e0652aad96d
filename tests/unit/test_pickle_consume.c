/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle_consume.c - pickles read with a consumer: what it may take, and that what is left is
 * the same value however often the reader forgets what it does not need. */
#include "tests/unit/pickle_show.h"

#include "lib/io/store.h"
#include "tests/unit/pickle_cases.h"

/* Takes the leading numbers of lists, and pairs with a number as value, that stand above "k". */
struct tally {
    int64_t sum;
    uint32_t n_runs;
};

static dcpk_status take_numbers(void *context, const struct dcpk_pickle_batch *batch, uint32_t *run,
                                size_t *n_taken, struct dcpk_error *err)
{
    const size_t step = batch->container->kind == DCPK_V_DICT ? 2 : 1;
    struct tally *tally = context;
    size_t i = step - 1;

    (void)err;
    for (; i < batch->n && batch->items[i]->kind == DCPK_V_INT; i += step)
        tally->sum += batch->items[i]->as.i;
    *n_taken = i - (step - 1);
    if (*n_taken > 0 && *run == 0)
        *run = ++tally->n_runs;
    return DCPK_OK;
}

static const char *const keys[] = {"k", NULL};

/* Read hex with the consumer, collecting before every opcode. */
static dcpk_status read_hex(const char *hex, struct dcpk_arena *arena, struct tally *tally,
                            const struct dcpk_value **v, struct dcpk_error *err)
{
    const struct dcpk_pickle_consumer consumer = {
        .keys = keys, .take = take_numbers, .context = tally};
    const struct dcpk_pickle_options options = {.consumer = &consumer, .limits.collect_bytes = 1};
    size_t n;
    uint8_t *data = from_hex(hex, &n);
    const dcpk_status st = dcpk_pickle_read(data, n, &options, arena, v, err);

    free(data);
    return st;
}

static void check_tree(const char *hex, const char *tree, int64_t sum, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;
    struct dcpk_bytes text = {0};
    struct tally tally = {0};

    CHECK_OK(read_hex(hex, arena, &tally, &v, &err), label);
    show(v, &text);
    dcpk_bytes_u8(&text, 0);
    CHECK_EQ_STR((const char *)text.data, tree, label);
    CHECK_EQ_INT(tally.sum, sum, label);
    dcpk_bytes_release(&text);
    dcpk_arena_free(arena);
}

/* The trees are CPython's; a set that a call makes stays a call when values are collected. */
static void collecting_changes_no_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pickle_cases / sizeof *pickle_cases; i++)
        if (strchr(pickle_cases[i].tree, '<') == NULL)
            check_tree(pickle_cases[i].hex, pickle_cases[i].tree, 0, pickle_cases[i].label);
}

/* "k" is 8c016b, "z" is 8c017a. */
static const struct {
    const char *label, *hex, *tree;
    int64_t sum;
} taken[] = {
    {"a list", "7d8c016b5d284b014b024b0365732e", "{\"k\":[],}", 6},
    {"one item", "7d8c016b5d4b0161732e", "{\"k\":[],}", 1},
    {"a dict", "7d8c016b7d284b014b024b034b0475732e", "{\"k\":{},}", 6},
    {"one pair", "7d8c016b7d4b014b0273732e", "{\"k\":{},}", 2},
    {"in two batches", "7d8c016b5d284b014b02654b0361732e", "{\"k\":[],}", 6},
    {"another key", "7d8c017a5d284b014b0265732e", "{\"z\":[1,2,],}", 0},
    {"no key below", "5d284b014b02652e", "[1,2,]", 0},
    {"a tuple below", "298c016b865d4b0161862e", "(((),\"k\",),[1,],)", 0},
    {"the rest stays", "7d8c016b5d284b018c017a4b0265732e", "{\"k\":[\"z\",2,],}", 1},
    {"of a dict too", "7d8c016b7d284b014b024b034e4b054b0675732e", "{\"k\":{3:None,5:6,},}", 2},
    {"a tuple is not a list", "7d8c016b4b014b0286732e", "{\"k\":(1,2,),}", 0},
    {"an object is not a list", "7d8c016b63610a620a29814b0161732e", "{\"k\":new:a.b()[1,],}", 0},
    /* {"k": (n := 300; [n]), "z": n}: the memo holds what was taken */
    {"asked for again",
     "7d288c016b5d4d2c01710061"
     "8c017a680075"
     "2e",
     "{\"k\":[],\"z\":300,}", 300},
    /* l = [1]; {"k": l, "z": l} */
    {"shared list", "7d288c016b5d71004b01618c017a6800752e", "{\"k\":[],\"z\":[],}", 1},
    /* entry 0 of the memo is text, tuple, text, tuple, each asked for */
    {"an entry set again and again",
     "288c017971006800"
     "4b018571006800"
     "8c017a71006800"
     "4b02857100680074"
     "2e",
     "(\"y\",\"y\",(1,),(1,),\"z\",\"z\",(2,),(2,),)", 0},
    /* ("z", e("z", "latin1"), e("z", "latin1")), e = _codecs.encode: what the first call made is
       gone when the second asks */
    {"bytes of a text that is asked for again",
     "288c017a7100"
     "635f636f646563730a656e636f64650a7101"
     "68008c066c6174696e318652"
     "680168008c066c6174696e318652"
     "742e",
     "(\"z\",b\"z\",b\"z\",)", 0},
    {"text that is asked for again", "7d288c016b8c017971018c017a6801752e",
     "{\"k\":\"y\",\"z\":\"y\",}", 0},
};

static void takes_what_stands_above_its_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        check_tree(taken[i].hex, taken[i].tree, taken[i].sum, taken[i].label);
}

static const struct {
    const char *label, *hex;
    dcpk_status status;
    const char *message;
} refused[] = {
    {"list in itself", "7d8c016b5d7100680061732e", DCPK_EUNSUPPORTED, "changes a list"},
    {"list in a tuple in itself", "7d8c016b5d710068008561732e", DCPK_EUNSUPPORTED,
     "changes a list"},
    {"dict in itself", "7d8c016b7d71004b01680073732e", DCPK_EUNSUPPORTED, "changes a dict"},
    {"cycle inside an item", "7d8c016b5d5d710168016161732e", DCPK_EUNSUPPORTED, "holds itself"},
    /* {"k": [[...]]}, and the inner list grows after it was shown */
    {"changed after it was shown",
     "7d8c016b5d5d710161"
     "68014b016130"
     "732e",
     DCPK_EUNSUPPORTED, "changes a list after it was used"},
    {"state after it was shown",
     "7d8c016b5d63610a620a2981710161"
     "68017d6230"
     "732e",
     DCPK_EUNSUPPORTED, "changes a object"},
    {"key twice inside an item", "7d8c016b5d7d284b014b014b014b027561732e", DCPK_EFORMAT,
     "holds key 1 twice"},
    {"half a pair", "7d8c016b7d284b0175732e", DCPK_EFORMAT, "not pairs"},
    {"never set", "7d8c016b5d680161732e", DCPK_EFORMAT, "never set"},
};

static void refuses_what_changes_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_value *v = NULL;
        struct tally tally = {0};

        CHECK_FAILS(read_hex(refused[i].hex, arena, &tally, &v, &err), refused[i].status,
                    refused[i].message, refused[i].label);
        dcpk_arena_free(arena);
    }
}

struct texts {
    const char *bytes[8];
    uint32_t n;
};

/* Takes all texts; those that are kept are numbered from 1. */
static dcpk_status take_texts(void *context, const struct dcpk_pickle_batch *batch, uint32_t *run,
                              size_t *n_taken, struct dcpk_error *err)
{
    struct texts *texts = context;

    (void)run;
    (void)err;
    for (size_t i = 0; i < batch->n; i++) {
        const struct dcpk_value *text = batch->items[i];

        if (!dcpk_pickle_is_kept(text)) {
            CHECK_EQ_INT(dcpk_pickle_number(text), 0, "not kept: no number");
        } else if (dcpk_pickle_number(text) == 0) {
            texts->bytes[texts->n++] = text->as.str;
            dcpk_pickle_set_number(text, texts->n);
        } else {
            CHECK(texts->bytes[dcpk_pickle_number(text) - 1] == text->as.str, "the same again");
        }
    }
    *n_taken = batch->n;
    return DCPK_OK;
}

/* ({"k": ["y", y, "x", "w"]}, x, {"k": [y, x]}), collected before every opcode. */
static void numbers_texts_that_are_kept(void **state)
{
    struct texts texts = {.n = 0};
    const struct dcpk_pickle_consumer consumer = {
        .keys = keys, .take = take_texts, .context = &texts};
    const struct dcpk_pickle_options options = {.consumer = &consumer, .limits.collect_bytes = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;
    size_t n;
    uint8_t *data = from_hex("7d8c016b5d288c017971006800"
                             "8c01787101"
                             "8c01776573"
                             "6801"
                             "7d8c016b5d286800680165738"
                             "72e",
                             &n);

    (void)state;
    CHECK_OK(dcpk_pickle_read(data, n, &options, arena, &v, &err), "read");
    free(data);
    CHECK_EQ_INT(texts.n, 2, "two are kept");
    CHECK_EQ_STR(texts.bytes[0], "y", "bytes outlive the reading");
    CHECK_EQ_STR(texts.bytes[1], "x", "bytes outlive the reading");
    CHECK_EQ_STR(dcpk_value_as_str(dcpk_value_at(v, 1)), "x", "in the result, too");
    CHECK(dcpk_value_as_str(dcpk_value_at(v, 1)) == texts.bytes[1], "and not twice");
    dcpk_arena_free(arena);
}

static void tells_runs_apart(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;
    struct tally tally = {0};

    (void)state;
    /* ({"k": [1]}, {"k": {1: 2}}, {"k": ["z"]}) */
    CHECK_OK(read_hex("7d8c016b5d4b016173"
                      "7d8c016b7d4b014b027373"
                      "7d8c016b5d8c017a6173"
                      "872e",
                      arena, &tally, &v, &err),
             "runs");
    CHECK_EQ_INT(dcpk_pickle_run(dcpk_value_get(v->as.items[0], "k")), 1, "list");
    CHECK_EQ_INT(dcpk_pickle_run(dcpk_value_get(v->as.items[1], "k")), 2, "dict");
    CHECK_EQ_INT(dcpk_pickle_run(dcpk_value_get(v->as.items[2], "k")), 0, "nothing taken");
    CHECK_EQ_INT(dcpk_pickle_run(v), 0, "tuple");
    CHECK_EQ_INT(dcpk_pickle_run(NULL), 0, "nothing");
    dcpk_arena_free(arena);
}

/* [n texts of 100 bytes, one of 600 000, ...]: longer than the window, which moves twice. */
static void reads_through_a_window(void **state)
{
    static const size_t n_texts = 5000, n_long = 600000;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_store *store = NULL;
    struct dcpk_source *source = NULL;
    struct dcpk_bytes p = {0};
    const struct dcpk_value *whole = NULL, *v = NULL;

    (void)state;
    dcpk_bytes_text(&p, "](");
    for (size_t i = 0; i < n_texts; i++)
        dcpk_bytes_printf(&p, "\x8c%c%0100zuq%c", 100, i, (int)(1 + i % 100));
    dcpk_bytes_text(&p, "X");
    dcpk_bytes_u32(&p, (uint32_t)n_long);
    for (size_t i = 0; i < n_long; i++)
        dcpk_bytes_u8(&p, (uint8_t)('a' + i % 26));
    for (int i = 0; i < 100; i++)
        dcpk_bytes_printf(&p, "h%c", 1 + i);
    dcpk_bytes_text(&p, "e.");
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    CHECK_OK(dcpk_store_add_memory(store, "p", p.data, p.n_bytes, &err), "store");
    CHECK_OK(dcpk_store_find(store, "p", &source, &err), "store");
    CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, NULL, arena, &whole, &err), "memory");
    CHECK_OK(dcpk_pickle_read_source(source, NULL, arena, &v, &err), "window");
    CHECK_EQ_INT(v->n, n_texts + 1 + 100, "items");
    CHECK_EQ_INT(v->as.items[n_texts]->n, n_long, "long text");
    CHECK(v->as.items[n_texts + 1] == v->as.items[n_texts - 100], "memo");
    CHECK(dcpk_value_equal(v, whole), "as from memory");
    dcpk_store_close(store);
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

/* 400 000 numbers, none of which the caller gets, take no room in its arena. */
static void hands_out_what_is_left(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct tally tally = {0};
    const struct dcpk_pickle_consumer consumer = {
        .keys = keys, .take = take_numbers, .context = &tally};
    const struct dcpk_pickle_options options = {.consumer = &consumer};
    const struct dcpk_value *v = NULL;
    struct dcpk_bytes p = {0};

    (void)state;
    dcpk_bytes_text(&p, "}\x8c\x01k](");
    for (uint32_t i = 0; i < 400000; i++) {
        dcpk_bytes_text(&p, i % 1000 == 999 ? "e(J" : "J");
        dcpk_bytes_u32(&p, i);
    }
    dcpk_bytes_text(&p, "es.");
    CHECK_OK(dcpk_pickle_read(p.data, p.n_bytes, &options, arena, &v, &err), "small arena");
    CHECK_EQ_INT(tally.sum, (int64_t)400000 * 399999 / 2, "all taken");
    CHECK(dcpk_arena_used_bytes(arena) <= 4096, "room in the arena");
    dcpk_bytes_release(&p);
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collecting_changes_no_value),
        cmocka_unit_test(takes_what_stands_above_its_keys),
        cmocka_unit_test(refuses_what_changes_later),
        cmocka_unit_test(numbers_texts_that_are_kept),
        cmocka_unit_test(tells_runs_apart),
        cmocka_unit_test(reads_through_a_window),
        cmocka_unit_test(hands_out_what_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
