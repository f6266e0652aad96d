/* SPDX-License-Identifier: Apache-2.0 */
/* test_edit.c - operations on keys; renamed keys are what Python's re.sub makes of them. */
#include "lib/rules/edit.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"

static const struct dcpk_edit_item keys[] = {
    {.key = "decoder.layers.10.mlp.fc1.weight", .dtype = DCPK_BF16},
    {.key = "decoder.layers.2.mlp.fc1.bias", .dtype = DCPK_F32},
    {.key = "steps", .dtype = DCPK_I64},
    {.key = "args"},
};
#define N_KEYS (sizeof keys / sizeof keys[0])

static const struct {
    const char *label;
    const char *ops[3];
    const char *names[N_KEYS]; /* NULL: removed */
    enum dcpk_dtype first;     /* the first key's dtype after it; NONE: as it was */
} cases[] = {
    {"plain", .ops = {"rename fc1 fc2"},
     .names = {"decoder.layers.10.mlp.fc2.weight", "decoder.layers.2.mlp.fc2.bias", "steps",
               "args"}},
    {"groups", .ops = {"rename layers\\.([0-9]+)\\.(mlp) \\2.\\1"},
     .names = {"decoder.mlp.10.fc1.weight", "decoder.mlp.2.fc1.bias", "steps", "args"}},
    {"the match and a backslash", .ops = {"rename ^args$ <\\0\\\\>"},
     .names = {"decoder.layers.10.mlp.fc1.weight", "decoder.layers.2.mlp.fc1.bias", "steps",
               "<args\\>"}},
    {"every match", .ops = {"rename s S"},
     .names = {"decoder.layerS.10.mlp.fc1.weight", "decoder.layerS.2.mlp.fc1.biaS", "StepS",
               "argS"}},
    {"anchored once", .ops = {"rename ^s S"},
     .names = {"decoder.layers.10.mlp.fc1.weight", "decoder.layers.2.mlp.fc1.bias", "Steps",
               "args"}},
    {"empty matches", .ops = {"rename x* -", "keep ^-s"},
     .names = {NULL, NULL, "-s-t-e-p-s-", NULL}},
    {"empty matches and others", .ops = {"rename e* -"},
     .names = {"-d--c-o-d--r-.-l-a-y--r-s-.-1-0-.-m-l-p-.-f-c-1-.-w--i-g-h-t-",
               "-d--c-o-d--r-.-l-a-y--r-s-.-2-.-m-l-p-.-f-c-1-.-b-i-a-s-", "-s-t--p-s-",
               "-a-r-g-s-"}},
    {"where words begin", .ops = {"rename \\b\\w X"},
     .names = {"Xecoder.Xayers.X0.Xlp.Xc1.Xeight", "Xecoder.Xayers.X.Xlp.Xc1.Xias", "Xteps",
               "Xrgs"}},
    {"nothing for it", .ops = {"rename layers\\. ''"},
     .names = {"decoder.10.mlp.fc1.weight", "decoder.2.mlp.fc1.bias", "steps", "args"}},
    {"signs of repetition as letters", .ops = {"keep ^[]*+?{[:alpha:]]+s$|\\+*\\?+x{2}"},
     .names = {NULL, NULL, "steps", "args"}},
    {"remove", .ops = {"remove ^decoder"}, .names = {NULL, NULL, "steps", "args"}},
    {"keep", .ops = {"keep weight|args"},
     .names = {"decoder.layers.10.mlp.fc1.weight", NULL, NULL, "args"}},
    {"in order", .ops = {"rename args bias", "remove bias"},
     .names = {"decoder.layers.10.mlp.fc1.weight", NULL, "steps", NULL}},
    {"swapped", .ops = {"rename args x", "rename steps args", "rename ^x$ steps"},
     .names = {"decoder.layers.10.mlp.fc1.weight", "decoder.layers.2.mlp.fc1.bias", "args",
               "steps"}},
    {"cast", .ops = {"cast weight$ float32"},
     .names = {"decoder.layers.10.mlp.fc1.weight", "decoder.layers.2.mlp.fc1.bias", "steps",
               "args"},
     .first = DCPK_F32},
    {"the last cast counts", .ops = {"cast decoder float16", "cast weight float64"},
     .names = {"decoder.layers.10.mlp.fc1.weight", "decoder.layers.2.mlp.fc1.bias", "steps",
               "args"},
     .first = DCPK_F64},
    {"a blank in it", .ops = {"  rename   (mlp| z)\\.fc1   a  "},
     .names = {"decoder.layers.10.a.weight", "decoder.layers.2.a.bias", "steps", "args"}},
};

static size_t count_ops(const char *const *ops)
{
    size_t n = 0;

    while (n < 3 && ops[n] != NULL)
        n++;
    return n;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_edit_item items[N_KEYS];
        struct dcpk_edits *edits = NULL;

        memcpy(items, keys, sizeof items);
        CHECK_OK(dcpk_edits_parse(cases[c].ops, count_ops(cases[c].ops), &edits, &err),
                 cases[c].label);
        CHECK_OK(dcpk_edits_apply(edits, arena, items, N_KEYS, &err), cases[c].label);
        for (size_t i = 0; i < N_KEYS; i++) {
            CHECK_EQ_INT(items[i].removed_by == NULL, cases[c].names[i] != NULL, cases[c].label);
            if (items[i].removed_by == NULL)
                CHECK_EQ_STR(items[i].name, cases[c].names[i], cases[c].label);
        }
        CHECK_EQ_INT(items[0].to, cases[c].first == 0 ? DCPK_BF16 : cases[c].first, cases[c].label);
        dcpk_edits_free(edits);
        dcpk_arena_free(arena);
    }
}

/* Every byte of a long key is a match: when each match measured the rest of the key 2 MiB took
 * minutes. */
static void test_long_key(void **state)
{
    static const char *const op = "rename (a) b\\1";
    const size_t n = 2 << 20;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    char *key = malloc(n + 1);
    struct dcpk_edit_item item = {.key = key, .dtype = DCPK_F32};
    struct dcpk_edits *edits = NULL;

    (void)state;
    memset(key, 'a', n);
    key[n] = '\0';
    CHECK_OK(dcpk_edits_parse(&op, 1, &edits, &err), "parse");
    alarm(60); /* ends the test by a signal */
    CHECK_OK(dcpk_edits_apply(edits, arena, &item, 1, &err), "apply");
    alarm(0);
    CHECK_EQ_INT(strlen(item.name), 2 * n, "length");
    CHECK(strncmp(item.name, "baba", 4) == 0, "text");
    dcpk_edits_free(edits);
    dcpk_arena_free(arena);
    free(key);
}

static const struct {
    const char *ops[3];
    const char *message;
} bad[] = {
    {{"renam a b"}, "it must begin with"},
    {{"rename"}, "it must begin with"},
    {{"rename a"}, "too few words: rename RE NEW"},
    {{"remove "}, "too few words"},
    {{"remove ("}, "operation 'remove (': the regular expression '(', byte 1"},
    {{"rename a \\1"}, "operation 'rename a \\1': the replacement '\\1', byte 0: group 1, but"},
    {{"rename a b\\x"}, "neither a group"},
    {{"rename a b\\"}, "neither a group"},
    {{"cast weight int32"}, "'int32' is none of float64"},
    {{"cast weight nonsense"}, "none of float64"},
    {{"remove nowhere"}, "operation 'remove nowhere': no key matches"},
    {{"cast args float32"}, "no tensor's key matches"},
    {{"cast steps float32"}, "'steps' is int64, which is not cast"},
    {{"rename args steps"}, "'steps' and 'args' would both become 'steps'"},
    {{"rename (weight|bias) x", "rename [0-9]+ 0"},
     "'decoder.layers.10.mlp.fc1.weight' and 'decoder.layers.2.mlp.fc1.bias' would both become "
     "'decoder.layers.0.mlp.fc0.x'"},
    {{"rename ^args$ ''"}, "'args' would become the empty key"},
    {{"remove ."}, "leave no key"},
    {{"remove args", "remove args"}, "operation 'remove args': no key matches"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_edit_item items[N_KEYS];
        struct dcpk_edits *edits = NULL;
        dcpk_status st = dcpk_edits_parse(bad[c].ops, count_ops(bad[c].ops), &edits, &err);

        memcpy(items, keys, sizeof items);
        if (st == DCPK_OK)
            st = dcpk_edits_apply(edits, arena, items, N_KEYS, &err);
        CHECK_FAILS(st, DCPK_EUSAGE, bad[c].message, bad[c].ops[0]);
        dcpk_edits_free(edits);
        dcpk_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_long_key), cmocka_unit_test(test_bad)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
