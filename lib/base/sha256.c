/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - SHA-256 by OpenSSL's libcrypto. */
#include "lib/base/sha256.h"

#include <assert.h>
#include <openssl/evp.h>

#include "lib/base/alloc.h"

struct dcpk_sha256 {
    EVP_MD_CTX *context;
};

dcpk_status dcpk_sha256_new(struct dcpk_sha256 **hash, struct dcpk_error *err)
{
    struct dcpk_sha256 *h = dcpk_alloc(sizeof *h, err);

    if (h == NULL)
        return err->status;
    h->context = EVP_MD_CTX_new();
    if (h->context == NULL || EVP_DigestInit_ex(h->context, EVP_sha256(), NULL) != 1) {
        dcpk_fail(err, h->context == NULL ? DCPK_ENOMEM : DCPK_EIO,
                  "OpenSSL's libcrypto gives no SHA-256");
        dcpk_sha256_free(h);
        return err->status;
    }
    *hash = h;
    return DCPK_OK;
}

/* The calls below report misuse alone, which would be our fault: no wrong digest may get out. */
void dcpk_sha256_update(struct dcpk_sha256 *hash, const void *data, size_t n_bytes)
{
    const int ok = EVP_DigestUpdate(hash->context, data, n_bytes);

    assert(ok == 1);
}

void dcpk_sha256_digest(struct dcpk_sha256 *hash, uint8_t digest[DCPK_SHA256_BYTES])
{
    int ok = EVP_DigestFinal_ex(hash->context, digest, NULL);

    assert(ok == 1);
    ok = EVP_DigestInit_ex(hash->context, NULL, NULL);
    assert(ok == 1);
}

void dcpk_sha256_free(struct dcpk_sha256 *hash)
{
    if (hash != NULL)
        EVP_MD_CTX_free(hash->context);
    dcpk_free(hash);
}
