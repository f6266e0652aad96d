/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_releases.h - what releases of Megatron did otherwise when they filled buckets. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_RELEASES_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_RELEASES_H

#include "lib/ckpt/value.h"

/*
 * A buffer is filled from its first element on: each parameter starts at a multiple of
 * start_alignment, each bucket ends at a multiple of end_alignment and of the number of
 * data-parallel ranks, and the next begins there. A checkpoint does not record which release wrote
 * it: rules that do not fit the recorded sizes and the stored chunks are not those of its writer.
 */
struct dcpk_replay_rules {
    const char *releases;     /* "core 0.7", for messages */
    const char *since_option; /* of args: the first of these releases has it; NULL: none is older */
    int64_t start_alignment, end_alignment; /* elements */
    /* The recorded size of a bucket in front of a word embedding that has its own contains the
     * padding. */
    bool shared_counts_padding;
    bool stage_before_expert; /* dp_group_idx of experts: tensor, pipeline, expert parallel rank */
};

enum { DCPK_N_REPLAY_RULES = 5 };
/* The newest release first. */
extern const struct dcpk_replay_rules dcpk_replay_rules[DCPK_N_REPLAY_RULES];

/* The rules of the release that args (an argparse.Namespace) look like. */
const struct dcpk_replay_rules *dcpk_replay_rules_find(const struct dcpk_value *args);

/* The next multiple at or after element `at`. multiple: at least 1. */
int64_t dcpk_replay_round_up(int64_t at, int64_t multiple);
/* The multiple at which buckets end that n_slices data-parallel ranks share: at most 2^27. */
int64_t dcpk_replay_end_multiple(const struct dcpk_replay_rules *rules, int64_t n_slices);

#endif
