/* SPDX-License-Identifier: Apache-2.0 */
/* test_cursor.c - reads at and past the end, positions in messages, byte orders. */
#include "tests/check.h"

#include <stdio.h>

#include "lib/base/cursor.h"

static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

static void numbers(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_cursor c;
    uint16_t u16 = 0;
    uint64_t u64 = 0;

    (void)state;
    dcpk_cursor_init(&c, data, sizeof data, 1000);
    CHECK_OK(dcpk_cursor_u16(&c, &u16, &err), "u16");
    CHECK_OK(dcpk_cursor_u64(&c, &u64, &err), "u64");
    CHECK(u16 == 0x0201, "little-endian");
    CHECK(u64 == UINT64_C(0x0a09080706050403), "little-endian");
    CHECK_EQ_INT(c.at_bytes, sizeof data, "at the end");
    CHECK_FAILS(dcpk_cursor_u16(&c, &u16, &err), DCPK_EFORMAT, "at byte 1010 passes the end",
                "past the end");
    CHECK_EQ_INT(u16, 0x0201, "untouched");
}

/* With `left` bytes left, a getter of `size` bytes works exactly when size <= left. */
static void ends(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t left = 0; left < 9; left++) {
        struct dcpk_cursor c;
        const uint8_t *p = NULL;
        uint16_t u16;
        uint64_t u64;
        char label[16];
        snprintf(label, sizeof label, "%zu left", left);
        dcpk_cursor_init(&c, data, left, 0);
        CHECK_EQ_INT(dcpk_cursor_u16(&c, &u16, &err) == DCPK_OK, left >= 2, label);
        CHECK_EQ_INT(c.at_bytes, left >= 2 ? 2 : 0, label);
        c.at_bytes = 0;
        CHECK_EQ_INT(dcpk_cursor_u64(&c, &u64, &err) == DCPK_OK, left >= 8, label);
        c.at_bytes = 0;
        CHECK_EQ_INT(dcpk_cursor_bytes(&c, SIZE_MAX, &p, &err), DCPK_EFORMAT, label);
        CHECK_OK(dcpk_cursor_bytes(&c, left, &p, &err), label);
        CHECK(p == data && c.at_bytes == left, label);
        CHECK_OK(dcpk_cursor_bytes(&c, 0, &p, &err), label);
        CHECK_EQ_INT(dcpk_cursor_bytes(&c, 1, &p, &err), DCPK_EFORMAT, label);
    }
}

static void lines(void **state)
{
    static const char text[] = "ab\n\nrest";
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_cursor c;
    const char *line = NULL;
    size_t n = 9;

    (void)state;
    dcpk_cursor_init(&c, text, sizeof text - 1, 100);
    CHECK_OK(dcpk_cursor_line(&c, &line, &n, &err), "first");
    CHECK(line == text && n == 2, "first");
    CHECK_OK(dcpk_cursor_line(&c, &line, &n, &err), "empty");
    CHECK(line == text + 3 && n == 0, "empty");
    CHECK_FAILS(dcpk_cursor_line(&c, &line, &n, &err), DCPK_EFORMAT, "line at byte 104",
                "without an end");
    CHECK_EQ_INT(c.at_bytes, 4, "not moved");
    dcpk_cursor_init(&c, NULL, 0, 0);
    CHECK_FAILS(dcpk_cursor_line(&c, &line, &n, &err), DCPK_EFORMAT, "passes the end", "no bytes");
}

static void orders(void **state)
{
    uint8_t b[8];

    (void)state;
    dcpk_store_u16le(b, 0x0102);
    CHECK(memcmp(b, "\x02\x01", 2) == 0 && dcpk_load_u16le(b) == 0x0102, "u16le");
    dcpk_store_u32le(b, 0xf1020304);
    CHECK(memcmp(b, "\x04\x03\x02\xf1", 4) == 0 && dcpk_load_u32le(b) == 0xf1020304, "u32le");
    dcpk_store_u64le(b, UINT64_C(0xf102030405060708));
    CHECK(memcmp(b, "\x08\x07\x06\x05\x04\x03\x02\xf1", 8) == 0, "u64le");
    CHECK(dcpk_load_u64le(b) == UINT64_C(0xf102030405060708), "u64le");
    dcpk_store_u64be(b, UINT64_C(0xf102030405060708));
    CHECK(memcmp(b, "\xf1\x02\x03\x04\x05\x06\x07\x08", 8) == 0, "u64be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(ends),
        cmocka_unit_test(lines),
        cmocka_unit_test(orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
