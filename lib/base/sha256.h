/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h - SHA-256 by OpenSSL's libcrypto, which uses the processor's instructions for it. */
#ifndef DCPK_LIB_BASE_SHA256_H
#define DCPK_LIB_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define DCPK_SHA256_BYTES 32

/* A hash under way; one thread's. */
struct dcpk_sha256;

/* Errors: DCPK_ENOMEM. */
dcpk_status dcpk_sha256_new(struct dcpk_sha256 **hash, struct dcpk_error *err);
/* The next n_bytes. */
void dcpk_sha256_update(struct dcpk_sha256 *hash, const void *data, size_t n_bytes);
/* The digest of all updates since the last one; the next update starts again. */
void dcpk_sha256_digest(struct dcpk_sha256 *hash, uint8_t digest[DCPK_SHA256_BYTES]);
void dcpk_sha256_free(struct dcpk_sha256 *hash); /* NULL is a no-op */

#endif
