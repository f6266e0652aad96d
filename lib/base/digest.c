/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - CRC-32 by libdeflate, its combination by zlib, XXH3-128 by xxHash, SHA-256 by
 * OpenSSL's libcrypto. */
#include "lib/base/digest.h"

/* Makes the state's size known. */
#define XXH_STATIC_LINKING_ONLY
/* The functions of SHA-256 itself are deprecated for EVP's, but they need no memory. EVP asks for a
 * provider first, and OpenSSL 3.0 crashes where that finds no memory. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <assert.h>
#include <libdeflate.h>
#include <openssl/sha.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

uint32_t dcpk_crc32(uint32_t crc, const void *data, size_t n_bytes)
{
    if (n_bytes == 0) /* data may be NULL, which libdeflate takes for "begin" */
        return crc;
    return libdeflate_crc32(crc, data, n_bytes);
}

uint32_t dcpk_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes)
{
    /* zlib takes a signed length and never returns from a negative one. */
    static_assert(sizeof(z_off_t) == sizeof(int64_t), "built with 64-bit file offsets");
    assert(b_bytes <= INT64_MAX);
    return (uint32_t)crc32_combine(crc_a, crc_b, (z_off_t)b_bytes);
}

static void put_digest(XXH128_hash_t value, struct dcpk_hash *hash)
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, value);
    static_assert(sizeof canonical.digest == sizeof hash->digest, "128 bits");
    memcpy(hash->digest, canonical.digest, sizeof hash->digest);
}

void dcpk_hash_bytes(const void *data, size_t n_bytes, struct dcpk_hash *hash)
{
    put_digest(XXH3_128bits(data, n_bytes), hash);
}

static_assert(sizeof(XXH3_state_t) <= sizeof(struct dcpk_hasher) &&
                  alignof(XXH3_state_t) <= alignof(struct dcpk_hasher),
              "the header has room for it");

/* The calls below report XXH_ERROR for a NULL state only. */
void dcpk_hasher_begin(struct dcpk_hasher *hasher)
{
    XXH3_state_t *state = (void *)hasher;

    XXH3_INITSTATE(state);
    (void)XXH3_128bits_reset(state);
}

void dcpk_hasher_update(struct dcpk_hasher *hasher, const void *data, size_t n_bytes)
{
    if (n_bytes > 0)
        (void)XXH3_128bits_update((void *)hasher, data, n_bytes);
}

void dcpk_hasher_digest(const struct dcpk_hasher *hasher, struct dcpk_hash *hash)
{
    put_digest(XXH3_128bits_digest((const void *)hasher), hash);
}

static_assert(sizeof(SHA256_CTX) <= sizeof(struct dcpk_sha256) &&
                  alignof(SHA256_CTX) <= alignof(struct dcpk_sha256),
              "the header has room for it");

/* They always return 1. */
static void check_result(int result)
{
    assert(result == 1);
    (void)result;
}

void dcpk_sha256_begin(struct dcpk_sha256 *hash)
{
    check_result(SHA256_Init((void *)hash));
}

void dcpk_sha256_update(struct dcpk_sha256 *hash, const void *data, size_t n_bytes)
{
    check_result(SHA256_Update((void *)hash, data, n_bytes));
}

void dcpk_sha256_digest(struct dcpk_sha256 *hash, uint8_t digest[DCPK_SHA256_BYTES])
{
    check_result(SHA256_Final(digest, (void *)hash));
}
