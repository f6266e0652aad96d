/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels.c - every device against cpu-plain, to the bit, on odd sizes and addresses. */
#include <math.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "tests/check.h"
#include "tests/random.h"

#define BUFFER_BYTES (1u << 20)
#define GUARD_BYTES  64
#define POISON       0xa5

static const enum dcpk_dtype floats[] = {DCPK_F64,  DCPK_F32,       DCPK_F16,
                                         DCPK_BF16, DCPK_F8_E4M3FN, DCPK_F8_E5M2};
#define N_FLOATS (sizeof floats / sizeof floats[0])

struct buffers {
    uint8_t *src, *want, *got;
};

static int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)random_below(state, (uint64_t)n);
}

static int make_buffers(void **state)
{
    static struct buffers b;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t seed = 1;

    b.src = dcpk_alloc(BUFFER_BYTES, &err);
    b.want = dcpk_alloc(BUFFER_BYTES, &err);
    b.got = dcpk_alloc(BUFFER_BYTES, &err);
    if (b.src == NULL || b.want == NULL || b.got == NULL)
        return -1;
    for (size_t i = 0; i < BUFFER_BYTES; i += 8) {
        const uint64_t r = random_next(&seed);

        memcpy(b.src + i, &r, 8);
    }
    *state = &b;
    return 0;
}

static int free_buffers(void **state)
{
    struct buffers *b = *state;

    dcpk_free(b->src);
    dcpk_free(b->want);
    dcpk_free(b->got);
    return 0;
}

static void poison(struct buffers *b)
{
    memset(b->want, POISON, BUFFER_BYTES);
    memset(b->got, POISON, BUFFER_BYTES);
}

/* Lay axes out in a random order, dense or with gaps, in either direction. Returns the bytes that
 * it spans. */
static int64_t lay_out(uint64_t *seed, const struct dcpk_copy *c, int64_t *stride, int64_t *first)
{
    int order[DCPK_MAX_RANK] = {0};
    int64_t bytes = (int64_t)c->elem_bytes;
    const int64_t gap = below(seed, 2) ? 0 : below(seed, 5);

    *first = 0;
    for (int a = 0; a < c->rank; a++) {
        const int other = (int)below(seed, a + 1);

        order[a] = order[other]; /* shuffles while it fills; the last axis first when not moved */
        order[other] = a;
    }
    for (int i = 0; i < c->rank; i++) {
        const int a = order[i];
        const int64_t step = bytes + gap * (int64_t)c->elem_bytes + (gap == 4);

        stride[a] = step;
        bytes = step * c->extent[a] + below(seed, 2) * gap;
        if (below(seed, 8) == 0) { /* backwards */
            *first += step * (c->extent[a] - 1);
            stride[a] = -step;
        }
    }
    return bytes;
}

/* A random copy whose two sides fit the buffers; small or larger than the tiles. */
static void make_copy(uint64_t *seed, struct dcpk_copy *c, int64_t *src_at, int64_t *dst_at)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 3, 12};
    const int64_t room = BUFFER_BYTES - 2 * GUARD_BYTES;
    int64_t src_bytes, dst_bytes;

    do {
        *c = (struct dcpk_copy){.rank = (int)below(seed, 5),
                                .elem_bytes = sizes[below(seed, sizeof sizes / sizeof *sizes)]};
        for (int a = 0; a < c->rank; a++)
            c->extent[a] = 1 + below(seed, c->rank <= 2 ? 150 : 12);
        src_bytes = lay_out(seed, c, c->src_stride_bytes, src_at);
        dst_bytes = lay_out(seed, c, c->dst_stride_bytes, dst_at);
    } while (src_bytes > room || dst_bytes > room);
    *src_at += below(seed, GUARD_BYTES);
    *dst_at += GUARD_BYTES + below(seed, GUARD_BYTES);
    if (c->rank > 0 && below(seed, 20) == 0)
        c->extent[below(seed, c->rank)] = 0;
    if (c->rank > 0 && below(seed, 20) == 0)
        c->src_stride_bytes[below(seed, c->rank)] = 0; /* one element for all */
}

static void copies(void **state)
{
    struct buffers *b = *state;

    for (uint64_t round = 1; round <= 400; round++) {
        uint64_t seed = round;
        struct dcpk_copy c;
        int64_t src_at, dst_at;
        char label[64];

        make_copy(&seed, &c, &src_at, &dst_at);
        for (const struct dcpk_host_kernels *const *k = dcpk_host_kernel_sets; *k != NULL; k++) {
            snprintf(label, sizeof label, "%s: seed %" PRIu64, (*k)->name, round);
            poison(b);
            dcpk_host_kernels_plain.copy(&c, b->src + src_at, b->want + dst_at);
            (*k)->copy(&c, b->src + src_at, b->got + dst_at);
            CHECK(memcmp(b->want, b->got, BUFFER_BYTES) == 0, label);
        }
    }
}

/* The plain copy itself: a transposed block, element by element. */
static void plain_transposes(void **state)
{
    const struct dcpk_copy c = {2, 1, {2, 3}, {3, 1}, {1, 2}};
    char out[8] = "-------";

    (void)state;
    dcpk_host_kernels_plain.copy(&c, "abcdef", out + 0);
    CHECK_EQ_STR(out, "adbecf-", "2 x 3");
}

static void check_cast(const struct dcpk_host_kernels *k, struct buffers *b, enum dcpk_dtype from,
                       enum dcpk_dtype to, size_t n, size_t shift)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char label[128];

    snprintf(label, sizeof label, "%s: %s to %s, %zu elements, shift %zu", k->name,
             dcpk_dtype_name(from), dcpk_dtype_name(to), n, shift);
    poison(b);
    CHECK_OK(dcpk_host_kernels_plain.cast(from, b->src + shift, to, b->want + GUARD_BYTES + shift,
                                          n, &err),
             label);
    CHECK_OK(k->cast(from, b->src + shift, to, b->got + GUARD_BYTES + shift, n, &err), label);
    CHECK(memcmp(b->want, b->got, BUFFER_BYTES) == 0, label);
}

/* Random bits of every type, NaNs and subnormals among them; sizes around the block of the tuned
 * loops. */
static void casts_of_random_bits(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 63, 64, 65, 1000, 65537};
    struct buffers *b = *state;

    for (const struct dcpk_host_kernels *const *k = dcpk_host_kernel_sets; *k != NULL; k++)
        for (size_t f = 0; f < N_FLOATS; f++)
            for (size_t t = 0; t < N_FLOATS; t++)
                for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                    check_cast(*k, b, floats[f], floats[t], sizes[s], s % 4);
}

/* All codes of the types of one and two bytes, and f32 codes around all of bf16's and f16's. */
static void casts_of_all_codes(void **state)
{
    static const uint32_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
    struct buffers *real = *state, b = *real;
    struct dcpk_error err = DCPK_ERROR_INIT;

    b.src = dcpk_alloc(BUFFER_BYTES, &err);
    CHECK(b.src != NULL, err.text);
    for (const struct dcpk_host_kernels *const *k = dcpk_host_kernel_sets; *k != NULL; k++) {
        for (size_t f = 0; f < N_FLOATS; f++) {
            const size_t n_bytes = dcpk_dtype_bytes(floats[f]);
            const size_t n = n_bytes == 1 ? 256 : 65536;

            for (uint32_t i = 0; i < n && n_bytes <= 2; i++)
                memcpy(b.src + i * n_bytes, &i, n_bytes);
            for (size_t t = 0; t < N_FLOATS && n_bytes <= 2; t++)
                check_cast(*k, &b, floats[f], floats[t], n, 0);
        }
        for (size_t s = 0; s < sizeof low / sizeof low[0]; s++) {
            for (uint32_t i = 0; i < 65536; i++)
                memcpy(b.src + 4 * i, &(uint32_t){i << 16 | low[s]}, 4);
            for (size_t t = 0; t < N_FLOATS; t++)
                check_cast(*k, &b, DCPK_F32, floats[t], 65536, 0);
        }
    }
    dcpk_free(b.src);
}

/* Widening and narrowing again gives every code back, NaN codes included. */
static void casts_come_back(void **state)
{
    struct buffers *b = *state;

    for (const struct dcpk_host_kernels *const *k = dcpk_host_kernel_sets; *k != NULL; k++) {
        for (int t = 0; t < 4; t++) {
            const enum dcpk_dtype small = t < 2 ? DCPK_BF16 : DCPK_F16;
            const enum dcpk_dtype wide = t % 2 ? DCPK_F64 : DCPK_F32;
            struct dcpk_error err = DCPK_ERROR_INIT;
            uint16_t code;

            for (uint32_t i = 0; i < 65536; i++)
                memcpy(b->want + 2 * i, &(uint16_t){(uint16_t)i}, 2);
            CHECK_OK((*k)->cast(small, b->want, wide, b->got, 65536, &err), (*k)->name);
            CHECK_OK((*k)->cast(wide, b->got, small, b->want, 65536, &err), (*k)->name);
            for (uint32_t i = 0; i < 65536; i++) {
                memcpy(&code, b->want + 2 * i, 2);
                CHECK_EQ_INT(code, i, dcpk_dtype_name(small));
            }
        }
    }
}

/* --- scales --- */

/* The same floats, NaN for NaN, and nothing written around them. */
static void check_floats(const struct buffers *b, size_t n, const char *label)
{
    for (size_t i = 0; i < BUFFER_BYTES; i++) {
        const bool is_inside = i >= GUARD_BYTES && i < GUARD_BYTES + n * sizeof(float);
        float want, got;

        if (!is_inside || i % sizeof(float) != 0) {
            CHECK(is_inside || b->got[i] == POISON, label);
            continue;
        }
        memcpy(&want, b->want + i, sizeof want);
        memcpy(&got, b->got + i, sizeof got);
        CHECK(memcmp(&want, &got, sizeof want) == 0 || (isnan(want) && isnan(got)), label);
    }
}

/* Random values in blocks, cut out at any place; every code of every type, scales of any size but
 * NaN, whose code would be free. */
static void make_scale(uint64_t *seed, struct dcpk_scale *s)
{
    static const enum dcpk_dtype dtypes[] = {DCPK_F8_E4M3FN, DCPK_F8_E5M2, DCPK_F4_E2M1FN_X2};

    *s = (struct dcpk_scale){.dtype = dtypes[below(seed, 3)],
                             .n_rows = 1 + below(seed, 40),
                             .n_cols = 1 + below(seed, 300),
                             .block_rows = 1 + below(seed, 33),
                             .block_cols = 2 * (1 + below(seed, 70))};
    s->row = below(seed, s->block_rows);
    s->col = below(seed, s->block_cols);
}

static void scales_of_blocks(void **state)
{
    static float scales[41 * 302];
    struct buffers *b = *state;

    for (uint64_t round = 1; round <= 400; round++) {
        uint64_t seed = round;
        struct dcpk_scale s;
        int64_t shift;
        char label[64];

        make_scale(&seed, &s);
        shift = below(&seed, GUARD_BYTES);
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
            const uint32_t bits = (uint32_t)random_next(&seed) & 0xff7fffff;

            memcpy(&scales[i], &bits, sizeof bits);
        }
        for (const struct dcpk_host_kernels *const *k = dcpk_host_kernel_sets; *k != NULL; k++) {
            snprintf(label, sizeof label, "%s: seed %" PRIu64, (*k)->name, round);
            poison(b);
            dcpk_host_kernels_plain.scale(&s, b->src + shift, scales,
                                          (float *)(void *)(b->want + GUARD_BYTES));
            (*k)->scale(&s, b->src + shift, scales, (float *)(void *)(b->got + GUARD_BYTES));
            check_floats(b, (size_t)(s.n_rows * s.n_cols), label);
        }
    }
}

/* The plain one itself, by hand: 2 x 4 of blocks of 2 x 2, from the second row and column on. */
static void plain_scales(void **state)
{
    static const uint8_t e4m3[] = {0x38, 0x40, 0xb8, 0x01, 0x7e, 0x00, 0x30, 0x08};
    static const float want_8[] = {1, 4, -2, 0x1p-7f, 448 * 8.0f, 0, 0.5f * 16, 0x1p-6f * 32};
    static const uint8_t e2m1[] = {0x20, 0x75, 0x0a, 0x90, 0xff, 0x0c};
    static const float want_4[] = {1, 6, 12, -4, -0.5f * 8, -6 * 16, -6 * 16, -2 * 32};
    static const float scales[] = {1, 2, 4, 8, 16, 32};
    struct dcpk_scale s = {DCPK_F8_E4M3FN, 2, 4, 1, 1, 2, 2};
    float out[8];

    (void)state;
    dcpk_host_kernels_plain.scale(&s, e4m3, scales, out);
    for (int i = 0; i < 8; i++)
        CHECK(out[i] == want_8[i], "e4m3");
    s.dtype = DCPK_F4_E2M1FN_X2;
    dcpk_host_kernels_plain.scale(&s, e2m1, scales, out);
    for (int i = 0; i < 8; i++)
        CHECK(out[i] == want_4[i], "e2m1");
}

static void table(void **state)
{
    (void)state;
    CHECK_EQ_STR(dcpk_host_kernel_sets[0]->name, "cpu", "the one to use first");
    CHECK(dcpk_host_kernel_sets[1] == &dcpk_host_kernels_plain, "then the specification");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(copies),
        cmocka_unit_test(plain_transposes),
        cmocka_unit_test(casts_of_random_bits),
        cmocka_unit_test(casts_of_all_codes),
        cmocka_unit_test(casts_come_back),
        cmocka_unit_test(scales_of_blocks),
        cmocka_unit_test(plain_scales),
    };

    return cmocka_run_group_tests(tests, make_buffers, free_buffers);
}
