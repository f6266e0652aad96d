/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_shards.c - any bytes as the files of each rank of FSDP: chunks inside the files, or an
 * error.
 */
#include <stdio.h>
#include <stdlib.h>

#include "formats/fsdp_shards/fsdp_shards.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"

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

/* Each object is a plain value. */
static void check_objects(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *value;

    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_checkpoint_load_item(ckpt, &ckpt->objects[i], ckpt->arena, &value, &err) !=
                DCPK_OK ||
            value->kind > DCPK_V_LIST)
            abort();
}

/* The same file for each rank, where it has bytes. */
static void add_files(struct dcpk_store *store, const char *prefix, int n_ranks,
                      const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char name[80];

    for (int rank = 0; rank < n_ranks && n_bytes > 0; rank++) {
        snprintf(name, sizeof name, "%s_world_size_%d_rank_%d.pt", prefix, n_ranks, rank);
        if (dcpk_store_add_memory(store, name, data, n_bytes, &err) != DCPK_OK)
            abort();
    }
}

/* The number of ranks less one (two bits), the bytes of the model's file (four), that file, that of
 * the optimizer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct dcpk_format *const formats[] = {&dcpk_format_fsdp_shards, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;
    char text[80];
    size_t n_model;
    int n_ranks, n;

    if (n_bytes < 5 || dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        return 0;
    n_ranks = 1 + data[0] % 4;
    n_model = dcpk_min_size(dcpk_load_u32le(data + 1), n_bytes - 5);
    n = snprintf(text, sizeof text, "{\"FSDP_version\": 2, \"world_size\": %d}", n_ranks);
    if (dcpk_store_add_memory(store, "fsdp_config.json", text, (size_t)n, &err) != DCPK_OK)
        abort();
    add_files(store, "model", n_ranks, data + 5, n_model);
    add_files(store, "optim", n_ranks, data + 5 + n_model, n_bytes - 5 - n_model);
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err) == DCPK_OK) {
        check_chunks(ckpt);
        (void)dcpk_checkpoint_check_cover(ckpt, &err);
        err = (struct dcpk_error)DCPK_ERROR_INIT;
        if (ckpt->format->check_copies(ckpt, &err) != DCPK_OK && err.status == DCPK_EIO)
            abort();
        check_objects(ckpt);
    }
    dcpk_checkpoint_close(ckpt);
    return 0;
}
