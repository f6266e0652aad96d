/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_shards.c - any bytes as the file of each rank of FSDP: chunks inside the files, or an error.
 */
#include <stdio.h>
#include <stdlib.h>

#include "formats/fsdp_shards/fsdp_shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Each chunk has its bytes in its file, and so has its record. */
static void check_chunks(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; i < ckpt->n_chunks; i++) {
        const struct dcpk_chunk *chunk = &ckpt->chunks[i];
        const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
        uint64_t n = dcpk_dtype_bytes(tensor->dtype), file_bytes;
        struct dcpk_extent where;

        if (ckpt->format->reader->locate(ckpt, chunk, NULL, &where, &err) != DCPK_OK)
            abort();
        for (int a = 0; a < tensor->rank; a++)
            n *= (uint64_t)chunk->span[tensor->rank + a];
        file_bytes = dcpk_source_bytes(where.source);
        if (n == 0 || n != chunk->place.n_bytes || !where.is_row_major ||
            where.first_bytes > file_bytes || n > file_bytes - where.first_bytes ||
            where.record_offset_bytes > file_bytes ||
            where.record_bytes > file_bytes - where.record_offset_bytes)
            abort();
    }
}

/* The first byte is the number of ranks, up to 4; all have the same file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct dcpk_format *const formats[] = {&dcpk_format_fsdp_shards, NULL};
    const int n_ranks = n_bytes == 0 ? 1 : 1 + data[0] % 4;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;
    char text[80];
    int n;

    if (n_bytes == 0 || dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        return 0;
    n = snprintf(text, sizeof text, "{\"FSDP_version\": 2, \"world_size\": %d}", n_ranks);
    if (dcpk_store_add_memory(store, "fsdp_config.json", text, (size_t)n, &err) != DCPK_OK)
        abort();
    for (int rank = 0; rank < n_ranks; rank++) {
        snprintf(text, sizeof text, "model_world_size_%d_rank_%d.pt", n_ranks, rank);
        if (dcpk_store_add_memory(store, text, data + 1, n_bytes - 1, &err) != DCPK_OK)
            abort();
    }
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err) == DCPK_OK) {
        check_chunks(ckpt);
        (void)dcpk_checkpoint_check_cover(ckpt, &err);
        err = (struct dcpk_error)DCPK_ERROR_INIT;
        if (ckpt->format->check_copies(ckpt, &err) != DCPK_OK && err.status == DCPK_EIO)
            abort();
    }
    dcpk_checkpoint_close(ckpt);
    return 0;
}
