/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h - checksums and hashes of bytes: CRC-32 as in zip, XXH3-128, SHA-256. */
#ifndef DCPK_LIB_BASE_DIGEST_H
#define DCPK_LIB_BASE_DIGEST_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

/* The CRC-32 of zip (ISO 3309, polynomial 0xedb88320) over bytes that follow those of `crc`; start
 * with 0. */
uint32_t dcpk_crc32(uint32_t crc, const void *data, size_t n_bytes);
/* The CRC-32 of a, then b, from those of a and of b alone. b_bytes: at most INT64_MAX. */
uint32_t dcpk_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes);

/* XXH3-128 in the canonical (big-endian) byte order that prints as xxhsum's 32 hex digits. */
struct dcpk_hash {
    uint8_t digest[16];
};

/* The hash of n_bytes. */
void dcpk_hash_bytes(const void *data, size_t n_bytes, struct dcpk_hash *hash);

/* The state of one running hash, for one thread at a time: a variable of a function, because the
 * heap is not aligned for it. */
struct dcpk_hasher {
    alignas(64) unsigned char state[576];
};
void dcpk_hasher_begin(struct dcpk_hasher *hasher);
/* The next n_bytes. */
void dcpk_hasher_update(struct dcpk_hasher *hasher, const void *data, size_t n_bytes);
/* The hash of what came since the beginning; more may follow. */
void dcpk_hasher_digest(const struct dcpk_hasher *hasher, struct dcpk_hash *hash);

#define DCPK_SHA256_BYTES 32

/* A hash under way, for one thread at a time. */
struct dcpk_sha256 {
    alignas(8) unsigned char context[112];
};
void dcpk_sha256_begin(struct dcpk_sha256 *hash);
/* The next n_bytes. */
void dcpk_sha256_update(struct dcpk_sha256 *hash, const void *data, size_t n_bytes);
/* The digest of all that came since the beginning, which is over. */
void dcpk_sha256_digest(struct dcpk_sha256 *hash, uint8_t digest[DCPK_SHA256_BYTES]);

#endif
