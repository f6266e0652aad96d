/* SPDX-License-Identifier: Apache-2.0 */
/* test_bytes.c - appending, and the failure that sticks. */
#include "tests/check.h"

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"

static void appends(void **state)
{
    static const char want[] =
        "ab-7-xyz\x01\x02\x01\x04\x03\x02\x01\x08\x07\x06\x05\x04\x03\x02\x01"
        "\0\0\0";
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes b = {0};

    (void)state;
    dcpk_bytes_put(&b, NULL, 0);
    dcpk_bytes_text(&b, "ab");
    dcpk_bytes_printf(&b, "-%d-%s", 7, "xyz");
    dcpk_bytes_printf(&b, "%s", "");
    dcpk_bytes_u8(&b, 1);
    dcpk_bytes_u16(&b, 0x0102);
    dcpk_bytes_u32(&b, 0x01020304);
    dcpk_bytes_u64(&b, UINT64_C(0x0102030405060708));
    dcpk_bytes_zeros(&b, 3);
    CHECK_OK(dcpk_bytes_status(&b, &err), "status");
    CHECK_EQ_INT(b.n_bytes, sizeof want - 1, "length");
    CHECK(memcmp(b.data, want, sizeof want - 1) == 0, "bytes");
    dcpk_bytes_release(&b);
    dcpk_bytes_release(&b);
    CHECK(b.data == NULL && b.n_bytes == 0, "released");
}

static void grows(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes b = {0};

    (void)state;
    for (uint32_t i = 0; i < 100000; i++)
        dcpk_bytes_u32(&b, i);
    CHECK_OK(dcpk_bytes_status(&b, &err), "status");
    CHECK_EQ_INT(b.n_bytes, 400000, "length");
    for (uint32_t i = 0; i < 100000; i++)
        CHECK_EQ_INT(b.data[i * 4] | b.data[i * 4 + 1] << 8 | b.data[i * 4 + 2] << 16, i, "kept");
    dcpk_bytes_release(&b);
}

static void failure_sticks(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes b = {0};

    (void)state;
    dcpk_bytes_text(&b, "kept");
    dcpk_alloc_fail_nth(1);
    dcpk_bytes_zeros(&b, 10000);
    dcpk_bytes_text(&b, "lost");
    dcpk_bytes_printf(&b, "%d", 1);
    CHECK_EQ_INT(b.n_bytes, 4, "later appends do nothing");
    CHECK_FAILS(dcpk_bytes_status(&b, &err), DCPK_ENOMEM, "out of memory", "status");
    dcpk_bytes_release(&b);
    CHECK_OK(dcpk_bytes_status(&b, &err), "usable again");
    dcpk_bytes_text(&b, "x");
    dcpk_bytes_zeros(&b, SIZE_MAX);
    CHECK_FAILS(dcpk_bytes_status(&b, &err), DCPK_ENOMEM, "out of memory", "length overflows");
    dcpk_bytes_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends),
        cmocka_unit_test(grows),
        cmocka_unit_test(failure_sticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
