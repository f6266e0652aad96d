/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - the boxes that a mesh and its placements make of a tensor, and plain row chunks. */
/*
 * What a rank holds is, on each axis, a list of runs of global indices in the order of its local
 * indices. A mesh dimension cuts the local indices; several runs come from STRIDED only:
 *
 *   axis of 8, STRIDED split 2 over 2 ranks    rank 0: 0 1 . . 4 5 . .    runs (0, 2) (4, 2)
 *   then SHARD over 2 ranks                    rank 0,1: . . . . 4 5 . .  run (4, 2): local 2 and 3
 *
 * The boxes of a rank are the products of one run of each axis.
 */
#include "lib/tensor/placement.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"

struct run {
    int64_t at, n;
};

struct runs {
    struct run *items; /* owned */
    size_t n, capacity;
};

struct cutter {
    const struct dcpk_mesh *mesh;
    const struct dcpk_placement *placement;
    const int64_t *shape;
    int rank;
    bool keeps_place; /* of boxes in the local tensor, in their spans */
    struct dcpk_arena *arena;
    struct runs axis[DCPK_MAX_RANK];
    struct runs scratch;
    const int64_t **spans; /* owned until copied into the arena */
    size_t n, capacity;
};

/* Product of sizes; DCPK_ERANGE on overflow. */
static dcpk_status mesh_count_ranks(const struct dcpk_mesh *mesh, int64_t *n_ranks,
                                    struct dcpk_error *err)
{
    int64_t n = 1;

    for (int d = 0; d < mesh->n_dims; d++)
        if (!dcpk_mul_i64(n, mesh->size[d], &n))
            return dcpk_fail(err, DCPK_ERANGE,
                             "mesh has more than %" PRId64
                             " ranks at dimension '%s' of size %" PRId64,
                             INT64_MAX, mesh->name[d], mesh->size[d]);
    *n_ranks = n;
    return DCPK_OK;
}

/* The coordinates of a rank, n_dims numbers. */
static void find_coords(const struct dcpk_mesh *mesh, int64_t rank, int64_t *coords)
{
    for (int d = mesh->n_dims - 1; d >= 0; d--) {
        coords[d] = rank % mesh->size[d];
        rank /= mesh->size[d];
    }
}

/* Appends a run. One that begins where the last one ends extends it. */
static dcpk_status add_run(struct runs *runs, int64_t at, int64_t n, struct dcpk_error *err)
{
    struct run *last = runs->n > 0 ? &runs->items[runs->n - 1] : NULL;
    dcpk_status st;

    if (n == 0)
        return DCPK_OK;
    if (last != NULL && last->at + last->n == at) {
        last->n += n;
        return DCPK_OK;
    }
    st = dcpk_grow(&runs->items, &runs->capacity, runs->n, sizeof *runs->items, err);
    if (st == DCPK_OK)
        runs->items[runs->n++] = (struct run){at, n};
    return st;
}

/* Append to `out` the local indices [low, high) of `runs`. */
static dcpk_status runs_take(const struct runs *runs, int64_t low, int64_t high, struct runs *out,
                             struct dcpk_error *err)
{
    int64_t local = 0; /* index of the run's first element */
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < runs->n && st == DCPK_OK; local += runs->items[i++].n) {
        const struct run *r = &runs->items[i];
        const int64_t first = dcpk_max_i64(low - local, 0);
        const int64_t end = dcpk_min_i64(high - local, r->n);

        if (first < end)
            st = add_run(out, r->at + first, end - first, err);
    }
    return st;
}

/* Indices of the first n_runs runs. */
static int64_t count_runs(const struct runs *runs, size_t n_runs)
{
    int64_t n = 0;

    for (size_t i = 0; i < n_runs; i++)
        n += runs->items[i].n;
    return n;
}

static int64_t count_all(const struct runs *runs)
{
    return count_runs(runs, runs->n);
}

/* Part `coord` of n rows in `size` parts, as torch.chunk cuts them. */
static void shard_range(int64_t n, int64_t size, int64_t coord, int64_t *low, int64_t *high)
{
    const int64_t rows = n / size + (n % size != 0);

    *low = rows == 0 || coord > n / rows ? n : coord * rows;
    *high = *low + dcpk_min_i64(rows, n - *low);
}

/* Checks numbers i and i + 1 of `cut`, which cuts `end` rows into n parts. */
static dcpk_status check_cut(const struct dcpk_placement *p, int64_t n, int64_t i, int64_t end,
                             struct dcpk_error *err)
{
    if (p->cut[0] == 0 && p->cut[n] == end && p->cut[i] >= 0 && p->cut[i + 1] <= end &&
        p->cut[i] <= p->cut[i + 1])
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "cuts of axis %d must ascend from 0 to its %" PRId64
                     " rows, but go from %" PRId64 " to %" PRId64 ", with %" PRId64 " to %" PRId64
                     " for part %" PRId64,
                     p->axis, end, p->cut[0], p->cut[n], p->cut[i], p->cut[i + 1], i);
}

static dcpk_status cut_strided(const struct dcpk_placement *p, int64_t size, int64_t coord,
                               const struct runs *runs, struct runs *out, struct dcpk_error *err)
{
    const int64_t n = count_all(runs);

    if (p->cut == NULL && n % p->split != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "%" PRId64 " rows of axis %d do not split into %" PRId64 " equal blocks",
                         n, p->axis, p->split);
    for (int64_t b = 0; b < p->split; b++) {
        int64_t first = b * (n / p->split), block = n / p->split, low, high;

        if (p->cut != NULL) {
            if (check_cut(p, p->split, b, n, err))
                return err->status;
            first = p->cut[b];
            block = p->cut[b + 1] - first;
        }
        shard_range(block, size, coord, &low, &high);
        if (low < high && runs_take(runs, first + low, first + high, out, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Over all ranks this looks at every pair of neighbouring cuts. */
static dcpk_status cut_uneven(const struct dcpk_placement *p, int64_t size, int64_t coord,
                              const struct runs *runs, struct runs *out, struct dcpk_error *err)
{
    if (check_cut(p, size, coord, count_all(runs), err))
        return err->status;
    return runs_take(runs, p->cut[coord], p->cut[coord + 1], out, err);
}

/* Let mesh dimension d, at coordinate `coord`, cut what the earlier ones left. */
static dcpk_status cut_dim(struct cutter *c, int d, int64_t coord, struct dcpk_error *err)
{
    const struct dcpk_placement *p = &c->placement[d];
    const int64_t size = c->mesh->size[d];
    struct runs *runs, swap;
    int64_t low, high;
    dcpk_status st = DCPK_OK;

    if (p->kind == DCPK_REPLICATE) /* has no axis */
        return DCPK_OK;
    runs = &c->axis[p->axis];
    c->scratch.n = 0;
    switch (p->kind) {
    case DCPK_SHARD:
        shard_range(count_all(runs), size, coord, &low, &high);
        st = runs_take(runs, low, high, &c->scratch, err);
        break;
    case DCPK_STRIDED:
        st = cut_strided(p, size, coord, runs, &c->scratch, err);
        break;
    case DCPK_UNEVEN:
        st = cut_uneven(p, size, coord, runs, &c->scratch, err);
        break;
    case DCPK_REPLICATE:
    case DCPK_PARTIAL: /* refused by cut_all */
        break;
    }
    swap = *runs;
    *runs = c->scratch;
    c->scratch = swap;
    return st;
}

/* The boxes of one rank: every choice of one run of each axis, the last axis fastest. */
static dcpk_status emit_boxes(struct cutter *c, struct dcpk_error *err)
{
    const size_t width = (c->keeps_place ? 3 : 2) * (size_t)c->rank;
    size_t pick[DCPK_MAX_RANK] = {0};
    dcpk_status st;
    int a;

    for (a = 0; a < c->rank; a++)
        if (c->axis[a].n == 0)
            return DCPK_OK;
    do {
        int64_t *span = dcpk_arena_array(c->arena, width, sizeof *span, err);

        if (span == NULL)
            return err->status;
        for (a = 0; a < c->rank; a++) {
            span[a] = c->axis[a].items[pick[a]].at;
            span[c->rank + a] = c->axis[a].items[pick[a]].n;
            if (c->keeps_place)
                span[2 * c->rank + a] = count_runs(&c->axis[a], pick[a]);
        }
        st = dcpk_grow(&c->spans, &c->capacity, c->n, sizeof *c->spans, err);
        if (st != DCPK_OK)
            return st;
        c->spans[c->n++] = span;
        for (a = c->rank - 1; a >= 0 && ++pick[a] == c->axis[a].n; a--)
            pick[a] = 0;
    } while (a >= 0);
    return DCPK_OK;
}

static dcpk_status cut_rank(struct cutter *c, const int64_t *coords, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (int a = 0; a < c->rank && st == DCPK_OK; a++) {
        c->axis[a].n = 0;
        st = add_run(&c->axis[a], 0, c->shape[a], err);
    }
    for (int d = 0; d < c->mesh->n_dims && st == DCPK_OK; d++)
        st = cut_dim(c, d, coords[d], err);
    if (st != DCPK_OK)
        return st;
    return emit_boxes(c, err);
}

/* A rank at coordinate 0 of every replicating dimension stands for its replicas. */
static bool is_first_replica(const struct cutter *c, const int64_t *coords)
{
    for (int d = 0; d < c->mesh->n_dims; d++)
        if (c->placement[d].kind == DCPK_REPLICATE && coords[d] != 0)
            return false;
    return true;
}

/* Refuse what has no boxes; count the ranks of the mesh. */
static dcpk_status cutter_check(const struct cutter *c, int64_t *n_ranks, struct dcpk_error *err)
{
    int64_t n_elems;

    for (int d = 0; d < c->mesh->n_dims; d++)
        if (c->placement[d].kind == DCPK_PARTIAL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "mesh dimension '%s' holds partial sums, which have no chunks",
                             c->mesh->name[d]);
    if (dcpk_shape_count(c->shape, c->rank, &n_elems, err) ||
        mesh_count_ranks(c->mesh, n_ranks, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status cut_all(struct cutter *c, struct dcpk_error *err)
{
    int64_t coords[DCPK_MAX_MESH], n_ranks;

    if (cutter_check(c, &n_ranks, err))
        return err->status;
    for (int64_t rank = 0; rank < n_ranks; rank++) {
        find_coords(c->mesh, rank, coords);
        if (is_first_replica(c, coords) && cut_rank(c, coords, err))
            return err->status;
    }
    return DCPK_OK;
}

static void check_arguments(const struct cutter *c)
{
    assert(c->rank >= 0 && c->rank <= DCPK_MAX_RANK && c->mesh->n_dims <= DCPK_MAX_MESH);
    for (int d = 0; d < c->mesh->n_dims; d++) {
        const struct dcpk_placement *p = &c->placement[d];

        assert(c->mesh->size[d] >= 1);
        assert(p->kind == DCPK_REPLICATE || p->kind == DCPK_PARTIAL ||
               (p->axis >= 0 && p->axis < c->rank));
        assert(p->kind != DCPK_STRIDED || p->split >= 1);
        (void)p;
    }
}

static struct cutter cutter_of(const struct dcpk_placed *tensor, struct dcpk_arena *arena)
{
    return (struct cutter){.mesh = tensor->mesh,
                           .placement = tensor->placement,
                           .shape = tensor->shape,
                           .rank = tensor->rank,
                           .arena = arena};
}

/* Move the list of boxes into the arena. */
static dcpk_status cutter_spans(const struct cutter *c, struct dcpk_span_list *list,
                                struct dcpk_error *err)
{
    const int64_t **spans = dcpk_arena_array(c->arena, c->n, sizeof *spans, err);

    if (spans == NULL)
        return err->status;
    if (c->n > 0)
        memcpy(spans, c->spans, c->n * sizeof *spans);
    *list = (struct dcpk_span_list){spans, c->n};
    return DCPK_OK;
}

static void cutter_release(struct cutter *c)
{
    for (int a = 0; a < c->rank; a++)
        dcpk_free(c->axis[a].items);
    dcpk_free(c->scratch.items);
    dcpk_free(c->spans);
}

dcpk_status dcpk_placement_chunks(const struct dcpk_placed *tensor, struct dcpk_arena *arena,
                                  struct dcpk_span_list *list, struct dcpk_error *err)
{
    struct cutter c = cutter_of(tensor, arena);
    dcpk_status st;

    check_arguments(&c);
    st = cut_all(&c, err);
    if (st == DCPK_OK)
        st = cutter_spans(&c, list, err);
    cutter_release(&c);
    return st;
}

dcpk_status dcpk_placement_rank(const struct dcpk_placed *tensor, int64_t mesh_rank,
                                struct dcpk_arena *arena, struct dcpk_rank_boxes *boxes,
                                struct dcpk_error *err)
{
    struct cutter c = cutter_of(tensor, arena);
    int64_t coords[DCPK_MAX_MESH], n_ranks;
    struct dcpk_span_list list;
    dcpk_status st;

    c.keeps_place = true;
    check_arguments(&c);
    st = cutter_check(&c, &n_ranks, err);
    if (st != DCPK_OK)
        goto out;
    assert(mesh_rank >= 0 && mesh_rank < n_ranks);
    find_coords(c.mesh, mesh_rank, coords);
    st = cut_rank(&c, coords, err);
    if (st == DCPK_OK)
        st = cutter_spans(&c, &list, err);
    if (st != DCPK_OK)
        goto out;
    for (int a = 0; a < c.rank; a++)
        boxes->shape[a] = count_all(&c.axis[a]);
    boxes->spans = list.spans;
    boxes->n = list.n;
out:
    cutter_release(&c);
    return st;
}

/* How row chunks lie: one index on each axis before `axis`, up to `rows` on it, all behind it. */
struct row_cut {
    int axis;
    int64_t rows;
};

/*
 * Find the first axis whose rows fit into limit_elems; shape is not empty.
 * The elements of the whole are known to fit into 64 bits.
 */
static struct row_cut find_row_cut(const int64_t *shape, int rank, uint64_t limit_elems)
{
    struct row_cut cut = {rank - 1, 1}; /* not even one element fits: one at a time */
    uint64_t row_elems = 1;

    for (int a = rank - 1; a >= 0 && row_elems <= limit_elems; a--) {
        const uint64_t rows = limit_elems / row_elems;

        cut.axis = a;
        cut.rows = (int64_t)dcpk_min_u64(rows, (uint64_t)shape[a]);
        row_elems *= (uint64_t)shape[a];
    }
    return cut;
}

/* Write chunk i of the cut. */
static void put_row_chunk(const int64_t *shape, int rank, struct row_cut cut, int64_t i,
                          int64_t *span)
{
    const int64_t per_axis = shape[cut.axis] / cut.rows + (shape[cut.axis] % cut.rows != 0);
    int64_t outer = i / per_axis;

    for (int a = 0; a < rank; a++) {
        span[a] = 0;
        span[rank + a] = shape[a];
    }
    span[cut.axis] = i % per_axis * cut.rows;
    if (shape[cut.axis] - span[cut.axis] < cut.rows)
        span[rank + cut.axis] = shape[cut.axis] - span[cut.axis];
    else
        span[rank + cut.axis] = cut.rows;
    for (int a = cut.axis - 1; a >= 0; a--) {
        span[a] = outer % shape[a];
        span[rank + a] = 1;
        outer /= shape[a];
    }
}

dcpk_status dcpk_row_chunks(const int64_t *shape, int rank, uint64_t limit_elems,
                            struct dcpk_arena *arena, struct dcpk_span_list *list,
                            struct dcpk_error *err)
{
    const size_t width = 2 * (size_t)rank;
    const int64_t **spans;
    int64_t *numbers, n_elems, n_chunks = 1;
    struct row_cut cut = {0, 1};

    assert(rank >= 0 && rank <= DCPK_MAX_RANK);
    if (dcpk_shape_count(shape, rank, &n_elems, err) != DCPK_OK)
        return err->status;
    if (rank > 0 && n_elems > 0) {
        cut = find_row_cut(shape, rank, limit_elems);
        n_chunks = shape[cut.axis] / cut.rows + (shape[cut.axis] % cut.rows != 0);
        for (int a = 0; a < cut.axis; a++)
            n_chunks *= shape[a];
    }
    spans = dcpk_arena_array(arena, (size_t)n_chunks, sizeof *spans, err);
    if (spans == NULL)
        return err->status;
    numbers = dcpk_arena_array(arena, (size_t)n_chunks, width * sizeof *numbers, err);
    if (numbers == NULL)
        return err->status;
    for (int64_t i = 0; i < n_chunks; i++) {
        spans[i] = numbers + (size_t)i * width;
        if (rank > 0 && n_elems > 0)
            put_row_chunk(shape, rank, cut, i, numbers + (size_t)i * width);
    }
    for (int a = 0; a < rank && n_elems == 0; a++) /* one box, as empty as the tensor */
        numbers[rank + a] = shape[a];
    *list = (struct dcpk_span_list){spans, (size_t)n_chunks};
    return DCPK_OK;
}
