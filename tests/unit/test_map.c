/* SPDX-License-Identifier: Apache-2.0 */
/* test_map.c - keys of any bytes, growth, keys made to collide, and every failure without a leak.
 */
#include "tests/every_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/base/cursor.h"
#include "lib/base/map.h"

static void any_bytes(void **state)
{
    static const struct {
        const char *label;
        const char *key;
        size_t n;
    } cases[] = {
        {"empty", "", 0},          {"NUL", "\0", 1},
        {"two NULs", "\0\0", 2},   {"a", "a", 1},
        {"a and NUL", "a\0", 2},   {"eight", "abcdefgh", 8},
        {"nine", "abcdefghi", 9},  {"high", "\xff\xfe", 2},
        {"7 of 8", "abcdefgh", 7}, {"8 and NUL", "abcdefgh\0", 9},
    };
    const size_t n_cases = sizeof cases / sizeof *cases;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_map map = {0};
    uint64_t value = 0;
    bool existed;

    (void)state;
    CHECK(!dcpk_map_get(&map, "a", 1, &value), "an empty map");
    for (size_t i = 0; i < n_cases; i++) {
        CHECK(!dcpk_map_get(&map, cases[i].key, cases[i].n, &value), cases[i].label);
        CHECK_OK(dcpk_map_put(&map, cases[i].key, cases[i].n, i, &existed, &value, &err),
                 cases[i].label);
        CHECK(!existed, cases[i].label);
    }
    for (size_t i = 0; i < n_cases; i++) {
        CHECK(dcpk_map_get(&map, cases[i].key, cases[i].n, &value), cases[i].label);
        CHECK_EQ_INT(value, i, cases[i].label);
        CHECK_OK(dcpk_map_put(&map, cases[i].key, cases[i].n, 77, &existed, &value, &err),
                 cases[i].label);
        CHECK(existed, cases[i].label);
        CHECK_EQ_INT(value, i, "put tells what is there");
        CHECK(dcpk_map_get(&map, cases[i].key, cases[i].n, &value), cases[i].label);
        CHECK_EQ_INT(value, i, "and leaves it");
    }
    CHECK_EQ_INT(map.n_items, n_cases, "items");
    CHECK_OK(dcpk_map_reserve(&map, 1000, &err), "room");
    CHECK_EQ_INT(map.n_slots, 2048, "slots for 1000");
    CHECK_EQ_INT(map.capacity, 1000, "and no more items than were asked for");
    CHECK(dcpk_map_reserve(&map, (size_t)UINT32_MAX, &err) == DCPK_ERANGE, "too many");
    CHECK(dcpk_map_get(&map, "nine", 4, &value) == false, "none came");
    for (size_t i = 0; i < n_cases; i++)
        CHECK(dcpk_map_get(&map, cases[i].key, cases[i].n, &value) && value == i, cases[i].label);
    dcpk_map_release(&map);
    dcpk_map_release(&map);
}

static void many(void **state)
{
    enum { N = 100000, KEY_BYTES = 56 };
    char(*keys)[KEY_BYTES] = malloc((size_t)N * KEY_BYTES);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_map map = {0};
    uint64_t value = 0;
    bool existed;

    (void)state;
    CHECK(keys != NULL, "keys");
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], KEY_BYTES, "decoder.layers.%d.mlp.linear_fc1.weight", i);
        CHECK_OK(dcpk_map_put(&map, keys[i], strlen(keys[i]), (uint64_t)i, &existed, &value, &err),
                 keys[i]);
        CHECK(!existed, keys[i]);
    }
    for (int i = 0; i < N; i++) {
        CHECK(dcpk_map_get(&map, keys[i], strlen(keys[i]), &value), keys[i]);
        CHECK_EQ_INT(value, i, keys[i]);
    }
    CHECK(!dcpk_map_get(&map, "decoder.layers.100000.mlp.linear_fc1.weight", 43, &value), "absent");
    CHECK(map.n_slots <= (size_t)N * 8 / 3, "memory stays in proportion");
    dcpk_map_release(&map);
    free(keys);
}

/*
 * What an attacker can do to a hash without a secret: this map once mixed eight bytes at a time
 * with this function, and the second half of each key here undoes what the first did.
 */
static uint64_t known_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static void made_to_collide(void **state)
{
    enum { N = 100000, KEY_BYTES = 16 };
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint8_t(*keys)[KEY_BYTES] = malloc((size_t)N * KEY_BYTES);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_map map = {0};
    const clock_t begun = clock();
    uint64_t found;
    bool existed;

    (void)state;
    CHECK(keys != NULL, "keys");
    for (uint64_t i = 0; i < N; i++) {
        const uint64_t first = known_mix(known_mix(KEY_BYTES + golden) ^ i) + golden;

        dcpk_store_u64le(keys[i], i);
        dcpk_store_u64le(keys[i] + 8, first ^ 42);
        CHECK_OK(dcpk_map_put(&map, (const char *)keys[i], KEY_BYTES, i, &existed, &found, &err),
                 "put");
        CHECK(!existed, "new");
    }
    CHECK((double)(clock() - begun) / CLOCKS_PER_SEC < 5,
          "in bounded time: without a secret it took 20 s");
    dcpk_map_release(&map);
    free(keys);
}

static dcpk_status fill(struct dcpk_error *err)
{
    static const char keys[64] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct dcpk_map map = {0};
    dcpk_status st = DCPK_OK;
    uint64_t found;
    bool existed;

    for (size_t i = 0; i < sizeof keys && st == DCPK_OK; i++)
        st = dcpk_map_put(&map, keys + i, 1, i, &existed, &found, err);
    for (size_t i = 0; i < map.n_items; i++)
        CHECK(dcpk_map_get(&map, keys + i, 1, &found), "what was put stays after a failure");
    dcpk_map_release(&map);
    return st;
}

static void every_failure(void **state)
{
    (void)state;
    every_alloc_fails(fill, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(many),
        cmocka_unit_test(made_to_collide),
        cmocka_unit_test(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
