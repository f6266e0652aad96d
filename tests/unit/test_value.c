/* SPDX-License-Identifier: Apache-2.0 */
/* test_value.c - looking up, comparing and printing inert values. */
#include <math.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/ckpt/value.h"
#include "tests/check.h"

static struct dcpk_error err;
static struct dcpk_arena *arena;

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

static const struct dcpk_value *str(const char *text)
{
    return dcpk_value_str(arena, text, &err);
}

static const struct dcpk_value *num(int64_t i)
{
    return dcpk_value_int(arena, i, &err);
}

static const struct dcpk_value *flo(double f)
{
    return dcpk_value_float(arena, f, &err);
}

static const struct dcpk_value *seq(enum dcpk_value_kind kind, const struct dcpk_value *a,
                                    const struct dcpk_value *b)
{
    const struct dcpk_value *const items[] = {a, b};

    return dcpk_value_seq(arena, kind, items, b != NULL ? 2 : a != NULL, &err);
}

static const struct dcpk_value *pair(const struct dcpk_value *k, const struct dcpk_value *v,
                                     const struct dcpk_value *k2, const struct dcpk_value *v2)
{
    const struct dcpk_value_pair pairs[] = {{k, v}, {k2, v2}};

    return dcpk_value_dict(arena, pairs, k2 != NULL ? 2 : 1, &err);
}

static const struct dcpk_value *raw(enum dcpk_value_kind kind, const char *data, size_t n)
{
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, &err);

    *v = (struct dcpk_value){.kind = kind, .n = n, .as.str = data};
    return v;
}

static const struct dcpk_value *object(struct dcpk_value_object o)
{
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, &err);
    struct dcpk_value_object *copy = dcpk_arena_alloc(arena, sizeof *copy, &err);

    *copy = o;
    if (copy->args == NULL)
        copy->args = seq(DCPK_V_TUPLE, NULL, NULL);
    *v = (struct dcpk_value){.kind = DCPK_V_OBJECT, .as.object = copy};
    return v;
}

static const struct dcpk_value *global(const char *module, const char *name)
{
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, &err);

    *v = (struct dcpk_value){.kind = DCPK_V_GLOBAL, .as.global = {module, name}};
    return v;
}

static const struct dcpk_value *tensor(enum dcpk_dtype dtype, float f)
{
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, &err);
    struct dcpk_value_tensor *t = dcpk_arena_alloc(arena, sizeof *t, &err);
    float *data = dcpk_arena_alloc(arena, sizeof *data, &err);
    int64_t *shape = dcpk_arena_alloc(arena, sizeof *shape, &err);

    *data = f;
    *shape = 1;
    *t = (struct dcpk_value_tensor){
        .dtype = dtype, .rank = 1, .shape = shape, .n_bytes = sizeof *data, .data = data};
    *v = (struct dcpk_value){.kind = DCPK_V_TENSOR, .as.tensor = t};
    return v;
}

static void looks_up(void **state)
{
    const struct dcpk_value *d = pair(str("a"), num(1), num(7), str("seven"));
    const struct dcpk_value *list = seq(DCPK_V_LIST, num(3), NULL);
    const struct dcpk_value *space;

    (void)state;
    CHECK_EQ_INT(dcpk_value_get(d, "a")->as.i, 1, "text key");
    CHECK(dcpk_value_get(d, "b") == NULL, "no such key");
    CHECK(dcpk_value_get(d, "7") == NULL, "a number is no text");
    CHECK_EQ_STR(dcpk_value_as_str(dcpk_value_get_int(d, 7)), "seven", "integer key");
    CHECK(dcpk_value_get_int(d, 8) == NULL, "no such number");
    CHECK(dcpk_value_get(NULL, "a") == NULL && dcpk_value_get(list, "a") == NULL, "chains");
    CHECK(dcpk_value_get_int(list, 0) == NULL, "a list is no dict");
    CHECK_EQ_INT(dcpk_value_at(list, 0)->as.i, 3, "item");
    CHECK(dcpk_value_at(list, 1) == NULL && dcpk_value_at(d, 0) == NULL, "past the end, a dict");
    space = dcpk_value_namespace(arena, d->as.pairs, d->n, &err);
    CHECK(dcpk_value_is_object(space, "argparse", "Namespace"), "namespace");
    CHECK(!dcpk_value_is_object(space, "argparse", "Action"), "another name");
    CHECK_EQ_INT(dcpk_value_get(dcpk_value_attrs(space), "a")->as.i, 1, "attribute");
    CHECK(dcpk_value_attrs(d) == NULL && dcpk_value_attrs(NULL) == NULL, "no object");
    CHECK(dcpk_value_attrs(object((struct dcpk_value_object){.state = list})) == NULL,
          "state is a list");
}

static void reads_by_type(void **state)
{
    int64_t i = -5;
    double f = -5;
    bool b = true;

    (void)state;
    CHECK(dcpk_value_as_int(num(4), &i) && i == 4, "int");
    CHECK(dcpk_value_as_int(dcpk_value_bool(true), &i) && i == 1, "bool as int");
    CHECK(!dcpk_value_as_int(flo(2), &i) && i == 1, "float is no int");
    CHECK(!dcpk_value_as_int(NULL, &i), "absent");
    CHECK(dcpk_value_as_float(flo(2.5), &f) && f == 2.5, "float");
    CHECK(dcpk_value_as_float(num(3), &f) && f == 3, "int as float");
    CHECK(!dcpk_value_as_float(str("1"), &f) && f == 3, "str is no float");
    CHECK(dcpk_value_as_bool(dcpk_value_bool(false), &b) && !b, "bool");
    CHECK(!dcpk_value_as_bool(num(1), &b) && !b, "int is no bool");
    CHECK(dcpk_value_as_str(num(1)) == NULL && dcpk_value_as_str(NULL) == NULL, "no str");
}

static void compares(void **state)
{
    const struct dcpk_value *one = num(1), *two = num(2), *a = str("a"), *b = str("b");
    const struct dcpk_value_object plain = {.module = "m", .name = "c"};
    const struct dcpk_value_object other = {.module = "m", .name = "d"};
    const struct dcpk_value_object reduced = {.module = "m", .name = "c", .is_reduce = true};
    const struct dcpk_value_object with_state = {.module = "m", .name = "c", .state = one};
    const struct {
        const char *label;
        const struct dcpk_value *a, *b;
        bool is_equal;
    } cases[] = {
        {"None", dcpk_value_none(), dcpk_value_none(), true},
        {"kinds", one, flo(1), false},
        {"bools", dcpk_value_bool(true), dcpk_value_bool(false), false},
        {"ints", one, num(1), true},
        {"other ints", one, two, false},
        {"zeros differ", flo(0.0), flo(-0.0), false},
        {"NaN is NaN", flo(NAN), flo(-NAN), true},
        {"texts", a, str("a"), true},
        {"a text and its start", a, str("ab"), false},
        {"bytes are no text", raw(DCPK_V_BYTES, "a", 1), a, false},
        {"NULs count", raw(DCPK_V_BYTES, "\0a", 2), raw(DCPK_V_BYTES, "\0b", 2), false},
        {"lists", seq(DCPK_V_LIST, one, two), seq(DCPK_V_LIST, num(1), num(2)), true},
        {"order of lists", seq(DCPK_V_LIST, one, two), seq(DCPK_V_LIST, two, one), false},
        {"length of lists", seq(DCPK_V_LIST, one, two), seq(DCPK_V_LIST, one, NULL), false},
        {"tuple and list", seq(DCPK_V_TUPLE, one, two), seq(DCPK_V_LIST, one, two), false},
        {"order of sets", seq(DCPK_V_SET, one, two), seq(DCPK_V_SET, two, one), true},
        {"sets", seq(DCPK_V_SET, one, two), seq(DCPK_V_SET, one, a), false},
        {"order of dicts", pair(a, one, b, two), pair(b, two, a, one), true},
        {"values of dicts", pair(a, one, b, two), pair(b, one, a, two), false},
        {"keys of dicts", pair(a, one, b, two), pair(a, one, two, two), false},
        {"a key twice is not two keys", pair(a, one, a, one), pair(a, one, b, one), false},
        {"dtypes", tensor(DCPK_F32, 1), tensor(DCPK_I32, 1), false},
        {"tensors", tensor(DCPK_F32, 1), tensor(DCPK_F32, 1), true},
        {"elements", tensor(DCPK_F32, 0.0F), tensor(DCPK_F32, -0.0F), false},
        {"names", global("torch", "int8"), global("torch", "int8"), true},
        {"other names", global("torch", "int8"), global("torch", "int16"), false},
        {"objects", object(plain), object(plain), true},
        {"classes", object(plain), object(other), false},
        {"how it was made", object(plain), object(reduced), false},
        {"state", object(plain), object(with_state), false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQ_INT(dcpk_value_equal(cases[i].a, cases[i].b), cases[i].is_equal, cases[i].label);
        CHECK_EQ_INT(dcpk_value_equal(cases[i].b, cases[i].a), cases[i].is_equal, cases[i].label);
    }
}

static const struct dcpk_value *big_dict(size_t n, size_t first, int64_t odd_one)
{
    struct dcpk_value_pair *pairs = dcpk_arena_array(arena, n, sizeof *pairs, &err);

    for (size_t i = 0; i < n; i++) {
        const size_t k = (first + i * 7) % n;
        pairs[i].key = str(dcpk_arena_printf(arena, &err, "key %zu", k));
        pairs[i].value = num(k == n / 2 ? odd_one : (int64_t)k);
    }
    return dcpk_value_dict(arena, pairs, n, &err);
}

/* In another order a search for each key would be 10^10 steps, past the budget. */
static void compares_options(void **state)
{
    const struct dcpk_value *no = dcpk_value_bool(false), *yes = dcpk_value_bool(true),
                            *none = dcpk_value_none();
    const struct {
        const char *label;
        const struct dcpk_value *a, *b;
        bool same;
    } options[] = {
        {"int and float", num(2), flo(2), true},
        {"other numbers", num(2), flo(2.5), false},
        {"absent and None", NULL, none, true},
        {"None and False", none, no, true},
        {"None and 0", none, num(0), false},
        {"True and absent", yes, NULL, false},
        {"list and tuple", seq(DCPK_V_LIST, num(1), flo(2)), seq(DCPK_V_TUPLE, flo(1), num(2)),
         true},
        {"a longer list", seq(DCPK_V_LIST, num(1), num(2)), seq(DCPK_V_LIST, num(1), NULL), false},
        {"texts", str("rope"), str("rope"), true},
        {"other texts", str("rope"), str("yarn"), false},
        {"a text and a number", str("2"), num(2), false},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(options); i++) {
        CHECK_EQ_INT(dcpk_value_same(options[i].a, options[i].b), options[i].same,
                     options[i].label);
        CHECK_EQ_INT(dcpk_value_same(options[i].b, options[i].a), options[i].same,
                     options[i].label);
    }
}

static void compares_large_dicts_in_any_order(void **state)
{
    (void)state;
    CHECK(dcpk_value_equal(big_dict(100000, 0, 5), big_dict(100000, 999, 5)), "equal");
    CHECK(!dcpk_value_equal(big_dict(100000, 0, 5), big_dict(100000, 999, 6)), "one value differs");
}

/* numbers from `first` on, by step, modulo n: all of them in some order */
static const struct dcpk_value *numbers(enum dcpk_value_kind kind, size_t n, size_t first,
                                        size_t step)
{
    const struct dcpk_value **items = dcpk_arena_array(arena, n, sizeof *items, &err);

    for (size_t i = 0; i < n; i++)
        items[i] = num((int64_t)((first + i * step) % n));
    return dcpk_value_seq(arena, kind, items, n, &err);
}

/* A search for each member would be 10^10 steps, in nested sets once more on each level. */
static void compares_large_sets_in_any_order(void **state)
{
    const struct dcpk_value *a = numbers(DCPK_V_SET, 100003, 0, 1);
    const struct dcpk_value *b = numbers(DCPK_V_SET, 100003, 7, 5);
    const struct dcpk_value *x = numbers(DCPK_V_SET, 100003, 7, 5);

    (void)state;
    CHECK(dcpk_value_equal(a, b), "numbers in another order");
    CHECK(!dcpk_value_equal(a, numbers(DCPK_V_SET, 100003, 0, 0)), "one number many times");
    CHECK(dcpk_value_equal(seq(DCPK_V_SET, num(1), num(1)), seq(DCPK_V_SET, num(1), num(1))),
          "a member twice");
    CHECK(!dcpk_value_equal(seq(DCPK_V_SET, num(1), num(1)), seq(DCPK_V_SET, num(1), num(2))),
          "another one twice");
    CHECK(dcpk_value_equal(seq(DCPK_V_SET, flo(NAN), num(2)), seq(DCPK_V_SET, num(2), flo(-NAN))),
          "any NaN");
    for (int64_t level = 0; level < 100; level++) {
        a = seq(DCPK_V_SET, a, num(-level));
        b = seq(DCPK_V_SET, num(-level), b);
        x = seq(DCPK_V_SET, num(-level), level < 50 ? x : seq(DCPK_V_TUPLE, x, x));
    }
    CHECK(dcpk_value_equal(a, b), "nested sets in another order");
    CHECK(!dcpk_value_equal(a, x), "nested sets that differ far below");
}

static const struct dcpk_value *bomb(const struct dcpk_value *v, int depth)
{
    for (int i = 0; i < depth; i++)
        v = seq(DCPK_V_LIST, v, v);
    return v;
}

static void compares_shared_nodes_once(void **state)
{
    (void)state;
    CHECK(!dcpk_value_equal(bomb(num(1), 150), bomb(num(2), 150)), "a leaf differs");
    CHECK(!dcpk_value_equal(bomb(num(1), 2000), bomb(num(1), 2000)), "too deep to say");
    CHECK(dcpk_value_equal(bomb(num(1), 150), bomb(num(1), 150)), "equal");
    CHECK(dcpk_value_equal(seq(DCPK_V_SET, bomb(num(1), 150), num(2)),
                           seq(DCPK_V_SET, num(2), bomb(num(1), 150))),
          "equal as members");
}

static void measures_what_unfolds(void **state)
{
    static const struct dcpk_value_tensor tensor = {.dtype = DCPK_U8, .n_bytes = 80, .data = ""};
    const struct dcpk_value inside = {.kind = DCPK_V_TENSOR, .as.tensor = &tensor};

    (void)state;
    CHECK_EQ_INT(dcpk_value_unfolded(NULL), 0, "nothing");
    CHECK_EQ_INT(dcpk_value_unfolded(num(1)), 1, "a number");
    CHECK_EQ_INT(dcpk_value_unfolded(str("1234567")), 1, "short text");
    CHECK_EQ_INT(dcpk_value_unfolded(str("0123456789abcdef")), 3, "text");
    CHECK_EQ_INT(dcpk_value_unfolded(&inside), 11, "a tensor");
    CHECK_EQ_INT(dcpk_value_unfolded(bomb(num(1), 10)), 2047, "2^10 leaves and what holds them");
    CHECK_EQ_INT(dcpk_unfold_limit(UINT64_MAX), UINT32_MAX, "limit");
}

static void prints_json(void **state)
{
    const struct dcpk_value *attrs = pair(str("lr"), flo(0.1), str("x"), dcpk_value_none());
    const struct dcpk_value_pair rows[] = {{num(2), num(3)}};
    const struct dcpk_value *items[] = {num(4)};
    const struct {
        const char *label;
        const struct dcpk_value *v;
        const char *json;
    } cases[] = {
        {"None", dcpk_value_none(), "null"},
        {"text", str("\"\xc3\xa9"), "\"\\\"\\u00e9\""},
        {"float", flo(1e-05), "1e-05"},
        {"tuple", seq(DCPK_V_TUPLE, num(1), dcpk_value_bool(true)), "[1, true]"},
        {"set", seq(DCPK_V_SET, num(1), NULL), "[1]"},
        {"uint64", raw(DCPK_V_BIGINT, "\0\0\0\0\0\0\0\x80", 9), "9223372036854775808"},
        {"large integer", raw(DCPK_V_BIGINT, "\0\0\0\0\0\0\0\0\x01", 9),
         "{\"__class__\": \"int\", \"little_endian_hex\": \"000000000000000001\"}"},
        {"bytes", raw(DCPK_V_BYTES, "\x01\xff", 2),
         "{\"__class__\": \"bytes\", \"hex\": \"01ff\"}"},
        {"dtype", global("torch", "float32"), "\"torch.float32\""},
        {"tensor", tensor(DCPK_F32, 1),
         "{\"__class__\": \"torch.Tensor\", \"dtype\": \"float32\", \"shape\": [1], \"n_bytes\": "
         "4, "
         "\"hex\": \"0000803f\"}"},
        {"keys", pair(num(3), num(1), dcpk_value_bool(true), num(2)), "{\"3\": 1, \"true\": 2}"},
        {"float and None keys", pair(flo(1), num(1), dcpk_value_none(), num(2)),
         "{\"1.0\": 1, \"null\": 2}"},
        {"tuple key", pair(seq(DCPK_V_TUPLE, num(1), str("a")), num(1), NULL, NULL),
         "{\"[1, \\\"a\\\"]\": 1}"},
        {"a key that has such a key inside",
         pair(seq(DCPK_V_TUPLE, pair(seq(DCPK_V_TUPLE, num(1), NULL), num(2), NULL, NULL), NULL),
              num(3), NULL, NULL),
         "{\"[{\\\"...\\\": 2}]\": 3}"},
        {"keys with lone surrogates",
         pair(str("\xed\xa0\x80"), num(1), str("\xed\xa0\x81"), num(2)),
         "{\"\\ud800\": 1, \"\\ud801\": 2}"},
        {"keys with NULs",
         pair(raw(DCPK_V_STR, "a\0b", 3), num(1), raw(DCPK_V_STR, "a\0c", 3), num(2)),
         "{\"a\\u0000b\": 1, \"a\\u0000c\": 2}"},
        {"namespace", dcpk_value_namespace(arena, attrs->as.pairs, 2, &err),
         "{\"__class__\": \"argparse.Namespace\", \"lr\": 0.1, \"x\": null}"},
        {"enum",
         object((struct dcpk_value_object){.module = "signal",
                                           .name = "Signals",
                                           .is_reduce = true,
                                           .args = seq(DCPK_V_TUPLE, num(15), NULL)}),
         "{\"__class__\": \"signal.Signals\", \"args\": [15]}"},
        {"all parts",
         object((struct dcpk_value_object){.module = "m",
                                           .name = "c",
                                           .items = items,
                                           .n_items = 1,
                                           .pairs = rows,
                                           .n_pairs = 1,
                                           .state = num(5)}),
         "{\"__class__\": \"m.c\", \"items\": [4], \"pairs\": {\"2\": 3}, \"state\": 5}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_bytes text = {0};
        struct dcpk_json_out json;
        dcpk_json_out_init(&json, &text, 0);
        dcpk_value_to_json(cases[i].v, &json);
        dcpk_bytes_u8(&text, 0);
        CHECK_EQ_STR((const char *)text.data, cases[i].json, cases[i].label);
        dcpk_bytes_release(&text);
    }
}

/* JSON that people write; what it becomes, as to_json shows it. NULL: refused. */
static const struct {
    const char *json, *shown;
} written[] = {
    {"{\"a\": [1, 2.5, true, null, \"x\"], \"b\": {}}",
     "{\"a\": [1, 2.5, true, null, \"x\"], \"b\": {}}"},
    {"\"torch.bfloat16\"", "\"torch.bfloat16\""},
    {"\"torch.nothing\"", "\"torch.nothing\""},
    {"[[[[[[[[1]]]]]]]]", "[[[[[[[[1]]]]]]]]"},
    {"[[[[[[[[[1]]]]]]]]]", NULL},
};

static void reads_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(written); i++) {
        struct dcpk_bytes bytes = {0};
        struct dcpk_json_out out;
        const struct dcpk_value *v;
        struct dcpk_json *doc;

        dcpk_error_clear(&err);
        CHECK_OK(dcpk_json_parse(written[i].json, strlen(written[i].json), &doc, &err),
                 written[i].json);
        v = dcpk_value_from_json(arena, doc, &err);
        dcpk_json_free(doc);
        CHECK((v == NULL) == (written[i].shown == NULL), written[i].json);
        if (v == NULL) {
            CHECK_EQ_INT(err.status, DCPK_EUNSUPPORTED, written[i].json);
            continue;
        }
        dcpk_json_out_init(&out, &bytes, 0);
        dcpk_value_to_json(v, &out);
        dcpk_bytes_u8(&bytes, 0);
        CHECK_EQ_STR((const char *)bytes.data, written[i].shown, written[i].json);
        dcpk_bytes_release(&bytes);
    }
    dcpk_error_clear(&err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_up),
        cmocka_unit_test(reads_by_type),
        cmocka_unit_test(compares),
        cmocka_unit_test(compares_options),
        cmocka_unit_test(compares_large_dicts_in_any_order),
        cmocka_unit_test(compares_large_sets_in_any_order),
        cmocka_unit_test(compares_shared_nodes_once),
        cmocka_unit_test(measures_what_unfolds),
        cmocka_unit_test(prints_json),
        cmocka_unit_test(reads_json),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
