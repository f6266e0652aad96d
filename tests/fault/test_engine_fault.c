/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_fault.c - every allocation of an engine fails once: an error, nothing moved by half,
 * nothing lost. */
#include <string.h>

#include "lib/api/dcpkit.h"
#include "lib/base/alloc.h"
#include "tests/check.h"

#define N 6

/* What one attempt leaves. */
struct attempt {
    int32_t from[N][N], to[N][N];
    uint64_t sum;
};

static void shard_make(struct dcpkit_shard *shard, const char *name, int32_t (*at)[N])
{
    static const int64_t shape[] = {N, N};

    *shard = (struct dcpkit_shard){
        .name = name, .dtype = "int32", .rank = 2, .shape = shape, .data = at};
}

static int map_use(dcpkit_map *map, struct attempt *a)
{
    static const int64_t turned[] = {sizeof(int32_t), N * sizeof(int32_t)};
    struct dcpkit_map_totals totals = DCPKIT_INIT(struct dcpkit_map_totals);
    struct dcpkit_shard from, to;
    int status;

    shard_make(&from, "w", a->from);
    shard_make(&to, "w", a->to);
    to.stride_bytes = turned;
    status = dcpkit_map_source(map, &from, 1);
    if (status == DCPKIT_OK)
        status = dcpkit_map_target(map, &to, 1);
    if (status == DCPKIT_OK)
        status = dcpkit_map_plan(map, &totals);
    if (status == DCPKIT_OK)
        status = dcpkit_map_run(map, NULL);
    if (status == DCPKIT_OK)
        status = dcpkit_map_fingerprint(map, DCPKIT_TARGETS, &a->sum, 1);
    if (status == DCPKIT_OK)
        status = dcpkit_map_verify(map, NULL, 0);
    for (int i = 0; i < 2 && status == DCPKIT_OK; i++) /* all, then what changed: nothing */
        status = dcpkit_map_run_changed(map, NULL);
    return status;
}

static int engine_use(dcpkit *session, struct attempt *a)
{
    struct dcpkit_engine_options options = DCPKIT_INIT(struct dcpkit_engine_options);
    dcpkit_engine *engine;
    dcpkit_map *map;
    int status;

    options.check = 1;
    status = dcpkit_engine_open(session, NULL, &options, &engine);
    if (status != DCPKIT_OK)
        return status;
    status = dcpkit_map_new(engine, &map);
    if (status == DCPKIT_OK) {
        status = map_use(map, a);
        dcpkit_map_free(map);
    }
    dcpkit_engine_close(engine);
    return status;
}

static void test_each_allocation(void **state)
{
    uint64_t nth = 0;
    int status;

    (void)state;
    do {
        struct attempt a = {.sum = 0};
        dcpkit *session;

        for (int i = 0; i < N * N; i++)
            a.from[i / N][i % N] = i + 1;
        CHECK_EQ_INT(dcpkit_new(NULL, &session), DCPKIT_OK, "session");
        (void)dcpk_alloc_fail_nth(++nth);
        status = engine_use(session, &a);
        (void)dcpk_alloc_fail_nth(0);
        if (status != DCPKIT_OK) {
            CHECK_EQ_INT(status, DCPKIT_ENOMEM, dcpkit_error(session));
            CHECK(strstr(dcpkit_error(session), "memory") != NULL, dcpkit_error(session));
        }
        for (int i = 0; i < N * N; i++) {
            const int32_t got = a.to[i % N][i / N];

            CHECK(got == i + 1 || (got == 0 && status != DCPKIT_OK), "all or nothing");
            CHECK_EQ_INT(a.from[i / N][i % N], i + 1, "a source");
        }
        dcpkit_free(session);
        CHECK(nth < 10000, "it works some time");
    } while (status != DCPKIT_OK);
    CHECK(nth > 20, "so many allocations at least");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
