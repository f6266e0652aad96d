/* SPDX-License-Identifier: Apache-2.0 */
/* totals.c - integers through the memory that a group moves. */
#include "lib/train/totals.h"

#include <string.h>

#include "lib/base/alloc.h"

#define FEW_NUMBERS 32 /* so many need no memory */

static dcpk_status add_numbers(struct dcpk_group *group, struct dcpk_math *math, int64_t *numbers,
                               size_t n, struct dcpk_error *err)
{
    const struct dcpk_ops *ops = math->ops;
    const size_t n_bytes = n * sizeof *numbers;
    void *moved;
    dcpk_status st;

    if (ops->is_host)
        return group->by->all_reduce(group, DCPK_SUM_I64, numbers, n, NULL, err);
    if (ops->alloc(math, n_bytes, &moved, err) != DCPK_OK)
        return err->status;
    ops->copy(math, moved, numbers, n_bytes);
    st = ops->wait(math, err);
    if (st == DCPK_OK)
        st = group->by->all_reduce(group, DCPK_SUM_I64, moved, n, NULL, err);
    if (st == DCPK_OK) {
        ops->copy(math, numbers, moved, n_bytes);
        st = ops->wait(math, err);
    }
    ops->free(math, moved);
    return st;
}

dcpk_status dcpk_totals_agree(struct dcpk_group *group, struct dcpk_math *math, dcpk_status st,
                              int64_t *values, size_t n, struct dcpk_error *err)
{
    struct dcpk_error ours = DCPK_ERROR_INIT;
    int64_t few[FEW_NUMBERS], *numbers = few; /* and how many failed */
    dcpk_status added;

    /* Without memory for its numbers a rank leaves the others waiting, until their time is up. */
    if (n >= FEW_NUMBERS && (numbers = dcpk_alloc_array(n + 1, sizeof *numbers, err)) == NULL)
        return err->status;
    if (n > 0)
        memcpy(numbers, values, n * sizeof *numbers);
    numbers[n] = st != DCPK_OK;
    added = add_numbers(group, math, numbers, n + 1, &ours);
    if (n > 0)
        memcpy(values, numbers, n * sizeof *numbers);
    if (st == DCPK_OK && added != DCPK_OK) {
        *err = ours;
        st = added;
    } else if (st == DCPK_OK && numbers[n] > 0) {
        st = dcpk_fail(err, DCPK_ECANCELLED, "%lld other ranks failed", (long long)numbers[n]);
    }
    if (numbers != few)
        dcpk_free(numbers);
    return st;
}
