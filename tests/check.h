/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - the test harness: cmocka with checks that carry the label of their case. */
#ifndef DCPK_TESTS_CHECK_H
#define DCPK_TESTS_CHECK_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/error.h"

/* Every check names its case: `label` is the text of a table row or the seed of a round. */
#define CHECK(condition, label)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s: %s", (label), #condition);                                               \
    } while (0)

#define CHECK_EQ_INT(got, want, label)                                                             \
    do {                                                                                           \
        const intmax_t got_ = (intmax_t)(got), want_ = (intmax_t)(want);                           \
        if (got_ != want_)                                                                         \
            fail_msg("%s: %s is %" PRIdMAX ", wanted %" PRIdMAX, (label), #got, got_, want_);      \
    } while (0)

#define CHECK_EQ_STR(got, want, label)                                                             \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (got_ == NULL || strcmp(got_, want_) != 0)                                              \
            fail_msg("%s: %s is '%s', wanted '%s'", (label), #got, got_ ? got_ : "(null)", want_); \
    } while (0)

/* `call` fills a struct dcpk_error called err. */
#define CHECK_OK(call, label)                                                                      \
    do {                                                                                           \
        if ((call) != DCPK_OK)                                                                     \
            fail_msg("%s: %s: %s", (label), #call, err.text);                                      \
    } while (0)

/* The call fails with `status` and its message holds `text`. */
#define CHECK_FAILS(call, want_status, want_text, label)                                           \
    do {                                                                                           \
        const dcpk_status got_status_ = (call);                                                    \
        if (got_status_ != (want_status) || strstr(err.text, (want_text)) == NULL)                 \
            fail_msg("%s: %s gave status %d '%s', wanted %d with '%s'", (label), #call,            \
                     (int)got_status_, err.text, (int)(want_status), (want_text));                 \
    } while (0)

#endif
