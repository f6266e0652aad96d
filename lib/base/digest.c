/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - CRC-32 by libdeflate, its combination by zlib, XXH3-128 by xxHash, SHA-256 by
 * OpenSSL's libcrypto. */
#include "lib/base/digest.h"

/* Makes the state's size known, so that it comes from our allocator. */
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

#include "lib/base/alloc.h"

struct dcpk_hasher {
    XXH3_state_t state; /* wants 64 byte alignment */
};

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

dcpk_status dcpk_hasher_new(struct dcpk_hasher **hasher, struct dcpk_error *err)
{
    struct dcpk_hasher *h = dcpk_alloc_aligned(64, sizeof *h, err);

    if (h == NULL)
        return err->status;
    XXH3_INITSTATE(&h->state);
    dcpk_hasher_reset(h);
    *hasher = h;
    return DCPK_OK;
}

/* The three calls below report XXH_ERROR for a NULL state only. */
void dcpk_hasher_reset(struct dcpk_hasher *hasher)
{
    (void)XXH3_128bits_reset(&hasher->state);
}

void dcpk_hasher_update(struct dcpk_hasher *hasher, const void *data, size_t n_bytes)
{
    if (n_bytes > 0)
        (void)XXH3_128bits_update(&hasher->state, data, n_bytes);
}

void dcpk_hasher_digest(const struct dcpk_hasher *hasher, struct dcpk_hash *hash)
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&hasher->state));
    static_assert(sizeof canonical.digest == sizeof hash->digest, "128 bits");
    memcpy(hash->digest, canonical.digest, sizeof hash->digest);
}

void dcpk_hasher_free(struct dcpk_hasher *hasher)
{
    dcpk_free(hasher);
}

struct dcpk_sha256 {
    SHA256_CTX context;
};

/* They always return 1. */
static void check_result(int result)
{
    assert(result == 1);
    (void)result;
}

dcpk_status dcpk_sha256_new(struct dcpk_sha256 **hash, struct dcpk_error *err)
{
    struct dcpk_sha256 *h = dcpk_alloc(sizeof *h, err);

    if (h == NULL)
        return err->status;
    check_result(SHA256_Init(&h->context));
    *hash = h;
    return DCPK_OK;
}

void dcpk_sha256_update(struct dcpk_sha256 *hash, const void *data, size_t n_bytes)
{
    check_result(SHA256_Update(&hash->context, data, n_bytes));
}

void dcpk_sha256_digest(struct dcpk_sha256 *hash, uint8_t digest[DCPK_SHA256_BYTES])
{
    check_result(SHA256_Final(digest, &hash->context));
    check_result(SHA256_Init(&hash->context));
}

void dcpk_sha256_free(struct dcpk_sha256 *hash)
{
    dcpk_free(hash);
}
