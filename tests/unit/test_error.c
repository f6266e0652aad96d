/* SPDX-License-Identifier: Apache-2.0 */
/* test_error.c - texts, frames, cutting, what mends it. */
#include "tests/check.h"

#include <errno.h>

static void frames(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_EQ_INT(dcpk_fail(&err, DCPK_ERANGE, "%d passes %d", 7, 5), DCPK_ERANGE, "returned");
    CHECK_EQ_INT(err.status, DCPK_ERANGE, "stored");
    dcpk_context(&err, "reading '%s'", ".metadata");
    dcpk_context(&err, "opening '%s'", "iter_10");
    CHECK_EQ_STR(err.text, "opening 'iter_10': reading '.metadata': 7 passes 5", "outermost first");
    dcpk_fail(&err, DCPK_EFORMAT, "again: %s", err.text);
    CHECK_EQ_STR(err.text, "again: opening 'iter_10': reading '.metadata': 7 passes 5",
                 "its own text as an argument");
}

static void fixes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_EQ_INT(dcpk_fail_fix(&err, DCPK_EUSAGE, DCPK_FIX_REPLACE | DCPK_FIX_RESUME, "'%s'", "x"),
                 DCPK_EUSAGE, "returned");
    CHECK_EQ_STR(err.text, "'x'", "text");
    dcpk_context(&err, "writing");
    dcpk_append(&err, "; %d more", 2);
    CHECK_EQ_STR(err.text, "writing: 'x'; 2 more", "text behind it");
    CHECK_EQ_INT(err.fixes, DCPK_FIX_REPLACE | DCPK_FIX_RESUME, "a frame keeps them");
    dcpk_fail(&err, DCPK_EFORMAT, "another");
    CHECK_EQ_INT(err.fixes, 0, "none of the next error");
    dcpk_fail_fix(&err, DCPK_ERANGE, DCPK_FIX_MEMORY, "large");
    dcpk_fail_errno(&err, ENOENT, "opening");
    CHECK_EQ_INT(err.fixes, 0, "none of the system");
}

static void system_reason(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_EQ_INT(dcpk_fail_errno(&err, ENOENT, "opening '%s'", "x"), DCPK_EIO, "returned");
    CHECK_EQ_INT(err.status, DCPK_EIO, "stored");
    CHECK_EQ_STR(err.text, "opening 'x': No such file or directory", "text");
}

static void long_text_is_cut(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char name[DCPK_ERROR_BYTES * 2];

    (void)state;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    dcpk_fail(&err, DCPK_EFORMAT, "%s", name);
    CHECK_EQ_INT(strlen(err.text), DCPK_ERROR_BYTES - 1, "fail");
    dcpk_context(&err, "outer");
    CHECK_EQ_INT(strlen(err.text), DCPK_ERROR_BYTES - 1, "context");
    CHECK(strncmp(err.text, "outer: nnn", 10) == 0, "the outer frame stays");
    dcpk_fail_errno(&err, ENOENT, "%s", name);
    CHECK_EQ_INT(strlen(err.text), DCPK_ERROR_BYTES - 1, "errno");
}

static void terminals_are_safe(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    dcpk_fail(&err, DCPK_EFORMAT, "key '%s'", "a\033[2J\nb\x7f\xc3\xa9");
    CHECK_EQ_STR(err.text, "key 'a?[2J?b?\xc3\xa9'", "control bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixes),
        cmocka_unit_test(frames),
        cmocka_unit_test(system_reason),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(terminals_are_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
