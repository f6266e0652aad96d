/* SPDX-License-Identifier: Apache-2.0 */
/* test_held_prop.c - what ranks hold of random tensors, in parts, blocks and flat buffers, against
 * lists of single indices. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "tests/placed.h"
#include "tests/random.h"

#define N_ROUNDS  3000
#define MAX_PARTS 4

/* A tensor, and the same as placements on a mesh of tp by FSDP. */
struct round {
    uint64_t seed;
    char label[32];
    int64_t shape[3], local[3], part_at[MAX_PARTS + 1];
    struct dcpk_placing placing;
    struct dcpk_spread spread;
    struct dcpk_fsdp_param flat;
    struct dcpk_fsdp_place place;
    struct placed mesh;
};

static int64_t below(struct round *r, int64_t n)
{
    return (int64_t)random_below(&r->seed, (uint64_t)n);
}

/* Parts of rows, each of them n_tp equal blocks. */
static void make_parts(struct round *r, int64_t n_tp)
{
    r->spread.part_at = r->part_at;
    r->spread.n_parts = below(r, MAX_PARTS + 1);
    r->shape[0] = n_tp * below(r, 6);
    for (int64_t i = 0; i < r->spread.n_parts; i++)
        r->part_at[i + 1] = r->part_at[i] + n_tp * below(r, 5);
    if (r->spread.n_parts > 0)
        r->shape[0] = r->part_at[r->spread.n_parts];
}

/* Slices of a flat buffer that cut the local rows somewhere, not inside one. */
static void make_slices(struct round *r, int64_t n_shards)
{
    struct placed_dim *dim = &r->mesh.dim[r->mesh.n_dims++];
    int64_t row = 1, slice;

    for (int a = 1; a < r->spread.rank; a++)
        row *= r->local[a];
    slice = 1 + below(r, 2 + r->local[0]);
    r->flat = (struct dcpk_fsdp_param){
        .name = "w", .shape = r->local, .rank = r->spread.rank, .n_shards = n_shards};
    r->place.bucket_elems = n_shards * row * slice;
    r->place.first = row * below(r, dcpk_max_i64(n_shards * slice - r->local[0] + 1, 1));
    r->spread.flat = &r->flat;
    r->spread.place = &r->place;
    *dim = (struct placed_dim){.kind = PLACED_UNEVEN, .size = n_shards};
    for (int64_t s = 0; s <= n_shards; s++)
        dim->cut[s] = dcpk_min_i64(dcpk_max_i64(s * slice - r->place.first / row, 0), r->local[0]);
    if (n_shards * slice < r->place.first / row + r->local[0]) { /* it does not fit */
        r->spread.flat = NULL;
        r->mesh.n_dims--;
    }
}

static void make_round(struct round *r, uint64_t seed)
{
    const int64_t n_tp = 1 + (int64_t)(random_nth(seed) % 4);
    const int64_t n_shards = 1 + (int64_t)(random_nth(seed + 1) % 5);
    struct placed_dim *tp = &r->mesh.dim[0];

    *r = (struct round){.seed = seed};
    snprintf(r->label, sizeof r->label, "seed %" PRIu64, seed);
    r->spread = (struct dcpk_spread){
        .shape = r->shape, .rank = 1 + (int)below(r, 3), .stage = -1, .ep = -1, .n_tp = 1};
    r->spread.tp_axis = (int)below(r, r->spread.rank + 1) - 1;
    make_parts(r, n_tp);
    for (int a = 1; a < r->spread.rank; a++)
        r->shape[a] = a == r->spread.tp_axis ? n_tp * (1 + below(r, 3)) : 1 + below(r, 4);
    memcpy(r->local, r->shape, sizeof r->local);
    *tp = (struct placed_dim){.kind = PLACED_COPY, .size = n_tp, .axis = r->spread.tp_axis};
    if (tp->axis >= 0) {
        tp->kind = PLACED_SHARD;
        r->spread.n_tp = n_tp;
        r->local[tp->axis] /= n_tp;
    }
    if (tp->axis == 0 && r->spread.n_parts > 0) {
        tp->kind = PLACED_STRIDED;
        tp->split = r->spread.n_parts;
        tp->has_cut = true;
        memcpy(tp->cut, r->part_at, sizeof r->part_at);
    }
    r->mesh.n_dims = 1;
    r->placing = (struct dcpk_placing){.grid = {.tp = n_tp, .dp = n_shards}, .is_fsdp = true};
    if (below(r, 3) > 0)
        make_slices(r, n_shards);
}

/* Rank tp + n_tp * shard holds what the mesh says. */
static void check_rank(struct round *r, int64_t tp, int64_t shard, struct dcpk_arena *arena)
{
    const int rank = r->spread.rank;
    const int64_t n_tp = r->placing.grid.tp, n_shards = r->placing.grid.dp;
    const bool is_flat = r->spread.flat != NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_local got, want;
    int64_t copy = is_flat ? 0 : shard;

    if (r->spread.tp_axis < 0)
        copy = copy * n_tp + tp;
    CHECK_OK(dcpk_held_of(&r->placing, &r->spread, tp + n_tp * shard, arena, &got, &err), r->label);
    CHECK(
        placed_local(&r->mesh, r->shape, rank, is_flat ? tp * n_shards + shard : tp, arena, &want),
        r->label);
    CHECK_EQ_INT(got.copy, copy, r->label);
    CHECK(memcmp(got.shape, want.shape, (size_t)rank * sizeof *got.shape) == 0, r->label);
    CHECK_EQ_INT(got.n, want.n, r->label);
    for (size_t i = 0; i < got.n; i++)
        CHECK(memcmp(got.spans[i], want.spans[i], 3 * (size_t)rank * sizeof(int64_t)) == 0,
              r->label);
}

/* The chunks of a part are what ranks of the first copy hold of it. Returns how many there are. */
static size_t check_part(struct round *r, const struct dcpk_rows *part, struct dcpk_arena *arena)
{
    const size_t n = (size_t)r->spread.rank;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_span_list list;
    int64_t shape[3];
    size_t at = 0;

    CHECK_OK(dcpk_held_chunks(&r->spread, part, arena, &list, &err), r->label);
    memcpy(shape, r->shape, sizeof shape);
    shape[0] = part->n_rows;
    if (part->n_rows > 0)
        CHECK_OK(dcpk_cover_check(shape, r->spread.rank, list.spans, list.n, &err), r->label);
    for (int64_t i = 0; i < r->placing.grid.dp * r->spread.n_tp; i++) {
        const int64_t tp = i / r->placing.grid.dp, shard = i % r->placing.grid.dp;
        struct dcpk_local local;

        CHECK_OK(dcpk_held_of(&r->placing, &r->spread, tp + r->placing.grid.tp * shard, arena,
                              &local, &err),
                 r->label);
        for (size_t b = 0; b < local.n; b++) {
            const int64_t *span = local.spans[b];
            const int64_t low = dcpk_max_i64(span[0] - part->row, 0);
            const int64_t high = dcpk_min_i64(span[0] + span[n] - part->row, part->n_rows);

            if (low >= high)
                continue;
            CHECK(at < list.n, r->label);
            CHECK_EQ_INT(list.spans[at][0], low, r->label);
            CHECK_EQ_INT(list.spans[at][n], high - low, r->label);
            CHECK(memcmp(list.spans[at] + 1, span + 1, (n - 1) * sizeof *span) == 0, r->label);
            at++;
        }
    }
    CHECK_EQ_INT(at, list.n, r->label);
    return list.n;
}

static void ranks_hold_what_placements_say(void **state)
{
    static struct round r;
    size_t n_flat = 0, n_chunks = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();

        make_round(&r, seed);
        CHECK_OK(dcpk_spread_check(&r.spread, &err), r.label);
        for (int64_t tp = 0; tp < r.placing.grid.tp; tp++)
            for (int64_t shard = 0; shard < r.placing.grid.dp; shard++)
                check_rank(&r, tp, shard, arena);
        for (int64_t i = 0; i < r.spread.n_parts && r.spread.flat != NULL; i++) {
            const struct dcpk_rows part = {r.part_at[i], r.part_at[i + 1] - r.part_at[i]};

            n_chunks += check_part(&r, &part, arena);
        }
        n_flat += r.spread.flat != NULL;
        dcpk_arena_free(arena);
    }
    CHECK(n_flat > N_ROUNDS / 4 && n_chunks > N_ROUNDS, "rounds with flat buffers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_hold_what_placements_say)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
