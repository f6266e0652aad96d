/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_priv.h - what agreements and shared results have in common. */
#ifndef DCPK_LIB_EXEC_RANKS_PRIV_H
#define DCPK_LIB_EXEC_RANKS_PRIV_H

#include <pthread.h>

#include "lib/exec/ranks.h"

/* The collective calls. Ranks that did not fail must be in the same one. */
enum call { AGREE, CHECK_SAME, LEAST, SHARE, LEAVE };

/* The message of a rank at an agreement. */
struct vote {
    uint64_t number; /* subject of the agreement: ranks_share.c */
    uint64_t n_sent; /* to rank 0, all but STOP */
    int32_t call;    /* an enum call */
    int32_t status;  /* a dcpk_status */
    int32_t stops;   /* 1: it failed by itself and has sent STOP to all others */
    uint32_t crc32;  /* of the fields before it */
};

struct dcpk_ranks {
    struct dcpk_comm *comm;
    int limit_ms;          /* the last one that was set; 0: none ever was */
    struct vote *votes;    /* of the last agreement, of each rank */
    uint64_t *sizes;       /* of the share of each rank */
    uint64_t *done_bytes;  /* of each rank, as rank 0 knows it */
    pthread_mutex_t mutex; /* of the bytes that follow, and of messages */
    /* Since the last agreement: */
    uint64_t *n_got; /* messages, from each rank */
    uint64_t n_stops_got, n_sent;
    int n_done;               /* ranks that have done their part */
    struct dcpk_error broken; /* fate of a message on its way */
    dcpk_ranks_receive *receive;
    void *receive_context;
    struct dcpk_progress inner;
    uint64_t total_bytes;
    double next_send;
    /* The failure that all agreed on inside the work; until dcpk_ranks_agree */
    struct dcpk_error failed;
    struct dcpk_error over; /* why messages no longer arrive; until the end */
    bool all_know;          /* that it is over: no network that broke, all leave */
};

/* An agreement inside the work: a failure is reported once. Then ranks->votes are of this call. */
dcpk_status dcpk_ranks_agree_inside(struct dcpk_ranks *ranks, enum call call, uint64_t number,
                                    dcpk_status st, struct dcpk_error *err);
/* From one rank to all others. Fails only with the network, and then it is over. */
dcpk_status dcpk_ranks_broadcast(struct dcpk_ranks *ranks, int root, void *data, size_t n_bytes,
                                 struct dcpk_error *err);

#endif
