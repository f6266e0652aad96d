/* SPDX-License-Identifier: Apache-2.0 */
/* test_regex.c - regular expressions and replacements are Python's; steps and memory are bounded.
 */
#include "lib/base/regex.h"

#include <stdlib.h>

#include "tests/every_alloc.h"

/* What re.sub(regex, replacement, text) of Python 3.11 gives. */
static const struct {
    const char *label, *regex, *replacement, *text, *expected;
} cases[] = {
    {"digits", "layers\\.(\\d+)\\.", "\\1-", "decoder.layers.10.mlp", "decoder.10-mlp"},
    {"no digits, no word", "\\D+\\W", "_", "ab.1.cd", "_1.cd"},
    {"words", "\\b\\w+\\b", "<\\g<0>>", "a_b.c d", "<a_b>.<c> <d>"},
    {"blank and not", "\\s(\\S)", "\\1", "a b\tc", "abc"},
    {"not a word's edge", "\\B.", "-", "ab.cd", "a-.c-"},
    {"group that is not counted", "(?:fc|proj)(\\d)", "x\\1", "fc1.proj2", "x1.x2"},
    {"named group", "(?P<name>fc)(?P<n>\\d)", "\\g<n>\\g<name>", "mlp.fc1.w", "mlp.1fc.w"},
    {"the same again", "(?P<c>\\w)(?P=c)", "\\1", "committee", "comite"},
    {"number, then a digit", "(\\d)", "\\g<1>0", "a1b2", "a10b20"},
    {"two digits", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", "\\10\\2", "abcdefghij", "jb"},
    {"lookahead", "fc1(?!\\.bias)", "fc2", "fc1.bias.fc1.weight", "fc1.bias.fc2.weight"},
    {"lookbehind", "(?<=fc)\\d", "N", "fc1.x1.fc2", "fcN.x1.fcN"},
    {"lazy", "\\..*?\\.", "/", "a.b.c.d", "a/c.d"},
    {"greedy", "\\..*\\.", "/", "a.b.c.d", "a/d"},
    {"case", "(?i)FC", "x", "fc.Fc", "x.x"},
    {"verbose", "(?x) f c  # two letters", "x", "fc.f c", "x.f c"},
    {"nothing for it", "layers\\.", "", "decoder.layers.0", "decoder.0"},
    {"a backslash", "\\.", "\\\\", "a.b", "a\\b"},
    {"a group that took no part", "(x)?\\.", "<\\1>", "a.x.", "a<><x>"},
    {"empty matches", "x*", "-", "abxd", "-a-b--d-"},
    {"empty at the ends", "^|$", "|", "ab", "|ab|"},
    {"begin and end", "\\Aa|b\\Z", "_", "aab.b", "_ab._"},
    {"alternatives, the first counts", "a|ab", "_", "ab", "_b"},
    {"letters beyond ASCII", "\\w", "_", "é.ß", "_._"},
    {"one letter, not one byte", "^.", "_", "éa", "_a"},
    {"no match", "^z", "_", "abc", "abc"},
    {"in a set", "[\\d.\\]]+", "_", "a1.2]b", "a_b"},
    {"counted", "\\d{2,3}", "_", "1.22.4444", "1._._4"},
};

static dcpk_status replace(const char *regex_text, const char *replacement_text, const char *text,
                           struct dcpk_bytes *out, struct dcpk_error *err)
{
    struct dcpk_replacement *replacement = NULL;
    struct dcpk_regex *regex = NULL;
    dcpk_status st = dcpk_regex_new(regex_text, strlen(regex_text), &regex, err);

    if (st == DCPK_OK)
        st = dcpk_replacement_new(regex, replacement_text, strlen(replacement_text), &replacement,
                                  err);
    if (st == DCPK_OK)
        st = dcpk_regex_replace(regex, replacement, text, out, err);
    dcpk_bytes_u8(out, '\0');
    dcpk_replacement_free(replacement);
    dcpk_regex_free(regex);
    return st;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes out = {0};
        struct dcpk_regex *regex = NULL;
        bool found;

        CHECK_OK(replace(cases[c].regex, cases[c].replacement, cases[c].text, &out, &err),
                 cases[c].label);
        CHECK_EQ_STR((const char *)out.data, cases[c].expected, cases[c].label);
        CHECK_OK(dcpk_regex_new(cases[c].regex, strlen(cases[c].regex), &regex, &err),
                 cases[c].label);
        CHECK_OK(dcpk_regex_search(regex, cases[c].text, &found, &err), cases[c].label);
        CHECK_EQ_INT(found, strcmp(cases[c].text, cases[c].expected) != 0, cases[c].label);
        dcpk_regex_free(regex);
        dcpk_bytes_release(&out);
    }
}

static const struct {
    const char *regex, *replacement, *text;
    dcpk_status status;
    const char *message;
} bad[] = {
    {"fc(1", "", "", DCPK_EUSAGE, "the regular expression 'fc(1', byte 4: missing closing"},
    {"a[b", "", "", DCPK_EUSAGE, "byte 3: missing terminating ]"},
    {"*a", "", "", DCPK_EUSAGE, "byte 0: quantifier does not follow a repeatable item"},
    {"a\\C", "", "", DCPK_EUSAGE, "\\C"},
    {"(?<=a*)b", "", "", DCPK_EUSAGE, "lookbehind assertion is not fixed length"},
    {"\xff", "", "", DCPK_EUSAGE, "UTF-8"},
    {"a", "b\\x", "a", DCPK_EUSAGE, "the replacement 'b\\x', byte 1: it is neither a group"},
    {"a", "b\\.c", "a", DCPK_EUSAGE, "byte 1: it is neither a group"},
    {"a", "b\\n", "a", DCPK_EUSAGE, "byte 1: it is neither a group"},
    {"a", "b\\", "a", DCPK_EUSAGE, "byte 1: it is neither a group"},
    {"a", "\\1", "a", DCPK_EUSAGE, "byte 0: group 1, but the expression has 0 groups"},
    {"(a)", "x\\10", "a", DCPK_EUSAGE, "byte 1: group 10, but the expression has 1 groups"},
    {"(a)", "\\g<2>", "a", DCPK_EUSAGE, "group 2, but the expression has 1 groups"},
    {"(a)", "\\g1", "a", DCPK_EUSAGE, "\\g is followed by the name of a group"},
    {"(a)", "\\g<1", "a", DCPK_EUSAGE, "\\g is followed by the name of a group"},
    {"(a)", "\\g<>", "a", DCPK_EUSAGE, "no group of this name"},
    {"(?P<x>a)", "\\g<y>", "a", DCPK_EUSAGE, "no group of this name"},
    {"a", "", "a\xff", DCPK_EUNSUPPORTED, "searching the text 'a\xff': UTF-8 error"},
    /* 2^40 ways to fail */
    {"(a+)+$", "", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", DCPK_EUSAGE,
     "needs more than 10000000 steps or 16 MiB for the text 'aaaa"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes out = {0};

        CHECK_FAILS(replace(bad[c].regex, bad[c].replacement, bad[c].text, &out, &err),
                    bad[c].status, bad[c].message, bad[c].regex);
        dcpk_bytes_release(&out);
    }
}

/* A step back for each of its letters is kept: the memory of that is bounded, too. */
static void test_memory(void **state)
{
    const size_t n = 4 << 20;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes out = {0};
    char *text = malloc(n + 1);

    (void)state;
    memset(text, 'a', n);
    text[n] = '\0';
    CHECK_FAILS(replace("^(a|b)*$", "", text, &out, &err), DCPK_EUSAGE, "or 16 MiB", "memory");
    dcpk_bytes_release(&out);
    free(text);
}

static dcpk_status replace_once(struct dcpk_error *err)
{
    struct dcpk_bytes out = {0};
    const dcpk_status st = replace("(a+)(b|c)*?d", "\\2\\1", "aabcdaad", &out, err);

    dcpk_bytes_release(&out);
    return st;
}

static void test_no_memory(void **state)
{
    (void)state;
    every_alloc_fails(replace_once, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_no_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
