/* SPDX-License-Identifier: Apache-2.0 */
/* make_data.h - cheap data that looks like weights and Adam moments and never repeats in blocks. */
#ifndef DCPK_TESTS_BENCH_MAKE_DATA_H
#define DCPK_TESTS_BENCH_MAKE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* A weight is its param rounded to bf16: both follow from the same key. */
enum dcpk_bench_kind {
    DCPK_BENCH_WEIGHT, /* bf16 */
    DCPK_BENCH_PARAM,  /* fp32, as all that follow */
    DCPK_BENCH_EXP_AVG,
    DCPK_BENCH_EXP_AVG_SQ,
    DCPK_N_BENCH_KINDS
};

struct dcpk_bench_data;

dcpk_status dcpk_bench_data_new(int n_workers, struct dcpk_bench_data **data,
                                struct dcpk_error *err);
void dcpk_bench_data_free(struct dcpk_bench_data *data); /* NULL is a no-op */

/*
 * Make bytes of the tensor part that `key` stands for, from byte at_bytes on (0, or at + *n_bytes
 * of the call before): at most left_bytes. Borrowed until the worker's next call. Different workers
 * may call at once.
 */
const void *dcpk_bench_data_make(struct dcpk_bench_data *data, int worker,
                                 enum dcpk_bench_kind kind, uint64_t key, uint64_t at_bytes,
                                 uint64_t left_bytes, size_t *n_bytes);

#endif
