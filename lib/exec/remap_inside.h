/* SPDX-License-Identifier: Apache-2.0 */
/* remap_inside.h - what the parts of a remap share. */
#ifndef DCPK_LIB_EXEC_REMAP_INSIDE_H
#define DCPK_LIB_EXEC_REMAP_INSIDE_H

#include "lib/exec/remap.h"
#include "lib/plan/remap_rounds.h"
#include "lib/plan/remap_tiles.h"

/* Queues of the device. Moves inside a rank have one of their own: they take the memory's time,
 * moves to peers the link's. Messages wait for neither. */
enum { QUEUE_MOVE, QUEUE_LOCAL, QUEUE_PACK, QUEUE_UNPACK };

/* An allocation of a rank that shards lie in. */
struct remap_memory {
    int holder;
    struct dcpk_memory_id id;
    bool is_mapped;
    uint64_t shift; /* offset to add to the holder's addresses here */
};

/* One round of messages in a unit. */
struct remap_round {
    struct dcpk_table *pack, *unpack; /* NULL: no tiles */
    struct dcpk_exchange exchange;    /* arrays in the arena */
};

struct remap_unit {
    struct dcpk_table *local, *peers; /* of direct moves; NULL: no tiles */
    struct dcpk_table *landed;        /* reads what has come, for its fingerprint */
    struct remap_round *rounds;       /* in the arena */
    size_t n_rounds;                  /* the same on all ranks */
};

/* Tables of tiles that are only read, to be run in order; zeroed = none. */
struct remap_reading {
    struct dcpk_table **tables; /* owned */
    size_t n, capacity;
};

struct dcpk_remap {
    struct dcpk_remap_options options;
    int self, n_ranks;
    struct dcpk_arena *arena;
    struct dcpk_bytes gathered; /* the shards of all ranks, borrowed by `sources` and `targets` */
    struct dcpk_shard *sources, *targets; /* `memory`: one of `memories`, or DCPK_NO_MEMORY */
    size_t n_sources, n_targets;
    struct remap_memory *memories;
    size_t n_memories;
    uint8_t *reaches, *is_staged; /* of each pair of ranks */
    char note[512];
    struct dcpk_remap_plan *plan;
    struct remap_unit *units;
    struct dcpk_remap_rounds *rounds; /* of each unit; NULL once tables are made */
    uint8_t *staging;                 /* of the device */
    uint64_t staging_stride;          /* room of each message there */
    bool has_others_staging;          /* of another remap, which owns it */
    bool is_staging_used;             /* some ranks of all exchange messages */
    uint64_t *sums, *host_sums;       /* stored, then landed, of a unit's tensors */
    uint64_t *stored;                 /* where tiles add what they store: sums, others, or NULL */
    bool has_sums_by_move;            /* those stored are of all moves, not of a unit's tensors */
    size_t n_sums;                    /* of each of the two */
    uint8_t *scratch;                 /* of the device: casts that are only read; or NULL */
    struct dcpk_remap_delta *delta;   /* NULL until a run of what changed */
    struct dcpk_remap_stats stats;
};

/* remap_gather.c: collective: the shards of all ranks, and which ranks reach which. */
dcpk_status dcpk_remap_gather(struct dcpk_remap *remap, const struct dcpk_remap_shards *mine,
                              struct dcpk_error *err);
dcpk_status dcpk_remap_reach(struct dcpk_remap *remap, struct dcpk_error *err);

/* remap_delta.c */
struct dcpk_remap_delta;
void dcpk_remap_free_delta(struct dcpk_remap_delta *delta); /* NULL is a no-op */
/* Targets will not hold the result of the last run of changes. */
void dcpk_remap_forget(struct dcpk_remap_delta *delta); /* NULL is a no-op */

/*
 * remap_run.c, parts of a run. Collective: all units, one after the other. Collective: ranks agree
 * that targets may be written. Not collective: this rank's moves of a unit; the terms of what
 * landed in it, after those stored in host_sums (all 0 at first). Collective: compare the two.
 */
dcpk_status dcpk_remap_run_units(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                                 struct dcpk_error *err);
dcpk_status dcpk_remap_begin_run(struct dcpk_remap *remap, struct dcpk_error *err);
dcpk_status dcpk_remap_move_unit(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err);
dcpk_status dcpk_remap_sum_landed(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err);
dcpk_status dcpk_remap_compare_unit(struct dcpk_remap *remap, size_t unit, dcpk_status st,
                                    struct dcpk_error *err);

/* remap_tables.c: everything that a run needs, once there is a plan; collective. */
dcpk_status dcpk_remap_make_tables(struct dcpk_remap *remap, struct dcpk_error *err);
void dcpk_remap_free_tables(struct dcpk_remap *remap);

/*
 * Parts of both, also for what is fed from files (remap_files.h): load the tiles for each rank,
 * given by rank, those of this rank at a pace, those for others in turn; queue a table (NULL:
 * nothing to move).
 */
dcpk_status dcpk_remap_load_lists(struct dcpk_remap *remap, const struct dcpk_tile_list *lists,
                                  enum dcpk_pace pace, struct dcpk_table **local,
                                  struct dcpk_table **peers, struct dcpk_error *err);
dcpk_status dcpk_remap_run_table(struct dcpk_remap *remap, int queue,
                                 const struct dcpk_table *table, uint64_t *sums,
                                 struct dcpk_error *err);
/* Wait for all queues, also after a failure: what is under way writes into the memory of peers.
 * Takes as long as one wait may where one is not done in time. st, err: of what came before.
 * Returns the first failure. */
dcpk_status dcpk_remap_drain(struct dcpk_remap *remap, dcpk_status st, struct dcpk_error *err);
/* Checks, for work that needs the link, that it has not broken in a run of any remap; else
 * DCPK_EIO. */
dcpk_status dcpk_remap_check_link(const struct dcpk_remap *remap, struct dcpk_error *err);
/*
 * remap_reading.c: the sums of what tiles would store, with nothing stored: for each tile of a list
 * with words its dst is dropped, or becomes scratch memory where it casts. `queue` adds them to
 * sums of the device, in QUEUE_MOVE.
 */
dcpk_status dcpk_remap_load_reading(struct dcpk_remap *remap, struct dcpk_tile_list *list,
                                    struct remap_reading *reading, struct dcpk_error *err);
dcpk_status dcpk_remap_queue_reading(struct dcpk_remap *remap, const struct remap_reading *reading,
                                     uint64_t *sums, struct dcpk_error *err);
/* Appends the tiles of one side of a move, for number `sum`, to what is only read, if this rank has
 * it and it has to move. */
dcpk_status dcpk_remap_add_reading(struct dcpk_remap *remap, const struct dcpk_move *m,
                                   const struct dcpk_shard *shard, uint32_t sum,
                                   struct dcpk_tile_list *list, struct dcpk_error *err);
void dcpk_remap_free_reading(struct dcpk_remap *remap, struct remap_reading *reading);
/* One side of `box` in a shard; another rank's in the mapping of its memory. */
struct dcpk_tile_side dcpk_remap_side(const struct dcpk_remap *remap,
                                      const struct dcpk_shard *shard, const struct dcpk_box *box);
/* Tiles as large as keeps their number at bay. */
size_t dcpk_remap_tile_bytes(const struct dcpk_remap *remap);
/* The numbers for fingerprints, where they are checked, and the table that reads what has come to
 * this rank in a unit. */
dcpk_status dcpk_remap_make_sums(struct dcpk_remap *remap, struct dcpk_error *err);
dcpk_status dcpk_remap_load_landed(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err);

/*
 * Milliseconds that a wait for this rank's device may take. Others wait longer for it: for its
 * messages, and longer still to agree, so that the rank that hangs is the one that is named.
 */
int dcpk_remap_timeout(const struct dcpk_remap *remap);
#define REMAP_LINK_FACTOR  2
#define REMAP_RANKS_FACTOR 3
int dcpk_remap_times(int factor, int timeout_ms); /* at most INT_MAX */

#endif
