/* SPDX-License-Identifier: Apache-2.0 */
/* test_summary.c - folding of keys and totals with aliases, on checkpoints put together by hand. */
#include "lib/ckpt/overlaps.h"
#include "lib/ckpt/summary.h"
#include "lib/ckpt/unknown.h"
#include "tests/check.h"

static const int64_t shape[] = {3, 2};
static const int64_t span[] = {0, 0, 3, 2};

#define MAX_KEYS 24

/* A checkpoint of one chunk a key, bf16 [3, 2], each item 100 bytes at a place of its own. */
struct made {
    struct dcpk_checkpoint ckpt;
    struct dcpk_tensor tensors[MAX_KEYS];
    struct dcpk_chunk chunks[MAX_KEYS];
    struct dcpk_object objects[MAX_KEYS];
};

static void make(struct made *m, const char *const *keys)
{
    memset(m, 0, sizeof *m);
    m->ckpt.tensors = m->tensors;
    m->ckpt.chunks = m->chunks;
    m->ckpt.objects = m->objects;
    for (uint32_t i = 0; keys[i] != NULL; i++) {
        m->tensors[i] = (struct dcpk_tensor){.key = keys[i],
                                             .dtype = DCPK_BF16,
                                             .rank = 2,
                                             .shape = shape,
                                             .first_chunk = i,
                                             .n_chunks = 1};
        m->chunks[i] = (struct dcpk_chunk){.tensor = i, .span = span, .place = {0, 100 * i, 100}};
        m->ckpt.n_tensors = m->ckpt.n_chunks = i + 1;
    }
}

static const struct {
    const char *label;
    const char *keys[MAX_KEYS];
    const char *rows[MAX_KEYS]; /* expected patterns, in their order */
} foldings[] = {
    {"nothing to fold", {"b.weight", "a.weight"}, {"a.weight", "b.weight"}},
    {"layers", {"d.layers.0.w", "d.layers.2.w", "d.layers.1.w"}, {"d.layers.{0..2}.w"}},
    {"one layer", {"d.layers.7.w"}, {"d.layers.7.w"}},
    {"two layers", {"l.0.w", "l.1.w"}, {"l.{0,1}.w"}},
    {"holes", {"l.0.w", "l.2.w", "l.5.w", "l.6.w", "l.7.w"}, {"l.{0,2,5..7}.w"}},
    {"many holes",
     {"l.0.w", "l.2.w", "l.4.w", "l.6.w", "l.8.w", "l.10.w", "l.12.w"},
     {"l.{0..12: 7 numbers}.w"}},
    {"two numbers", {"l.0.e.1.w", "l.0.e.2.w", "l.1.e.1.w", "l.1.e.2.w"}, {"l.{0,1}.e.{1,2}.w"}},
    {"names with digits stay", {"linear_fc1.w", "linear_fc2.w"}, {"linear_fc1.w", "linear_fc2.w"}},
    {"grouped experts",
     {"e.weight0", "e.weight1", "e.weight2_w"},
     {"e.weight2_w", "e.weight{0,1}"}},
    {"split grouped experts", {"e.weight0_w", "e.weight1_w"}, {"e.weight{0,1}_w"}},
    {"shards", {"x/shard_0.1_2.2", "x/shard_1.1_2.2"}, {"x/shard_{0,1}.1_2.2"}},
    {"ranks", {"rng.(0, 0).0.a", "rng.(0, 1).0.a"}, {"rng.(0, {0,1}).0.a"}},
    {"buckets", {"dp_group_idx_0.b", "dp_group_idx_1.b"}, {"dp_group_idx_{0,1}.b"}},
    {"leading zero stays", {"l.00.w", "l.01.w"}, {"l.00.w", "l.01.w"}},
    {"numbers past 2^63 stay",
     {"l.99999999999999999999.w", "l.99999999999999999998.w"},
     {"l.99999999999999999998.w", "l.99999999999999999999.w"}},
    {"a number at the start and the end", {"0.1", "1.1"}, {"{0,1}.1"}},
    {"a byte that looks like a placeholder", {"l.\001.w", "l.1.w"}, {"l.\001.w", "l.1.w"}},
};

static void test_fold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof foldings / sizeof *foldings; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_summary *summary = NULL;
        struct made m;
        size_t n = 0;

        make(&m, foldings[i].keys);
        CHECK_OK(dcpk_summary_new(&m.ckpt, NULL, &summary, &err), foldings[i].label);
        for (; foldings[i].rows[n] != NULL && n < summary->n_tensors; n++)
            CHECK_EQ_STR(summary->tensors[n].pattern, foldings[i].rows[n], foldings[i].label);
        CHECK(foldings[i].rows[n] == NULL && n == summary->n_tensors, foldings[i].label);
        dcpk_summary_free(summary);
    }
}

static void test_shapes_apart(void **state)
{
    static const char *const keys[] = {"l.0.w", "l.1.w", "l.2.w", NULL};
    static const int64_t wider[] = {3, 4}, wide_span[] = {0, 0, 3, 4};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_summary *summary;
    struct made m;

    (void)state;
    make(&m, keys);
    m.tensors[1].shape = wider;
    m.chunks[1].span = wide_span;
    CHECK_OK(dcpk_summary_new(&m.ckpt, NULL, &summary, &err), "shapes");
    CHECK_EQ_INT(summary->n_tensors, 2, "shapes");
    CHECK_EQ_STR(summary->tensors[0].pattern, "l.1.w", "shapes");
    CHECK_EQ_INT(summary->tensors[0].n_bytes, 3 * 4 * 2, "shapes");
    CHECK_EQ_STR(summary->tensors[1].pattern, "l.{0,2}.w", "shapes");
    CHECK_EQ_INT(summary->tensors[1].n_keys, 2, "shapes");
    CHECK_EQ_INT(summary->tensors[1].n_bytes, 2 * 3 * 2 * 2, "shapes");
    dcpk_summary_free(summary);
}

static void test_aliases(void **state)
{
    static const char *const keys[] = {"a", "b", "c", NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_summary *summary;
    const struct dcpk_totals *t;
    struct made m;

    (void)state;
    make(&m, keys);
    m.chunks[2].place = m.chunks[0].place; /* c is a */
    m.chunks[1].place.n_bytes = 90;        /* b is another item */
    m.objects[0] = (struct dcpk_object){"x", {1, 0, 10}};
    m.objects[1] = (struct dcpk_object){"y", {1, 0, 10}};
    m.objects[2] = (struct dcpk_object){"z", {1, 0, 11}}; /* overlaps, yet is no alias */
    m.ckpt.n_objects = 3;
    CHECK_OK(dcpk_summary_new(&m.ckpt, NULL, &summary, &err), "aliases");
    t = &summary->totals;
    CHECK_EQ_INT(t->n_tensors, 3, "aliases");
    CHECK_EQ_INT(t->n_alias_tensors, 1, "aliases");
    CHECK_EQ_INT(t->n_chunks, 3, "aliases");
    CHECK_EQ_INT(t->n_alias_chunks, 1, "aliases");
    CHECK_EQ_INT(t->n_objects, 3, "aliases");
    CHECK_EQ_INT(t->n_alias_objects, 1, "aliases");
    CHECK_EQ_INT(t->n_elems, 12, "aliases");
    CHECK_EQ_INT(t->tensor_bytes, 24, "aliases");
    CHECK_EQ_INT(t->object_bytes, 21, "aliases");
    CHECK_EQ_INT(t->stored_bytes, 100 + 90 + 21, "aliases");
    CHECK(!summary->tensors[0].is_alias && summary->tensors[2].is_alias, "aliases");
    CHECK(!summary->objects[0].is_alias && summary->objects[1].is_alias, "aliases");
    dcpk_summary_free(summary);
}

static void test_settings(void **state)
{
    static const char *const keys[] = {NULL};
    static const char *const objects[] = {
        "optimizer.param_to_group_meta.m.layers.0.w.lr",
        "optimizer.param_to_group_meta.m.layers.0.w.eps",
        "optimizer.param_to_group_meta.m.layers.1.w.lr",
        "opt_param_scheduler.max_lr",
        "opt_param_scheduler.min_lr",
        "iteration",
    };
    static const struct { /* in order of the pattern */
        const char *pattern;
        uint64_t n_keys;
    } rows[] = {
        {"iteration", 1},
        {"opt_param_scheduler.*", 2},
        {"optimizer.param_to_group_meta.m.layers.{0,1}.w.*", 3},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_summary *summary;
    struct made m;

    (void)state;
    make(&m, keys);
    for (uint32_t i = 0; i < 6; i++)
        m.objects[i] = (struct dcpk_object){objects[i], {0, 10 * i, 10}};
    m.ckpt.n_objects = 6;
    CHECK_OK(dcpk_summary_new(&m.ckpt, NULL, &summary, &err), "settings");
    CHECK_EQ_INT(summary->n_objects, 3, "settings");
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ_STR(summary->objects[i].pattern, rows[i].pattern, "settings");
        CHECK_EQ_INT(summary->objects[i].n_keys, rows[i].n_keys, rows[i].pattern);
    }
    dcpk_summary_free(summary);
}

/* dcpk_check_overlaps: items are [at, at + n) of file 0 or 1. */
static const struct {
    const char *label;
    struct dcpk_place a, b, c;
    const char *text; /* NULL: they share nothing */
} overlaps[] = {
    {"apart", {0, 0, 10}, {0, 10, 5}, {0, 20, 5}, NULL},
    {"in two files", {0, 0, 10}, {1, 5, 10}, {0, 10, 5}, NULL},
    {"an exact alias", {0, 0, 10}, {0, 0, 10}, {0, 10, 5}, NULL},
    {"an empty item", {0, 0, 10}, {0, 5, 0}, {0, 10, 5}, NULL},
    {"one byte", {0, 0, 10}, {0, 9, 5}, {0, 20, 5}, "'a' at byte 0 (10 bytes) and 'b' at byte 9"},
    {"inside", {0, 0, 10}, {0, 4, 2}, {0, 20, 5}, "'a'"},
    {"the same start", {0, 0, 10}, {0, 0, 9}, {0, 20, 5}, "'b'"},
    {"over a short neighbour", {0, 0, 20}, {0, 30, 5}, {0, 15, 5}, "'c'"},
};

static void test_places(void **state)
{
    static const char *const keys[] = {"a", "b", "c", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof overlaps / sizeof *overlaps; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store;
        struct dcpk_source *files[2];
        struct made m;

        CHECK_OK(dcpk_store_new_memory("made", &store, &err), overlaps[i].label);
        CHECK_OK(dcpk_store_add_memory(store, "0", "", 0, &err), overlaps[i].label);
        CHECK_OK(dcpk_store_find(store, "0", &files[0], &err), overlaps[i].label);
        files[1] = files[0];
        make(&m, keys);
        m.ckpt.files = files;
        m.chunks[0].place = overlaps[i].a;
        m.chunks[1].place = overlaps[i].b;
        m.chunks[2].place = overlaps[i].c;
        if (overlaps[i].text == NULL)
            CHECK_OK(dcpk_check_overlaps(&m.ckpt, &err), overlaps[i].label);
        else
            CHECK_FAILS(dcpk_check_overlaps(&m.ckpt, &err), DCPK_EFORMAT, overlaps[i].text,
                        overlaps[i].label);
        dcpk_store_close(store);
    }
}

static bool knows_good(const char *module, const char *name)
{
    return strcmp(module, "good") == 0 && name[0] != '\0';
}

static void test_unknown(void **state)
{
    static const struct dcpk_value one = {.kind = DCPK_V_INT, .as.i = 1};
    static const struct dcpk_value good = {.kind = DCPK_V_GLOBAL, .as.global = {"good", "f"}};
    static const struct dcpk_value bad = {.kind = DCPK_V_GLOBAL, .as.global = {"bad", "g"}};
    static const struct dcpk_value_object known = {
        .module = "good", .name = "C", .is_known = true, .state = &bad};
    static const struct dcpk_value_object unknown = {.module = "evil", .name = "run"};
    static const struct dcpk_value holder = {.kind = DCPK_V_OBJECT, .as.object = &known};
    static const struct dcpk_value evil = {.kind = DCPK_V_OBJECT, .as.object = &unknown};
    static const struct dcpk_value *const fine_items[] = {&one, &good}, *const last_item[] = {
                                                                            &one, &evil};
    static const struct dcpk_value fine = {.kind = DCPK_V_LIST, .n = 2, .as.items = fine_items};
    static const struct dcpk_value hidden = {.kind = DCPK_V_TUPLE, .n = 2, .as.items = last_item};
    static const struct dcpk_value_pair pair[] = {{&hidden, &one}};
    static const struct dcpk_value dict = {.kind = DCPK_V_DICT, .n = 1, .as.pairs = pair};
    static const struct {
        const char *label;
        const struct dcpk_value *value;
        const char *module, *name; /* NULL: nothing is found */
    } values[] = {
        {"no class", &one, NULL, NULL},      {"known ones", &fine, NULL, NULL},
        {"a global", &bad, "bad", "g"},      {"in the state of an object", &holder, "bad", "g"},
        {"an object", &evil, "evil", "run"}, {"in a dict's key", &dict, "evil", "run"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const char *module, *name;
        bool found;

        CHECK_OK(dcpk_value_find_unknown(values[i].value, knows_good, &found, &module, &name, &err),
                 values[i].label);
        CHECK_EQ_INT(found, values[i].module != NULL, values[i].label);
        if (found) {
            CHECK_EQ_STR(module, values[i].module, values[i].label);
            CHECK_EQ_STR(name, values[i].name, values[i].label);
        }
    }
}

static void test_empty(void **state)
{
    static const char *const keys[] = {NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_summary *summary;
    struct made m;

    (void)state;
    make(&m, keys);
    CHECK_OK(dcpk_summary_new(&m.ckpt, NULL, &summary, &err), "empty");
    CHECK_EQ_INT(summary->n_tensors + summary->n_objects, 0, "empty");
    dcpk_summary_free(summary);
    dcpk_summary_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold),    cmocka_unit_test(test_shapes_apart),
        cmocka_unit_test(test_aliases), cmocka_unit_test(test_settings),
        cmocka_unit_test(test_places),  cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
