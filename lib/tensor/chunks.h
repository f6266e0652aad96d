/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h - a tensor cut into boxes: equal blocks, or rows of at most so many elements. */
#ifndef DCPK_LIB_TENSOR_CHUNKS_H
#define DCPK_LIB_TENSOR_CHUNKS_H

#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/tensor/box.h"

/* Boxes of a tensor, packed: n pointers to 2 * rank numbers each, in an arena. */
struct dcpk_span_list {
    const int64_t *const *spans;
    size_t n;
};

/*
 * Cut each axis into blocks of step[a] >= 1 rows, the last one perhaps shorter: their boxes,
 * row-major; an empty tensor has none. list: in the arena, set on success only. Errors: DCPK_ERANGE
 * when the tensor passes INT64_MAX elements; DCPK_ENOMEM.
 */
dcpk_status dcpk_block_chunks(const int64_t *shape, int rank, const int64_t *step,
                              struct dcpk_arena *arena, struct dcpk_span_list *list,
                              struct dcpk_error *err);

/*
 * Cut `shape` into row-aligned boxes of at most limit_elems elements each, but never less than one:
 * as few as possible, along the first axis, along the next ones where a single row is larger. A
 * scalar and an empty tensor give one box. list, errors: as above.
 */
dcpk_status dcpk_row_chunks(const int64_t *shape, int rank, uint64_t limit_elems,
                            struct dcpk_arena *arena, struct dcpk_span_list *list,
                            struct dcpk_error *err);

#endif
