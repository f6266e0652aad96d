/* SPDX-License-Identifier: Apache-2.0 */
/* test_hostile_args.c - checkpoints in whose args a number, or anything else, is what no run wrote.
 */
/*
 * A round puts one hostile value under one key of args, or under several, and lets every command at
 * it: each ends by itself, soon, with 0 to 3, what it refuses it says in one line, IN is as it was,
 * and OUT is there only after a 0. Nothing is asked of the result: a run of 2^40 layers may well be
 * inspected.
 *
 * By default some rounds of each sample; DCPK_FAULT_POINTS=N: N of them, 0: every value under every
 * key. The round's number is its seed; DCPK_FAULT_FIRST=N begins with it.
 */
#include <math.h>

#include "formats/torch/item.h"
#include "tests/fault/scene.h"

#define DEFAULT_ROUNDS 6
#define SEVERAL        5 /* one round in so many spoils as many keys */
#define LONG_BYTES     100000

static const struct scene samples[] = {
    {.label = "buckets", .sample = DCPK_SAMPLES "/torch_dist_a_bucket_space_tied"},
    {.label = "mixture of experts", .sample = DCPK_SAMPLES "/v016_moe_ep2pp2"},
    {.label = "dense", .sample = DCPK_SAMPLES "/torch_dist_b_dense_tp2pp2"},
    {.label = "zarr", .sample = DCPK_SAMPLES "/zarr_dense_tp2dp2"},
};
#define N_SAMPLES (sizeof samples / sizeof *samples)

static const char *const commands[][8] = {
    {"inspect", "--json", "in"},
    {"check", "in"},
    {"verify", "in"},
    {"convert", "--to", "fsdp_dtensor", "in", "out/run"},
    {"convert", "--to", "torch_dist", "--target-mesh", "tp=2,pp=2", "in", "out/run"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

/* ---- values ---- */

static const int64_t ints[] = {0,
                               1,
                               -1,
                               2,
                               3,
                               7,
                               100000,
                               INT64_C(1) << 31,
                               (INT64_C(1) << 31) - 1,
                               -(INT64_C(1) << 31),
                               INT64_C(1) << 32,
                               (INT64_C(1) << 53) + 1,
                               INT64_C(1) << 62,
                               INT64_MAX,
                               INT64_MIN};
static const double floats[] = {0.0,   -0.0,   0.5, -1.5,     1e18,
                                1e308, 5e-324, NAN, INFINITY, -INFINITY};
static const char *const texts[] = {
    "",          "0",      "-1",  "9223372036854775808", "1e999", "%s%n%s%n", "\x1b]0;x\x07\x1b[2J",
    "../../etc", "bf16\n", "None"};
/* Little-endian two's complement: 2^63, 2^64, -2^64, and 2^799. */
static const uint8_t large[][100] = {{[7] = 0x80, [8] = 0}, {[8] = 1}, {[8] = 0xff}, {[99] = 0x40}};
static const size_t large_bytes[] = {9, 9, 9, 100};

enum { OTHERS = 8 };
#define N_INTS   (sizeof ints / sizeof *ints)
#define N_FLOATS (sizeof floats / sizeof *floats)
#define N_TEXTS  (sizeof texts / sizeof *texts)
#define N_LARGE  (sizeof large / sizeof *large)
#define N_VALUES (N_INTS + N_FLOATS + N_TEXTS + N_LARGE + OTHERS)

static const struct dcpk_value *make(struct dcpk_arena *arena, struct dcpk_value value)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *made = dcpk_arena_alloc(arena, sizeof *made, &err);

    CHECK(made != NULL, err.text);
    *made = value;
    return made;
}

static const struct dcpk_value *make_long_text(struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char *text = dcpk_arena_alloc(arena, LONG_BYTES + 1, &err);

    CHECK(text != NULL, err.text);
    memset(text, '9', LONG_BYTES);
    return make(arena, (struct dcpk_value){DCPK_V_STR, LONG_BYTES, {.str = text}});
}

/* A list of lists ... of `number`. */
static const struct dcpk_value *make_nested(struct dcpk_arena *arena,
                                            const struct dcpk_value *number, int depth)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (; depth > 0; depth--) {
        number = dcpk_value_seq(arena, DCPK_V_LIST, &number, 1, &err);
        CHECK(number != NULL, err.text);
    }
    return number;
}

static const struct dcpk_value *other_value(struct dcpk_arena *arena, size_t i)
{
    const struct dcpk_value *number = make(arena, (struct dcpk_value){DCPK_V_INT, 0, {.i = -1}});

    switch (i) {
    case 0:
        return dcpk_value_none();
    case 1:
        return dcpk_value_bool(true);
    case 2:
        return dcpk_value_bool(false);
    case 3:
        return make_long_text(arena);
    case 4:
        return make(arena, (struct dcpk_value){DCPK_V_LIST, 0, {.items = NULL}});
    case 5:
        return make(arena, (struct dcpk_value){DCPK_V_DICT, 0, {.pairs = NULL}});
    case 6:
        return make_nested(arena, number, 1);
    default:
        return make_nested(arena, number, 20);
    }
}

static const struct dcpk_value *hostile(struct dcpk_arena *arena, size_t i)
{
    if (i < N_INTS)
        return make(arena, (struct dcpk_value){DCPK_V_INT, 0, {.i = ints[i]}});
    i -= N_INTS;
    if (i < N_FLOATS)
        return make(arena, (struct dcpk_value){DCPK_V_FLOAT, 0, {.f = floats[i]}});
    i -= N_FLOATS;
    if (i < N_TEXTS)
        return make(arena, (struct dcpk_value){DCPK_V_STR, strlen(texts[i]), {.str = texts[i]}});
    i -= N_TEXTS;
    if (i < N_LARGE)
        return make(arena, (struct dcpk_value){
                               DCPK_V_BIGINT, large_bytes[i], {.str = (const char *)large[i]}});
    return other_value(arena, i - N_LARGE);
}

/* ---- common.pt ---- */

/* A sample's common state, and its args as they are. */
struct common {
    struct dcpk_arena *arena;
    const struct dcpk_value *value, *args;
    char path[64]; /* in the scratch folder */
};

static void common_open(struct common *common, const char *folder)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store;
    struct dcpk_source *source;
    struct dcpk_item_range range;

    common->arena = dcpk_arena_new();
    CHECK_OK(dcpk_store_open(scratch(folder), &store, &err), folder);
    CHECK_OK(dcpk_store_find(store, "common.pt", &source, &err), folder);
    range = dcpk_item_whole(source);
    CHECK_OK(dcpk_item_read_value(&range, common->arena, &common->value, &err), folder);
    common->args = dcpk_value_attrs(dcpk_value_get(common->value, "args"));
    CHECK(common->args != NULL && common->args->n > 20, folder);
    dcpk_store_close(store);
    snprintf(common->path, sizeof common->path, "%s/common.pt", folder);
}

/* A copy of dict's pairs, to be changed. */
static struct dcpk_value_pair *copy_pairs(struct dcpk_arena *arena, const struct dcpk_value *dict)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair *pairs = dcpk_arena_alloc(arena, dict->n * sizeof *pairs, &err);

    CHECK(pairs != NULL, err.text);
    memcpy(pairs, dict->as.pairs, dict->n * sizeof *pairs);
    return pairs;
}

/* Write it with `args` instead of its own. */
static void common_write(const struct common *common, struct dcpk_arena *arena,
                         const struct dcpk_value_pair *args)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair *pairs = copy_pairs(arena, common->value);
    struct dcpk_bytes bytes = {0};
    const struct dcpk_value *whole;
    FILE *file = fopen(scratch(common->path), "wb");

    for (size_t i = 0; i < common->value->n; i++) {
        const char *key = dcpk_value_as_str(pairs[i].key);

        if (key != NULL && strcmp(key, "args") == 0)
            pairs[i].value = dcpk_value_namespace(arena, args, common->args->n, &err);
    }
    whole = dcpk_value_dict(arena, pairs, common->value->n, &err);
    CHECK(whole != NULL, err.text);
    CHECK_OK(dcpk_item_encode(whole, "common", 2, &bytes, &err), common->path);
    CHECK(file != NULL && fwrite(bytes.data, 1, bytes.n_bytes, file) == bytes.n_bytes &&
              fclose(file) == 0,
          common->path);
    dcpk_bytes_release(&bytes);
}

/* ---- rounds ---- */

static void run_commands(const char *label)
{
    const tree_print input = tree_of(scratch("in"));

    for (size_t c = 0; c < N_COMMANDS; c++) {
        struct result result;
        char said[16384];

        result = scene_run(DCPK_PROGRAM, commands[c], NULL);
        snprintf(said, sizeof said, "%s, %s: exit %d, '%s'", label, commands[c][0],
                 result.exit_code, result.said);
        CHECK(result.exit_code >= 0 && result.exit_code <= 3, said);
        CHECK(result.exit_code < 2 || strstr(result.said, "dcpkit: ") != NULL, said);
        CHECK(strchr(result.said, '\x1b') == NULL && strchr(result.printed, '\x1b') == NULL, said);
        CHECK(tree_of(scratch("in")) == input, said);
        CHECK(result.exit_code == 0 || !scratch_has("out"), said);
        if (scratch_has("out"))
            tree_delete(scratch("out"));
    }
}

/* Spoil n keys, the first with value v. */
static void try_args(const struct common *common, const char *label, size_t key, size_t v,
                     uint64_t *seed, size_t n)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_value_pair *args;
    char text[512];

    args = copy_pairs(arena, common->args);
    snprintf(text, sizeof text, "%s: args.%s is hostile value %zu", label,
             dcpk_value_as_str(args[key].key), v);
    args[key].value = hostile(arena, v);
    for (size_t i = 1; i < n; i++)
        args[random_below(seed, common->args->n)].value =
            hostile(arena, (size_t)random_below(seed, N_VALUES));
    common_write(common, arena, args);
    run_commands(text);
    dcpk_arena_free(arena);
}

static void try_round(const struct common *common, const char *sample, uint64_t round)
{
    uint64_t seed = round;
    const size_t key = (size_t)random_below(&seed, common->args->n);
    const size_t v = (size_t)random_below(&seed, N_VALUES);
    const size_t n = random_below(&seed, SEVERAL) == 0 ? SEVERAL : 1;
    char label[128];

    snprintf(label, sizeof label, "%s, round %" PRIu64, sample, round);
    try_args(common, label, key, v, &seed, n);
}

/* Found by rounds, and always tried: sizes that loops and arrays came from. */
static const struct {
    const char *key;
    int64_t value;
} found[] = {
    {"mtp_num_layers", INT64_C(1) << 62}, {"mtp_num_layers", INT64_MAX}, {"mtp_num_layers", 100000},
    {"num_experts", INT64_C(1) << 62},    {"num_experts", 100000},       {"num_layers", 100000},
};

static size_t index_of_int(int64_t value)
{
    size_t v = 0;

    while (v < N_INTS && ints[v] != value)
        v++;
    CHECK(v < N_INTS, "a value of the table");
    return v;
}

static void try_found(const struct common *common, const char *sample)
{
    for (size_t key = 0; key < common->args->n; key++)
        for (size_t i = 0; i < sizeof found / sizeof *found; i++)
            if (strcmp(dcpk_value_as_str(common->args->as.pairs[key].key), found[i].key) == 0)
                try_args(common, sample, key, index_of_int(found[i].value), NULL, 1);
}

static void try_all(const struct common *common, const char *sample)
{
    for (size_t key = 0; key < common->args->n; key++)
        for (size_t v = 0; v < N_VALUES; v++)
            try_args(common, sample, key, v, NULL, 1);
}

static void test_args(void **state)
{
    const struct scene_rounds rounds = scene_rounds(DEFAULT_ROUNDS);

    (void)state;
    for (size_t s = 0; s < N_SAMPLES; s++) {
        struct common common;

        scene_make_input(&samples[s]);
        common_open(&common, scratch_has("in/iter_0000004") ? "in/iter_0000004" : "in");
        for (uint64_t i = 0; i < rounds.n; i++)
            try_round(&common, samples[s].label, rounds.first + i);
        if (s == 1)
            try_found(&common, samples[s].label);
        if (rounds.n == 0)
            try_all(&common, samples[s].label);
        dcpk_arena_free(common.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_args, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
