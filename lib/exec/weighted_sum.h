/* SPDX-License-Identifier: Apache-2.0 */
/* weighted_sum.h - boxes of weighted sums of views of several checkpoints. */
#ifndef DCPK_LIB_EXEC_WEIGHTED_SUM_H
#define DCPK_LIB_EXEC_WEIGHTED_SUM_H

#include "lib/exec/exec.h"

/* A checkpoint whose views are summed. All borrowed until dcpk_weighted_sum_free. */
struct dcpk_sum_term {
    struct dcpk_exec *exec;
    float weight;
    const struct dcpk_view *views; /* one for each sum; of DCPK_F32, but see below */
};

/*
 * Sum i is, element by element, that of weight * views[i] of every term, in their order: each
 * product and each sum rounded to float32, as torch's `w0 * a + w1 * b + w2 * c` has it. Where the
 * first term's view has another dtype than DCPK_F32, sum i is that view as it is.
 */
struct dcpk_weighted_sum;
/* n_views: of each term; all views i have one shape. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_weighted_sum_new(const struct dcpk_sum_term *terms, size_t n_terms, size_t n_views,
                                  struct dcpk_weighted_sum **sum, struct dcpk_error *err);
void dcpk_weighted_sum_free(struct dcpk_weighted_sum *sum); /* NULL is a no-op */

/* The elements of `region` of sum `view`, row-major, into out. Thread-safe: as many threads work as
 * the executor with the fewest has, others wait. Errors: those of reading, with key and file. */
dcpk_status dcpk_weighted_sum_read(struct dcpk_weighted_sum *sum, size_t view,
                                   const struct dcpk_box *region, void *out,
                                   struct dcpk_error *err);

#endif
