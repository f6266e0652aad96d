/* SPDX-License-Identifier: Apache-2.0 */
/* units.h - a planned output cut into units of work, which are shared out, written and
 * journaled. */
#ifndef DCPK_LIB_WRITE_UNITS_H
#define DCPK_LIB_WRITE_UNITS_H

#include "lib/ckpt/output.h"
#include "lib/exec/slab.h"

/*
 * Neighbouring chunks of one file, or a part of one chunk that is too large for a unit:
 *
 *   file  | chunk chunk chunk | chunk                    | chunk chunk
 *   unit  |         0         |  1 (part 0) |  2 (part 1) |      3
 *
 * A unit has one number by which its bytes are recognised. For a part it is the CRC-32: those of
 * all parts of a chunk make its frame. For whole chunks, whose frames are written with them, it is
 * the CRC-32 of each one's data and of its offset in the
 * file (8 bytes, little-endian) after it, all of these by exclusive or: they are done in any
 * order.
 */
struct dcpk_unit {
    uint32_t first;    /* index into order */
    uint32_t n_chunks; /* 0: a part of one chunk */
    uint64_t part;     /* number of the slab that dcpk_units_part_cut cuts */
};

/* The cut. Zero it before use; dcpk_units_release. */
struct dcpk_units {
    const struct dcpk_output *out; /* borrowed */
    uint64_t limit_bytes;
    uint32_t *order; /* the chunks as they lie in the files: out->n_chunks of them */
    struct dcpk_unit *units;
    size_t n;
};

/*
 * Cut a planned output into units of at most limit_bytes of tensor data each (but at least one
 * element), in the order of the files. Depends on the plan and the limit alone, never on threads,
 * memory or time. Errors: DCPK_ENOMEM; release `units` in any case.
 */
dcpk_status dcpk_units_cut(const struct dcpk_output *out, uint64_t limit_bytes,
                           struct dcpk_units *units, struct dcpk_error *err);
void dcpk_units_release(struct dcpk_units *units); /* zeroed: a no-op */

/* The chunk that order[i] names. */
const struct dcpk_out_chunk *dcpk_units_chunk(const struct dcpk_units *units, size_t i);
/* The one file that a unit lies in. */
uint32_t dcpk_unit_file(const struct dcpk_units *units, size_t unit);
/* Bytes of tensor data of a unit. */
uint64_t dcpk_unit_bytes(const struct dcpk_units *units, size_t unit);
/* The same as work: of scales of blocks, the elements that they are found from. */
uint64_t dcpk_unit_work(const struct dcpk_units *units, size_t unit);
/* The box of a chunk in its tensor's coordinates. */
void dcpk_units_chunk_box(const struct dcpk_units *units, const struct dcpk_out_chunk *chunk,
                          struct dcpk_box *box);
/*
 * The box that a unit covers when it is a part of a chunk, and *first_bytes, the bytes of the
 * chunk's data before it.
 */
void dcpk_unit_part_box(const struct dcpk_units *units, size_t unit, struct dcpk_box *box,
                        uint64_t *first_bytes);

/* Bytes of tensor data that a rank writes, and bytes of source tensors that it reads for them: of
 * each output tensor as many for each of its bytes. Metadata and objects, of rank 0, are not in
 * them. */
struct dcpk_unit_share {
    uint64_t written_bytes, read_bytes;
};
/* The shares of n_ranks (dcpk_work_rank). shares: room for n_ranks, zeroed. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_units_share(const struct dcpk_units *units, int n_ranks,
                             struct dcpk_unit_share *shares, struct dcpk_error *err);

#endif
