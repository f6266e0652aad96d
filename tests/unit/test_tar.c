/* SPDX-License-Identifier: Apache-2.0 */
/* test_tar.c - headers of members, byte by byte as POSIX has them; archives that appear whole. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/io/sink.h"
#include "lib/io/tar.h"
#include "tests/every_alloc.h"
#include "tests/unit/scratch.h"

#define NAME_100                                                                                   \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"  \
    "123456789"

static const struct {
    const char *label, *name;
    uint64_t n_bytes;
    const char *records; /* of the pax header; NULL: there is none */
    const char *size;    /* the field, 11 octal digits */
} cases[] = {
    {"empty", "a", 0, NULL, "00000000000"},
    {"small", "iter_0000004/.metadata", 180876, NULL, "00000541214"},
    {"longest name", NAME_100, 1, NULL, "00000000001"},
    {"a longer name", NAME_100 "x", 8, "111 path=" NAME_100 "x\n", "00000000010"},
    {"largest size", "a", UINT64_C(8589934591), NULL, "77777777777"},
    {"8 GiB", "a", UINT64_C(8589934592), "19 size=8589934592\n", "00000000000"},
    {"both", NAME_100 "y", UINT64_C(1) << 62,
     "111 path=" NAME_100 "y\n28 size=4611686018427387904\n", "00000000000"},
};

/* One block: its sum, by the standard's words, and the fields that matter. */
static void check_block(const uint8_t *block, const char *name, char type, const char *size,
                        const char *label)
{
    unsigned long sum = 0;
    char text[13] = {0};

    for (size_t i = 0; i < DCPK_TAR_BLOCK_BYTES; i++)
        sum += i >= 148 && i < 156 ? 32 : block[i];
    memcpy(text, block + 148, 8);
    CHECK_EQ_INT(strtoul(text, NULL, 8), sum, label);
    CHECK(memcmp(block + 257,
                 "ustar\0"
                 "00",
                 8) == 0,
          label);
    CHECK_EQ_INT(block[156], type, label);
    memcpy(text, block + 124, 12);
    CHECK_EQ_STR(text, size, label);
    CHECK(strncmp((const char *)block, name, 100) == 0, label);
}

static void headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_bytes out = {0};
        const char *label = cases[i].label;
        const size_t n_records = cases[i].records == NULL ? 0 : strlen(cases[i].records);
        char size[32];
        size_t at = 0;

        dcpk_tar_header(&out, cases[i].name, cases[i].n_bytes);
        if (n_records > 0) {
            CHECK_EQ_INT(out.n_bytes, 3 * 512, label);
            snprintf(size, sizeof size, "%011zo", n_records);
            check_block(out.data, "PaxHeaders/records", 'x', size, label);
            CHECK(memcmp(out.data + 512, cases[i].records, n_records) == 0, label);
            for (size_t k = 512 + n_records; k < 1024; k++)
                CHECK_EQ_INT(out.data[k], 0, label);
            at = 1024;
        }
        CHECK_EQ_INT(out.n_bytes, at + 512, label);
        check_block(out.data + at, cases[i].name, '0', cases[i].size, label);
        dcpk_bytes_release(&out);
    }
}

/* Members in the order of their places, not of their making; whole records; nothing before. */
static void packs(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *first = NULL, *second = NULL;
    uint8_t bytes[20480];
    struct stat info;
    FILE *file;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("new/out.tar"), DCPK_FOLDER_TAR, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_put(folder, "tracker", "4", 1, &err), "put");
    CHECK_OK(dcpk_folder_enter(folder, "iter_0000004", &err), "enter");
    CHECK_OK(dcpk_folder_reserve(folder, "b", 3, &err), "reserve");
    CHECK_OK(dcpk_folder_reserve(folder, "a", 512, &err), "reserve");
    CHECK_OK(dcpk_folder_create_hidden(folder, "a", 512, &second, &err), "create");
    CHECK_OK(dcpk_folder_create(folder, "b", 3, &first, &err), "create");
    CHECK_OK(dcpk_sink_write(second, 511, "z", 1, &err), "write");
    CHECK_OK(dcpk_sink_write(first, 0, "123", 3, &err), "write");
    dcpk_sink_flush(first, 0, 3);
    CHECK_OK(dcpk_sink_close(first, &err), "close");
    dcpk_sink_abandon(second);
    CHECK_OK(dcpk_folder_show(folder, "a", &err), "has its name");
    CHECK_OK(dcpk_folder_put(folder, "k/.metadata", NULL, 0, &err), "put in a folder");
    CHECK_FAILS(dcpk_folder_put(folder, "../x", NULL, 0, &err), DCPK_EFORMAT, "plain", "climbs");
    CHECK(!scratch_has("new/out.tar"), "not yet");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK(!scratch_has("new/out.tar.dcpkit-partial"), "moved");
    CHECK_EQ_INT(stat(scratch("new/out.tar"), &info), 0, "there");
    CHECK(S_ISREG(info.st_mode), "a file");
    CHECK_EQ_INT(info.st_size, 10240, "one record");
    file = fopen(scratch("new/out.tar"), "r");
    CHECK(file != NULL, "open");
    CHECK_EQ_INT(fread(bytes, 1, sizeof bytes, file), 10240, "read");
    fclose(file);
    check_block(bytes, "tracker", '0', "00000000001", "tracker");
    CHECK_EQ_INT(bytes[512], '4', "tracker");
    check_block(bytes + 1024, "iter_0000004/b", '0', "00000000003", "b");
    CHECK(memcmp(bytes + 1536, "123\0", 4) == 0, "b");
    check_block(bytes + 2048, "iter_0000004/a", '0', "00000001000", "a");
    CHECK_EQ_INT(bytes[2560 + 511], 'z', "a");
    check_block(bytes + 3072, "iter_0000004/k/.metadata", '0', "00000000000", "k");
    for (size_t i = 3584; i < 10240; i++)
        CHECK_EQ_INT(bytes[i], 0, "the end");
}

static dcpk_status pack(struct dcpk_error *err)
{
    struct dcpk_folder *folder = NULL;
    dcpk_status st = dcpk_folder_begin(scratch("f/out.tar"), DCPK_FOLDER_TAR | DCPK_FOLDER_REPLACE,
                                       &folder, err);

    if (st == DCPK_OK)
        st = dcpk_folder_enter(folder, "inner", err);
    if (st == DCPK_OK)
        st = dcpk_folder_reserve(folder, NAME_100, 3, err);
    if (st == DCPK_OK)
        st = dcpk_folder_put(folder, NAME_100, "abc", 3, err);
    if (st == DCPK_OK)
        st = dcpk_folder_publish(folder, err);
    if (st != DCPK_OK)
        dcpk_folder_abandon(folder);
    CHECK(!scratch_has("f/out.tar.dcpkit-partial"), "nothing half-made is left");
    return st;
}

static void every_failure(void **state)
{
    (void)state;
    every_alloc_fails(pack, 8);
    CHECK(scratch_has("f/out.tar"), "published");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers),
        TEST(packs),
        TEST(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
