/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - the record of units that are done, from which an interrupted conversion resumes. */
#ifndef DCPK_LIB_WRITE_JOURNAL_H
#define DCPK_LIB_WRITE_JOURNAL_H

#include "lib/base/digest.h"
#include "lib/io/sink.h"
#include "lib/write/units.h"

/*
 * The subject of a journal. Two conversions whose plans and inputs have these numbers in common
 * write the same bytes and cut them into the same units.
 */
struct dcpk_journal_subject {
    struct dcpk_hash input; /* of dcpk_seen_checkpoint (lib/ckpt/seen.h) */
    struct dcpk_hash plan;  /* place and origin of every byte, and the size of units */
    uint64_t n_units;       /* the most that there are records of */
};
/* in, errors: as of dcpk_seen_checkpoint. */
dcpk_status dcpk_journal_describe(const struct dcpk_units *units, const char *in,
                                  struct dcpk_journal_subject *subject, struct dcpk_error *err);

/*
 * For a source that is itself made of others (lib/job/merge.h), what is taken from one of them is
 * added to a running hash: each piece, and whatever the views that pieces may refer to are made of,
 * as the caller's options have it.
 */
void dcpk_journal_put_pieces(struct dcpk_hasher *hasher, const struct dcpk_piece *pieces, size_t n);
void dcpk_journal_put_views(struct dcpk_hasher *hasher, const struct dcpk_checkpoint *ckpt);

/* A unit is done: its bytes are on disk; crc32 is what it came to (lib/write/units.h). Or it is so
 * no longer, since its file is gone. */
struct dcpk_journal_record {
    uint64_t unit;
    uint32_t crc32;
    bool is_lost;
};

/*
 * The journal of a partial folder. A value: dcpk_journal_release. On disk, little-endian:
 *
 *   header  "dcpkjrn3" | input, 16 bytes | plan, 16 bytes | CRC-32 of these 40 bytes
 *   record  unit, 8 bytes | crc32 | CRC-32 of these 12 bytes, begun with the header's
 *
 * The last record of a unit holds; the highest bit of its number marks it as lost. Records are
 * appended only when the bytes they stand for are on disk, and those of what is lost before its
 * file is made again. The first one that is not whole ends the journal: what follows was being
 * written when the system went down.
 */
struct dcpk_journal {
    struct dcpk_folder *folder; /* borrowed */
    struct dcpk_journal_subject subject;
    struct dcpk_journal_record *found; /* by an earlier run; owned */
    size_t n_found;
    uint64_t end_bytes; /* of the whole records */
};

/*
 * Read what is there, and keep room for the rest; a folder whose journal has no whole header is
 * emptied. subject: copied. Errors: DCPK_EUSAGE when the journal is of another input or another
 * plan, and names which; DCPK_EIO, DCPK_ENOMEM.
 */
dcpk_status dcpk_journal_open(struct dcpk_folder *folder,
                              const struct dcpk_journal_subject *subject,
                              struct dcpk_journal *journal, struct dcpk_error *err);
/*
 * Parses the file's bytes for dcpk_journal_open: fills `found` and `end_bytes`, which stays 0 where
 * there is no whole header. journal: zeroed except subject. Errors: DCPK_EUSAGE as above;
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_journal_parse(struct dcpk_journal *journal, const void *data, size_t n_bytes,
                               struct dcpk_error *err);
/* Append records; they are on disk on return. Errors: DCPK_EIO, DCPK_ENOMEM. */
dcpk_status dcpk_journal_append(struct dcpk_journal *journal,
                                const struct dcpk_journal_record *records, size_t n,
                                struct dcpk_error *err);
void dcpk_journal_release(struct dcpk_journal *journal); /* a zeroed one is a no-op */

#endif
