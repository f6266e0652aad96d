/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels.c - every backend against cpu-plain, to the bit, on odd sizes and addresses. */
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
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
        for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
            snprintf(label, sizeof label, "%s: seed %" PRIu64, (*k)->name, round);
            poison(b);
            dcpk_backend_cpu_plain.copy(&c, b->src + src_at, b->want + dst_at);
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
    dcpk_backend_cpu_plain.copy(&c, "abcdef", out + 0);
    CHECK_EQ_STR(out, "adbecf-", "2 x 3");
}

static void check_cast(const struct dcpk_backend *k, struct buffers *b, enum dcpk_dtype from,
                       enum dcpk_dtype to, size_t n, size_t shift)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char label[128];

    snprintf(label, sizeof label, "%s: %s to %s, %zu elements, shift %zu", k->name,
             dcpk_dtype_name(from), dcpk_dtype_name(to), n, shift);
    poison(b);
    CHECK_OK(dcpk_backend_cpu_plain.cast(from, b->src + shift, to, b->want + GUARD_BYTES + shift, n,
                                         &err),
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

    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++)
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
    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
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

    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
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

static void checksums(void **state)
{
    struct buffers *b = *state;

    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
        /* the check value of CRC-32/ISO-HDLC, the CRC of zip */
        CHECK_EQ_INT((*k)->crc32(0, "123456789", 9), 0xcbf43926, (*k)->name);
        CHECK_EQ_INT((*k)->crc32(7, NULL, 0), 7, (*k)->name);
        for (size_t n = 1; n < BUFFER_BYTES; n = n * 3 + 1) {
            const size_t shift = n % 7, half = n / 3;
            const uint8_t *data = b->src + (n + shift <= BUFFER_BYTES ? shift : 0);
            const uint32_t want = dcpk_backend_cpu_plain.crc32(0, data, n);
            const uint32_t head = (*k)->crc32(0, data, half);

            CHECK_EQ_INT((*k)->crc32(0, data, n), want, (*k)->name);
            CHECK_EQ_INT((*k)->crc32(head, data + half, n - half), want, (*k)->name);
            CHECK_EQ_INT((*k)->crc32_combine(head, (*k)->crc32(0, data + half, n - half), n - half),
                         want, (*k)->name);
        }
    }
}

/* A length past 32 bits: zlib.crc32 of Python over b'dcpkit' and then 5 GiB of zeros. */
static void combines_long(void **state)
{
    (void)state;
    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++)
        CHECK_EQ_INT(
            (*k)->crc32_combine((*k)->crc32(0, "dcpkit", 6), 0x193838c3, UINT64_C(5) << 30),
            0x4631870b, (*k)->name);
}

static const struct {
    const char *text, *want; /* xxhash.xxh3_128(text).hexdigest() of Python's xxhash */
} hashes[] = {
    {"", "99aa06d3014798d86001c324468d497f"},
    {"dcpkit", "d4053f9a4694d59a5436190e551921a4"},
    {"decoder.layers.mlp.experts.linear_fc1.weight decoder.layers.mlp.experts.linear_fc1.weight "
     "decoder.layers.mlp.experts.linear_fc1.weight decoder.layers.mlp.experts.linear_fc1.weight "
     "decoder.layers.mlp.experts.linear_fc1.weight decoder.layers.mlp.experts.linear_fc1.weight "
     "decoder.layers.mlp.experts.linear_fc1.weight ",
     "f2217ba05ec983d6f2e72690850f6856"},
};

static void check_hash(const struct dcpk_hash *hash, const char *want, const char *label)
{
    char got[33];

    for (int i = 0; i < 16; i++)
        snprintf(got + 2 * i, 3, "%02x", hash->digest[i]);
    CHECK_EQ_STR(got, want, label);
}

static void hashes_text(void **state)
{
    (void)state;
    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_hasher *hasher = NULL;
        struct dcpk_hash hash;

        (*k)->hasher_free(NULL);
        CHECK_OK((*k)->hasher_new(&hasher, &err), (*k)->name);
        for (size_t i = 0; i < sizeof hashes / sizeof hashes[0]; i++) {
            const size_t n = strlen(hashes[i].text);

            (*k)->hasher_reset(hasher);
            (*k)->hasher_update(hasher, hashes[i].text, n / 3);
            (*k)->hasher_digest(hasher, &hash); /* asking does not disturb */
            (*k)->hasher_update(hasher, NULL, 0);
            (*k)->hasher_update(hasher, hashes[i].text + n / 3, n - n / 3);
            (*k)->hasher_digest(hasher, &hash);
            check_hash(&hash, hashes[i].want, hashes[i].text);
        }
        (*k)->hasher_free(hasher);
    }
}

/* Any cutting of a long run gives the hash of the whole. */
static void hashes_in_parts(void **state)
{
    struct buffers *b = *state;
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
        struct dcpk_hasher *whole = NULL, *parts = NULL;
        struct dcpk_hash want, got;
        uint64_t seed = 9;

        CHECK_OK(dcpk_backend_cpu_plain.hasher_new(&whole, &err), (*k)->name);
        CHECK_OK((*k)->hasher_new(&parts, &err), (*k)->name);
        dcpk_backend_cpu_plain.hasher_update(whole, b->src, BUFFER_BYTES);
        dcpk_backend_cpu_plain.hasher_digest(whole, &want);
        for (int64_t at = 0; at < BUFFER_BYTES;) {
            int64_t n = below(&seed, 3000);

            n = n < BUFFER_BYTES - at ? n : BUFFER_BYTES - at;
            (*k)->hasher_update(parts, b->src + at, (size_t)n);
            at += n;
        }
        (*k)->hasher_digest(parts, &got);
        CHECK(memcmp(&want, &got, sizeof want) == 0, (*k)->name);
        dcpk_backend_cpu_plain.hasher_free(whole);
        (*k)->hasher_free(parts);
    }
}

static void fills(void **state)
{
    struct buffers *b = *state;

    for (const struct dcpk_backend *const *k = dcpk_backends; *k != NULL; k++) {
        poison(b);
        (*k)->fill_zero(NULL, 0);
        (*k)->fill_zero(b->got + 3, 1001);
        CHECK_EQ_INT(b->got[2], POISON, (*k)->name);
        CHECK_EQ_INT(b->got[1004], POISON, (*k)->name);
        for (size_t i = 3; i < 1004; i++)
            CHECK_EQ_INT(b->got[i], 0, (*k)->name);
    }
}

static void table(void **state)
{
    (void)state;
    CHECK_EQ_STR(dcpk_backends[0]->name, "cpu", "the one to use first");
    CHECK(dcpk_backends[1] == &dcpk_backend_cpu_plain, "then the specification");
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
        cmocka_unit_test(checksums),
        cmocka_unit_test(combines_long),
        cmocka_unit_test(hashes_text),
        cmocka_unit_test(hashes_in_parts),
        cmocka_unit_test(fills),
    };

    return cmocka_run_group_tests(tests, make_buffers, free_buffers);
}
