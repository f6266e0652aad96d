/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_priv.h - what the plain and the tuned backend share. */
#ifndef DCPK_KERNELS_CPU_CPU_PRIV_H
#define DCPK_KERNELS_CPU_CPU_PRIV_H

#include "kernels/cpu/cpu.h"

/* cpu_plain.c: the specification of casts, for the pairs that are not worth tuning. */
dcpk_status dcpk_cpu_cast(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                          size_t n_elems, struct dcpk_error *err);

/* cpu_hash.c: libraries that are the specification and the fast path in one. */
void dcpk_cpu_fill_zero(void *dst, size_t n_bytes);
uint32_t dcpk_cpu_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes);
dcpk_status dcpk_cpu_hasher_new(struct dcpk_hasher **hasher, struct dcpk_error *err);
void dcpk_cpu_hasher_reset(struct dcpk_hasher *hasher);
void dcpk_cpu_hasher_update(struct dcpk_hasher *hasher, const void *data, size_t n_bytes);
void dcpk_cpu_hasher_digest(const struct dcpk_hasher *hasher, struct dcpk_hash *hash);
void dcpk_cpu_hasher_free(struct dcpk_hasher *hasher);

#endif
