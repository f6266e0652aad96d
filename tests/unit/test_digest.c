/* SPDX-License-Identifier: Apache-2.0 */
/* test_digest.c - CRC-32 against zlib and its check value, XXH3-128 against Python's xxhash. */
#include <stdio.h>
#include <zlib.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "tests/check.h"
#include "tests/random.h"

#define BUFFER_BYTES (1u << 20)

static int make_bytes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t *bytes = dcpk_alloc(BUFFER_BYTES, &err);
    uint64_t seed = 1;

    if (bytes == NULL)
        return -1;
    for (size_t i = 0; i < BUFFER_BYTES; i += 8) {
        const uint64_t r = random_next(&seed);

        memcpy(bytes + i, &r, 8);
    }
    *state = bytes;
    return 0;
}

static int free_bytes(void **state)
{
    dcpk_free(*state);
    return 0;
}

static void checksums(void **state)
{
    const uint8_t *bytes = *state;

    /* the check value of CRC-32/ISO-HDLC, the CRC of zip */
    CHECK_EQ_INT(dcpk_crc32(0, "123456789", 9), 0xcbf43926, "check value");
    CHECK_EQ_INT(dcpk_crc32(7, NULL, 0), 7, "no bytes");
    for (size_t n = 1; n < BUFFER_BYTES; n = n * 3 + 1) {
        const size_t shift = n % 7, half = n / 3;
        const uint8_t *data = bytes + (n + shift <= BUFFER_BYTES ? shift : 0);
        const uint32_t want = (uint32_t)crc32_z(0, data, n), head = dcpk_crc32(0, data, half);
        const uint32_t tail = dcpk_crc32(0, data + half, n - half);

        CHECK_EQ_INT(dcpk_crc32(0, data, n), want, "whole");
        CHECK_EQ_INT(dcpk_crc32(head, data + half, n - half), want, "in two parts");
        CHECK_EQ_INT(dcpk_crc32_combine(head, tail, n - half), want, "combined");
    }
}

/* A length past 32 bits: zlib.crc32 of Python over b'dcpkit' and then 5 GiB of zeros. */
static void combines_long(void **state)
{
    (void)state;
    CHECK_EQ_INT(dcpk_crc32_combine(dcpk_crc32(0, "dcpkit", 6), 0x193838c3, UINT64_C(5) << 30),
                 0x4631870b, "5 GiB");
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
    struct dcpk_hasher hasher;
    struct dcpk_hash hash;

    (void)state;
    for (size_t i = 0; i < sizeof hashes / sizeof hashes[0]; i++) {
        const size_t n = strlen(hashes[i].text);

        dcpk_hasher_begin(&hasher);
        dcpk_hasher_update(&hasher, hashes[i].text, n / 3);
        dcpk_hasher_digest(&hasher, &hash); /* asking does not disturb */
        dcpk_hasher_update(&hasher, NULL, 0);
        dcpk_hasher_update(&hasher, hashes[i].text + n / 3, n - n / 3);
        dcpk_hasher_digest(&hasher, &hash);
        check_hash(&hash, hashes[i].want, hashes[i].text);
        dcpk_hash_bytes(hashes[i].text, n, &hash);
        check_hash(&hash, hashes[i].want, "in one call");
    }
}

/* Any cutting of a long run gives the hash of the whole. */
static void hashes_in_parts(void **state)
{
    const uint8_t *bytes = *state;
    struct dcpk_hasher parts;
    struct dcpk_hash want, got;
    uint64_t seed = 9;

    dcpk_hash_bytes(bytes, BUFFER_BYTES, &want);
    dcpk_hasher_begin(&parts);
    for (size_t at = 0; at < BUFFER_BYTES;) {
        const size_t left = BUFFER_BYTES - at;
        size_t n = (size_t)random_below(&seed, 3000);

        n = n < left ? n : left;
        dcpk_hasher_update(&parts, bytes + at, n);
        at += n;
    }
    dcpk_hasher_digest(&parts, &got);
    CHECK(memcmp(&want, &got, sizeof want) == 0, "parts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums),
        cmocka_unit_test(combines_long),
        cmocka_unit_test(hashes_text),
        cmocka_unit_test(hashes_in_parts),
    };

    return cmocka_run_group_tests(tests, make_bytes, free_bytes);
}
