/* SPDX-License-Identifier: Apache-2.0 */
/* make_data.c - pieces of a random pool at random places, low mantissa bits changed by a key. */
#include "tests/bench/make_data.h"

#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"

#define POOL_ELEMS  (1u << 20)
#define BLOCK_ELEMS (1u << 16) /* from one place of the pool */
#define MAKE_ELEMS  (1u << 20) /* in one call */

struct scratch {
    uint32_t fp32[MAKE_ELEMS];
    uint16_t bf16[MAKE_ELEMS];
};

struct dcpk_bench_data {
    uint32_t pool[DCPK_N_BENCH_KINDS][POOL_ELEMS]; /* floats as bits; WEIGHT is not used */
    struct scratch *scratch;                       /* one a worker */
};

static uint64_t mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A number around 0 with a bell-like spread: the sum of four even ones. */
static float bell(uint64_t seed)
{
    const uint64_t r = mix(seed);
    float sum = 0;

    for (int i = 0; i < 4; i++)
        sum += (float)(r >> (16 * i) & 0xffff) / 65536.0F - 0.5F;
    return sum;
}

static void fill_pool(struct dcpk_bench_data *data)
{
    for (uint32_t i = 0; i < POOL_ELEMS; i++) {
        const float x = bell(i);
        const float of[DCPK_N_BENCH_KINDS] = {[DCPK_BENCH_PARAM] = x * 0.02F,
                                              [DCPK_BENCH_EXP_AVG] = x * 1e-4F,
                                              [DCPK_BENCH_EXP_AVG_SQ] = x * x * 1e-8F};

        for (int k = 0; k < DCPK_N_BENCH_KINDS; k++)
            memcpy(&data->pool[k][i], &of[k], sizeof of[k]);
    }
}

dcpk_status dcpk_bench_data_new(int n_workers, struct dcpk_bench_data **data,
                                struct dcpk_error *err)
{
    struct dcpk_bench_data *d = dcpk_alloc(sizeof *d, err);

    if (d == NULL)
        return err->status;
    d->scratch = dcpk_alloc_array((size_t)n_workers, sizeof *d->scratch, err);
    if (d->scratch == NULL) {
        dcpk_free(d);
        return err->status;
    }
    fill_pool(d);
    *data = d;
    return DCPK_OK;
}

void dcpk_bench_data_free(struct dcpk_bench_data *data)
{
    if (data != NULL)
        dcpk_free(data->scratch);
    dcpk_free(data);
}

const void *dcpk_bench_data_make(struct dcpk_bench_data *data, int worker,
                                 enum dcpk_bench_kind kind, uint64_t key, uint64_t at_bytes,
                                 uint64_t left_bytes, size_t *n_bytes)
{
    const size_t elem_bytes = kind == DCPK_BENCH_WEIGHT ? 2 : 4;
    const uint64_t first = at_bytes / elem_bytes; /* a multiple of MAKE_ELEMS */
    const uint64_t left = left_bytes / elem_bytes;
    const size_t n = left < MAKE_ELEMS ? (size_t)left : MAKE_ELEMS;
    const uint32_t *pool = data->pool[kind == DCPK_BENCH_WEIGHT ? DCPK_BENCH_PARAM : kind];
    struct scratch *s = &data->scratch[worker];
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* f32 to bf16 is always there */

    for (size_t at = 0; at < n; at += BLOCK_ELEMS) {
        const uint64_t r = mix(mix(key) + (first + at) / BLOCK_ELEMS);
        const uint32_t *from = pool + r % (POOL_ELEMS - BLOCK_ELEMS);
        const uint32_t change = (uint32_t)(r >> 40) & 0x7fff;
        const size_t m = n - at < BLOCK_ELEMS ? n - at : BLOCK_ELEMS;

        for (size_t i = 0; i < m; i++)
            s->fp32[at + i] = from[i] ^ change;
    }
    *n_bytes = n * elem_bytes;
    if (kind != DCPK_BENCH_WEIGHT)
        return s->fp32;
    dcpk_host_kernel_sets[0]->cast(DCPK_F32, s->fp32, DCPK_BF16, s->bf16, n, &ignored);
    return s->bf16;
}
