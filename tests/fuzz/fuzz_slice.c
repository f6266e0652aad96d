/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_slice.c - any subscript of any shape: indices inside it, or an error. */
/* The input: the rank, 8 bytes an axis of the shape, the subscript. */
#include <stdlib.h>

#include "lib/base/cursor.h"
#include "lib/tensor/slice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_axis(const struct dcpk_slice_axis *axis, int64_t extent)
{
    const int64_t left = axis->step > 0 ? extent - 1 - axis->first : -axis->first; /* to the end */

    if (axis->n < 0 || axis->n > extent || axis->step == 0 || (axis->is_dropped && axis->n != 1))
        abort();
    if (axis->n > 0 && (axis->first < 0 || axis->first >= extent))
        abort();
    if (axis->n > 1 && axis->n - 1 > left / axis->step)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_slice slice;
    struct dcpk_cursor c;
    int64_t shape[DCPK_MAX_RANK];
    const uint8_t *rank;
    uint64_t extent;

    dcpk_cursor_init(&c, data, n_bytes, 0);
    if (dcpk_cursor_bytes(&c, 1, &rank, &err) != DCPK_OK || *rank > DCPK_MAX_RANK)
        return 0;
    for (int i = 0; i < *rank; i++) {
        if (dcpk_cursor_u64(&c, &extent, &err) != DCPK_OK)
            return 0;
        shape[i] = (int64_t)(extent & INT64_MAX);
    }
    if (dcpk_slice_parse((const char *)data + c.at_bytes, n_bytes - c.at_bytes, shape, *rank,
                         &slice, &err) == DCPK_OK) {
        if (slice.rank != *rank)
            abort();
        for (int i = 0; i < *rank; i++)
            check_axis(&slice.axis[i], shape[i]);
    } else if (err.status != DCPK_EUSAGE || err.text[0] == '\0') {
        abort();
    }
    return 0;
}
