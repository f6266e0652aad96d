/* SPDX-License-Identifier: Apache-2.0 */
/* write_priv.h - a conversion under way: shared by the write_*.c files and writing.c. */
#ifndef DCPK_LIB_WRITE_WRITE_PRIV_H
#define DCPK_LIB_WRITE_WRITE_PRIV_H

#include "lib/exec/workers.h"
#include "lib/write/writing.h"

/*
 * The units to be written become entries. Small chunks of a unit that touch share an entry, which
 * is one task: gathered into one buffer with all their frames and written at once. A chunk larger
 * than the buffer, or the part of one that is a unit, is an entry of its own, one task a slab;
 * the thread that finishes its last slab knows its checksum. A whole chunk's frame is written
 * then, that of
 * a chunk in parts at the end of all:
 *
 *   file    | lead data tail | lead data tail | lead data ....................... tail |
 *   entry   |            batch 0              |      slab 0     |      slab 1       ... |
 */
struct dcpk_entry {
    uint64_t first_task;
    uint32_t unit;
    uint32_t first;        /* index into units.order */
    uint32_t n_batch;      /* chunks written at once; 0: one chunk, or a part of it, in slabs */
    uint32_t n_slabs_left; /* under the lock, as crc32 */
    uint32_t crc32;        /* of the slabs so far, each shifted to its place */
};

/* Files are opened with their first byte and synced with their last: a few are open at any time. */
struct dcpk_open_file {
    struct dcpk_sink *sink; /* NULL: not open */
    size_t n_users;         /* units of the run under way that are not done, and a commit */
    bool has_chunks;
    bool was_opened;
    bool is_synced; /* closed, and on disk */
    bool is_held;   /* by a commit */
};

/* State of a unit. */
struct dcpk_unit_state {
    uint32_t n_tasks_left; /* of the run under way */
    uint32_t crc32;        /* result, once it is done (lib/write/units.h) */
    bool is_done;
    bool is_on_disk;  /* written and synced by another process */
    bool is_recorded; /* in the journal, or about to be */
};

/* State of the journal: from time to time a thread records the units that are done since, after it
 * has synced their files. One commit at a time; the others keep writing. */
struct dcpk_keeping {
    bool is_on;
    bool is_committing;
    struct dcpk_journal journal;
    dcpk_writing_done *done; /* instead of the journal; NULL: there is one */
    void *context;           /* of done */
    size_t first, end;       /* units in between may be done and not yet recorded */
    uint64_t waiting_bytes, recorded_bytes;
    double next_seconds;                 /* when a commit is due at the latest */
    struct dcpk_journal_record *records; /* of the commit under way */
    size_t n_records, capacity;
};

struct dcpk_writing {
    struct dcpk_exec *exec;
    struct dcpk_output *out;
    struct dcpk_folder *folder;
    struct dcpk_worker *workers;
    struct dcpk_units units;
    struct dcpk_box_tree **trees; /* of the pieces of tensors that have many, else NULL */
    struct dcpk_entry *entries;   /* of the run under way */
    size_t n_entries, entries_capacity;
    uint64_t n_tasks, n_streams; /* of the run under way, see dcpk_write_spread */
    bool is_ahead;               /* the early part of the metadata is written, or there is none */
    pthread_mutex_t mutex;       /* of the three below and the entries' slabs */
    struct dcpk_open_file *files;
    struct dcpk_unit_state *states; /* of units.n units */
    struct dcpk_keeping keeping;
    struct dcpk_meter meter;
    bool meter_ended;
    struct dcpk_exec_stats elsewhere; /* bytes moved by other ranks */
};

/*
 * The slabs of an entry without a batch; *first_bytes: bytes of the chunk's data before the first
 * one.
 */
void dcpk_write_cut(const struct dcpk_writing *w, const struct dcpk_entry *entry,
                    struct dcpk_slabs *slabs, uint64_t *first_bytes);
/* lead + data + tail. */
uint64_t dcpk_write_item_bytes(const struct dcpk_out_chunk *chunk);

/* Set trees. On failure the caller releases what is there. */
dcpk_status dcpk_write_make_trees(struct dcpk_writing *w, struct dcpk_error *err);
/*
 * Set entries and n_tasks, and count what units and files have left, for units first .. last - 1.
 */
dcpk_status dcpk_write_prepare(struct dcpk_writing *w, size_t first, size_t last,
                               struct dcpk_error *err);

/* The open file; made when this is its first byte. Thread-safe. */
dcpk_status dcpk_write_open(struct dcpk_writing *w, uint32_t file, struct dcpk_sink **sink,
                            struct dcpk_error *err);
/* Sync and close the file if it is open. Thread-safe. */
dcpk_status dcpk_write_close(struct dcpk_writing *w, uint32_t file, struct dcpk_error *err);
/* A user of the file is done with it; the last one syncs and closes it while others keep writing.
 * Thread-safe. */
dcpk_status dcpk_write_leave(struct dcpk_writing *w, uint32_t file, struct dcpk_error *err);
/* Write and count. */
dcpk_status dcpk_write_out(struct dcpk_worker *worker, struct dcpk_sink *sink,
                           uint64_t offset_bytes, const void *data, uint64_t n_bytes,
                           struct dcpk_error *err);
/* The frame of a chunk, by its format: lead_bytes and tail_bytes. Thread-safe. */
dcpk_status dcpk_write_make_frame(const struct dcpk_writing *w, const struct dcpk_out_chunk *chunk,
                                  uint32_t crc32, uint8_t *lead, uint8_t *tail,
                                  struct dcpk_error *err);
/* The bytes around a chunk whose data is written; by way of the worker's buffer. */
dcpk_status dcpk_write_frame(struct dcpk_writing *w, struct dcpk_worker *worker,
                             const struct dcpk_out_chunk *chunk, uint32_t crc32,
                             struct dcpk_sink *sink, struct dcpk_error *err);
/* A chunk's share of the number of its unit, crc32 being that of its data (lib/write/units.h). */
uint32_t dcpk_write_sum(const struct dcpk_out_chunk *chunk, uint32_t crc32);
/*
 * Read back the units that an earlier run has done, by all threads. One that differs from the
 * journal counts as not done: *bad_bytes of them. Errors: those of reading; DCPK_ECANCELLED.
 */
dcpk_status dcpk_write_check_found(struct dcpk_writing *w, uint64_t *bad_bytes,
                                   struct dcpk_error *err);
/* The unit is done, and to be written down. Under the lock. */
void dcpk_write_note_done(struct dcpk_writing *w, size_t unit);
/* True if it is this thread's turn to commit; it must then commit. Under the lock. */
bool dcpk_write_commit_is_due(struct dcpk_writing *w);
dcpk_status dcpk_write_commit(struct dcpk_writing *w, struct dcpk_error *err);
/*
 * The task that is handed out as number i of n_tasks: tasks are n_streams rows that follow each
 * other, and are handed out by turns from all of them, so that threads write into files of their
 * own. Writes into one file wait for each other.
 */
uint64_t dcpk_write_spread(const struct dcpk_writing *w, uint64_t i);
/* A dcpk_task over a dcpk_writing. */
dcpk_status dcpk_write_task(void *writing, int worker, uint64_t task, struct dcpk_error *err);

#endif
