/* SPDX-License-Identifier: Apache-2.0 */
/* test_placement_prop.c - placements against lists of single indices; row chunks against their
 * promise. */
#include <stdio.h>

#include "lib/tensor/placement.h"
#include "tests/check.h"
#include "tests/random.h"

#define MAX_AXIS 24

/* What one rank holds of each axis: global indices in local order. */
struct held {
    int64_t index[3][MAX_AXIS];
    int64_t n[3];
};

struct round {
    uint64_t seed;
    int rank;
    int64_t shape[3];
    struct dcpk_mesh mesh;
    struct dcpk_placement placement[3];
    int64_t cut[3][8];
};

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)random_below(state, (uint64_t)n);
}

/* What has cuts comes first only: they must fit what is left, which here is the whole axis. */
static void make_round(struct round *r, uint64_t seed)
{
    *r = (struct round){.seed = seed};
    r->rank = 1 + (int)below(&r->seed, 3);
    for (int a = 0; a < r->rank; a++)
        r->shape[a] = below(&r->seed, 12) == 0 ? 0 : 1 + below(&r->seed, MAX_AXIS);
    r->mesh.n_dims = (int)below(&r->seed, 4);
    for (int d = 0; d < r->mesh.n_dims; d++) {
        static const enum dcpk_placement_kind kinds[] = {DCPK_REPLICATE, DCPK_SHARD, DCPK_STRIDED,
                                                         DCPK_UNEVEN};
        struct dcpk_placement *p = &r->placement[d];
        int64_t n_parts = 0;

        r->mesh.name[d] = "d";
        r->mesh.size[d] = 1 + below(&r->seed, 5);
        p->kind = kinds[below(&r->seed, d == 0 ? 4 : 3)];
        p->axis = p->kind == DCPK_REPLICATE ? -1 : (int)below(&r->seed, r->rank);
        p->split = 1 + below(&r->seed, 3);
        if (p->kind == DCPK_UNEVEN)
            n_parts = r->mesh.size[d];
        else if (p->kind == DCPK_STRIDED && d == 0 && below(&r->seed, 2) == 0)
            n_parts = p->split;
        if (n_parts > 0)
            p->cut = r->cut[d];
        for (int64_t i = 0; i < n_parts; i++) {
            const int64_t left = r->shape[p->axis] - r->cut[d][i];

            r->cut[d][i + 1] =
                i + 1 == n_parts ? r->shape[p->axis] : r->cut[d][i] + below(&r->seed, left + 1);
        }
    }
}

/* Is local index i, of n, in part `coord`? As the header defines it, by torch.chunk's ceil. */
static bool keeps(const struct dcpk_placement *p, int64_t size, int64_t coord, int64_t i, int64_t n)
{
    const int64_t block = p->kind == DCPK_STRIDED ? n / p->split : n;
    const int64_t rows = (block + size - 1) / size;
    int64_t b = 0;

    if (p->kind == DCPK_UNEVEN)
        return i >= p->cut[coord] && i < p->cut[coord + 1];
    if (p->kind != DCPK_STRIDED || p->cut == NULL)
        return i % block / rows == coord;
    while (p->cut[b + 1] <= i)
        b++;
    return (i - p->cut[b]) / ((p->cut[b + 1] - p->cut[b] + size - 1) / size) == coord;
}

/* Returns false when STRIDED does not divide. */
static bool hold(const struct round *r, const int64_t *coords, struct held *h)
{
    for (int a = 0; a < r->rank; a++) {
        h->n[a] = r->shape[a];
        for (int64_t i = 0; i < r->shape[a]; i++)
            h->index[a][i] = i;
    }
    for (int d = 0; d < r->mesh.n_dims; d++) {
        const struct dcpk_placement *p = &r->placement[d];
        int64_t kept = 0, n;

        if (p->kind == DCPK_REPLICATE)
            continue;
        n = h->n[p->axis];
        if (p->kind == DCPK_STRIDED && p->cut == NULL && n % p->split != 0)
            return false;
        for (int64_t i = 0; i < n; i++)
            if (keeps(p, r->mesh.size[d], coords[d], i, n))
                h->index[p->axis][kept++] = h->index[p->axis][i];
        h->n[p->axis] = kept;
    }
    return true;
}

/* The boxes from *at on hold what the rank holds, no more; *at moves behind them. */
static void check_rank(const struct round *r, const struct held *h, const int64_t *const *spans,
                       size_t n, size_t *at, const char *label)
{
    int64_t want = 1, got = 0;

    for (int a = 0; a < r->rank; a++)
        want *= h->n[a];
    while (got < want) {
        int64_t inside = 1;

        CHECK(*at < n, label);
        for (int a = 0; a < r->rank; a++) {
            int64_t found = 0;

            for (int64_t i = 0; i < h->n[a]; i++)
                found += h->index[a][i] >= spans[*at][a] &&
                         h->index[a][i] < spans[*at][a] + spans[*at][r->rank + a];
            CHECK_EQ_INT(found, spans[*at][r->rank + a], label); /* all of the box is held */
            inside *= found;
        }
        got += inside;
        ++*at;
    }
    CHECK_EQ_INT(got, want, label);
}

/* The boxes of this rank lie in its local tensor where the model has their indices. */
static void check_local(const struct round *r, const struct held *h, int64_t mesh_rank,
                        struct dcpk_arena *arena, const char *label)
{
    const struct dcpk_placed tensor = {&r->mesh, r->placement, r->shape, r->rank};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_rank_boxes boxes;
    int64_t want = 1, got = 0;
    size_t at = 0;

    CHECK_OK(dcpk_placement_rank(&tensor, mesh_rank, arena, &boxes, &err), label);
    for (int a = 0; a < r->rank; a++) {
        CHECK_EQ_INT(boxes.shape[a], h->n[a], label);
        want *= h->n[a];
    }
    check_rank(r, h, boxes.spans, boxes.n, &at, label);
    CHECK_EQ_INT(at, boxes.n, label);
    for (size_t i = 0; i < boxes.n; i++) {
        const int64_t *span = boxes.spans[i];
        int64_t inside = 1;

        for (int a = 0; a < r->rank; a++) {
            const int64_t local = span[2 * r->rank + a];

            for (int64_t k = 0; k < span[r->rank + a]; k++)
                CHECK_EQ_INT(h->index[a][local + k], span[a] + k, label);
            inside *= span[r->rank + a];
        }
        got += inside;
    }
    CHECK_EQ_INT(got, want, label);
}

/* The next rank's coordinates, as an odometer, the last dimension fastest; false behind the last
 * rank. */
static bool next_rank(const struct dcpk_mesh *mesh, int64_t *coords)
{
    for (int d = mesh->n_dims - 1; d >= 0; d--) {
        if (++coords[d] < mesh->size[d])
            return true;
        coords[d] = 0;
    }
    return false;
}

static void check_chunks(const struct round *r, struct dcpk_arena *arena, int *n_refused,
                         const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t coords[3] = {0}, mesh_rank = 0;
    const struct dcpk_placed placed = {&r->mesh, r->placement, r->shape, r->rank};
    struct dcpk_span_list list = {0};
    size_t at = 0;
    struct held h;
    dcpk_status st = dcpk_placement_chunks(&placed, arena, &list, &err);
    bool divides = true;

    do {
        bool replica = false;

        for (int d = 0; d < r->mesh.n_dims; d++)
            replica = replica || (r->placement[d].kind == DCPK_REPLICATE && coords[d] != 0);
        divides = hold(r, coords, &h);
        if (!replica && divides && st == DCPK_OK)
            check_rank(r, &h, list.spans, list.n, &at, label);
        if (divides && st == DCPK_OK)
            check_local(r, &h, mesh_rank, arena, label);
        mesh_rank++;
    } while (divides && next_rank(&r->mesh, coords));
    CHECK_EQ_INT(st, divides ? DCPK_OK : DCPK_EMISMATCH, label);
    *n_refused += !divides;
    if (!divides)
        return;
    CHECK_EQ_INT(at, list.n, label);
    CHECK_OK(dcpk_cover_check(r->shape, r->rank, list.spans, list.n, &err), label);
}

static void meshes(void **state)
{
    int n_refused = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        struct round r;
        char label[32];

        CHECK(arena != NULL, err.text);
        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        make_round(&r, seed);
        check_chunks(&r, arena, &n_refused, label);
        dcpk_arena_free(arena);
    }
    CHECK(n_refused > 100 && n_refused < 2000, "most rounds divide, some do not");
}

/* Chunks lie one behind the other in memory and keep the limit, but for single elements. */
static void row_chunks(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        uint64_t s = seed;
        const uint64_t limit = (uint64_t)below(&s, 600);
        struct dcpk_span_list list;
        struct round r;
        int64_t next = 0; /* row-major index of the next chunk's first element */
        char label[32];

        CHECK(arena != NULL, err.text);
        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        make_round(&r, seed);
        CHECK_OK(dcpk_row_chunks(r.shape, r.rank, limit, arena, &list, &err), label);
        CHECK_OK(dcpk_cover_check(r.shape, r.rank, list.spans, list.n, &err), label);
        CHECK(list.n >= 1, label);
        for (size_t i = 0; i < list.n; i++) {
            struct dcpk_box box;
            int64_t first = 0, n_elems = 0;

            dcpk_box_unpack(list.spans[i], r.rank, &box);
            CHECK_OK(dcpk_box_count(&box, &n_elems, &err), label);
            for (int a = 0; a < r.rank; a++)
                first = first * r.shape[a] + box.offset[a];
            CHECK_EQ_INT(first, next, label);
            CHECK((uint64_t)n_elems <= limit || n_elems <= 1, label);
            next += n_elems;
        }
        dcpk_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(meshes), cmocka_unit_test(row_chunks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
