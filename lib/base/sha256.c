/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - SHA-256 by OpenSSL's libcrypto. */
/*
 * The functions of the algorithm itself: deprecated for EVP's, but they need no memory. EVP asks
 * for a provider first, and OpenSSL 3.0 crashes where that finds no memory.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "lib/base/sha256.h"

#include <assert.h>
#include <openssl/sha.h>

#include "lib/base/alloc.h"

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
