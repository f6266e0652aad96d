/* SPDX-License-Identifier: Apache-2.0 */
/* test_strided_prop.c - pieces and copies against moving one element at a time by its index. */
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/tensor/piece.h"
#include "lib/tensor/strided.h"
#include "tests/between.h"
#include "tests/check.h"
#include "tests/random.h"

#define MAX_ELEMS 20000

struct side {
    int rank;
    int64_t shape[DCPK_MAX_RANK];
    struct dcpk_box box;
};

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)random_below(state, (uint64_t)n);
}

/* A buffer with a box of these extents in it, axes of length 1 put between them at random. */
static void make_side(uint64_t *seed, const int64_t *extent, int n, struct side *side)
{
    int used = 0;

    *side = (struct side){0};
    while (used < n || below(seed, 4) == 0) {
        const bool one = used == n || below(seed, 3) == 0;
        const int a = side->rank++;

        side->box.extent[a] = one ? 1 : extent[used++];
        side->box.offset[a] = below(seed, 3);
        side->shape[a] = side->box.offset[a] + side->box.extent[a] + below(seed, 2);
        if (side->rank == 6) /* keeps the buffers small */
            break;
    }
    for (; used < n; used++, side->rank++) {
        side->box.extent[side->rank] = extent[used];
        side->shape[side->rank] = extent[used];
    }
    side->box.rank = side->rank;
}

static int64_t count(const int64_t *extent, int rank)
{
    int64_t n = 1;

    for (int a = 0; a < rank; a++)
        n *= extent[a];
    return n;
}

/* Row-major place in the buffer of the box's k-th element. */
static int64_t place(const struct side *side, const struct dcpk_box *box, int64_t k)
{
    int64_t index[DCPK_MAX_RANK], at = 0;

    for (int a = side->rank - 1; a >= 0; a--) {
        index[a] = box->offset[a] + k % box->extent[a];
        k /= box->extent[a];
    }
    for (int a = 0; a < side->rank; a++)
        at = at * side->shape[a] + index[a];
    return at;
}

/* A random region of the destination buffer. */
static struct dcpk_box make_region(uint64_t *seed, const struct side *side)
{
    struct dcpk_box region = {.rank = side->rank};

    for (int a = 0; a < side->rank; a++) {
        region.offset[a] = below(seed, side->box.offset[a] + 1);
        region.extent[a] = 1 + below(seed, side->shape[a] - region.offset[a]);
    }
    return region;
}

/* The elements that the whole piece moves, one by one, where they land in `region`. */
static void move_singly(const struct side *src, const struct side *dst,
                        const struct dcpk_box *region, const uint16_t *in, uint16_t *out)
{
    for (int64_t k = 0; k < count(dst->box.extent, dst->rank); k++) {
        int64_t left = k;
        bool inside = true;

        for (int a = dst->rank - 1; a >= 0; a--) {
            const int64_t at = dst->box.offset[a] + left % dst->box.extent[a];

            left /= dst->box.extent[a];
            inside =
                inside && at >= region->offset[a] && at < region->offset[a] + region->extent[a];
        }
        if (inside)
            out[place(dst, &dst->box, k)] = in[place(src, &src->box, k)];
    }
}

static void check_round(uint64_t seed, struct dcpk_arena *arena, int *n_met)
{
    static uint16_t in[MAX_ELEMS], want[MAX_ELEMS], got[MAX_ELEMS];
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int n = (int)below(&seed, 4);
    int64_t extent[3];
    struct side src, dst;
    struct dcpk_piece piece;
    struct dcpk_box region, from, to, back;
    char label[40];

    snprintf(label, sizeof label, "state %" PRIu64, seed);
    for (int i = 0; i < n; i++)
        extent[i] = 2 + below(&seed, 4);
    make_side(&seed, extent, n, &src);
    make_side(&seed, extent, n, &dst);
    if (count(src.shape, src.rank) > MAX_ELEMS || count(dst.shape, dst.rank) > MAX_ELEMS)
        return;
    for (size_t i = 0; i < MAX_ELEMS; i++)
        in[i] = (uint16_t)i;
    memset(want, 0xff, sizeof want);
    memset(got, 0xff, sizeof got);
    region = make_region(&seed, &dst);
    move_singly(&src, &dst, &region, in, want);
    CHECK_OK(dcpk_piece_make(arena, 0, &src.box, &dst.box, &piece, &err), label);
    if (dcpk_piece_clip(&piece, &region, &from, &to)) {
        struct dcpk_copy copy;
        uint64_t src_at, dst_at;

        dcpk_piece_forward(&piece, &from, &back);
        CHECK(memcmp(back.offset, to.offset, (size_t)to.rank * sizeof to.offset[0]) == 0, label);
        CHECK(memcmp(back.extent, to.extent, (size_t)to.rank * sizeof to.extent[0]) == 0, label);
        between(sizeof in[0], &(struct between_side){src.shape, from},
                &(struct between_side){dst.shape, to}, &src_at, &dst_at, &copy);
        dcpk_host_kernels_plain.copy(&copy, (const char *)in + src_at, (char *)got + dst_at);
        ++*n_met;
    }
    CHECK(memcmp(want, got, sizeof want) == 0, label);
}

static void pieces(void **state)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    int n_met = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++)
        check_round(seed, arena, &n_met);
    CHECK(n_met > 1500, "most regions meet their piece");
    dcpk_arena_free(arena);
}

/* A simplified copy moves the same bytes, in no more axes. */
static void simplified(void **state)
{
    static uint8_t in[4096], want[4096], got[4096];

    (void)state;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 7 + i / 251);
    for (uint64_t round = 1; round <= 3000; round++) {
        uint64_t seed = round;
        struct dcpk_copy copy = {.rank = (int)below(&seed, 6),
                                 .elem_bytes = (size_t)1 + (size_t)below(&seed, 4)};
        struct dcpk_copy simple;
        int64_t src = (int64_t)copy.elem_bytes, dst = src;
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, round);
        for (int a = copy.rank - 1; a >= 0; a--) { /* at most 4^5 steps of 4 bytes, few gaps */
            copy.extent[a] = below(&seed, 30) == 0 ? 0 : 1 + below(&seed, 3);
            copy.src_stride_bytes[a] = src;
            copy.dst_stride_bytes[a] = dst;
            src = src * (copy.extent[a] + 1) - (below(&seed, 3) ? src : 0);
            dst = dst * (copy.extent[a] + 1) - (below(&seed, 3) ? dst : 0);
            src = src == 0 ? 1 : src;
            dst = dst == 0 ? 1 : dst;
        }
        if (src > (int64_t)sizeof in || dst > (int64_t)sizeof in)
            continue;
        simple = copy;
        dcpk_copy_simplify(&simple);
        CHECK(simple.rank <= copy.rank || simple.extent[0] == 0, label);
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        dcpk_host_kernels_plain.copy(&copy, in, want);
        dcpk_host_kernels_plain.copy(&simple, in, got);
        CHECK(memcmp(want, got, sizeof want) == 0, label);
        for (int a = 0; a < simple.rank; a++)
            CHECK(simple.extent[a] != 1, label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces), cmocka_unit_test(simplified)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
