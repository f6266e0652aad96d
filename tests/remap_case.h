/* SPDX-License-Identifier: Apache-2.0 */
/* remap_case.h - random tensors under two random layouts over ranks, in memory, and what every byte
 * must be afterwards, by the owner of each element. */
#ifndef DCPK_TESTS_REMAP_CASE_H
#define DCPK_TESTS_REMAP_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/order.h"
#include "lib/plan/remap_plan.h"
#include "tests/check.h"
#include "tests/placed.h"
#include "tests/random.h"

#define CASE_RANKS   6
#define CASE_TENSORS 6
#define CASE_SHARDS  4096
#define CASE_BYTES   (1u << 20) /* of one rank's memory on one side */
#define CASE_POISON  0xa5

struct case_tensor {
    char name[24];
    enum dcpk_dtype from, to;
    int rank;
    int64_t shape[5];
};

struct case_side {
    struct dcpk_shard shards[CASE_SHARDS]; /* by holder */
    size_t n;
    uint8_t *memory[CASE_RANKS]; /* of each rank; the caller's */
    size_t used[CASE_RANKS];
};

/* What was met, so that a test can ask for all of it. */
struct case_counts {
    uint64_t kinds[PLACED_N_KINDS], dims[4], ranks[6]; /* of placements, meshes, tensors */
    uint64_t n_absent, n_several, n_empty, n_backwards, n_odd, n_casts;
};

struct remap_case {
    uint64_t seed;
    int n_ranks;
    size_t n_tensors;
    struct case_tensor tensors[CASE_TENSORS];
    struct case_side sides[2]; /* sources, targets */
    uint8_t *want[CASE_RANKS]; /* the targets' memory afterwards */
    uint8_t *kept[CASE_RANKS]; /* as much for a test to use: bytes of before, counts */
    int64_t numbers[1u << 17]; /* spans and strides */
    size_t n_numbers;
    struct dcpk_arena *arena;
    struct case_counts counts; /* of all cases so far */
};

/* Where the tensor lies on one side: a mesh over ranks first .. first + its size - 1. */
struct case_layout {
    struct placed mesh;
    int first, n_ranks;
};

static inline int64_t case_below(struct remap_case *c, int64_t n)
{
    return (int64_t)random_below(&c->seed, (uint64_t)n);
}

static inline void case_make_tensor(struct remap_case *c, size_t i)
{
    static const enum dcpk_dtype floats[] = {DCPK_F64, DCPK_F32, DCPK_F16, DCPK_BF16};
    static const int64_t most[] = {1, 2000, 40, 12, 6, 4};
    struct case_tensor *t = &c->tensors[i];
    const bool casts = case_below(c, 3) == 0;

    snprintf(t->name, sizeof t->name, "t%zu", i);
    t->rank = (int)case_below(c, 6);
    t->from = (enum dcpk_dtype)(1 + case_below(c, DCPK_N_DTYPES - 1));
    if (casts)
        t->from = floats[case_below(c, 4)];
    t->to = casts ? floats[case_below(c, 4)] : t->from;
    for (int a = 0; a < t->rank; a++)
        t->shape[a] = case_below(c, 30) == 0 ? 0 : 1 + case_below(c, most[t->rank]);
}

static inline void case_make_layout(struct remap_case *c, const struct case_tensor *t,
                                    struct case_layout *l)
{
    static const enum placed_kind kinds[] = {PLACED_SHARD, PLACED_STRIDED, PLACED_COPY,
                                             PLACED_SHARD, PLACED_UNEVEN};
    int64_t room = c->n_ranks;

    *l = (struct case_layout){.n_ranks = 1};
    l->mesh.n_dims = (int)case_below(c, 4);
    for (int d = 0; d < l->mesh.n_dims; d++) {
        struct placed_dim *p = &l->mesh.dim[d];

        p->size = 1 + case_below(c, room);
        room /= p->size;
        l->n_ranks *= (int)p->size;
        p->kind = t->rank == 0 ? PLACED_COPY : kinds[case_below(c, d == 0 ? 5 : 4)];
        p->axis = p->kind == PLACED_COPY ? -1 : (int)case_below(c, t->rank);
        p->split = 1 + case_below(c, 3);
        for (int64_t i = 0; p->kind == PLACED_UNEVEN && i < p->size; i++) {
            const int64_t left = t->shape[p->axis] - p->cut[i];

            p->cut[i + 1] = t->shape[p->axis];
            if (i + 1 < p->size)
                p->cut[i + 1] = p->cut[i] + case_below(c, left + 1);
        }
    }
    l->first = (int)case_below(c, c->n_ranks - l->n_ranks + 1);
}

static inline int64_t *case_numbers(struct remap_case *c, size_t n)
{
    int64_t *numbers = c->numbers + c->n_numbers;

    c->n_numbers += n;
    CHECK(c->n_numbers <= sizeof c->numbers / sizeof c->numbers[0], "room for numbers");
    return numbers;
}

/* Some axes run backwards: those of about one local tensor in eight. */
static inline void case_turn(struct remap_case *c, const struct dcpk_local *boxes, int rank,
                             int64_t *stride, size_t *at)
{
    const int axis = (int)(random_nth(*at + c->n_numbers) % 32);

    if (axis >= rank || boxes->shape[axis] < 2)
        return;
    *at += (size_t)(stride[axis] * (boxes->shape[axis] - 1));
    stride[axis] = -stride[axis];
    c->counts.n_backwards++;
}

/* A shard without elements, of a rank that holds nothing but could: it lies nowhere. */
static inline void case_put_empty(struct remap_case *c, struct case_side *side, int holder,
                                  const struct case_tensor *t, enum dcpk_dtype dtype)
{
    int64_t *numbers = case_numbers(c, 3 * (size_t)t->rank);

    if (t->rank == 0)
        return;
    memset(numbers, 0, 3 * (size_t)t->rank * sizeof *numbers);
    CHECK(side->n < CASE_SHARDS, "room for shards");
    side->shards[side->n++] = (struct dcpk_shard){
        t->name, dtype, t->rank, holder, t->shape, numbers, numbers + 2 * t->rank, 0, 0};
    c->counts.n_empty++;
}

static inline bool case_is_empty(const struct dcpk_shard *shard)
{
    for (int a = 0; a < shard->rank; a++)
        if (shard->span[shard->rank + a] == 0)
            return true;
    return false;
}

/* Put the local tensor of one rank into its memory, in any order of axes, anywhere. */
static inline void case_put_local(struct remap_case *c, struct case_side *side, int holder,
                                  const struct case_tensor *t, const struct dcpk_local *boxes)
{
    const enum dcpk_dtype dtype = side == &c->sides[0] ? t->from : t->to;
    const int64_t elem_bytes = (int64_t)dcpk_dtype_bytes(dtype);
    int64_t *stride = case_numbers(c, (size_t)t->rank), n_bytes = elem_bytes;
    const bool is_turned = case_below(c, 8) == 0;
    const int padded = (int)case_below(c, 10); /* this axis, where there is one, leaves gaps */
    size_t at;

    for (int i = 0; i < t->rank; i++) {
        const int a = is_turned ? i : t->rank - 1 - i;

        stride[a] = n_bytes + (i == padded ? elem_bytes * (1 + case_below(c, 3)) : 0);
        n_bytes = stride[a] * boxes->shape[a];
    }
    at = side->used[holder] + (case_below(c, 2) ? (size_t)case_below(c, 64) : 0);
    if (case_below(c, 2))
        at = (at + 15) / 16 * 16;
    side->used[holder] = at + (size_t)n_bytes;
    CHECK(side->used[holder] <= CASE_BYTES, "room for tensors");
    case_turn(c, boxes, t->rank, stride, &at);
    c->counts.n_odd += at % (size_t)elem_bytes != 0;
    c->counts.n_several += boxes->n > 1;
    if (boxes->n == 0)
        case_put_empty(c, side, holder, t, dtype);
    for (size_t b = 0; b < boxes->n; b++) {
        struct dcpk_shard *s = &side->shards[side->n++];

        CHECK(side->n <= CASE_SHARDS, "room for shards");
        *s = (struct dcpk_shard){
            t->name,  dtype,           t->rank, holder,
            t->shape, boxes->spans[b], stride,  (uint64_t)(uintptr_t)side->memory[holder] + at,
            0};
        for (int a = 0; a < t->rank; a++)
            s->at += (uint64_t)(boxes->spans[b][2 * t->rank + a] * stride[a]);
    }
}

static inline void case_count(struct remap_case *c, const struct case_tensor *t,
                              const struct case_layout *l)
{
    c->counts.ranks[t->rank]++;
    c->counts.n_casts += t->from != t->to;
    c->counts.dims[l->mesh.n_dims]++;
    for (int d = 0; d < l->mesh.n_dims; d++)
        c->counts.kinds[l->mesh.dim[d].kind]++;
}

/* All shards of one side; tensors that did not divide get another layout. */
static inline void case_make_side(struct remap_case *c, int which)
{
    struct case_side *side = &c->sides[which];
    static struct case_layout layouts[CASE_TENSORS];

    for (size_t i = 0; i < c->n_tensors; i++) {
        struct case_layout *l = &layouts[i];
        struct dcpk_local local;
        bool divides = false;

        while (!divides) {
            case_make_layout(c, &c->tensors[i], l);
            divides = true;
            for (int r = 0; r < l->n_ranks; r++)
                divides = placed_local(&l->mesh, c->tensors[i].shape, c->tensors[i].rank, r,
                                       c->arena, &local) &&
                          divides;
        }
        case_count(c, &c->tensors[i], l);
    }
    for (int r = 0; r < c->n_ranks; r++)
        for (size_t i = 0; i < c->n_tensors; i++) {
            const struct case_layout *l = &layouts[i];
            struct dcpk_local boxes;

            if (r < l->first || r >= l->first + l->n_ranks) {
                c->counts.n_absent++;
                continue;
            }
            CHECK(placed_local(&l->mesh, c->tensors[i].shape, c->tensors[i].rank, r - l->first,
                               c->arena, &boxes),
                  "boxes");
            case_put_local(c, side, r, &c->tensors[i], &boxes);
        }
}

/* Byte b of element `number` of a tensor, as its sources have it. */
static inline uint8_t case_byte(size_t tensor, uint64_t number, size_t b)
{
    return (uint8_t)(random_nth(number * 16 + b + 1 + ((uint64_t)tensor << 40)) >> 8);
}

/* Write every element of a side where it lies: sources into their memory, targets into want. */
static inline void case_fill(struct remap_case *c, int which)
{
    const struct case_side *side = &c->sides[which];
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; i < side->n; i++) {
        const struct dcpk_shard *s = &side->shards[i];
        const size_t tensor = (size_t)strtol(s->name + 1, NULL, 10);
        const enum dcpk_dtype from = c->tensors[tensor].from;
        uint8_t *memory = which == 0 ? side->memory[s->holder] : c->want[s->holder];
        int64_t index[5] = {0};
        int a;

        if (case_is_empty(s))
            continue;
        do {
            uint64_t number = 0, at = s->at - (uint64_t)(uintptr_t)side->memory[s->holder];
            uint8_t elem[16], cast[16];

            for (a = 0; a < s->rank; a++) {
                number = number * (uint64_t)s->shape[a] + (uint64_t)(s->span[a] + index[a]);
                at += (uint64_t)(index[a] * s->stride_bytes[a]);
            }
            for (size_t b = 0; b < dcpk_dtype_bytes(from); b++)
                elem[b] = case_byte(tensor, number, b);
            memcpy(cast, elem, sizeof cast);
            if (from != s->dtype)
                CHECK_OK(dcpk_host_kernels_plain.cast(from, elem, s->dtype, cast, 1, &err), "cast");
            memcpy(memory + at, cast, dcpk_dtype_bytes(s->dtype));
            for (a = s->rank - 1; a >= 0 && ++index[a] == s->span[s->rank + a]; a--)
                index[a] = 0;
        } while (a >= 0);
    }
}

/*
 * Make a case of n_ranks ranks. The memory of each rank on each side (CASE_BYTES) and want are
 * the caller's and set before.
 */
static inline void case_make(struct remap_case *c, uint64_t seed, int n_ranks)
{

    c->seed = seed;
    c->n_ranks = n_ranks;
    c->n_numbers = 0;
    c->n_tensors = 1 + (size_t)case_below(c, CASE_TENSORS);
    c->arena = dcpk_arena_new();
    for (int side = 0; side < 2; side++) {
        c->sides[side].n = 0;
        memset(c->sides[side].used, 0, sizeof c->sides[side].used);
        for (int r = 0; r < n_ranks; r++)
            memset(c->sides[side].memory[r], CASE_POISON, CASE_BYTES);
    }
    for (size_t i = 0; i < c->n_tensors; i++)
        case_make_tensor(c, i);
    case_make_side(c, 0);
    case_make_side(c, 1);
    for (int r = 0; r < n_ranks; r++)
        memset(c->want[r], CASE_POISON, CASE_BYTES);
    case_fill(c, 0);
    case_fill(c, 1);
}

/* The shards of one rank: they are in order of holders. */
static inline const struct dcpk_shard *case_shards(const struct case_side *side, int self,
                                                   size_t *n)
{
    size_t first = 0;

    while (first < side->n && side->shards[first].holder < self)
        first++;
    for (*n = 0; first + *n < side->n && side->shards[first + *n].holder == self;)
        ++*n;
    return side->shards + first;
}

static inline void case_release(struct remap_case *c)
{
    dcpk_arena_free(c->arena);
}

/* Are all targets as they must be, and the bytes between them untouched? */
static inline void case_check(const struct remap_case *c, const char *label)
{
    for (int r = 0; r < c->n_ranks; r++)
        for (size_t i = 0; i < CASE_BYTES; i++)
            if (c->sides[1].memory[r][i] != c->want[r][i])
                fail_msg("%s: rank %d, byte %zu of the targets", label, r, i);
}

/* One for all rounds of a program: it is large. */
static inline struct remap_case *case_new(void)
{
    struct remap_case *c = calloc(1, sizeof *c);

    CHECK(c != NULL, "memory");
    for (int r = 0; r < CASE_RANKS; r++) {
        c->want[r] = malloc(CASE_BYTES);
        c->kept[r] = malloc(CASE_BYTES);
        for (int side = 0; side < 2; side++)
            c->sides[side].memory[r] = malloc(CASE_BYTES);
        CHECK(c->want[r] != NULL && c->kept[r] != NULL, "memory");
        CHECK(c->sides[0].memory[r] != NULL && c->sides[1].memory[r] != NULL, "memory");
    }
    return c;
}

static inline void case_free(struct remap_case *c)
{
    for (int r = 0; r < CASE_RANKS; r++) {
        free(c->want[r]);
        free(c->kept[r]);
        free(c->sides[0].memory[r]);
        free(c->sides[1].memory[r]);
    }
    free(c);
}

/* The case of all tests of a program: the setup of their group makes it, the teardown frees it. */
static struct remap_case *the_case;

static inline int case_begin_tests(void **state)
{
    (void)state;
    the_case = case_new();
    return 0;
}

static inline int case_end_tests(void **state)
{
    (void)state;
    case_free(the_case);
    return 0;
}

#endif
