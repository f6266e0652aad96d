/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - reading strictly; writing as Python 3.11's json.dumps and repr do, whose output the
 * tables hold. */
#include "tests/every_alloc.h"

#include <math.h>
#include <stdio.h>

#include "lib/base/json.h"

static void accepts_and_refuses(void **state)
{
    static const struct {
        const char *label;
        const char *text;
        const char *complaint; /* NULL: it is JSON */
    } cases[] = {
        {"object", " {\"a\": [1, 2.5e-3, {\"b\": null}], \"c\": true}\r\n\t", NULL},
        {"scalar", "false", NULL},
        {"escapes", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"", NULL},
        {"UTF-8", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"", NULL},
        {"minus zero", "-0", NULL},
        {"nothing", "", "no text at byte 0"},
        {"blanks", "  ", "JSON"},
        {"more behind", "{} {}", "more text after the value at byte 3"},
        {"comma behind", "1,", "more text after the value at byte 1"},
        {"open array", "[1, 2", "a bracket has no end at byte 5"},
        {"open object and comma", "{\"1\":1,", "a bracket has no end at byte 7"},
        {"wrong bracket", "[1}", "a bracket that closes none at byte 2"},
        {"closed twice", "[]]", "a bracket that closes none at byte 2"},
        {"open string", "\"abc", "a string has no end at byte 4"},
        {"escape at the end", "\"\\", "a string has no end at byte 1"},
        {"trailing comma", "[1,]", "syntax error"},
        {"no colon", "{\"a\" 1}", "syntax error"},
        {"key without quotes", "{a:1}", "syntax error"},
        {"number as key", "{1:1}", "syntax error"},
        {"leading zero", "01", "a number begins with 0 at byte 1"},
        {"minus alone", "-", "a digit is missing at byte 1"},
        {"point first", ".5", "an unexpected byte at byte 0"},
        {"point after minus", "-.5", "a digit is missing at byte 1"},
        {"point last", "[1.]", "a digit is missing at byte 3"},
        {"exponent without digits", "1e+", "a digit is missing at byte 3"},
        {"plus", "+1", "an unexpected byte at byte 0"},
        {"two numbers", "[1-2]", "syntax error"},
        {"NaN", "NaN", "an unexpected byte at byte 0"},
        {"capital", "[True]", "an unexpected byte at byte 1"},
        {"half a word", "[tru]", "syntax error"},
        {"single quotes", "['a']", "an unexpected byte at byte 1"},
        {"line break in a string", "\"a\nb\"", "a control byte in a string at byte 2"},
        {"control byte outside", "[\x01]", "an unexpected byte at byte 1"},
        {"escaped NUL", "\"a\\u0000b\"", "a NUL in a string at byte 2"},
        {"unknown escape", "\"\\x41\"", "syntax error"},
        {"short escape", "\"\\u12\"", "syntax error"},
        {"lone surrogate", "\"\\ud83d\"", "syntax error"},
        {"not UTF-8", "\"\xff\"", "a byte that is not UTF-8 at byte 1"},
        {"overlong UTF-8", "\"\xc0\xaf\"", "a byte that is not UTF-8 at byte 1"},
        {"UTF-8 surrogate", "\"\xed\xa0\x80\"", "a byte that is not UTF-8 at byte 1"},
        {"duplicate key", "[{\"a\": 1, \"b\": {\"a\": 2, \"a\": 3}}]", "key 'a' twice"},
        {"duplicate by escape", "{\"a\": 1, \"\\u0061\": 2}", "key 'a' twice"},
        {"duplicate in a later one", "[[[]], [{}, {\"\": 1, \"\": 1}]]", "key '' twice"},
        {"same key apart", "[{\"a\": {\"a\": 1}}, {\"a\": 1}]", NULL},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_json *doc = NULL;
        const size_t n = strlen(cases[i].text);
        if (cases[i].complaint == NULL)
            CHECK_OK(dcpk_json_parse(cases[i].text, n, &doc, &err), cases[i].label);
        else
            CHECK_FAILS(dcpk_json_parse(cases[i].text, n, &doc, &err), DCPK_EFORMAT,
                        cases[i].complaint, cases[i].label);
        CHECK_EQ_INT(doc != NULL, cases[i].complaint == NULL, cases[i].label);
        dcpk_json_free(doc);
    }
}

/* Numbers count in the order of the text, past strings and members that hold some. */
static void floats(void **state)
{
    static const char text[] = "{\"a\": 1, \"2.5\": \"3.5\", \"b\": [1.0, {\"c\": 2, \"d\": 2e0}, "
                               "-7], \"e\": 1E+3, \"f\": -0}";
    const struct dcpk_json *b, *c;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_json *doc = NULL;

    (void)state;
    CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), "floats");
    CHECK(!dcpk_json_is_float(dcpk_json_member(doc, "a")), "1");
    CHECK(!dcpk_json_is_float(dcpk_json_member(doc, "2.5")), "a string");
    b = dcpk_json_first(dcpk_json_member(doc, "b"));
    CHECK(dcpk_json_is_float(b), "1.0");
    c = dcpk_json_next(b);
    CHECK(!dcpk_json_is_float(dcpk_json_member(c, "c")), "2");
    CHECK(dcpk_json_is_float(dcpk_json_member(c, "d")), "2e0");
    CHECK(!dcpk_json_is_float(dcpk_json_next(c)), "-7");
    CHECK(dcpk_json_is_float(dcpk_json_member(doc, "e")), "1E+3");
    CHECK(!dcpk_json_is_float(dcpk_json_member(doc, "f")), "-0");
    CHECK(!dcpk_json_is_float(NULL), "none");
    dcpk_json_free(doc);
}

static void length_counts(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_json *doc = NULL;

    (void)state;
    CHECK_OK(dcpk_json_parse("[1]x", 3, &doc, &err), "the byte behind is not ours");
    dcpk_json_free(doc);
    doc = NULL;
    CHECK_FAILS(dcpk_json_parse("[1]\0", 4, &doc, &err), DCPK_EFORMAT, "at byte 3", "NUL behind");
    CHECK_FAILS(dcpk_json_parse("\"\0\"", 3, &doc, &err), DCPK_EFORMAT, "at byte 1", "NUL within");
    CHECK(doc == NULL, "untouched");
    dcpk_json_free(NULL);
}

static void depth(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char text[2 * 65];

    (void)state;
    for (size_t n = 63; n <= 65; n++) {
        struct dcpk_json *doc = NULL;
        memset(text, '[', n);
        memset(text + n, ']', n);
        if (n <= 64)
            CHECK_OK(dcpk_json_parse(text, 2 * n, &doc, &err), "64 deep");
        else
            CHECK_FAILS(dcpk_json_parse(text, 2 * n, &doc, &err), DCPK_EFORMAT,
                        "nested deeper than 64 at byte 64", "65 deep");
        dcpk_json_free(doc);
    }
}

static void walks(void **state)
{
    static const char text[] =
        "{\"n\": null, \"b\": [true, false], \"i\": -7, \"s\": \"x\\u00e9\", "
        "\"o\": {\"k\": 1}, \"e\": {}, \"B\": 2}";
    static const struct {
        const char *key;
        enum dcpk_json_kind kind;
    } want[] = {
        {"n", DCPK_JSON_NULL},   {"b", DCPK_JSON_ARRAY},  {"i", DCPK_JSON_NUMBER},
        {"s", DCPK_JSON_STRING}, {"o", DCPK_JSON_OBJECT}, {"e", DCPK_JSON_OBJECT},
        {"B", DCPK_JSON_NUMBER},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_json *doc = NULL;
    const struct dcpk_json *node;
    int64_t i = 0;
    bool b = false;

    (void)state;
    CHECK_OK(dcpk_json_parse(text, sizeof text - 1, &doc, &err), "parse");
    node = dcpk_json_first(doc);
    for (size_t k = 0; k < sizeof want / sizeof *want; k++, node = dcpk_json_next(node)) {
        CHECK_EQ_STR(dcpk_json_key(node), want[k].key, "in their order");
        CHECK_EQ_INT(dcpk_json_kind(node), want[k].kind, want[k].key);
        CHECK(dcpk_json_member(doc, want[k].key) == node, want[k].key);
    }
    CHECK(node == NULL, "past the end");
    CHECK(dcpk_json_member(doc, "N") == NULL, "the case of letters counts");
    CHECK(dcpk_json_first(dcpk_json_member(doc, "e")) == NULL, "no child");
    CHECK(dcpk_json_member(dcpk_json_member(doc, "b"), "x") == NULL, "no object");
    CHECK(dcpk_json_int(dcpk_json_member(doc, "i"), &i) && i == -7, "int");
    CHECK(!dcpk_json_int(dcpk_json_member(doc, "s"), &i), "a string is no int");
    CHECK_EQ_STR(dcpk_json_string(dcpk_json_member(doc, "s")), "x\xc3\xa9", "string");
    CHECK(dcpk_json_string(doc) == NULL, "an object is no string");
    node = dcpk_json_first(dcpk_json_member(doc, "b"));
    CHECK(dcpk_json_bool(node, &b) && b, "true");
    CHECK_EQ_INT(dcpk_json_kind(node), DCPK_JSON_BOOL, "true");
    CHECK_EQ_INT(dcpk_json_kind(dcpk_json_next(node)), DCPK_JSON_BOOL, "false");
    CHECK(dcpk_json_bool(dcpk_json_next(node), &b) && !b, "false");
    CHECK(!dcpk_json_bool(dcpk_json_member(doc, "i"), &b), "a number is no bool");
    dcpk_json_free(doc);
}

static void whole_numbers(void **state)
{
    static const struct {
        const char *text;
        bool whole;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"1e3", true, 1000},
        {"9007199254740991", true, INT64_C(9007199254740991)},
        {"-9007199254740991", true, -INT64_C(9007199254740991)},
        {"9007199254740992", false, 0}, /* as 2^53 + 1 would read */
        {"9007199254740993", false, 0},
        {"-9007199254740992", false, 0},
        {"1.5", false, 0},
        {"1e300", false, 0},
        {"1e999", false, 0},
        {"-1e999", false, 0},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_json *doc = NULL;
        int64_t value = 0;
        CHECK_OK(dcpk_json_parse(cases[i].text, strlen(cases[i].text), &doc, &err), cases[i].text);
        CHECK_EQ_INT(dcpk_json_int(doc, &value), cases[i].whole, cases[i].text);
        CHECK_EQ_INT(value, cases[i].value, cases[i].text);
        dcpk_json_free(doc);
    }
}

static const struct {
    double value;
    const char *repr; /* Python: repr(value) */
    const char *dump; /* json.dumps(value) where it differs */
} doubles[] = {
    {0.1, "0.1", NULL},
    {1e-05, "1e-05", NULL},
    {0.0001, "0.0001", NULL},
    {0.001, "0.001", NULL},
    {1e16, "1e+16", NULL},
    {1e15, "1000000000000000.0", NULL},
    {123456789012345680.0, "1.2345678901234568e+17", NULL},
    {5e-324, "5e-324", NULL},
    {1e22, "1e+22", NULL},
    {-0.0, "-0.0", NULL},
    {0.0, "0.0", NULL},
    {1.7976931348623157e308, "1.7976931348623157e+308", NULL},
    {-2.2250738585072014e-308, "-2.2250738585072014e-308", NULL},
    {0x1p-44, "5.684341886080802e-14", NULL}, /* not the 16 digits nearest to it */
    {(double)NAN, "nan", "NaN"},
    {(double)INFINITY, "inf", "Infinity"},
    {-(double)INFINITY, "-inf", "-Infinity"},
    {100.0, "100.0", NULL},
    {123.456, "123.456", NULL},
    {9999999999999998.0, "9999999999999998.0", NULL},
    {9007199254740992.0, "9007199254740992.0", NULL},
    {1.0 / 3.0, "0.3333333333333333", NULL},
    {1.5e300, "1.5e+300", NULL},
    {1e-08, "1e-08", NULL},
    {12345678.9, "12345678.9", NULL},
};

static void doubles_as_python(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        struct dcpk_bytes out = {0};
        struct dcpk_json_out j;
        char text[32];
        dcpk_format_double(doubles[i].value, text);
        CHECK_EQ_STR(text, doubles[i].repr, "repr");
        dcpk_json_out_init(&j, &out, 0);
        j.is_python = true;
        dcpk_json_put_double(&j, doubles[i].value);
        dcpk_bytes_u8(&out, 0);
        CHECK_EQ_STR((const char *)out.data, doubles[i].dump ? doubles[i].dump : doubles[i].repr,
                     doubles[i].repr);
        dcpk_bytes_release(&out);
    }
}

/* RFC 8259 section 6: "Numeric values that cannot be represented ... are not permitted." */
static void no_bare_nan(void **state)
{
    struct dcpk_bytes out = {0};
    struct dcpk_json_out j;

    (void)state;
    dcpk_json_out_init(&j, &out, 0);
    dcpk_json_begin_array(&j);
    dcpk_json_put_double(&j, (double)NAN);
    dcpk_json_put_double(&j, (double)INFINITY);
    dcpk_json_put_double(&j, -(double)INFINITY);
    dcpk_json_put_double(&j, 0.5);
    dcpk_json_end_array(&j);
    dcpk_bytes_u8(&out, 0);
    CHECK_EQ_STR((const char *)out.data, "[\"NaN\", \"Infinity\", \"-Infinity\", 0.5]", "strict");
    dcpk_bytes_release(&out);
}

static void texts_as_python(void **state)
{
    static const struct {
        const char *label;
        const char *text;
        const char *dump; /* json.dumps(text.decode("utf-8", "replace")) */
    } cases[] = {
        {"escapes", "a\"b\\c/\n\r\t\f\b\x01\x1f\x7f \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
         "\"a\\\"b\\\\c/\\n\\r\\t\\f\\b\\u0001\\u001f\\u007f \\u00e9\\u20ac\\ud83d\\ude00\""},
        {"empty", "", "\"\""},
        {"no lead",
         "a\x80"
         "b",
         "\"a\\ufffdb\""},
        {"never a lead", "\xff", "\"\\ufffd\""},
        {"past U+10FFFF by lead", "\xf5z", "\"\\ufffdz\""},
        {"past U+10FFFF", "\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"overlong 2", "\xc0\x80", "\"\\ufffd\\ufffd\""},
        {"overlong 3", "\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"overlong 4", "\xf0\x80\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"lone surrogate", "\xed\xa0\x80", "\"\\ud800\""},
        {"another one", "a\xed\xbf\xbf", "\"a\\udfff\""},
        {"cut surrogate", "\xed\xa0", "\"\\ufffd\\ufffd\""},
        {"cut 2", "\xc3", "\"\\ufffd\""},
        {"cut 3", "\xe2\x82", "\"\\ufffd\""},
        {"cut 3 and more", "\xe2\x82\x41", "\"\\ufffdA\""},
        {"cut 4", "\xf0\x9f\x98", "\"\\ufffd\""},
        {"the last", "\xf4\x8f\xbf\xbf", "\"\\udbff\\udfff\""},
        {"first after the surrogates", "\xee\x80\x80", "\"\\ue000\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_bytes out = {0};
        struct dcpk_json_out j;
        dcpk_json_out_init(&j, &out, 0);
        dcpk_json_put_string(&j, cases[i].text);
        dcpk_bytes_u8(&out, 0);
        CHECK_EQ_STR((const char *)out.data, cases[i].dump, cases[i].label);
        dcpk_bytes_release(&out);
    }
}

/* {"name": "x", "empty": {}, "none": [], "list": [1, -2, 2.5, True, False, None, [[]], {"k": "v"}],
    "big": 2**64 - 1, "small": -2**63} */
static void put_document(struct dcpk_json_out *j)
{
    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "name");
    dcpk_json_put_text(j, "xyz", 1);
    dcpk_json_put_key(j, "empty");
    dcpk_json_begin_object(j);
    dcpk_json_end_object(j);
    dcpk_json_put_key(j, "none");
    dcpk_json_begin_array(j);
    dcpk_json_end_array(j);
    dcpk_json_put_key(j, "list");
    dcpk_json_begin_array(j);
    dcpk_json_put_int(j, 1);
    dcpk_json_put_int(j, -2);
    dcpk_json_put_double(j, 2.5);
    dcpk_json_put_bool(j, true);
    dcpk_json_put_bool(j, false);
    dcpk_json_put_null(j);
    dcpk_json_begin_array(j);
    dcpk_json_begin_array(j);
    dcpk_json_end_array(j);
    dcpk_json_end_array(j);
    dcpk_json_begin_object(j);
    dcpk_json_put_key(j, "k");
    dcpk_json_put_string(j, "v");
    dcpk_json_end_object(j);
    dcpk_json_end_array(j);
    dcpk_json_put_key(j, "big");
    dcpk_json_put_uint(j, UINT64_MAX);
    dcpk_json_put_key(j, "small");
    dcpk_json_put_int(j, INT64_MIN);
    dcpk_json_end_object(j);
}

static void documents_as_python(void **state)
{
    static const struct {
        const char *label;
        int indent;
        const char *dump; /* json.dumps(document, indent=...) */
    } cases[] = {
        {"one line", 0,
         "{\"name\": \"x\", \"empty\": {}, \"none\": [], \"list\": [1, -2, 2.5, true, false, null, "
         "[[]], {\"k\": \"v\"}], \"big\": 18446744073709551615, \"small\": -9223372036854775808}"},
        {"indent 2", 2,
         "{\n  \"name\": \"x\",\n  \"empty\": {},\n  \"none\": [],\n  \"list\": [\n    1,\n    "
         "-2,\n    2.5,\n    true,\n    false,\n    null,\n    [\n      []\n    ],\n    {\n      "
         "\"k\": \"v\"\n    }\n  ],\n  \"big\": 18446744073709551615,\n  \"small\": "
         "-9223372036854775808\n}"},
        {"indent 4", 4,
         "{\n    \"name\": \"x\",\n    \"empty\": {},\n    \"none\": [],\n    \"list\": [\n        "
         "1,\n        -2,\n        2.5,\n        true,\n        false,\n        null,\n        "
         "[\n            []\n        ],\n        {\n            \"k\": \"v\"\n        }\n    ],\n "
         "   \"big\": 18446744073709551615,\n    \"small\": -9223372036854775808\n}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_bytes out = {0};
        struct dcpk_json_out j;
        dcpk_json_out_init(&j, &out, cases[i].indent);
        put_document(&j);
        dcpk_bytes_u8(&out, 0);
        CHECK_EQ_STR((const char *)out.data, cases[i].dump, cases[i].label);
        dcpk_bytes_release(&out);
    }
}

static dcpk_status parse_once(struct dcpk_error *err)
{
    static const char text[] =
        "{\"a\": [1, \"two\", {\"b\": null, \"c\": {}}], \"d\": \"\\u00e9\"}";
    struct dcpk_json *doc = NULL;
    const dcpk_status st = dcpk_json_parse(text, sizeof text - 1, &doc, err);

    CHECK((st == DCPK_OK) == (doc != NULL), err->text);
    dcpk_json_free(doc);
    return st;
}

static void every_failure(void **state)
{
    (void)state;
    every_alloc_fails(parse_once, 10); /* cJSON's are among them */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_and_refuses),
        cmocka_unit_test(floats),
        cmocka_unit_test(length_counts),
        cmocka_unit_test(depth),
        cmocka_unit_test(walks),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(doubles_as_python),
        cmocka_unit_test(no_bare_nan),
        cmocka_unit_test(texts_as_python),
        cmocka_unit_test(documents_as_python),
        cmocka_unit_test(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
