/* SPDX-License-Identifier: Apache-2.0 */
/* remap.h - tensors in the memory of ranks go to where another layout wants them: planned once, run
 * any number of times. */
/*
 * Between ranks that can map each other's memory the mover writes straight into the target
 * (direct); between others boxes are packed into messages, sent over a link and unpacked (staged).
 *
 *   direct   agree -> run own tiles                                    -> agree    a unit is done
 *   staged   pack k + 1 | messages of round k on the link | unpack k - 1
 *
 * No device waits for a rank: ranks meet on the host, so that one that is gone is a timeout, and
 * never a device that hangs.
 */
#ifndef DCPK_LIB_EXEC_REMAP_H
#define DCPK_LIB_EXEC_REMAP_H

#include "lib/device/device.h"
#include "lib/device/link.h"
#include "lib/exec/ranks.h"
#include "lib/plan/remap_plan.h"

enum dcpk_remap_path {
    DCPK_REMAP_AUTO,   /* direct where ranks reach each other, else staged */
    DCPK_REMAP_DIRECT, /* an error where they do not */
    DCPK_REMAP_STAGED, /* always over the link; within a rank still direct */
};

#define DCPK_REMAP_STAGING_BYTES (UINT64_C(512) << 20)
#define DCPK_REMAP_TIMEOUT_MS    120000 /* where none is given, of a wait for little work */

/* Everything is borrowed until dcpk_remap_free. All but ranks, device and link is equal on all
 * ranks. */
struct dcpk_remap_options {
    struct dcpk_ranks *ranks; /* NULL: alone */
    struct dcpk_device *device;
    struct dcpk_link *link; /* NULL: no staged path */
    enum dcpk_remap_path path;
    uint64_t staging_bytes; /* of all messages of a rank; 0: DCPK_REMAP_STAGING_BYTES */
    uint64_t unit_bytes;    /* dcpk_remap_input */
    double link_bytes_a_second;
    /* of each wait for the device; twice as long for messages, three times to agree, where the
     * transport has a limit. 0: 120 s, and one more for each GB. */
    int timeout_ms;
    bool checks;          /* compare the fingerprints of what was stored and what has landed */
    uint32_t block_bytes; /* dcpk_remap_run_changed; 0: DCPK_REMAP_BLOCK_BYTES */
};

/* This rank's shards; their holder is not looked at. Copied, except for the memory at `at`, which
 * must stay until dcpk_remap_free. */
struct dcpk_remap_shards {
    const struct dcpk_shard *sources, *targets;
    size_t n_sources, n_targets;
};

/* Results of a remap. */
struct dcpk_remap_stats {
    size_t units_done; /* of the last run */
    double seconds;    /* of the last run, this rank's */
    uint64_t table_bytes, staging_bytes;
    uint64_t n_tiles, n_messages; /* a run, of this rank */
    const char *note; /* why ranks are served over the link; "": all that talk reach each other */
};

struct dcpk_remap;

/*
 * Collective: gather all shards, map memory, plan, and make ready everything that runs need.
 * Errors, the same on all ranks and with nothing moved: those of dcpk_remap_plan_new and
 * dcpk_remap_check_memory; DCPK_EUNSUPPORTED with the reason where ranks that have to talk neither
 * reach each other nor have a link; DCPK_ENOMEM with the bytes wanted and free; DCPK_EIO.
 */
dcpk_status dcpk_remap_new(const struct dcpk_remap_options *options,
                           const struct dcpk_remap_shards *mine, struct dcpk_remap **remap,
                           struct dcpk_error *err);
/* Not collective; NULL is a no-op. Peers must not run any more: they may write into this rank. */
void dcpk_remap_free(struct dcpk_remap *remap);

/* The plan, and the results of the last run; borrowed. */
const struct dcpk_remap_plan *dcpk_remap_plan(const struct dcpk_remap *remap);
const struct dcpk_remap_stats *dcpk_remap_stats(const struct dcpk_remap *remap);

/* A unit is done on all ranks: sources of its tensors are not read any more by this run. */
typedef void dcpk_remap_done(void *context, size_t unit);

/*
 * Collective: move everything. All memory must be idle. Allocates nothing that grows with the
 * tensors. done: NULL, or called for every unit.
 * Errors, the same on all ranks: DCPK_EIO when a device or link fails, a wait takes too long, or
 * fingerprints differ (naming tensor, unit and both). Units before stats->units_done are in their
 * targets; the targets of the unit under way are undefined, sources are as they were. After an
 * error of a link no run over it may follow, of this remap or another: DCPK_EIO at once.
 */
dcpk_status dcpk_remap_run(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                           struct dcpk_error *err);

/* Results of a run of what changed, of this rank's sources. */
struct dcpk_remap_changes {
    uint64_t n_blocks, n_sent_blocks; /* of block_bytes at most */
    uint64_t sent_bytes;              /* of targets */
    uint64_t n_tiles, n_messages;     /* of this run */
};
#define DCPK_REMAP_BLOCK_BYTES (256u << 10)

/*
 * Collective, as dcpk_remap_run, for targets that hold what the last run of this kind left in them:
 * move the blocks of sources that changed since. All blocks move where that is not known: the first
 * time, and after any other run or one that failed. changes: set on success.
 *
 * A block counts as unchanged where its fingerprint (lib/tensor/fingerprint.h) of what would be
 * stored, after a cast, is the one of the last run. One changed word is always seen. Of several
 * changed words at random, 2^-64 are not seen; where all differences are multiples of 2^t (signs
 * alone of 4-byte words: t = 31), 2^(t - 63). With `checks` all targets are read again, those that
 * were not sent, too: one that was overwritten is an error, and the next run moves all.
 *
 * Sums are read before anything moves, unless more than an eighth of the bytes changed the last
 * time: everything moves then, and a sample of every 16th block is read after it. The first run
 * allocates twice the memory of the tables, later ones as much as they move needs. Errors as of
 * dcpk_remap_run; DCPK_ENOMEM.
 */
dcpk_status dcpk_remap_run_changed(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                                   struct dcpk_remap_changes *changes, struct dcpk_error *err);

enum dcpk_remap_side { DCPK_REMAP_SOURCES, DCPK_REMAP_TARGETS };

/*
 * Collective, while no run is: the fingerprints (lib/tensor/fingerprint.h) of the plan's tensors as
 * they lie on one side now, in the plan's order, into sums, plan->n_tensors of them. Every element
 * counts once, wherever replicas of it are; all ranks get the same. Errors, the same on all ranks:
 * DCPK_EMISMATCH for a tensor that this side does not hold as a whole; DCPK_ENOMEM; DCPK_EIO.
 */
dcpk_status dcpk_remap_fingerprint(struct dcpk_remap *remap, enum dcpk_remap_side side,
                                   uint64_t *sums, struct dcpk_error *err);

/*
 * Collective, while no run is: fingerprints of what a run would store now, and of what all targets
 * hold, replicas and all, of each tensor of the plan: 2 * plan->n_tensors numbers, first those to
 * be stored. Tensors whose two are equal need no run. Sources are cast as a run casts them; nothing
 * is stored. Errors, the same on all ranks: DCPK_ENOMEM; DCPK_EIO.
 */
dcpk_status dcpk_remap_verify(struct dcpk_remap *remap, uint64_t *sums, struct dcpk_error *err);

#endif
