/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard.c - a list of shards comes back from its bytes; one that is damaged is refused. */
#include "lib/place/shard.h"

#include <string.h>

#include "lib/base/order.h"
#include "tests/check.h"

/* Places of the first shard's numbers, each of 4 bytes or of 8, in the bytes of a list. */
enum { AT_NAME_BYTES = 8 + 12, AT_DTYPE = 8 + 16, AT_RANK = 8 + 20, AT_SHAPE = 8 + 24 };
enum { AT_SPAN = AT_SHAPE + 16, AT_STRIDES = AT_SPAN + 32, AT_NAME = AT_STRIDES + 16 };

static const int64_t shape[] = {8, 3}, span[] = {4, 0, 2, 3}, strides[] = {12, -4};
static const struct dcpk_shard shards[] = {
    {"exp_avg.a", DCPK_F32, 2, 0, shape, span, strides, 72, DCPK_NO_MEMORY},
    {"b", DCPK_BF16, 0, 0, shape, span, strides, 4096, 7}};

static void a_list_comes_back(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes bytes = {0};
    struct dcpk_shard got[2];
    struct dcpk_cursor from;
    uint64_t first, n_bytes;
    size_t n;

    (void)state;
    CHECK_OK(dcpk_shards_put(&bytes, shards, 2, &err), "put");
    CHECK_OK(dcpk_bytes_status(&bytes, &err), "bytes");
    dcpk_cursor_init(&from, bytes.data, bytes.n_bytes, 0);
    CHECK_OK(dcpk_shards_take(&from, 3, NULL, &n, &err), "count");
    CHECK_EQ_INT(n, 2, "shards");
    dcpk_cursor_init(&from, bytes.data, bytes.n_bytes, 0);
    CHECK_OK(dcpk_shards_take(&from, 3, got, &n, &err), "take");
    CHECK_EQ_INT(from.at_bytes, bytes.n_bytes, "all of it");
    for (size_t i = 0; i < 2; i++) {
        const size_t numbers = (size_t)shards[i].rank * sizeof(int64_t);

        CHECK_EQ_STR(got[i].name, shards[i].name, "name");
        CHECK_EQ_INT(got[i].dtype, shards[i].dtype, "dtype");
        CHECK_EQ_INT(got[i].rank, shards[i].rank, "rank");
        CHECK_EQ_INT(got[i].holder, 3, "holder");
        CHECK_EQ_INT(got[i].at, shards[i].at, "address");
        CHECK_EQ_INT(got[i].memory, shards[i].memory, "memory");
        CHECK(memcmp(got[i].shape, shape, numbers) == 0, "shape");
        CHECK(memcmp(got[i].span, span, 2 * numbers) == 0, "span");
        CHECK(memcmp(got[i].stride_bytes, strides, numbers) == 0, "strides");
    }
    dcpk_shard_range(&got[0], &first, &n_bytes);
    CHECK_EQ_INT(first, 64, "the third column lies 8 bytes before the first");
    CHECK_EQ_INT(n_bytes, 24, "two rows of three");
    CHECK_EQ_INT(dcpk_shard_bytes(&got[0]), 24, "elements");
    dcpk_bytes_release(&bytes);
}

static void a_damaged_number_is_refused(void **state)
{
    static const struct {
        const char *label;
        size_t at, n_bytes;
        uint64_t number;
    } cases[] = {
        {"more shards than bytes", 0, 8, UINT64_MAX / 2},
        {"a shard more", 0, 8, 3},
        {"no name", AT_NAME_BYTES, 4, 0},
        {"a name without an end", AT_NAME + 9, 1, 'x'},
        {"a name past the end", AT_NAME_BYTES, 4, UINT32_MAX},
        {"a dtype past the last", AT_DTYPE, 4, DCPK_N_DTYPES},
        {"too many axes", AT_RANK, 4, DCPK_MAX_RANK + 1},
        {"a shape below 0", AT_SHAPE, 8, UINT64_MAX},
        {"an offset below 0", AT_SPAN, 8, UINT64_MAX},
        {"an extent below 0", AT_SPAN + 16, 8, UINT64_MAX},
        {"strides past the address space", AT_STRIDES + 8, 8, (uint64_t)INT64_MIN},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_bytes bytes = {0};
        struct dcpk_shard got[2];
        struct dcpk_cursor from;
        size_t n;

        CHECK_OK(dcpk_shards_put(&bytes, shards, 2, &err), "put");
        memcpy(bytes.data + cases[i].at, &cases[i].number, cases[i].n_bytes);
        dcpk_cursor_init(&from, bytes.data, bytes.n_bytes, 0);
        CHECK_FAILS(dcpk_shards_take(&from, 1, got, &n, &err), DCPK_EIO, "rank 1 gave a damaged",
                    cases[i].label);
        dcpk_bytes_release(&bytes);
    }
}

static void bytes_that_are_cut_short_are_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes bytes = {0};

    (void)state;
    CHECK_OK(dcpk_shards_put(&bytes, shards, 2, &err), "put");
    for (size_t end = 0; end < bytes.n_bytes; end += 8) {
        struct dcpk_shard got[2];
        struct dcpk_cursor from;
        size_t n;

        dcpk_cursor_init(&from, bytes.data, end, 0);
        CHECK_FAILS(dcpk_shards_take(&from, 1, got, &n, &err), DCPK_EIO, "damaged", "cut");
    }
    dcpk_bytes_release(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_comes_back),
        cmocka_unit_test(a_damaged_number_is_refused),
        cmocka_unit_test(bytes_that_are_cut_short_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
