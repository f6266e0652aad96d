/* SPDX-License-Identifier: Apache-2.0 */
/* flat_fake.h - stored tensors whose elements are their own numbers, to see where a view puts them.
 */
#ifndef DCPK_TESTS_FLAT_FAKE_H
#define DCPK_TESTS_FLAT_FAKE_H

#include "tests/element.h"
#include "tests/fake_ckpt.h"

/* Add an int64 tensor: element i, counted row-major, is i. In these chunks, which need not cover
 * it; they hold runs of it, so that each is one run of bytes. */
static inline uint32_t flat_add(struct fake *fake, int rank, const int64_t *shape,
                                const struct dcpk_box *chunks, size_t n_chunks)
{
    const size_t t = fake->n_tensors;
    const int64_t n_elems = fake_elems(shape, rank);
    uint64_t seed = t;
    int64_t *data = malloc((size_t)n_elems * sizeof *data + 1);

    CHECK(data != NULL, "memory");
    for (int64_t i = 0; i < n_elems; i++)
        data[i] = i;
    memcpy(fake->shapes[t], shape, (size_t)rank * sizeof *shape);
    snprintf(fake->keys[t], sizeof fake->keys[t], "tensor%zu", t);
    fake->data[t] = (uint8_t *)data;
    fake->tensors[t] = (struct dcpk_tensor){.key = fake->keys[t],
                                            .dtype = DCPK_I64,
                                            .rank = rank,
                                            .shape = fake->shapes[t],
                                            .first_chunk = fake->n_chunks,
                                            .n_chunks = n_chunks};
    for (size_t i = 0; i < n_chunks; i++) {
        fake_store(fake, &chunks[i], &seed);
        fake->chunks[fake->n_chunks - 1].extent.is_row_major = true;
    }
    return (uint32_t)fake->n_tensors++;
}

/* Element `i`, counted row-major, of a chunk, wherever it lies. */
static inline int64_t flat_read(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                int64_t i, const char *label)
{
    int64_t value = -1;

    element_read(ckpt, chunk, i, &value, label);
    return value;
}

#endif
