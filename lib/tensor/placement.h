/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - how a tensor is cut over a mesh of ranks, as a value; the boxes that follow from
 * it. */
#ifndef DCPK_LIB_TENSOR_PLACEMENT_H
#define DCPK_LIB_TENSOR_PLACEMENT_H

#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/tensor/box.h"

#define DCPK_MAX_MESH 8

/* Named dimensions of ranks, slowest first: {"pp", "dp", "tp"}. A value. */
struct dcpk_mesh {
    int n_dims;
    const char *name[DCPK_MAX_MESH]; /* borrowed */
    int64_t size[DCPK_MAX_MESH];     /* >= 1 */
};

/*
 * What one mesh dimension does to the tensor, in torch's terms (torch.distributed.tensor
 * placement_types):
 * - REPLICATE: every rank holds the same.
 * - SHARD: tensor axis `axis` is cut into `size` parts of ceil(n / size) rows, the last ones
 *   shorter or empty (torch.chunk).
 * - STRIDED: the axis is taken as `split` blocks, each cut as SHARD does; a rank holds its part of
 *   every block (gate and up halves under tensor parallelism: split 2). Blocks are equal, or block
 *   b is rows [cut[b], cut[b + 1]).
 * - UNEVEN: rank r holds rows [cut[r], cut[r + 1]) of the axis (Megatron-FSDP's flat buffers).
 * - PARTIAL: a term of a sum, never on disk, listed for completeness; chunks of it are
 *   DCPK_EUNSUPPORTED.
 */
enum dcpk_placement_kind { DCPK_REPLICATE, DCPK_SHARD, DCPK_STRIDED, DCPK_UNEVEN, DCPK_PARTIAL };
struct dcpk_placement {
    enum dcpk_placement_kind kind;
    int axis;
    int64_t split;
    const int64_t *cut; /* UNEVEN: mesh size + 1 ascending numbers; STRIDED: split + 1, or NULL for
                         * equal blocks; borrowed */
};

/* A tensor under mesh x placement. Everything is borrowed. */
struct dcpk_placed {
    const struct dcpk_mesh *mesh;
    const struct dcpk_placement *placement; /* one per mesh dim, applied first to last */
    const int64_t *shape;
    int rank;
};

/* Boxes of a tensor, packed: n pointers to 2 * rank numbers each, in an arena. */
struct dcpk_span_list {
    const int64_t *const *spans;
    size_t n;
};

/*
 * The boxes of a tensor under mesh x placement (a later dim cuts what the earlier left): replicas
 * once, empty parts left out (an empty tensor has none), in rank order. A rank has one box, or
 * where STRIDED left it several runs of an axis one for each, row-major; runs that touch are one.
 * They cover the tensor exactly. list: in the arena, set on success only. Errors: DCPK_EMISMATCH
 * when an axis does not divide into `split` blocks or `cut` does not ascend from 0 to its rows;
 * DCPK_EUNSUPPORTED for PARTIAL; DCPK_ERANGE, DCPK_ENOMEM.
 */
dcpk_status dcpk_placement_chunks(const struct dcpk_placed *tensor, struct dcpk_arena *arena,
                                  struct dcpk_span_list *list, struct dcpk_error *err);

/*
 * What one rank of the mesh holds: a dense local tensor of `shape`, made of n boxes. Box i, packed
 * in spans[i], lies in it from `rank` further numbers of spans[i] on (so that a span has 3 * rank):
 * offset, extent, offset in the local tensor. n is 0 where the rank holds nothing; `shape` then has
 * a zero extent.
 */
struct dcpk_rank_boxes {
    int64_t shape[DCPK_MAX_RANK];
    const int64_t *const *spans; /* in the arena */
    size_t n;
};

/*
 * The boxes of rank `mesh_rank` (row-major number of its coordinates), as dcpk_placement_chunks
 * gives them, but replicas are kept: each holds its copy. Errors: as there.
 */
dcpk_status dcpk_placement_rank(const struct dcpk_placed *tensor, int64_t mesh_rank,
                                struct dcpk_arena *arena, struct dcpk_rank_boxes *boxes,
                                struct dcpk_error *err);

/*
 * Cut `shape` into row-aligned boxes of at most limit_elems elements each, but never less than one:
 * as few as possible, along the first axis, along the next ones where a single row is larger. A
 * scalar and an empty tensor give one box. list: in the arena, set on success only. Errors:
 * DCPK_ERANGE when the tensor passes INT64_MAX elements; DCPK_ENOMEM.
 */
dcpk_status dcpk_row_chunks(const int64_t *shape, int rank, uint64_t limit_elems,
                            struct dcpk_arena *arena, struct dcpk_span_list *list,
                            struct dcpk_error *err);

#endif
