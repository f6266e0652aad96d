/* SPDX-License-Identifier: Apache-2.0 */
/* remap_rounds.h - moves between ranks that cannot map each other's memory, cut into messages. */
#ifndef DCPK_LIB_PLAN_REMAP_ROUNDS_H
#define DCPK_LIB_PLAN_REMAP_ROUNDS_H

#include "lib/plan/remap_plan.h"

#define DCPK_PART_ALIGN 16 /* bytes; of each part in its message */

/*
 * A box of a move in a message: row-major, in the target's dtype (the sender casts), at_bytes from
 * the message's first byte.
 */
struct dcpk_remap_part {
    size_t move;
    const int64_t *span; /* in the tensor, in the rounds' arena */
    uint32_t round;
    uint64_t at_bytes;
};

/* All bytes that one rank sends to a peer in a unit, or gets from it; equal on both sides. */
struct dcpk_remap_stream {
    struct dcpk_remap_part *parts; /* by round, then by place */
    size_t n_parts, capacity;
    uint64_t *message_bytes; /* of each round */
    size_t n_rounds, rounds_capacity;
};

/* A unit's streams of one rank, with every rank: n_ranks of each. */
struct dcpk_remap_rounds {
    int n_ranks;
    struct dcpk_remap_stream *sends, *receives; /* owned */
    size_t n_rounds;                            /* of the longest of them */
    struct dcpk_arena *arena;
};

/* The shape of messages; equal on all ranks except self. Borrowed. */
struct dcpk_staging {
    const struct dcpk_remap_plan *plan;
    int self;
    const uint8_t *is_staged; /* [a * n_ranks + b]: moves between ranks a and b go by messages */
    uint64_t room_bytes;      /* the most of a message; at least 4 * DCPK_PART_ALIGN */
};

/*
 * Cut the bytes that a rank exchanges in a unit into messages: parts of at most a sixteenth of
 * their room, so that messages are nearly full. Errors: DCPK_ENOMEM; DCPK_ERANGE.
 */
dcpk_status dcpk_remap_rounds_new(const struct dcpk_staging *staging, size_t unit,
                                  struct dcpk_remap_rounds *rounds, struct dcpk_error *err);
void dcpk_remap_rounds_release(struct dcpk_remap_rounds *rounds); /* zeroed: a no-op */

#endif
