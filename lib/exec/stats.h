/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - what the elements of tensors are like: extremes, mean, norm, how many are not finite or
 * zero. */
#ifndef DCPK_LIB_EXEC_STATS_H
#define DCPK_LIB_EXEC_STATS_H

#include "lib/exec/exec.h"

/* Statistics of one tensor. A value. */
struct dcpk_stats {
    /* Floats, integers and bool (as 0 and 1); complex and packed dtypes have only n_elems. */
    bool has_numbers;
    uint64_t n_elems, n_nan, n_inf, n_zero;
    uint64_t first_bad; /* row-major, of the first NaN or Inf; without meaning when there is none */
    /* Only of the finite elements; undefined when there are none: */
    uint64_t n_finite;
    double min, max;
    double sum, sum_squares;
};
double dcpk_stats_mean(const struct dcpk_stats *stats); /* NaN when nothing is finite */
double dcpk_stats_norm(const struct dcpk_stats *stats); /* L2 */

/*
 * Statistics of n views, in one pass on all threads. Sums are made in double, in blocks of fixed
 * size that are added in their order, so the result does not depend on threads, memory or chunking.
 * Views of the same bytes (dcpk_views_fold) are read once.
 */
dcpk_status dcpk_exec_stats_of(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                               struct dcpk_stats *stats, struct dcpk_error *err);

#define DCPK_PLACE_TEXT_BYTES 1024

/*
 * Look through every stored tensor of floats. *n_bad: how many hold NaN or Inf; place: the first
 * one of the first of them, as "key[1, 4, 8] = nan". Errors: those of reading.
 */
dcpk_status dcpk_exec_find_nonfinite(struct dcpk_exec *exec, uint64_t *n_bad,
                                     char place[DCPK_PLACE_TEXT_BYTES], struct dcpk_error *err);

#endif
