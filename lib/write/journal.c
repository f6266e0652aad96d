/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - reads and writes the journal of a conversion. */
#include "lib/write/journal.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"

static const char magic[] = "dcpkjrn3"; /* another layout or meaning gets another number */

/* Records of a unit besides the first: it may be lost and done again. A longer journal is not ours,
 * and would be taken into memory. */
#define MAX_MORE 64u

enum { HEADER_BYTES = 44, RECORD_BYTES = 16 }; /* the last 4 of each are its CRC-32 */
#define LOST (UINT64_C(1) << 63)               /* of a record's unit */

static void put_header(const struct dcpk_journal *journal, uint8_t header[HEADER_BYTES])
{
    memcpy(header, magic, 8);
    memcpy(header + 8, journal->subject.input.digest, 16);
    memcpy(header + 24, journal->subject.plan.digest, 16);
    dcpk_store_u32le(header + 40, dcpk_crc32(0, header, 40));
}

/* The checksum that records begin with: those of another journal do not pass for ours. */
static uint32_t seed_of(const struct dcpk_journal *journal)
{
    uint8_t header[HEADER_BYTES];

    put_header(journal, header);
    return dcpk_load_u32le(header + 40);
}

/* Checks that a header has the same subject. A header that was never written whole has none:
 * *is_whole. */
static dcpk_status check_header(const struct dcpk_journal *journal, const uint8_t *data,
                                bool *is_whole, struct dcpk_error *err)
{
    uint8_t header[HEADER_BYTES];
    const char *other = NULL;

    *is_whole = dcpk_crc32(0, data, 40) == dcpk_load_u32le(data + 40);
    if (!*is_whole)
        return DCPK_OK;
    put_header(journal, header);
    if (memcmp(data, header, 8) != 0)
        other = "was begun by another version of this program";
    else if (memcmp(data + 8, header + 8, 16) != 0)
        other = "has another input, or its input has changed since";
    else if (memcmp(data + 24, header + 24, 16) != 0)
        other = "was begun with other options";
    if (other == NULL)
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE, "the conversion to be resumed %s",
                         other);
}

/* Take the records over, up to the first that is not whole. */
static dcpk_status take_records(struct dcpk_journal *journal, const uint8_t *data, size_t n_bytes,
                                struct dcpk_error *err)
{
    const uint32_t seed = seed_of(journal);
    const size_t most = (n_bytes - HEADER_BYTES) / RECORD_BYTES;

    journal->found = dcpk_alloc_array(most, sizeof *journal->found, err);
    if (journal->found == NULL)
        return err->status;
    for (size_t i = 0; i < most; i++) {
        const uint8_t *record = data + HEADER_BYTES + i * RECORD_BYTES;
        const uint64_t unit = dcpk_load_u64le(record);

        if (dcpk_crc32(seed, record, 12) != dcpk_load_u32le(record + 12))
            break;
        journal->found[journal->n_found++] =
            (struct dcpk_journal_record){unit & ~LOST, dcpk_load_u32le(record + 8), unit & LOST};
    }
    journal->end_bytes = HEADER_BYTES + journal->n_found * RECORD_BYTES;
    return DCPK_OK;
}

dcpk_status dcpk_journal_parse(struct dcpk_journal *journal, const void *data, size_t n_bytes,
                               struct dcpk_error *err)
{
    bool is_whole = false;

    if (n_bytes >= HEADER_BYTES && check_header(journal, data, &is_whole, err) != DCPK_OK)
        return err->status;
    if (!is_whole)
        return DCPK_OK;
    return take_records(journal, data, n_bytes, err);
}

dcpk_status dcpk_journal_open(struct dcpk_folder *folder,
                              const struct dcpk_journal_subject *subject,
                              struct dcpk_journal *journal, struct dcpk_error *err)
{
    const uint64_t max_bytes = HEADER_BYTES + subject->n_units * RECORD_BYTES;
    const uint64_t limit_bytes = max_bytes + subject->n_units * MAX_MORE * RECORD_BYTES;
    struct dcpk_bytes bytes = {0};
    dcpk_status st = dcpk_folder_read_journal(folder, limit_bytes + 1, &bytes, err);

    *journal = (struct dcpk_journal){.folder = folder, .subject = *subject};
    if (st == DCPK_OK && bytes.n_bytes <= limit_bytes)
        st = dcpk_journal_parse(journal, bytes.data, bytes.n_bytes, err);
    if (st == DCPK_OK && bytes.n_bytes > 0 && journal->end_bytes == 0)
        st = dcpk_folder_clear(folder, err); /* the owner of its files is unknown */
    if (st == DCPK_OK)
        dcpk_folder_reserve_journal(folder, max_bytes);
    dcpk_bytes_release(&bytes);
    return st;
}

dcpk_status dcpk_journal_append(struct dcpk_journal *journal,
                                const struct dcpk_journal_record *records, size_t n,
                                struct dcpk_error *err)
{
    const uint32_t seed = seed_of(journal);
    struct dcpk_bytes bytes = {0};
    uint8_t header[HEADER_BYTES];
    dcpk_status st;

    if (journal->end_bytes == 0) {
        put_header(journal, header);
        dcpk_bytes_put(&bytes, header, sizeof header);
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t record[RECORD_BYTES];

        dcpk_store_u64le(record, records[i].unit | (records[i].is_lost ? LOST : 0));
        dcpk_store_u32le(record + 8, records[i].crc32);
        dcpk_store_u32le(record + 12, dcpk_crc32(seed, record, 12));
        dcpk_bytes_put(&bytes, record, sizeof record);
    }
    st = dcpk_bytes_status(&bytes, err);
    if (st == DCPK_OK)
        st = dcpk_folder_write_journal(journal->folder, journal->end_bytes, bytes.data,
                                       bytes.n_bytes, err);
    if (st == DCPK_OK)
        journal->end_bytes += bytes.n_bytes;
    dcpk_bytes_release(&bytes);
    return st;
}

void dcpk_journal_release(struct dcpk_journal *journal)
{
    dcpk_free(journal->found);
    journal->found = NULL;
    journal->n_found = 0;
}
