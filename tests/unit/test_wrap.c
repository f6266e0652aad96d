/* SPDX-License-Identifier: Apache-2.0 */
/* test_wrap.c - lines for a terminal: where they break, and what cannot get through. */
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tools/wrap.h"

#define TEN   "123456789 " /* ten columns with the blank behind it */
#define FIFTY TEN TEN TEN TEN TEN

static const struct {
    const char *label, *text;
    size_t at, indent;
    const char *wanted;
} cases[] = {
    {"nothing", "", 0, 4, ""},
    {"a word", "word", 0, 4, "word"},
    {"blanks stay", "  a   b", 0, 4, "  a   b"},
    {"the last column is used", FIFTY FIFTY "x", 1, 4, FIFTY TEN TEN TEN TEN "123456789\n    x"},
    {"a line that is full but for one", FIFTY TEN TEN TEN TEN "12345678 x y", 0, 2,
     FIFTY TEN TEN TEN TEN "12345678 x\n  y"},
    {"columns that stand there count", "one two", 98, 6, "one\n      two"},
    {"control bytes", "a\x1b[31mb\n\x7f", 0, 0, "a\\x1b[31mb\\x0a\\x7f"},
    {"C1 controls",
     "a\xc2\x9b"
     "31m\xc2\xa0.",
     0, 0, "a\\xc2\\x9b31m\xc2\xa0."},
    {"no UTF-8",
     "\x9b"
     "A \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82",
     0, 0, "\\x9bA \\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe2\\x82"},
    {"all lengths of UTF-8", "z\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 0, 0,
     "z\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"characters of several bytes are one column", "\xc3\xa4 x y", 97, 0, "\xc3\xa4 x\ny"},
};

static void breaks_between_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = NULL;
        size_t n_got;
        FILE *to = open_memstream(&got, &n_got);

        CHECK(to != NULL, cases[i].label);
        dcpk_cli_put_wrapped(to, cases[i].text, strlen(cases[i].text), cases[i].at,
                             cases[i].indent);
        fclose(to);
        CHECK_EQ_STR(got, cases[i].wanted, cases[i].label);
        free(got);
    }
}

/* As printf of C17 7.21.6.1, but for what a string may not hold. */
static void prints_as_printf(void **state)
{
    static const char evil[] = "a\x1b\n\xc2\x9b\xe2\x80\xae";
    char wanted[512], *got = NULL;
    size_t n_got;
    FILE *to = open_memstream(&got, &n_got);
    int n;

    (void)state;
    CHECK(to != NULL, "stream");
    n = snprintf(wanted, sizeof wanted,
                 "%d|%5d|%-5d|%05d|%u|%zu|%ld|%" PRIu64 "|%" PRId64
                 "|%02x|%*d|%.3g|%*.3g|%.2f|%5.1f%%"
                 "|%g|%c|%s|%8s|%-8s|%.2s|%.*s|%-*s|%jd|%s\n",
                 -3, 42, 42, 42, 7u, (size_t)1 << 40, -5L, UINT64_MAX, INT64_MIN, 0xbu, 6, -1, 1e-9,
                 9, 3.14159, 2.5, 12.34, 0.1, 'x', "text", "right", "left", "cut", 1, "short", 6,
                 "w", (intmax_t)-9, "end");
    CHECK(n > 0 && (size_t)n < sizeof wanted, "room");
    dcpk_cli_printf(to,
                    "%d|%5d|%-5d|%05d|%u|%zu|%ld|%" PRIu64 "|%" PRId64
                    "|%02x|%*d|%.3g|%*.3g|%.2f|%5.1f%%"
                    "|%g|%c|%s|%8s|%-8s|%.2s|%.*s|%-*s|%jd|%s\n",
                    -3, 42, 42, 42, 7u, (size_t)1 << 40, -5L, UINT64_MAX, INT64_MIN, 0xbu, 6, -1,
                    1e-9, 9, 3.14159, 2.5, 12.34, 0.1, 'x', "text", "right", "left", "cut", 1,
                    "short", 6, "w", (intmax_t)-9, "end");
    dcpk_cli_printf(to, "%s|%s|%c\n", evil, "\xc3\xa4", '\x1b');
    dcpk_cli_put_lines(to, "a\n\x1b\nb", 5);
    dcpk_cli_printf(to, "%9999s|", "long");
    fclose(to);
    CHECK(strncmp(got, wanted, (size_t)n) == 0, got);
    CHECK(n_got > 10000 && strcmp(got + n_got - 6, " long|") == 0, "long text");
    got[n_got - 10000] = '\0';
    CHECK_EQ_STR(got + n, "a\\x1b\\x0a\\xc2\\x9b\\xe2\\x80\\xae|\xc3\xa4|\\x1b\na\n\\x1b\nb",
                 "controls");
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(breaks_between_words),
                                       cmocka_unit_test(prints_as_printf)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
