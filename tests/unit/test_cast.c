/* SPDX-License-Identifier: Apache-2.0 */
/* test_cast.c - casts of every device against torch 2.11 and numpy, all codes of the small types.
 */
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "tests/check.h"
#include "tests/random.h"

#define N_RANDOM 262144
#define N_EDGES  (6 * 65536)

/*
 * Single codes. "torch": the code that torch 2.11 gives on the CPU; "once": rounded once from f64,
 * where torch rounds twice (through f32), worked out by hand; "nan": our rule, cpu_plain.c.
 */
static const struct {
    const char *label;
    enum dcpk_dtype from;
    uint64_t in;
    enum dcpk_dtype to;
    uint64_t out;
} codes[] = {
    {"torch: 464 is a tie to 448", DCPK_F32, 0x43e80000, DCPK_F8_E4M3FN, 0x7e},
    {"torch: past 464 no number", DCPK_F32, 0x43e80001, DCPK_F8_E4M3FN, 0x7f},
    {"torch: 480", DCPK_F32, 0x43f00000, DCPK_F8_E4M3FN, 0x7f},
    {"torch: inf", DCPK_F32, 0x7f800000, DCPK_F8_E4M3FN, 0x7f},
    {"torch: -inf", DCPK_F32, 0xff800000, DCPK_F8_E4M3FN, 0xff},
    {"torch: nan", DCPK_F32, 0x7fc00000, DCPK_F8_E4M3FN, 0x7f},
    {"torch: 2^-10, tie to 0", DCPK_F32, 0x3a800000, DCPK_F8_E4M3FN, 0x00},
    {"torch: 3 * 2^-10, tie to 2", DCPK_F32, 0x3b400000, DCPK_F8_E4M3FN, 0x02},
    {"torch: 61440 is a tie to inf", DCPK_F32, 0x47700000, DCPK_F8_E5M2, 0x7c},
    {"torch: below it", DCPK_F32, 0x476fffff, DCPK_F8_E5M2, 0x7b},
    {"torch: nan", DCPK_F32, 0xff800001, DCPK_F8_E5M2, 0xff},
    {"torch: 65520 is a tie to inf", DCPK_F32, 0x477ff000, DCPK_F16, 0x7c00},
    {"torch: below it", DCPK_F32, 0x477fefff, DCPK_F16, 0x7bff},
    {"torch: 2^-25, tie to 0", DCPK_F32, 0x33000000, DCPK_F16, 0x0000},
    {"torch: -0", DCPK_F32, 0x80000000, DCPK_F16, 0x8000},
    {"torch: largest f32", DCPK_F32, 0x7f7fffff, DCPK_BF16, 0x7f80},
    {"torch: tie down", DCPK_F32, 0x3f808000, DCPK_BF16, 0x3f80},
    {"torch: tie up", DCPK_F32, 0x3f818000, DCPK_BF16, 0x3f82},
    {"torch: smallest f32", DCPK_F32, 0x00000001, DCPK_BF16, 0x0000},
    {"torch: signalling nan", DCPK_BF16, 0x7f81, DCPK_F32, 0x7f810000},
    {"torch: nan", DCPK_F8_E4M3FN, 0xff, DCPK_F32, 0xfff00000},
    {"torch: smallest f64", DCPK_F64, 1, DCPK_F32, 0},
    {"once: 1 + 2^-8 + 2^-40", DCPK_F64, 0x3ff0100000001000, DCPK_BF16, 0x3f81},
    {"once: 1 + 2^-8", DCPK_F64, 0x3ff0100000000000, DCPK_BF16, 0x3f80},
    {"once: 1.0625 + 2^-40", DCPK_F64, 0x3ff1000000001000, DCPK_F8_E4M3FN, 0x39},
    {"once: 1.0625", DCPK_F64, 0x3ff1000000000000, DCPK_F8_E4M3FN, 0x38},
    {"once: 1.125 + 2^-40", DCPK_F64, 0x3ff2000000001000, DCPK_F8_E5M2, 0x3d},
    {"nan: payload lost", DCPK_F32, 0xff800001, DCPK_BF16, 0xffc0},
    {"nan: payload kept", DCPK_F32, 0x7f810001, DCPK_BF16, 0x7f81},
    {"nan: payload lost", DCPK_F32, 0x7f800001, DCPK_F16, 0x7e00},
    {"nan: payload kept", DCPK_F32, 0xff802000, DCPK_F16, 0xfc01},
    {"nan: payload kept", DCPK_F16, 0x7c01, DCPK_F32, 0x7f802000},
    {"nan: payload lost", DCPK_F64, 0x7ff0000000000001, DCPK_F32, 0x7fc00000},
};

static void single_codes(void **state)
{
    (void)state;
    for (const struct dcpk_host_kernels *const *b = dcpk_host_kernel_sets; *b != NULL; b++) {
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
            struct dcpk_error err = DCPK_ERROR_INIT;
            uint64_t out = 0; /* little-endian, as all of the project's bytes */

            CHECK_OK((*b)->cast(codes[i].from, &codes[i].in, codes[i].to, &out, 1, &err),
                     codes[i].label);
            CHECK_EQ_INT(out, codes[i].out, codes[i].label);
        }
    }
}

/*
 * XXH3-128 of the results for whole inputs (make_inputs), NaN codes of the input replaced by 0.
 * Computed with `tensor.view(from).to(to)` of torch 2.11 (CPU) and xxhash.xxh3_128; f64 to f16 with
 * numpy's astype, which rounds once; f64 to the other small types with torch from the f32 inputs
 * widened to f64.
 */
static const struct {
    enum dcpk_dtype from, to;
    const char *want;
} pairs[] = {
    {DCPK_F64, DCPK_F32, "5fc9baf0cfaf4b91579f345bc66ee89e"},
    {DCPK_F64, DCPK_F16, "a46179ba650d458fd5afdc1d51c2ac25"},
    {DCPK_F64, DCPK_BF16, "70e0ddf1c20e8db1d95922662c77bc1e"},
    {DCPK_F64, DCPK_F8_E4M3FN, "d3717fd32ef64a620a3dd01c4e1658d9"},
    {DCPK_F64, DCPK_F8_E5M2, "1eb8756b50a848e59b15628376948d25"},
    {DCPK_F32, DCPK_F64, "d43914e285b0f74349041457932fcf07"},
    {DCPK_F32, DCPK_F16, "40fb5d78544eca1c35ea13091a4a7217"},
    {DCPK_F32, DCPK_BF16, "70e0ddf1c20e8db1d95922662c77bc1e"},
    {DCPK_F32, DCPK_F8_E4M3FN, "d3717fd32ef64a620a3dd01c4e1658d9"},
    {DCPK_F32, DCPK_F8_E5M2, "1eb8756b50a848e59b15628376948d25"},
    {DCPK_F16, DCPK_F64, "79dfde20caf70ab25e573777dcb27050"},
    {DCPK_F16, DCPK_F32, "75f85fa825e420f69598cccad4019f93"},
    {DCPK_F16, DCPK_BF16, "a919d9ac1e0e74ebf9070bf9d356afda"},
    {DCPK_F16, DCPK_F8_E4M3FN, "981c8f68b6a9b218b1c118e2a42e430a"},
    {DCPK_F16, DCPK_F8_E5M2, "d00dedd11778dda9263be38522ec14e6"},
    {DCPK_BF16, DCPK_F64, "23e5e94e272c8f7ba424ca5daaea5d23"},
    {DCPK_BF16, DCPK_F32, "8732a777443e9dcc507d32182b4bbae5"},
    {DCPK_BF16, DCPK_F16, "2aab3ff4535eab83994e14066f20e54d"},
    {DCPK_BF16, DCPK_F8_E4M3FN, "14fead099c0b713ef9ad6c12c1eafc92"},
    {DCPK_BF16, DCPK_F8_E5M2, "ecfa7e4a8f65dbba676eaf0db74793fc"},
    {DCPK_F8_E4M3FN, DCPK_F64, "36659e9e5472c8d366db78c8b67a0b91"},
    {DCPK_F8_E4M3FN, DCPK_F32, "2305b11c0fbe6ef1dab5b03862dda24d"},
    {DCPK_F8_E4M3FN, DCPK_F16, "86b5a24aba5bfa3d0686a6a420215ed9"},
    {DCPK_F8_E4M3FN, DCPK_BF16, "5a26f946411346a300c42dd1d309a91a"},
    {DCPK_F8_E4M3FN, DCPK_F8_E5M2, "eebef25d1e3a5409550fe262411e2642"},
    {DCPK_F8_E5M2, DCPK_F64, "89a82d53d5d966f569987493f77c9edf"},
    {DCPK_F8_E5M2, DCPK_F32, "89d62ea4bd7ddf6310cf51dc3773b34a"},
    {DCPK_F8_E5M2, DCPK_F16, "9b9ce77cfde3773546dd63ffeca35a71"},
    {DCPK_F8_E5M2, DCPK_BF16, "3863bd5ce0fcc87a1e8a501b179b8125"},
    {DCPK_F8_E5M2, DCPK_F8_E4M3FN, "55311179d7c4fd674960d36ca2d11c84"},
};

/* Every upper half with the lower halves at which bf16 rounds differently, then numbers at and near
 * ties of the others. */
static uint64_t f32_input(size_t i)
{
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    static const uint32_t mask[] = {0x7fffff, 0x7ff000, 0x780000, 0x700000};
    const uint64_t x = random_nth(i - N_EDGES + 1);
    const uint64_t code =
        i < N_EDGES ? (uint64_t)(i / 6) << 16 | low[i % 6]
                    : (x >> 63) << 31 | (100 + (x >> 8) % 46) << 23 | ((x >> 32) & mask[x & 3]);

    return (code & 0x7fffffff) > 0x7f800000 ? 0 : code;
}

static uint64_t f64_input(size_t i)
{
    static const uint64_t mask[] = {0xfffffffffffff, 0xffffff0000000, 0xffe0000000000,
                                    0x8000000000000};
    const uint64_t x = random_nth(i + 1), y = random_nth(N_RANDOM + i + 1);

    return (x >> 63) << 63 | (1023 - 160 + (x >> 8) % 320) << 52 | (y & mask[x & 3]);
}

static uint64_t input(enum dcpk_dtype from, size_t i)
{
    const uint64_t size = i & (dcpk_dtype_bytes(from) == 2 ? 0x7fff : 0x7f);

    if (from == DCPK_F64)
        return f64_input(i);
    if (from == DCPK_F32)
        return f32_input(i);
    return size > (from == DCPK_F16         ? 0x7c00u
                   : from == DCPK_BF16      ? 0x7f80u
                   : from == DCPK_F8_E4M3FN ? 0x7eu
                                            : 0x7cu)
               ? 0
               : i;
}

static size_t n_inputs(enum dcpk_dtype from)
{
    return from == DCPK_F64   ? N_RANDOM
           : from == DCPK_F32 ? N_EDGES + N_RANDOM
                              : (size_t)1 << (8 * dcpk_dtype_bytes(from));
}

static void make_inputs(enum dcpk_dtype from, uint8_t *in)
{
    const size_t n_bytes = dcpk_dtype_bytes(from);

    for (size_t i = 0; i < n_inputs(from); i++) {
        const uint64_t code = input(from, i);

        memcpy(in + i * n_bytes, &code, n_bytes);
    }
}

static void check_digest(const void *data, size_t n_bytes, const char *want, const char *label)
{
    static const char digits[] = "0123456789abcdef";
    struct dcpk_hash hash;
    char got[33];

    dcpk_hash_bytes(data, n_bytes, &hash);
    for (size_t i = 0; i < 16; i++) {
        got[2 * i] = digits[hash.digest[i] >> 4];
        got[2 * i + 1] = digits[hash.digest[i] & 15];
    }
    got[32] = '\0';
    CHECK_EQ_STR(got, want, label);
}

static void check_pair(const struct dcpk_host_kernels *b, size_t pair, uint8_t *in, uint8_t *wide,
                       uint8_t *out)
{
    const enum dcpk_dtype from = pairs[pair].from, to = pairs[pair].to;
    const bool by_f32 = from == DCPK_F64 && to != DCPK_F32 && to != DCPK_F16;
    const size_t n = n_inputs(by_f32 ? DCPK_F32 : from);
    struct dcpk_error err = DCPK_ERROR_INIT;
    char label[96];

    snprintf(label, sizeof label, "%s: %s to %s", b->name, dcpk_dtype_name(from),
             dcpk_dtype_name(to));
    make_inputs(by_f32 ? DCPK_F32 : from, in);
    if (by_f32)
        CHECK_OK(b->cast(DCPK_F32, in, DCPK_F64, wide, n, &err), label);
    CHECK_OK(b->cast(from, by_f32 ? wide : in, to, out, n, &err), label);
    check_digest(out, n * dcpk_dtype_bytes(to), pairs[pair].want, label);
}

static void whole_types(void **state)
{
    enum { MAX_BYTES = 8 * (N_EDGES + N_RANDOM) };
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t *room = dcpk_alloc(3 * (size_t)MAX_BYTES, &err);

    (void)state;
    CHECK(room != NULL, err.text);
    for (const struct dcpk_host_kernels *const *b = dcpk_host_kernel_sets; *b != NULL; b++) {
        /* the inputs themselves, as numpy made them */
        make_inputs(DCPK_F64, room);
        check_digest(room, 8 * N_RANDOM, "452a9ee0e1a1cbb216451ae7abc47197", "f64 inputs");
        make_inputs(DCPK_F32, room);
        check_digest(room, 4 * (N_EDGES + N_RANDOM), "acc54bb96ad3194c6cee97d8784c3de8",
                     "f32 inputs");
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
            check_pair(*b, i, room, room + MAX_BYTES, room + 2 * (size_t)MAX_BYTES);
    }
    dcpk_free(room);
}

static void refused(void **state)
{
    uint64_t in = 0, out = 77;

    (void)state;
    for (const struct dcpk_host_kernels *const *b = dcpk_host_kernel_sets; *b != NULL; b++) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        CHECK_FAILS((*b)->cast(DCPK_I32, &in, DCPK_F32, &out, 1, &err), DCPK_EUNSUPPORTED,
                    "cannot cast int32 to float32", (*b)->name);
        CHECK_FAILS((*b)->cast(DCPK_F32, &in, DCPK_F8_E5M2FNUZ, &out, 1, &err), DCPK_EUNSUPPORTED,
                    "cannot cast float32 to float8_e5m2fnuz", (*b)->name);
        CHECK_EQ_INT(out, 77, "untouched");
    }
}

/* By hand, in hexadecimal: what one operation for both (FMA), or a wider sum, would have is another
 * value each time. */
static const struct {
    const char *label;
    float weight[3], x[3];
    int n;
    uint32_t want;
} sum_cases[] = {
    {"1/2 + 0.3f * 2 + 0.2f * 3", {0.5f, 0.3f, 0.2f}, {1, 2, 3}, 3, 0x3fd9999a},
    {"the product is rounded before it is added",
     {-1, 0x1.000002p0f},
     {0x1.000004p0f, 0x1.000002p0f},
     2,
     0},
    {"a product half way between two is even", {0x1.000002p0f}, {0x1.800000p0f}, 1, 0x3fc00002},
    {"each sum is rounded: what is too small is lost twice",
     {1, 1, 1},
     {1, 0x1p-24f, 0x1p-24f},
     3,
     0x3f800000},
    {"in the order given", {1, 1, 1}, {0x1p-24f, 0x1p-24f, 1}, 3, 0x3f800001},
    {"a weight of 0 leaves zeros", {0, 1}, {3, -2}, 2, 0xc0000000},
    {"too large a product is infinite", {2, -1}, {0x1.8p127f, 1}, 2, 0x7f800000},
};

static void weighted_sums(void **state)
{
    (void)state;
    for (const struct dcpk_host_kernels *const *b = dcpk_host_kernel_sets; *b != NULL; b++)
        for (size_t c = 0; c < sizeof sum_cases / sizeof *sum_cases; c++) {
            float sum[37]; /* loops for vectors have an end, too */
            uint32_t got;

            for (int t = 0; t < sum_cases[c].n; t++) {
                float x[37];

                for (size_t i = 0; i < 37; i++)
                    x[i] = sum_cases[c].x[t];
                (*b)->add_term(sum_cases[c].weight[t], x, t == 0, sum, 37);
            }
            for (size_t i = 0; i < 37; i++) {
                memcpy(&got, &sum[i], sizeof got);
                CHECK_EQ_INT(got, sum_cases[c].want, sum_cases[c].label);
            }
        }
}

/* The case of add_term in which the product is rounded: 2^-46 is what it loses. */
static void fused_sums(void **state)
{
    (void)state;
    for (const struct dcpk_host_kernels *const *b = dcpk_host_kernel_sets; *b != NULL; b++) {
        float sum[37], x[37];

        for (size_t i = 0; i < 37; i++)
            x[i] = 0x1.000004p0f;
        (*b)->add_fused(-1, x, true, sum, 37);
        for (size_t i = 0; i < 37; i++)
            x[i] = 0x1.000002p0f;
        (*b)->add_fused(0x1.000002p0f, x, false, sum, 37);
        for (size_t i = 0; i < 37; i++)
            CHECK(sum[i] == 0x1p-46f, (*b)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_codes), cmocka_unit_test(whole_types), cmocka_unit_test(refused),
        cmocka_unit_test(weighted_sums), cmocka_unit_test(fused_sums)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
