/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_journal.c - any bytes as a journal: the records that are whole, in order, or an error. */
/*
 * The input: how many records get a right checksum, whether the header does (bit 7), the journal.
 * Without that nothing behind the first checksum would ever be reached.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"
#include "lib/write/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { HEADER_BYTES = 44, RECORD_BYTES = 16 }; /* as lib/write/journal.h lays them out */

static void seal(uint8_t *data, size_t n_bytes, unsigned how)
{
    uint32_t seed;

    if (n_bytes < HEADER_BYTES)
        return;
    if (how & 0x80)
        dcpk_store_u32le(data + 40, dcpk_crc32(0, data, 40));
    seed = dcpk_load_u32le(data + 40);
    for (size_t at = HEADER_BYTES; (how & 0x7f) > 0 && n_bytes - at >= RECORD_BYTES; how--) {
        dcpk_store_u32le(data + at + 12, dcpk_crc32(seed, data + at, 12));
        at += RECORD_BYTES;
    }
}

/* What was found is what stands there, and nothing whole stands behind it. */
static void check(const struct dcpk_journal *journal, const uint8_t *data, size_t n_bytes)
{
    const size_t most = n_bytes < HEADER_BYTES ? 0 : (n_bytes - HEADER_BYTES) / RECORD_BYTES;
    const uint8_t *record = data + HEADER_BYTES;

    if (journal->end_bytes == 0 && journal->n_found == 0)
        return;
    if (journal->n_found > most ||
        journal->end_bytes != HEADER_BYTES + journal->n_found * RECORD_BYTES)
        abort();
    for (size_t i = 0; i < journal->n_found; i++, record += RECORD_BYTES)
        if ((journal->found[i].unit | (uint64_t)journal->found[i].is_lost << 63) !=
                dcpk_load_u64le(record) ||
            journal->found[i].crc32 != dcpk_load_u32le(record + 8))
            abort();
    if (journal->n_found < most &&
        dcpk_crc32(dcpk_load_u32le(data + 40), record, 12) == dcpk_load_u32le(record + 12))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_journal journal = {.subject = {{"input"}, {"plan"}, 1 << 20}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t *copy;

    if (n_bytes == 0)
        return 0;
    copy = malloc(n_bytes);
    if (copy == NULL)
        abort();
    memcpy(copy, data + 1, n_bytes - 1);
    seal(copy, n_bytes - 1, data[0]);
    if (dcpk_journal_parse(&journal, copy, n_bytes - 1, &err) == DCPK_OK)
        check(&journal, copy, n_bytes - 1);
    else if (err.status != DCPK_EUSAGE || err.text[0] == '\0')
        abort();
    dcpk_journal_release(&journal);
    free(copy);
    return 0;
}
