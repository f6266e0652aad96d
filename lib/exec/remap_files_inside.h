/* SPDX-License-Identifier: Apache-2.0 */
/* remap_files_inside.h - common parts of feeding a remap from files. */
#ifndef DCPK_LIB_EXEC_REMAP_FILES_INSIDE_H
#define DCPK_LIB_EXEC_REMAP_FILES_INSIDE_H

#include "lib/exec/remap_files.h"
#include "lib/exec/remap_inside.h"
#include "lib/exec/workers.h"

/* Size of a read, and of the pieces of a large chunk; a stage has at least FEED_STAGE_SLICES of
 * them. */
#define FEED_SLICE_BYTES  (UINT64_C(4) << 20)
#define FEED_N_STAGES     4
#define FEED_STAGE_SLICES 4

#define FEED_NONE UINT32_MAX

/* A box of a view that lies in one part of a chunk: a source of the plan, at the same index. A box
 * without a chunk is a fill (or, without a piece, a literal). */
struct feed_part {
    uint32_t view, piece, chunk, number; /* number: in the order of views and pieces */
    uint32_t file;                       /* of the checkpoint; FEED_NONE: none */
    uint64_t order;                      /* where it lies in its file, by the metadata */
    uint64_t n_bytes;
    const int64_t *span; /* of the view, packed */
};

/* A part that this rank reads. */
struct feed_load {
    uint64_t at;          /* of its first byte in the stream of stages */
    uint64_t first_bytes; /* in the file: of the first element that is wanted */
    struct dcpk_source *source;
    uint64_t n_bytes; /* of the file, or of the elements that are gathered */
    bool is_gathered;
};

/* Bytes that come into the stream of stages together: a run of a file, or one gathered load. */
struct feed_range {
    uint64_t at, n_bytes;
    uint64_t file_bytes;        /* where it begins in the file */
    struct dcpk_source *source; /* NULL: gathered */
    uint32_t load;              /* the first in it */
};

/* Tables of one stage. */
struct feed_stage {
    struct dcpk_table *local, *peers; /* NULL: no tiles */
    struct remap_reading reading;     /* instead of both, where runs only compare */
    size_t first_range;               /* in it; ranges do not pass its end */
    uint64_t n_bytes;                 /* up to the end of the last */
};

struct dcpk_remap_files {
    struct dcpk_remap_files_options options;
    /* Targets of this rank's team, memory, sums, plan; it has no staged path. Its one unit has what
     * reads landed targets. */
    struct dcpk_remap base;
    struct dcpk_exec *exec;
    struct dcpk_worker *workers; /* of exec */
    uint32_t *target_view;       /* of each target of the base */
    int *team;                   /* of each rank: the lowest rank in it */
    struct feed_part *parts;     /* owned; by file, then order: by reader */
    size_t n_parts;
    enum dcpk_dtype *dtypes; /* of each view: in which its parts come into the ring */
    size_t first_part;       /* this rank's are first_part .. + n_loads - 1 */
    struct feed_load *loads;
    size_t n_loads;
    struct dcpk_extent *records;  /* of each load, to be checked where it has a checksum; or NULL */
    uint64_t record_bytes;        /* of all that have one */
    uint32_t *first_move, *moves; /* of each load: moves[first_move[i]] .. */
    struct feed_range *ranges;    /* owned */
    size_t n_ranges;
    struct feed_stage *stages;
    size_t n_stages, n_ring_stages;
    uint64_t slice_bytes, stage_bytes; /* a stage is FEED_STAGE_SLICES slices or more */
    uint8_t *ring, *slots;             /* slots NULL: threads read into the ring */
    size_t n_slots;
    struct dcpk_remap_files_stats stats;
    char note[600];
};

/* remap_files_parts.c: views crossed with chunks: what the team's targets want, dealt to its
 * readers. Sets parts, dtypes, target_view and the sources of the base. */
dcpk_status dcpk_feed_make_parts(struct dcpk_remap_files *files, struct dcpk_error *err);

/* remap_files_ring.c: once there is a plan: find this rank's parts in the files, give them places
 * in the ring, and make tables of their moves. */
dcpk_status dcpk_feed_make_ring(struct dcpk_remap_files *files, struct dcpk_error *err);
void dcpk_feed_free_ring(struct dcpk_remap_files *files);

/* Finds the part of load i that its moves need: a box of the view around all of theirs. False: none
 * (chunks overlap, and another load has it). */
bool dcpk_feed_wanted_box(const struct dcpk_remap_files *files, size_t load, struct dcpk_box *box);
/* The name of the tensor that load i is of. */
const char *dcpk_feed_load_name(const struct dcpk_remap_files *files, size_t load);

/* remap_files_run.c: read and push all of this rank's stages; not collective. */
dcpk_status dcpk_feed_push(struct dcpk_remap_files *files, struct dcpk_error *err);

#endif
