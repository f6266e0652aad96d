/* SPDX-License-Identifier: Apache-2.0 */
/* test_hash_list.c - documents of hashes: read, compared. (Made and printed: tests/cli/hash_*.sh,
 * against PyTorch's manifests.) */
#include "lib/job/hash_list.h"

#include <stdio.h>

#include "tests/check.h"

#define FOUND_BYTES 64
#define H0          "00000000000000000000000000000000"
#define H1          "00000000000000000000000000000001"
#define T(key, dtype, shape, hash)                                                                 \
    "\"" key "\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"xxh3_128\": \"" hash "\"}"

static void parse(const char *text, struct dcpk_hash_list *list)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_hash_list_parse(text, strlen(text), list, &err), text);
}

static void collect(void *context, const struct dcpk_hashed *a, const struct dcpk_hashed *b)
{
    char *text = context;
    const size_t n = strlen(text);

    snprintf(text + n, FOUND_BYTES - n, "%s%s", a == NULL ? b->key : a->key,
             a == NULL   ? ">"
             : b == NULL ? "<"
                         : "!");
}

/* Order in the documents does not matter; differences come in key order. */
static void test_compare(void **state)
{
    struct dcpk_hash_list a = {0}, b = {0};
    char found[FOUND_BYTES] = "";

    (void)state;
    parse("{\"tensors\": {" T("same", "float32", "[2, 3]", H0) ", " T(
              "hash", "int8", "[]", H0) ", " T("shape", "int8", "[6]",
                                               H0) ", " T("dtype", "int8", "[1]",
                                                          H0) ", " T("a", "int8", "[1]", H0) "}}",
          &a);
    parse("{\"version\": 1, \"tensors\": {" T("hash", "int8", "[]", H1) ", " T(
              "shape", "int8", "[2, 3]",
              H0) ", " T("z", "int8", "[1]", H0) ", " T("dtype", "uint8", "[1]",
                                                        H0) ", " T("same", "float32", "[2, 3]",
                                                                   H0) "}}",
          &b);
    CHECK_EQ_INT(dcpk_hash_list_compare(&a, &b, collect, found), 5, "differences");
    CHECK_EQ_STR(found, "a<dtype!hash!shape!z>", "which");
    found[0] = '\0';
    CHECK_EQ_INT(dcpk_hash_list_compare(&a, &a, collect, found), 0, "with itself");
    dcpk_hash_list_release(&a);
    dcpk_hash_list_release(&b);
}

#define W1 H1 H1

/*
 * What a list lacks is not a difference: objects in one of another program, dtypes in text.
 */
static void test_silent(void **state)
{
    static const char theirs[] = "{\"tensors\": {" T("t", "int8", "[1]", H0) "}}";
    static const char found[] =
        "{\"tensors\": {" T("t", "int8", "[1]", H0) "}, \"objects\": {"
                                                    "\"o\": {\"xxh3_128\": \"" H1
                                                    "\"}, \"t\": {\"xxh3_128\": "
                                                    "null}}, \"common\": {\"xxh3_128\": \"" H0
                                                    "\"}, "
                                                    "\"whole\": {\"sha256\": \"" W1 "\"}}";
    static const struct {
        const char *label, *recorded, *differences;
    } cases[] = {
        {"tensors alone", theirs, ""},
        {"all, as text",
         H0 " +common state\n" H1 " *o\n" H0 "  t\n-------------------------------- *t\n" W1
            "  the whole\n",
         ""},
        {"the same as JSON", found, ""},
        {"another object", H0 " +common state\n" H0 " *o\n" H0 "  t\n" H0 " *t\n" W1 "  w\n",
         "o!t!"},
        {"no common state", H1 " *o\n" H0 "  t\n-------------------------------- *t\n" W1 "  w",
         ">"},
        {"a key with a newline", H0 "  t\\x0a\n" W1 "  w\n", ">o>t>t>t\n<"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_hash_list a = {0}, b = {0};
        char text[FOUND_BYTES] = "";

        parse(cases[i].recorded, &a);
        parse(found, &b);
        (void)dcpk_hash_list_compare(&a, &b, collect, text);
        CHECK_EQ_STR(text, cases[i].differences, cases[i].label);
        dcpk_hash_list_release(&a);
        dcpk_hash_list_release(&b);
    }
}

#define F0 "0000000000000000"
#define F1 "fedcba9876543210"
#define P(key, numbers)                                                                            \
    "\"" key "\": {\"dtype\": \"int8\", \"shape\": [1], \"fingerprint\": \"" numbers "\"}"

/* Lists of fingerprints, as JSON and as text. */
static void test_fingerprints(void **state)
{
    static const char found[] = "{\"tensors\": {" P("a", F1) ", " P("b", F0) "}}";
    static const struct {
        const char *label, *recorded, *differences;
    } cases[] = {
        {"the same as JSON", found, ""},
        {"the same as text", F1 "  a\n" F0 "  b\n", ""},
        {"another one, and one more", F0 "  a\n" F0 "  b\n" F0 "  c\n", "a!c<"},
        {"another one as JSON", "{\"tensors\": {" P("a", F1) ", " P("b", F1) "}}", "b!"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_hash_list a = {0}, b = {0};
        char text[FOUND_BYTES] = "", digits[DCPK_HASH_TEXT_BYTES];

        parse(cases[i].recorded, &a);
        parse(found, &b);
        CHECK(a.has_fingerprints && b.has_fingerprints, cases[i].label);
        (void)dcpk_hash_list_compare(&a, &b, collect, text);
        CHECK_EQ_STR(text, cases[i].differences, cases[i].label);
        CHECK_EQ_STR(dcpk_hashed_text(&b.items[0], digits), F1, cases[i].label);
        dcpk_hash_list_release(&a);
        dcpk_hash_list_release(&b);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        dcpk_status status;
        const char *message;
    } cases[] = {
        {"", DCPK_EFORMAT, ""},
        {"{}", DCPK_EFORMAT, "no object 'tensors'"},
        {H0 "t\n", DCPK_EFORMAT, "neither JSON nor lines"},
        {H0 "  t\n" H1 "  t\n" W1 "  w\n", DCPK_EFORMAT, "'t' is there twice"},
        {H0 "  t\n", DCPK_EFORMAT, "cut short"},
        {"{\"tensors\": {}, \"objects\": {\"o\": {}}}", DCPK_EFORMAT, "'o' has no xxh3_128"},
        {"{\"tensors\": {}, \"whole\": {\"sha256\": \"00\"}}", DCPK_EFORMAT, "sha256 of 64"},
        {F0 "  t\n" H1 "  u\n", DCPK_EFORMAT, "neither JSON nor lines"},
        {F0 "  t\n" F1 " *o\n", DCPK_EFORMAT, "an object has no hash"},
        {"{\"tensors\": {" P("a", F1) ", " T("b", "int8", "[1]", H0) "}}", DCPK_EFORMAT,
         "no fingerprint of 16"},
        {"{\"tensors\": [1]}", DCPK_EFORMAT, "no object 'tensors'"},
        {"{\"tensors\": {\"k\": 1}}", DCPK_EFORMAT, "'k' has no dtype"},
        {"{\"tensors\": {" T("k", "int8", "[1]", "00") "}}", DCPK_EFORMAT, "xxh3_128 of 32"},
        {"{\"tensors\": {" T("k", "int9", "[1]", H0) "}}", DCPK_EUNSUPPORTED, "'int9'"},
        {"{\"tensors\": {" T("k", "int8", "1", H0) "}}", DCPK_EFORMAT, "'k' has no shape"},
        {"{\"tensors\": {" T("k", "int8", "[-1]", H0) "}}", DCPK_EFORMAT, "'k' has no shape"},
        {"{\"tensors\": {" T("k", "int8", "[1.5]", H0) "}}", DCPK_EFORMAT, "'k' has no shape"},
        {"{\"tensors\": {" T("k", "int8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", H0) "}}",
         DCPK_EFORMAT, "'k' has no shape"},
        {"{\"tensors\": {" T("k", "int8", "[4611686018427387904, 2]", H0) "}}", DCPK_EFORMAT,
         "'k' has no shape"}, /* no integer that JSON readers agree on */
        {"{\"tensors\": {" T("k", "int8", "[1099511627776, 1099511627776]", H0) "}}", DCPK_ERANGE,
         "'k'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_hash_list list = {0};

        CHECK_FAILS(dcpk_hash_list_parse(cases[i].text, strlen(cases[i].text), &list, &err),
                    cases[i].status, cases[i].message, cases[i].text);
        dcpk_hash_list_release(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare), cmocka_unit_test(test_silent),
        cmocka_unit_test(test_fingerprints), cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
