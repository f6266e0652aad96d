/* SPDX-License-Identifier: Apache-2.0 */
/* test_zip.c - an archive that torch wrote, and what it may not look like. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/torch/item.h"
#include "tests/check.h"

/* layers.weight of rank 1 in tiny_generations/torch_dist_main_torch2.11: bf16 (1, 2, 4), written by
 * torch 2.11. */
#define ITEM_AT      2838u
#define ITEM_BYTES   1577u
#define RECORD_AT    704u
#define RECORD_BYTES 16u
/* Signatures to count occurrences of. */
#define LOCAL   "PK\003\004"
#define CENTRAL "PK\001\002"
#define END64   "PK\006\006"
#define LOCATOR "PK\006\007"
#define END     "PK\005\006"

static uint8_t item[ITEM_BYTES];

static int load_item(void **state)
{
    FILE *f = fopen(DCPK_SOURCE_DIR
                    "/sample-data/tiny_generations/torch_dist_main_torch2.11/__1_0.distcp",
                    "rb");
    int failed;

    (void)state;
    if (f == NULL)
        return -1;
    failed = fseek(f, ITEM_AT, SEEK_SET) != 0 || fread(item, 1, sizeof item, f) != sizeof item;
    fclose(f);
    return failed ? -1 : 0;
}

/* Read bytes as an item between two runs of foreign bytes. */
static dcpk_status read_as(const uint8_t *data, size_t n, const struct dcpk_item_form *expected,
                           struct dcpk_item_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    struct dcpk_item_range range = {.offset_bytes = 10, .n_bytes = n};
    uint8_t *padded = calloc(1, n + 20);
    dcpk_status st;

    assert_non_null(padded);
    memcpy(padded + 10, data, n);
    assert_int_equal(dcpk_store_new_memory("memory", &store, err), DCPK_OK);
    assert_int_equal(dcpk_store_add_memory(store, "item", padded, n + 20, err), DCPK_OK);
    assert_int_equal(dcpk_store_find(store, "item", &range.source, err), DCPK_OK);
    st = dcpk_item_read_tensor(&range, expected, tensor, err);
    dcpk_store_close(store);
    free(padded);
    return st;
}

static dcpk_status read_bytes(const uint8_t *data, size_t n, struct dcpk_item_tensor *tensor,
                              struct dcpk_error *err)
{
    return read_as(data, n, NULL, tensor, err);
}

/* A guess changes nothing, right or wrong. */
static void guesses_mean_nothing(void **state)
{
    static const int64_t right[] = {1, 2, 4}, wrong[] = {2, 1, 4};
    static const struct dcpk_item_form guesses[] = {{DCPK_BF16, 3, right},
                                                    {DCPK_BF16, 3, wrong},
                                                    {DCPK_F16, 3, right},
                                                    {DCPK_BF16, 2, right},
                                                    {DCPK_BF16, 0, NULL}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_item_tensor want, got;

    (void)state;
    CHECK_OK(read_bytes(item, sizeof item, &want, &err), "no guess");
    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++) {
        CHECK_OK(read_as(item, sizeof item, &guesses[i], &got, &err), "guess");
        CHECK(got.dtype == want.dtype && got.rank == want.rank &&
                  got.first_bytes == want.first_bytes && got.record_bytes == want.record_bytes &&
                  got.record_crc32 == want.record_crc32,
              "guess");
        for (int axis = 0; axis < want.rank; axis++)
            CHECK(got.shape[axis] == want.shape[axis] &&
                      got.stride_elems[axis] == want.stride_elems[axis],
                  "guess");
    }
}

static void reads_what_torch_wrote(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_item_tensor t;

    (void)state;
    CHECK_OK(read_bytes(item, sizeof item, &t, &err), "golden");
    CHECK_EQ_INT(t.dtype, DCPK_BF16, "golden");
    CHECK_EQ_INT(t.rank, 3, "golden");
    CHECK_EQ_INT(t.shape[0], 1, "golden");
    CHECK_EQ_INT(t.shape[1], 2, "golden");
    CHECK_EQ_INT(t.shape[2], 4, "golden");
    CHECK_EQ_INT(t.stride_elems[1], 4, "golden");
    CHECK_EQ_INT(t.first_bytes, 10 + RECORD_AT, "golden");
    CHECK_EQ_INT(t.record_offset_bytes, 10 + RECORD_AT, "golden");
    CHECK_EQ_INT(t.record_bytes, RECORD_BYTES, "golden");
}

/* The nth place of a signature in the item. */
static size_t find_mark(const char *mark, int nth)
{
    for (size_t i = 0; i + 4 <= sizeof item; i++)
        if (memcmp(item + i, mark, 4) == 0 && nth-- == 0)
            return i;
    fail_msg("no signature");
    return 0;
}

/* Patches: up to two runs of bytes at offsets from the nth signature. Entry 4 is data/0. */
static const struct {
    const char *label, *mark;
    int nth;
    size_t at_1, n_1;
    const char *bytes_1;
    size_t at_2, n_2;
    const char *bytes_2;
    dcpk_status status;
    const char *text;
} patches[] = {
    {"encrypted", CENTRAL, 4, 8, 1, "\x09", 0, 0, "", DCPK_EUNSUPPORTED, "encrypted"},
    {"patched data", CENTRAL, 4, 8, 1, "\x28", 0, 0, "", DCPK_EUNSUPPORTED, "flags 0x0828"},
    {"deflated", CENTRAL, 4, 10, 1, "\x08", 0, 0, "", DCPK_EUNSUPPORTED, "compressed"},
    {"comment", CENTRAL, 4, 32, 1, "\x01", 0, 0, "", DCPK_EUNSUPPORTED, "comment"},
    {"stored size", CENTRAL, 4, 20, 1, "\x11", 0, 0, "", DCPK_EFORMAT, "claims"},
    {"saturated without zip64", CENTRAL, 4, 20, 4, "\xff\xff\xff\xff", 0, 0, "", DCPK_EFORMAT,
     "zip64 field"},
    {"longer than its place", CENTRAL, 4, 20, 1, "\x30", 24, 1, "\x30", DCPK_EFORMAT, "overlap"},
    {"shorter than its place", CENTRAL, 4, 20, 1, "\x07", 24, 1, "\x07", DCPK_EFORMAT,
     "descriptor"},
    {"shorter than its tensor", CENTRAL, 4, 20, 1, "\x0c", 24, 1, "\x0c", DCPK_EFORMAT,
     "descriptor"},
    {"past the directory", CENTRAL, 6, 20, 2, "\x00\x7f", 24, 2, "\x00\x7f", DCPK_EFORMAT,
     "overlap"},
    {"header elsewhere", CENTRAL, 4, 42, 1, "\x57", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"header outside", CENTRAL, 4, 42, 2, "\xff\xff", 0, 0, "", DCPK_EFORMAT, "pass the end"},
    {"pickle's CRC", CENTRAL, 0, 16, 1, "\x00", 0, 0, "", DCPK_EFORMAT, "descriptor"},
    {"pickle's bytes", LOCAL, 0, 101, 1, "\x7f", 0, 0, "", DCPK_EFORMAT, "damaged"},
    {"central name", CENTRAL, 3, 46, 1, "b", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"no central entry", CENTRAL, 3, 0, 1, "Q", 0, 0, "", DCPK_EFORMAT, "directory entry 3"},
    {"local method", LOCAL, 4, 8, 1, "\x08", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"local flags", LOCAL, 4, 6, 1, "\x00", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"local name", LOCAL, 4, 40, 1, "e", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"local extra", LOCAL, 4, 28, 1, "\x3f", 0, 0, "", DCPK_EFORMAT, "descriptor"},
    {"descriptor's CRC", "PK\007\010", 4, 4, 1, "\x00", 0, 0, "", DCPK_EFORMAT, "descriptor"},
    {"descriptor's size", "PK\007\010", 4, 12, 1, "\x11", 0, 0, "", DCPK_EFORMAT, "descriptor"},
    {"local header", LOCAL, 4, 0, 1, "Q", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"end mark", END, 0, 0, 1, "Q", 0, 0, "", DCPK_EFORMAT, "not an end record"},
    {"end comment", END, 0, 20, 1, "\x01", 0, 0, "", DCPK_EFORMAT, "not an end record"},
    {"two parts", END, 0, 4, 1, "\x01", 0, 0, "", DCPK_EUNSUPPORTED, "several parts"},
    {"entry count", END, 0, 8, 1, "\x06", 10, 1, "\x06", DCPK_EFORMAT, "end records disagree"},
    {"directory size", END, 0, 12, 1, "\x00", 0, 0, "", DCPK_EFORMAT, "end records disagree"},
    {"directory place", END, 0, 16, 1, "\x00", 0, 0, "", DCPK_EFORMAT, "end records disagree"},
    {"zip64 mark", END64, 0, 0, 1, "Q", 0, 0, "", DCPK_EFORMAT, "no zip64 end record"},
    {"zip64 counts", END64, 0, 24, 1, "\x06", 0, 0, "", DCPK_EFORMAT, "disagree"},
    {"locator place", LOCATOR, 0, 8, 1, "\x00", 0, 0, "", DCPK_EFORMAT, "locator"},
    {"no locator", LOCATOR, 0, 0, 1, "Q", 0, 0, "", DCPK_EFORMAT, "does not end at"},
};

static void refuses_archives_that_lie(void **state)
{
    struct dcpk_item_tensor t;
    uint8_t data[ITEM_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const size_t at = find_mark(patches[i].mark, patches[i].nth);

        memcpy(data, item, sizeof data);
        memcpy(data + at + patches[i].at_1, patches[i].bytes_1, patches[i].n_1);
        memcpy(data + at + patches[i].at_2, patches[i].bytes_2, patches[i].n_2);
        CHECK_FAILS(read_bytes(data, sizeof data, &t, &err), patches[i].status, patches[i].text,
                    patches[i].label);
        CHECK(strstr(err.text, "item at byte 10 of 'item'") != NULL, patches[i].label);
    }
}

static void refuses_two_prefixes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_item_tensor t;
    uint8_t data[ITEM_BYTES];

    (void)state;
    memcpy(data, item, sizeof data);
    data[find_mark(LOCAL, 3) + 36] = 'f';
    data[find_mark(CENTRAL, 3) + 52] = 'f';
    CHECK_FAILS(read_bytes(data, sizeof data, &t, &err), DCPK_EFORMAT, "not in the folder",
                "two prefixes");
}

/* Every cut of the item is refused, and every change of one byte ends in a tensor inside the item
 * or an error. */
static void survives_cuts_and_changes(void **state)
{
    struct dcpk_item_tensor t;
    uint8_t data[ITEM_BYTES];
    char label[64];

    (void)state;
    for (size_t n = 0; n < sizeof item; n++) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        snprintf(label, sizeof label, "cut to %zu bytes", n);
        CHECK(read_bytes(item, n, &t, &err) != DCPK_OK, label);
    }
    for (size_t at = 0; at < sizeof item; at++) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        snprintf(label, sizeof label, "byte %zu changed", at);
        memcpy(data, item, sizeof data);
        data[at] ^= 0x5a;
        if (read_bytes(data, sizeof data, &t, &err) == DCPK_OK)
            CHECK(t.record_offset_bytes == 10 + RECORD_AT && t.record_bytes == RECORD_BYTES &&
                      t.first_bytes == 10 + RECORD_AT && t.shape[2] == 4,
                  label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_torch_wrote),    cmocka_unit_test(guesses_mean_nothing),
        cmocka_unit_test(refuses_archives_that_lie), cmocka_unit_test(refuses_two_prefixes),
        cmocka_unit_test(survives_cuts_and_changes),
    };

    return cmocka_run_group_tests(tests, load_item, NULL);
}
