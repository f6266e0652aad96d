/* SPDX-License-Identifier: Apache-2.0 */
/* test_journal.c - what a journal gives back, whole or damaged, and whose it is. */
#include <fcntl.h>

#include "kernels/kernels.h"
#include "lib/base/bytes.h"
#include "lib/base/digest.h"
#include "lib/write/journal.h"
#include "tests/unit/scratch.h"

enum { N = 8, HEADER_BYTES = 44, RECORD_BYTES = 16 }; /* as lib/write/journal.h lays them out */

#define JOURNAL "out.dcpkit-partial/.dcpkit-journal"

static const struct dcpk_journal_subject subject = {{"input"}, {"plan"}, 1 << 20};

static struct dcpk_journal_record record(uint64_t i)
{
    return (struct dcpk_journal_record){i * i * UINT64_C(0x100000001), (uint32_t)(i * 0x9e3779b9),
                                        i % 3 == 2};
}

static struct dcpk_folder *begin(unsigned flags, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    CHECK_OK(dcpk_folder_begin(scratch("out"), flags, &folder, &err), label);
    return folder;
}

/* A partial folder with N records, written in three goes, and a file. */
static void write_journal(void)
{
    struct dcpk_folder *folder = begin(DCPK_FOLDER_REPLACE, "write");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_journal_record records[N];
    struct dcpk_journal journal;

    for (uint64_t i = 0; i < N; i++)
        records[i] = record(i);
    CHECK_OK(dcpk_folder_put(folder, "file", "data", 4, &err), "put");
    CHECK_OK(dcpk_journal_open(folder, &subject, &journal, &err), "open");
    CHECK_EQ_INT(journal.n_found, 0, "nothing yet");
    CHECK_OK(dcpk_journal_append(&journal, records, 5, &err), "5");
    CHECK_OK(dcpk_journal_append(&journal, records + 5, 0, &err), "none");
    CHECK_OK(dcpk_journal_append(&journal, records + 5, N - 5, &err), "the rest");
    CHECK(dcpk_folder_keep(folder), "keep");
    dcpk_folder_abandon(folder);
    dcpk_journal_release(&journal);
}

/* Open it again: the first n records are there, and the file unless n is less than 0. */
static void check_found(int n, const char *label)
{
    struct dcpk_folder *folder = begin(DCPK_FOLDER_RESUME, label);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_journal journal;

    CHECK_OK(dcpk_journal_open(folder, &subject, &journal, &err), label);
    CHECK_EQ_INT(journal.n_found, n < 0 ? 0 : n, label);
    for (size_t i = 0; i < journal.n_found; i++) {
        CHECK(journal.found[i].unit == record(i).unit, label);
        CHECK(journal.found[i].crc32 == record(i).crc32, label);
        CHECK_EQ_INT(journal.found[i].is_lost, record(i).is_lost, label);
    }
    CHECK_EQ_INT(scratch_has("out.dcpkit-partial/file"), n >= 0, label);
    dcpk_journal_release(&journal);
    CHECK_EQ_INT(dcpk_folder_keep(folder), true, label);
    dcpk_folder_abandon(folder);
}

static void whole(void **state)
{
    (void)state;
    write_journal();
    check_found(N, "first");
    check_found(N, "again");
}

/* Cut off anywhere: what was being written when the system went down. */
static void torn(void **state)
{
    char label[32];

    (void)state;
    for (int n = HEADER_BYTES + N * RECORD_BYTES; n >= 0; n -= 5) {
        snprintf(label, sizeof label, "%d bytes", n);
        write_journal();
        CHECK_EQ_INT(truncate(scratch(JOURNAL), n), 0, label);
        check_found(n < HEADER_BYTES ? -1 : (n - HEADER_BYTES) / RECORD_BYTES, label);
    }
}

static void flip(int at)
{
    const int fd = open(scratch(JOURNAL), O_RDWR);
    uint8_t byte = 0;

    CHECK_EQ_INT(pread(fd, &byte, 1, at), 1, "read");
    byte ^= (uint8_t)(1 << at % 8);
    CHECK_EQ_INT(pwrite(fd, &byte, 1, at), 1, "write");
    close(fd);
}

/* A bit is wrong: nothing from there on counts, as what it was is not known. */
static void flipped(void **state)
{
    char label[32];

    (void)state;
    for (int at = 0; at < HEADER_BYTES + N * RECORD_BYTES; at += 7) {
        snprintf(label, sizeof label, "byte %d", at);
        write_journal();
        flip(at);
        check_found(at < HEADER_BYTES ? -1 : (at - HEADER_BYTES) / RECORD_BYTES, label);
    }
}

/* Records go behind what was whole, over what was not. */
static void goes_on(void **state)
{
    struct dcpk_journal_record more[N];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_journal journal;
    struct dcpk_folder *folder;

    (void)state;
    for (uint64_t i = 0; i < N; i++)
        more[i] = record(i);
    write_journal();
    CHECK_EQ_INT(truncate(scratch(JOURNAL), HEADER_BYTES + 3 * RECORD_BYTES + 7), 0, "torn");
    folder = begin(DCPK_FOLDER_RESUME, "resume");
    CHECK_OK(dcpk_journal_open(folder, &subject, &journal, &err), "open");
    CHECK_EQ_INT(journal.n_found, 3, "three are whole");
    CHECK_OK(dcpk_journal_append(&journal, more + 3, N - 3, &err), "append");
    dcpk_journal_release(&journal);
    dcpk_folder_abandon(folder);
    check_found(N, "all");
}

/* When the disk gets full there is room to say what was done. */
static void has_room(void **state)
{
    const int fd = open(scratch("probe"), O_WRONLY | O_CREAT, 0666);
    struct stat info;

    (void)state;
    CHECK(fd >= 0, "probe");
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4096) != 0)
        skip(); /* not on this file system */
    close(fd);
    write_journal();
    CHECK_EQ_INT(stat(scratch(JOURNAL), &info), 0, "stat");
    CHECK_EQ_INT(info.st_size, HEADER_BYTES + N * RECORD_BYTES,
                 "its length is that of what it holds");
    CHECK((uint64_t)info.st_blocks * 512 >= subject.n_units * RECORD_BYTES, "room for all records");
}

static const struct {
    const char *label;
    struct dcpk_journal_subject subject;
    const char *text;
} others[] = {
    {"input", {{"output"}, {"plan"}, N}, "has another input"},
    {"plan", {{"input"}, {"plam"}, N}, "begun with other options"},
    {"both: the input is told first", {{"output"}, {"plam"}, N}, "has another input"},
};

static void of_another(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    write_journal();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct dcpk_folder *folder = begin(DCPK_FOLDER_RESUME, others[i].label);
        struct dcpk_journal journal;

        CHECK_FAILS(dcpk_journal_open(folder, &others[i].subject, &journal, &err), DCPK_EUSAGE,
                    others[i].text, others[i].label);
        CHECK_EQ_INT(err.fixes, DCPK_FIX_REPLACE, others[i].label);
        dcpk_journal_release(&journal);
        dcpk_folder_abandon(folder);
    }
    check_found(N, "it is not touched");
}

/* The same header but for its first bytes, with a checksum that fits. */
static void of_another_version(void **state)
{
    struct dcpk_folder *folder;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_journal journal;
    uint8_t header[HEADER_BYTES] = "dcpkjrn9";
    struct dcpk_bytes bytes = {0};

    (void)state;
    write_journal();
    dcpk_bytes_put(&bytes, header, 40);
    dcpk_bytes_u32(&bytes, dcpk_crc32(0, header, 40));
    folder = begin(DCPK_FOLDER_RESUME, "resume");
    CHECK_OK(dcpk_folder_write_journal(folder, 0, bytes.data, bytes.n_bytes, &err), "write");
    CHECK_FAILS(dcpk_journal_open(folder, &subject, &journal, &err), DCPK_EUSAGE, "another version",
                "version");
    dcpk_bytes_release(&bytes);
    dcpk_journal_release(&journal);
    dcpk_folder_abandon(folder);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whole),
        TEST(torn),
        TEST(flipped),
        TEST(goes_on),
        TEST(has_room),
        TEST(of_another),
        TEST(of_another_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
