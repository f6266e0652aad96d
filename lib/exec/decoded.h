/* SPDX-License-Identifier: Apache-2.0 */
/* decoded.h - encoded chunks, decoded once and kept as long as memory allows. */
#ifndef DCPK_LIB_EXEC_DECODED_H
#define DCPK_LIB_EXEC_DECODED_H

#include "lib/ckpt/format.h"

/* Thread-safe: a chunk is decoded by the first thread that wants it, the others wait for it. */
struct dcpk_decoded;

/* limit_bytes: of all decoded chunks and of what they are decoded from, together. */
dcpk_status dcpk_decoded_new(struct dcpk_checkpoint *ckpt, uint64_t limit_bytes,
                             struct dcpk_decoded **decoded, struct dcpk_error *err);
void dcpk_decoded_free(struct dcpk_decoded *decoded); /* NULL is a no-op */

/*
 * The where->decoded_bytes of a stored chunk, borrowed until dcpk_decoded_put. A thread holds one
 * at a time, so that none waits for room that another one waiting holds.
 * *read_bytes: grows by what was read for it, which is nothing where it was there.
 * Errors: DCPK_ERANGE when the chunk does not fit into the limit; those of decode.
 */
dcpk_status dcpk_decoded_get(struct dcpk_decoded *decoded, const struct dcpk_chunk *chunk,
                             const struct dcpk_extent *where, const uint8_t **data,
                             uint64_t *read_bytes, struct dcpk_error *err);
void dcpk_decoded_put(struct dcpk_decoded *decoded, const struct dcpk_chunk *chunk);

#endif
