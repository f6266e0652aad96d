/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ranks.h - checks of a checkpoint with a file for each rank, whatever its bytes. */
#ifndef DCPK_TESTS_FUZZ_FUZZ_RANKS_H
#define DCPK_TESTS_FUZZ_FUZZ_RANKS_H

#include <stdlib.h>

#include "lib/ckpt/format.h"

/* Each chunk has its bytes in its file, and so has its record. */
static inline void fuzz_check_chunks(struct dcpk_checkpoint *ckpt)
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

/* The chunks, and that reading copies and covers gives an error at most. */
static inline void fuzz_check_pieces(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    fuzz_check_chunks(ckpt);
    (void)dcpk_checkpoint_check_cover(ckpt, &err);
    dcpk_error_clear(&err);
    if (ckpt->format->check_copies(ckpt, &err) != DCPK_OK && err.status == DCPK_EIO)
        abort();
}

#endif
