/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_delta.c - any bytes as the tables of a delta: records that cover every file, or an error. */
/*
 * The input: the length of delta.index without its last hash (two bytes, little-endian), that, and
 * part.000000. Hashes and the identity of BASE's file are made right: nothing behind them would
 * ever be reached.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "lib/base/cursor.h"
#include "lib/ckpt/seen.h"
#include "lib/job/delta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { BASE_BYTES = 4096, RECORD_BYTES = 40, RECORDS_AT = 24, SEEN_AT = 56 }; /* lib/job/DELTA.md */

static void put_hash(const uint8_t *data, size_t n_bytes, uint8_t *out)
{
    struct dcpk_hash hash;

    dcpk_hash_bytes(data, n_bytes, &hash);
    memcpy(out, hash.digest, sizeof hash.digest);
}

static uint64_t count_records(const uint8_t *part, size_t n_bytes)
{
    const uint64_t most = n_bytes < 8 ? 0 : (n_bytes - 8) / RECORD_BYTES;

    return most > 0 && dcpk_load_u64le(part) < most ? dcpk_load_u64le(part) : most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const uint8_t content[BASE_BYTES] = "the base";
    static uint8_t index[65536 + 16];
    const struct dcpk_env env = {.codec = dcpk_zstd};
    const struct dcpk_delta_job job = {.env = &env, .is_dry = true};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *base, *delta;
    struct dcpk_source *source;
    struct dcpk_delta_counts counts;
    struct dcpk_hash seen;
    uint64_t n_records, sum = 0;
    size_t n_index;

    if (n_bytes < 2 || n_bytes - 2 < (n_index = dcpk_load_u16le(data)) ||
        n_index < SEEN_AT + sizeof seen.digest)
        return 0;
    memcpy(index, data + 2, n_index);
    data += 2 + n_index;
    n_bytes -= 2 + n_index;
    if (dcpk_store_new_memory("base", &base, &err) ||
        dcpk_store_add_borrowed(base, "m", content, sizeof content, &err) ||
        dcpk_store_find(base, "m", &source, &err) || dcpk_seen_file(source, &seen, &err) ||
        dcpk_store_new_memory("delta", &delta, &err))
        abort();
    memcpy(index + SEEN_AT, seen.digest, sizeof seen.digest);
    n_records = count_records(data, n_bytes);
    put_hash(data + (n_bytes < 8 ? 0 : 8), n_records * RECORD_BYTES, index + RECORDS_AT);
    put_hash(index, n_index, index + n_index);
    if (dcpk_store_add_borrowed(delta, "delta.index", index, n_index + 16, &err) ||
        dcpk_store_add_borrowed(delta, "part.000000", data, n_bytes, &err))
        abort();
    if (dcpk_delta_apply(base, delta, &job, &counts, &err) == DCPK_OK) {
        for (uint64_t i = 0; i < n_records; i++)
            sum += dcpk_load_u32le(data + 8 + i * RECORD_BYTES);
        if (sum != counts.n_bytes && dcpk_load_u64le(index + 16) == 1)
            abort();
    } else if (err.text[0] == '\0') {
        abort();
    }
    dcpk_store_close(delta);
    dcpk_store_close(base);
    return 0;
}
