/* SPDX-License-Identifier: Apache-2.0 */
/* test_chunks_prop.c - row chunks of random shapes against their promise. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/tensor/chunks.h"
#include "tests/check.h"
#include "tests/random.h"

#define MAX_AXIS 24

/* Chunks lie one behind the other in memory and keep the limit, but for single elements. */
static void row_chunks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        uint64_t s = seed;
        const uint64_t limit = random_below(&s, 600);
        struct dcpk_span_list list;
        const int rank = 1 + (int)random_below(&s, 3);
        int64_t shape[3], next = 0; /* row-major index of the next chunk's first element */
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        for (int a = 0; a < rank; a++)
            shape[a] = random_below(&s, 12) == 0 ? 0 : 1 + (int64_t)random_below(&s, MAX_AXIS);
        CHECK_OK(dcpk_row_chunks(shape, rank, limit, arena, &list, &err), label);
        CHECK_OK(dcpk_cover_check(shape, rank, list.spans, list.n, &err), label);
        CHECK(list.n >= 1, label);
        for (size_t i = 0; i < list.n; i++) {
            struct dcpk_box box;
            int64_t first = 0, n_elems = 0;

            dcpk_box_unpack(list.spans[i], rank, &box);
            CHECK_OK(dcpk_box_count(&box, &n_elems, &err), label);
            for (int a = 0; a < rank; a++)
                first = first * shape[a] + box.offset[a];
            CHECK_EQ_INT(first, next, label);
            CHECK((uint64_t)n_elems <= limit || n_elems <= 1, label);
            next += n_elems;
        }
        dcpk_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(row_chunks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
