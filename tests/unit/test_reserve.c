/* SPDX-License-Identifier: Apache-2.0 */
/* test_reserve.c - memory for copies: all of its pages are there once it is ready, and locked by
 * the device that has need of it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/train/reserve.h"
#include "tests/check.h"

#define BLOCK_BYTES ((size_t)65536)

static struct dcpk_error err = DCPK_ERROR_INIT;

static const struct {
    const char *label;
    size_t n_bytes;
    int n_threads;
} cases[] = {
    {"one byte", 1, 1},
    {"one block", BLOCK_BYTES, 4},
    {"a block and a byte", BLOCK_BYTES + 1, 2},
    {"several blocks", 9 * BLOCK_BYTES + 77, 3},
    {"many blocks", 100 * BLOCK_BYTES, 2},
};

/* How many of the pages are in memory; those of a memory file are not before they are written. */
static size_t count_pages(uint8_t *at, size_t n_bytes, size_t n_pages)
{
    unsigned char *is_there = calloc(n_pages, 1);
    size_t n = 0;

    CHECK(is_there != NULL && mincore(at, n_bytes, is_there) == 0, "mincore");
    for (size_t i = 0; i < n_pages; i++)
        n += is_there[i] & 1;
    free(is_there);
    return n;
}

static void check_case(struct dcpk_device *host, size_t c)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n_bytes = cases[c].n_bytes, n_pages = (n_bytes - 1) / page_bytes + 1;
    const struct dcpk_reserve_options options = {.host = host,
                                                 .n_bytes = n_bytes,
                                                 .block_bytes = BLOCK_BYTES,
                                                 .n_threads = cases[c].n_threads};
    struct dcpk_reserve *reserve;
    uint8_t *at;

    CHECK_OK(dcpk_reserve_new(&options, &reserve, &err), cases[c].label);
    CHECK_OK(dcpk_reserve_wait(reserve, &err), cases[c].label);
    CHECK_OK(dcpk_reserve_wait(reserve, &err), "a second time");
    CHECK_EQ_INT(dcpk_reserve_bytes(reserve), n_bytes, cases[c].label);
    at = dcpk_reserve_at(reserve);
    CHECK_EQ_INT(count_pages(at, n_bytes, n_pages), n_pages, cases[c].label);
    at[0] = at[n_bytes - 1] = 7;
    dcpk_reserve_free(reserve);
}

static void test_cases(void **state)
{
    struct dcpk_device *host;

    (void)state;
    CHECK_OK(dcpk_cpu_device.open(&(struct dcpk_device_options){0}, &host, &err), "host");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_case(host, c);
    dcpk_cpu_device.close(host);
}

/* Freed at once: the threads are waited for. */
static void test_unused(void **state)
{
    struct dcpk_reserve_options options = {
        .n_bytes = 50 * BLOCK_BYTES, .block_bytes = BLOCK_BYTES, .n_threads = 2};
    struct dcpk_reserve *reserve;

    (void)state;
    CHECK_OK(dcpk_cpu_device.open(&(struct dcpk_device_options){0}, &options.host, &err), "host");
    CHECK_OK(dcpk_reserve_new(&options, &reserve, &err), "unused");
    dcpk_reserve_free(reserve);
    dcpk_reserve_free(NULL);
    options.n_bytes = SIZE_MAX / 2;
    CHECK_FAILS(dcpk_reserve_new(&options, &reserve, &err), DCPK_ENOMEM, "out of memory",
                "more than there is");
    dcpk_cpu_device.close(options.host);
}

/* ---- a device that locks ---- */

struct locking {
    struct dcpk_device base;
    bool fails;
    size_t n_pages; /* that were there when it was locked */
    void *locked;   /* NULL: nothing is */
    int n_calls;
};

static dcpk_status fake_lock(struct dcpk_device *device, void *at, size_t n_bytes,
                             struct dcpk_error *fault)
{
    struct locking *l = (struct locking *)device;
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

    l->n_calls++;
    if (l->fails)
        return dcpk_fail(fault, DCPK_EIO, "page-locking memory: no more locks");
    l->n_pages = count_pages(at, n_bytes, (n_bytes - 1) / page_bytes + 1);
    l->locked = at;
    return DCPK_OK;
}

static void fake_unlock(struct dcpk_device *device, void *at)
{
    struct locking *l = (struct locking *)device;

    CHECK(l->locked == at, "what was locked");
    CHECK_EQ_INT(*(uint8_t *)at, 7, "unlocked before it is freed");
    l->locked = NULL;
}

static const struct dcpk_device_ops locking_ops = {.lock_host = fake_lock,
                                                   .unlock_host = fake_unlock};

/* In one call, after all pages are there; where it fails the memory is good all the same. */
static void test_locked(void **state)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    struct dcpk_reserve_options options = {
        .n_bytes = 5 * BLOCK_BYTES, .block_bytes = BLOCK_BYTES, .n_threads = 2};
    struct dcpk_reserve *reserve;

    (void)state;
    CHECK_OK(dcpk_cpu_device.open(&(struct dcpk_device_options){0}, &options.host, &err), "host");
    for (int fails = 0; fails <= 1; fails++) {
        struct locking locking = {.base.ops = &locking_ops, .fails = fails != 0};
        const char *why;

        options.device = &locking.base;
        CHECK_OK(dcpk_reserve_new(&options, &reserve, &err), "new");
        CHECK_OK(dcpk_reserve_wait(reserve, &err), "wait");
        CHECK_EQ_INT(locking.n_calls, 1, "calls");
        CHECK_EQ_INT(locking.n_pages, fails ? 0 : options.n_bytes / page_bytes, "pages");
        why = dcpk_reserve_unlocked(reserve);
        CHECK((why != NULL) == locking.fails, "the reason");
        if (why != NULL)
            CHECK_EQ_STR(why, "page-locking memory: no more locks", "the reason");
        dcpk_reserve_at(reserve)[0] = 7;
        dcpk_reserve_free(reserve);
        CHECK(locking.locked == NULL, "unlocked");
    }
    dcpk_cpu_device.close(options.host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_unused),
                                       cmocka_unit_test(test_locked)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
