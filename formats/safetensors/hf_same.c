/* SPDX-License-Identifier: Apache-2.0 */
/* hf_same.c - compares the bytes of two tensors that files repeat. */
#include <string.h>

#include "formats/safetensors/hf_model.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define BLOCK_BYTES ((size_t)1 << 20)

static bool same_form(const struct dcpk_tensor *a, const struct dcpk_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* Every tensor is one chunk, whose bytes are row-major. */
static dcpk_status same_bytes(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *a,
                              const struct dcpk_chunk *b, uint8_t *blocks, bool *same,
                              struct dcpk_error *err)
{
    struct dcpk_source *source_a = ckpt->files[a->place.file];
    struct dcpk_source *source_b = ckpt->files[b->place.file];

    *same = true;
    for (uint64_t at = 0; *same && at < a->place.n_bytes; at += BLOCK_BYTES) {
        const size_t n = (size_t)dcpk_min_u64(BLOCK_BYTES, a->place.n_bytes - at);

        if (dcpk_source_read(source_a, a->place.offset_bytes + at, blocks, n, err) ||
            dcpk_source_read(source_b, b->place.offset_bytes + at, blocks + BLOCK_BYTES, n, err))
            return err->status;
        *same = memcmp(blocks, blocks + BLOCK_BYTES, n) == 0;
    }
    return DCPK_OK;
}

dcpk_status dcpk_hf_same_bytes(struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b, bool *same,
                               struct dcpk_error *err)
{
    const struct dcpk_tensor *x = &ckpt->tensors[a], *y = &ckpt->tensors[b];
    uint8_t *blocks;

    *same = same_form(x, y);
    if (!*same)
        return DCPK_OK;
    blocks = dcpk_alloc(2 * BLOCK_BYTES, err);
    if (blocks == NULL)
        return err->status;
    (void)same_bytes(ckpt, &ckpt->chunks[x->first_chunk], &ckpt->chunks[y->first_chunk], blocks,
                     same, err);
    dcpk_free(blocks);
    return err->status;
}
