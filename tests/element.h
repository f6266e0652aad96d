/* SPDX-License-Identifier: Apache-2.0 */
/* element.h - one element of a stored chunk. */
#ifndef DCPK_TESTS_ELEMENT_H
#define DCPK_TESTS_ELEMENT_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/format.h"
#include "tests/check.h"

/* Element `i`, counted row-major, of a chunk, wherever it lies: as many bytes as its tensor's dtype
 * has. */
static inline void element_read(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                int64_t i, void *value, const char *label)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_extent where;
    int64_t at;

    CHECK_OK(dcpk_checkpoint_locate(ckpt, chunk, NULL, &where, &err), label);
    at = (int64_t)where.first_bytes;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        at += i % chunk->span[tensor->rank + axis] * where.stride_bytes[axis];
        i /= chunk->span[tensor->rank + axis];
    }
    CHECK_OK(
        dcpk_source_read(where.source, (uint64_t)at, value, dcpk_dtype_bytes(tensor->dtype), &err),
        label);
}

#endif
