/* SPDX-License-Identifier: Apache-2.0 */
/* placed.h - what ranks of a mesh hold of a tensor, as DTensor's placements say, worked out index
 * by index. */
#ifndef DCPK_TESTS_PLACED_H
#define DCPK_TESTS_PLACED_H

#include <stdlib.h>
#include <string.h>

#include "lib/place/held.h"
#include "tests/check.h"

#define PLACED_DIMS 3
#define PLACED_CUTS 12

/*
 * What a dimension of the mesh does (torch.distributed.tensor placement_types): nothing, cut an
 * axis as torch.chunk does, cut each of `split` blocks so (equal ones, or those that start at
 * cut[]), give rank r rows cut[r] to cut[r + 1].
 */
enum placed_kind { PLACED_COPY, PLACED_SHARD, PLACED_STRIDED, PLACED_UNEVEN, PLACED_N_KINDS };
struct placed_dim {
    enum placed_kind kind;
    int axis;
    int64_t size, split;
    bool has_cut;
    int64_t cut[PLACED_CUTS];
};

/* Dimensions of the mesh, slowest first; each cuts what those before it left. */
struct placed {
    int n_dims;
    struct placed_dim dim[PLACED_DIMS];
};

/* Whether local index i of n is in part `coord`. */
static inline bool placed_keeps(const struct placed_dim *d, int64_t coord, int64_t i, int64_t n)
{
    const int64_t block = d->kind == PLACED_STRIDED ? n / d->split : n;
    const int64_t rows = (block + d->size - 1) / d->size;
    int64_t b = 0;

    if (d->kind == PLACED_UNEVEN)
        return i >= d->cut[coord] && i < d->cut[coord + 1];
    if (!d->has_cut)
        return i % block / rows == coord;
    while (d->cut[b + 1] <= i)
        b++;
    return (i - d->cut[b]) / ((d->cut[b + 1] - d->cut[b] + d->size - 1) / d->size) == coord;
}

/* The indices of an axis that a rank holds, in local order. *n: how many are left. Returns false
 * where blocks do not divide. */
static inline bool placed_indices(const struct placed *p, const int64_t *coords, int axis,
                                  int64_t *index, int64_t *n)
{
    for (int d = 0; d < p->n_dims; d++) {
        const struct placed_dim *dim = &p->dim[d];
        int64_t kept = 0;

        if (dim->kind == PLACED_COPY || dim->axis != axis)
            continue;
        if (dim->kind == PLACED_STRIDED && !dim->has_cut && *n % dim->split != 0)
            return false;
        for (int64_t i = 0; i < *n; i++)
            if (placed_keeps(dim, coords[d], i, *n))
                index[kept++] = index[i];
        *n = kept;
    }
    return true;
}

/* Adds the boxes of consecutive indices from axis on; span: of the axes before. */
static inline void placed_add(const int64_t *const *index, const struct dcpk_local *local, int rank,
                              int axis, int64_t *span, const int64_t ***at,
                              struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t first = 0;

    if (axis == rank) {
        int64_t *copy = dcpk_arena_array(arena, 3 * (size_t)rank, sizeof *copy, &err);

        CHECK(copy != NULL, "memory");
        memcpy(copy, span, 3 * (size_t)rank * sizeof *copy);
        *(*at)++ = copy;
        return;
    }
    for (int64_t i = 1; i <= local->shape[axis]; i++) {
        if (i < local->shape[axis] && index[axis][i] == index[axis][i - 1] + 1)
            continue;
        span[axis] = index[axis][first];
        span[rank + axis] = i - first;
        span[2 * rank + axis] = first;
        placed_add(index, local, rank, axis + 1, span, at, arena);
        first = i;
    }
}

/* What a rank of the mesh (a row-major number) holds; without `copy`. Returns false where blocks
 * do not divide. */
static inline bool placed_local(const struct placed *p, const int64_t *shape, int rank,
                                int64_t mesh_rank, struct dcpk_arena *arena,
                                struct dcpk_local *local)
{
    int64_t *index[DCPK_MAX_RANK] = {NULL}, coords[PLACED_DIMS], span[3 * DCPK_MAX_RANK];
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int64_t **spans;
    size_t most = 1;
    bool good = true;

    *local = (struct dcpk_local){.copy = 0};
    for (int d = p->n_dims - 1; d >= 0; mesh_rank /= p->dim[d--].size)
        coords[d] = mesh_rank % p->dim[d].size;
    for (int a = 0; a < rank; a++) {
        size_t n_runs = 0;

        local->shape[a] = shape[a];
        index[a] = malloc(((size_t)shape[a] + 1) * sizeof *index[a]);
        CHECK(index[a] != NULL, "memory");
        for (int64_t i = 0; i < shape[a]; i++)
            index[a][i] = i;
        good = good && placed_indices(p, coords, a, index[a], &local->shape[a]);
        for (int64_t i = 0; i < local->shape[a]; i++)
            n_runs += i == 0 || index[a][i] != index[a][i - 1] + 1;
        most *= n_runs;
    }
    spans = dcpk_arena_array(arena, most, sizeof *spans, &err);
    CHECK(spans != NULL, "memory");
    local->spans = spans;
    if (good && most > 0)
        placed_add((const int64_t *const *)index, local, rank, 0, span, &spans, arena);
    local->n = good ? most : 0;
    for (int a = 0; a < rank; a++)
        free(index[a]);
    return good;
}

#endif
