/* SPDX-License-Identifier: Apache-2.0 */
/* test_cpu_device.c - memory that one process or thread exports and another one imports. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "tests/check.h"

static const struct dcpk_device_options first = {0};

static struct dcpk_device *open_device(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_device *device;

    CHECK_OK(dcpk_devices[0]->open(&first, &device, &err), "open");
    return device;
}

static uint8_t *take(struct dcpk_device *device, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *at;

    CHECK_OK(device->ops->alloc(device, DCPK_MEMORY_DEVICE, n_bytes, &at, &err), "alloc");
    return at;
}

static void ordinals(void **state)
{
    const struct dcpk_device_options second = {.ordinal = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_device *device;

    (void)state;
    CHECK_FAILS(dcpk_devices[0]->open(&second, &device, &err), DCPK_EUNSUPPORTED, "one CPU",
                "cpu:1");
}

/* Threads share addresses: an import is the address itself, of any memory. */
static void within_a_process(void **state)
{
    struct dcpk_device *mine = open_device(), *other = open_device();
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t *memory = take(mine, 10000), own[100];
    struct dcpk_memory_id id;
    void *at;

    (void)state;
    CHECK_OK(mine->ops->export_memory(mine, memory + 17, 100, &id, &err), "export");
    CHECK(id.base == (uintptr_t)memory && id.n_bytes == 10000 && id.generation != 0, "all of it");
    CHECK_OK(other->ops->import_memory(other, &id, &at, &err), "import");
    CHECK(at == memory, "the same");
    CHECK_OK(mine->ops->export_memory(mine, own, sizeof own, &id, &err), "any memory");
    CHECK_OK(other->ops->import_memory(other, &id, &at, &err), "any memory");
    CHECK((uint8_t *)at + ((uintptr_t)own - id.base) == own && id.generation == 0, "any memory");
    id.host[3] ^= 1;
    CHECK_FAILS(other->ops->import_memory(other, &id, &at, &err), DCPK_EUNSUPPORTED,
                "another machine", "elsewhere");
    mine->ops->close(mine);
    other->ops->close(other);
    dcpk_devices[0]->close(NULL);
}

/* In another process: what it exports goes to `to`; it ends when `from` is closed. */
static void run_child(int from, int to)
{
    struct dcpk_device *device = open_device();
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_memory_id ids[3];
    uint8_t *memory = take(device, 5000), own[8] = {0};
    char byte;

    for (int i = 0; i < 5000; i++)
        memory[i] = (uint8_t)(i % 251);
    if (device->ops->export_memory(device, memory, 5000, &ids[0], &err) ||
        device->ops->export_memory(device, own, sizeof own, &ids[1], &err) ||
        write(to, ids, sizeof ids[0] * 2) < 0 || read(from, &byte, 1) != 1)
        _exit(1);
    /* the parent has written a byte into it; then the memory goes, and another one comes */
    if (memory[4999] != 77)
        _exit(2);
    device->ops->free(device, memory);
    memory = take(device, 5000);
    memory[0] = 42;
    if (device->ops->export_memory(device, memory, 5000, &ids[2], &err) ||
        write(to, &ids[2], sizeof ids[2]) < 0 || read(from, &byte, 1) != 0)
        _exit(3);
    _exit(0);
}

static void between_processes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_memory_id ids[3];
    struct dcpk_device *device;
    int down[2], up[2], end;
    void *at, *again;
    pid_t child;

    (void)state;
    CHECK(pipe(down) == 0 && pipe(up) == 0, "pipes");
    child = fork();
    if (child == 0) {
        close(down[1]);
        close(up[0]);
        run_child(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    device = open_device();
    CHECK(read(up[0], ids, 2 * sizeof ids[0]) == (ssize_t)(2 * sizeof ids[0]), "ids");
    CHECK_OK(device->ops->import_memory(device, &ids[0], &at, &err), "import");
    for (int i = 0; i < 5000; i++)
        CHECK_EQ_INT(((uint8_t *)at)[i], i % 251, "what the other one wrote");
    CHECK_OK(device->ops->import_memory(device, &ids[0], &again, &err), "again");
    CHECK(at == again, "mapped once");
    ((uint8_t *)at)[4999] = 77;
    CHECK_FAILS(device->ops->import_memory(device, &ids[1], &again, &err), DCPK_EUNSUPPORTED,
                "is private to it", "private");
    CHECK(write(down[1], "", 1) == 1, "the other one looks");
    CHECK(read(up[0], &ids[2], sizeof ids[2]) == (ssize_t)sizeof ids[2], "ids");
    CHECK(ids[2].generation != ids[0].generation, "another generation");
    CHECK_OK(device->ops->import_memory(device, &ids[2], &at, &err), "the new one");
    CHECK_EQ_INT(((uint8_t *)at)[0], 42, "the new one");
    if (ids[2].base == ids[0].base) /* the old mapping was dropped: it cannot be had again */
        CHECK_FAILS(device->ops->import_memory(device, &ids[0], &at, &err), DCPK_EIO, "was freed",
                    "the old one");
    close(down[1]);
    CHECK(waitpid(child, &end, 0) == child && WIFEXITED(end), "ended");
    CHECK_EQ_INT(WEXITSTATUS(end), 0, "child");
    ids[2].handle[5] = 0;
    ids[2].base += 4096 * 16; /* not in the cache, and no process there any more */
    CHECK_FAILS(device->ops->import_memory(device, &ids[2], &at, &err), DCPK_EUNSUPPORTED,
                "memory of process", "gone");
    device->ops->close(device);
    close(up[0]);
}

/* The n-th allocation fails: an error, and nothing is lost. */
static void allocations_fail(void **state)
{
    struct dcpk_tile tile = {.n_elems = 1, .n_rows = 1, .from = DCPK_U8, .to = DCPK_U8};
    const struct dcpk_tile_words words = {0};
    const struct dcpk_device_ops *ops = dcpk_devices[0];

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_device *device = NULL;
        struct dcpk_table *table;
        dcpk_status st;
        void *at;

        dcpk_alloc_fail_nth(nth);
        st = ops->open(&first, &device, &err);
        if (st == DCPK_OK)
            st = ops->alloc(device, DCPK_MEMORY_HOST, 4096, &at, &err);
        if (st == DCPK_OK) {
            const struct dcpk_tiles tiles = {&tile, &words, 1, DCPK_PACE_MEMORY};

            tile.src = tile.dst = (uint64_t)(uintptr_t)at;
            st = ops->load(device, &tiles, &table, &err);
            if (st == DCPK_OK)
                ops->unload(device, table);
        }
        ops->close(device);
        if (dcpk_alloc_fail_nth(0) < nth) {
            CHECK_OK(st, "none failed");
            break;
        }
        CHECK_EQ_INT(st, DCPK_ENOMEM, "failed");
        CHECK(nth < 20, "ends");
    }
}

/* Less than the machine has, more than the process may: both figures are named. */
static void memory_is_short(void **state)
{
    const struct rlimit limit = {64 << 20, 64 << 20};
    const pid_t child = fork();
    int end;

    (void)state;
    if (child == 0) {
        struct dcpk_device *device = open_device();
        struct dcpk_error err = DCPK_ERROR_INIT;
        dcpk_status st = DCPK_OK;
        void *at;

        if (setrlimit(RLIMIT_AS, &limit) == 0)
            st = device->ops->alloc(device, DCPK_MEMORY_DEVICE, 256 << 20, &at, &err);
        _exit(st != DCPK_ENOMEM || strstr(err.text, ": 268435456 bytes asked, ") == NULL ||
              strstr(err.text, " are free") == NULL);
    }
    CHECK(waitpid(child, &end, 0) == child && WIFEXITED(end), "ended");
    CHECK_EQ_INT(WEXITSTATUS(end), 0, "child");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinals),          cmocka_unit_test(within_a_process),
        cmocka_unit_test(between_processes), cmocka_unit_test(allocations_fail),
        cmocka_unit_test(memory_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
