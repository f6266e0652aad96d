/* SPDX-License-Identifier: Apache-2.0 */
/* overflow.h - finite elements that a cast to a narrower dtype makes infinite. */
#ifndef DCPK_LIB_JOB_OVERFLOW_H
#define DCPK_LIB_JOB_OVERFLOW_H

#include "lib/ckpt/output.h"
#include "lib/exec/exec.h"

struct dcpk_overflow {
    uint64_t n_elems; /* finite in the source, infinite in the output */
    uint64_t n_tensors;
    enum dcpk_dtype dtype; /* in which they are; where there are any */
};

/*
 * Count them in all tensors of a planned output whose dtype has a smaller exponent than that of a
 * source (float16 of bfloat16): reads and casts these once more than their writing does. `names`
 * gets a text of the first few: "'a' (12), 'b' (3), ...". Collective where the executor has ranks.
 * Errors: those of reading.
 */
dcpk_status dcpk_output_find_overflow(struct dcpk_exec *exec, const struct dcpk_output *out,
                                      struct dcpk_overflow *found, struct dcpk_bytes *names,
                                      struct dcpk_error *err);

#endif
