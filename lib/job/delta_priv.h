/* SPDX-License-Identifier: Apache-2.0 */
/* delta_priv.h - what writing and applying a delta share: its tables, threads and their buffers. */
#ifndef DCPK_LIB_JOB_DELTA_PRIV_H
#define DCPK_LIB_JOB_DELTA_PRIV_H

#include "lib/base/arena.h"
#include "lib/base/bytes.h"
#include "lib/base/digest.h"
#include "lib/exec/workers.h"
#include "lib/io/sink.h"
#include "lib/job/delta.h"

#define DCPK_DELTA_INDEX        "delta.index"
#define DCPK_DELTA_MAGIC        "dcpkit delta 1\n" /* with its NUL */
#define DCPK_DELTA_SPAN_BYTES   ((size_t)1 << 20)
#define DCPK_DELTA_RECORD_BYTES 40
#define DCPK_DELTA_MAX_RECORDS  65536u /* of a part */
#define DCPK_DELTA_NO_FILE      UINT32_MAX

enum dcpk_delta_method {
    DCPK_DELTA_COPY,
    DCPK_DELTA_STORED,
    DCPK_DELTA_PACKED,
    DCPK_DELTA_PACKED_XOR, /* with BASE's bytes */
    DCPK_DELTA_N_METHODS,
};

struct dcpk_delta_record {
    uint32_t n_bytes, base, stored_bytes, method;
    uint64_t base_at_bytes;
    struct dcpk_hash hash;
};
void dcpk_delta_record_put(struct dcpk_bytes *out, const struct dcpk_delta_record *record);
/* data: DCPK_DELTA_RECORD_BYTES. */
void dcpk_delta_record_get(const uint8_t *data, struct dcpk_delta_record *record);

/* seen: of a file of BASE, dcpk_seen_file. */
struct dcpk_delta_file {
    const char *name;
    uint64_t n_bytes;
    struct dcpk_hash seen;
};

/* The content of delta.index. */
struct dcpk_delta_index {
    struct dcpk_arena *arena; /* of what follows; NULL: it is borrowed */
    struct dcpk_delta_file *base, *next;
    size_t n_base, n_next;
    uint64_t n_parts;
    struct dcpk_hash records;
};
dcpk_status dcpk_delta_index_put(const struct dcpk_delta_index *index, struct dcpk_bytes *out,
                                 struct dcpk_error *err);
/* Zero it before; dcpk_arena_free(index->arena) in any case. Errors: DCPK_EFORMAT. */
dcpk_status dcpk_delta_index_read(struct dcpk_store *delta, struct dcpk_delta_index *index,
                                  struct dcpk_error *err);

/* "part.000000". Returns name. */
#define DCPK_DELTA_PART_NAME_BYTES 32
const char *dcpk_delta_part_name(uint64_t part, char name[DCPK_DELTA_PART_NAME_BYTES]);

/* Threads, each with two buffers of DCPK_DELTA_SPAN_BYTES. */
struct dcpk_delta_hand {
    uint8_t *a, *b;
};
struct dcpk_delta_crew {
    int n_threads;
    struct dcpk_delta_hand *hands;
    uint8_t *memory;
    struct dcpk_meter meter;
};
/* thread_bytes: all memory that a thread takes. Release it in any case. */
dcpk_status dcpk_delta_crew_init(struct dcpk_delta_crew *crew, const struct dcpk_env *env,
                                 uint64_t thread_bytes, uint64_t total_bytes,
                                 struct dcpk_error *err);
void dcpk_delta_crew_release(struct dcpk_delta_crew *crew);

/* a becomes a xor b. */
void dcpk_delta_xor(uint8_t *a, const uint8_t *b, size_t n_bytes);

/* All files of a store with their lengths, by name, in a new arena. Errors also: DCPK_EUSAGE for a
 * link to a private file. */
dcpk_status dcpk_delta_list(struct dcpk_store *store, struct dcpk_arena **arena,
                            struct dcpk_delta_file **files, size_t *n_files,
                            struct dcpk_error *err);

#endif
