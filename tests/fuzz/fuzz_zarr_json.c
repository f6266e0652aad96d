/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_zarr_json.c - any bytes as a .zarray: an array whose numbers fit together, or an error. */
#include <stdlib.h>

#include "formats/zarr/zarr_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

__extension__ typedef __int128 wide; /* holds the products of any three sizes */

/* The grid covers the shape, no chunk of it is needless, and the sizes are their products. */
static void check_array(const struct dcpk_zarr_array *a)
{
    wide n_chunks = 1, n_bytes = (wide)dcpk_dtype_bytes(a->dtype);

    if (a->rank < 0 || a->rank > DCPK_MAX_RANK || n_bytes == 0 ||
        (a->separator != '.' && a->separator != '/'))
        abort();
    for (int i = 0; i < a->rank; i++) {
        const wide covered = (wide)a->grid[i] * a->chunk[i];

        if (a->shape[i] < 0 || a->chunk[i] < 0 || a->grid[i] < 0 || covered < a->shape[i] ||
            (a->grid[i] > 0 && covered - a->chunk[i] >= a->shape[i]))
            abort();
        n_chunks *= a->grid[i];
        n_bytes *= a->chunk[i];
        if (n_chunks == 0)
            break;
    }
    if (n_chunks != a->n_chunks || (n_chunks > 0 && n_bytes != (wide)a->chunk_bytes) ||
        a->chunk_bytes > INT64_MAX)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_zarr_array array;

    if (dcpk_zarr_parse((const char *)data, n_bytes, &array, &err) == DCPK_OK)
        check_array(&array);
    else if (err.status == DCPK_OK || err.text[0] == '\0')
        abort();
    return 0;
}
