/* SPDX-License-Identifier: Apache-2.0 */
/* test_cover_prop.c - the cover check against counting every element, on random cuts and damaged
 * ones. */
#include <stdio.h>

#include "lib/tensor/box.h"
#include "tests/check.h"
#include "tests/random.h"

#define MAX_PARTS 64

struct round {
    uint64_t seed;
    int rank;
    int64_t shape[4];
    int64_t span[MAX_PARTS][8];
    size_t n;
};

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)random_below(state, (uint64_t)n);
}

/* Cut a random part in two along a random axis. */
static void split_one(struct round *r)
{
    int64_t *low = r->span[below(&r->seed, (int64_t)r->n)], *high = r->span[r->n];
    const int axis = (int)below(&r->seed, r->rank);
    const int64_t extent = low[r->rank + axis];
    const int64_t at = extent == 0 ? 0 : below(&r->seed, extent); /* 0 makes an empty part */

    if (at == 0 && below(&r->seed, 8) != 0) /* few empty parts */
        return;
    memcpy(high, low, sizeof r->span[0]);
    low[r->rank + axis] = at;
    high[axis] += at;
    high[r->rank + axis] = extent - at;
    r->n++;
}

/* Five parts around the middle one, that no straight cut divides; only for two axes and more. */
static void pinwheel(struct round *r)
{
    const int64_t rows = r->shape[0], columns = r->shape[1];
    const int64_t at[5][4] = {{0, 0, 1, columns - 1},
                              {0, columns - 1, rows - 1, 1},
                              {1, 0, rows - 1, 1},
                              {rows - 1, 1, 1, columns - 1},
                              {1, 1, rows - 2, columns - 2}};

    for (int i = 0; i < 5; i++) {
        memcpy(r->span[i], r->span[0], sizeof r->span[0]);
        for (int a = 0; a < r->rank; a++) {
            r->span[i][a] = a < 2 ? at[i][a] : 0;
            r->span[i][r->rank + a] = a < 2 ? at[i][2 + a] : r->shape[a];
        }
    }
    r->n = 5;
}

static void make_round(struct round *r, uint64_t seed)
{
    *r = (struct round){.seed = seed, .n = 1};
    r->rank = 1 + (int)below(&r->seed, 4);
    for (int a = 0; a < r->rank; a++) {
        r->shape[a] = 1 + below(&r->seed, 8);
        r->span[0][r->rank + a] = r->shape[a];
    }
    if (r->rank > 1 && r->shape[0] > 2 && r->shape[1] > 2 && below(&r->seed, 3) == 0)
        pinwheel(r);
    for (int64_t cuts = below(&r->seed, MAX_PARTS - 5); cuts > 0; cuts--)
        split_one(r);
    for (size_t i = r->n - 1; i > 0; i--) {
        const size_t k = (size_t)below(&r->seed, (int64_t)i + 1);
        int64_t swap[8];

        memcpy(swap, r->span[i], sizeof swap);
        memcpy(r->span[i], r->span[k], sizeof swap);
        memcpy(r->span[k], swap, sizeof swap);
    }
}

/* Move, stretch, drop or double some of the parts, inside the shape. */
static void damage(struct round *r)
{
    for (int64_t times = below(&r->seed, 4); times > 0 && r->n > 0; times--) {
        int64_t *span = r->span[below(&r->seed, (int64_t)r->n)];
        const int axis = (int)below(&r->seed, r->rank);
        int64_t *offset = &span[axis], *extent = &span[r->rank + axis];

        switch (below(&r->seed, 5)) {
        case 0:
            *offset = below(&r->seed, r->shape[axis] - *extent + 1);
            break;
        case 1:
            *extent = below(&r->seed, r->shape[axis] - *offset + 1);
            break;
        case 2:
            memcpy(span, r->span[--r->n], sizeof r->span[0]);
            break;
        case 3:
            memcpy(span, r->span[below(&r->seed, (int64_t)r->n)], sizeof r->span[0]);
            break;
        default:
            break;
        }
    }
}

static bool holds(const struct round *r, size_t part, const int64_t *element)
{
    for (int a = 0; a < r->rank; a++)
        if (element[a] < r->span[part][a] ||
            element[a] >= r->span[part][a] + r->span[part][r->rank + a])
            return false;
    return true;
}

/* Count every element in row-major order; the first bad one is put into element. Returns its count,
 * 1 if all is well. */
static int count_all(const struct round *r, int64_t *element)
{
    int a;

    memset(element, 0, (size_t)r->rank * sizeof *element);
    do {
        int count = 0;

        for (size_t i = 0; i < r->n; i++)
            count += holds(r, i, element);
        if (count != 1)
            return count;
        for (a = r->rank - 1; a >= 0 && ++element[a] == r->shape[a]; a--)
            element[a] = 0;
    } while (a >= 0);
    return 1;
}

static void check_round(const struct round *r, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int64_t *spans[MAX_PARTS];
    int64_t element[4];
    const int count = count_all(r, element);
    char at[64], want[96];

    for (size_t i = 0; i < r->n; i++)
        spans[i] = r->span[i];
    dcpk_shape_format(element, r->rank, at, sizeof at);
    snprintf(want, sizeof want, count == 0 ? "element %s of shape" : "overlap at element %s", at);
    if (count == 1)
        CHECK_OK(dcpk_cover_check(r->shape, r->rank, spans, r->n, &err), label);
    else
        CHECK_FAILS(dcpk_cover_check(r->shape, r->rank, spans, r->n, &err), DCPK_EFORMAT, want,
                    label);
}

static void random_cuts(void **state)
{
    int n_damaged = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct round r;
        int64_t element[4];
        char label[32];

        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        make_round(&r, seed);
        CHECK_EQ_INT(count_all(&r, element), 1, label); /* the test's own cuts are exact */
        check_round(&r, label);
        damage(&r);
        n_damaged += count_all(&r, element) != 1;
        check_round(&r, label);
    }
    CHECK(n_damaged > 1000, "damage does damage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cuts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
