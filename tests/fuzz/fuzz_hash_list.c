/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hash_list.c - any bytes as recorded hashes: a sorted list whose sizes fit, or an error. */
#include <stdlib.h>
#include <string.h>

#include "lib/job/hash_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

__extension__ typedef __int128 wide; /* holds the product of any two sizes */

static void check_item(const struct dcpk_hashed *t, unsigned lacks)
{
    wide n_bytes = (wide)dcpk_dtype_bytes(t->dtype);
    bool is_empty = false;

    if (t->kind >= DCPK_N_HASHED)
        abort();
    if (t->kind != DCPK_HASHED_TENSOR || (lacks & DCPK_LACKS_FORMS) != 0) {
        if (t->rank != 0 || t->dtype != DCPK_DTYPE_NONE)
            abort();
        return;
    }
    if (n_bytes == 0 || t->rank < 0 || t->rank > DCPK_MAX_RANK)
        abort();
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0)
            abort();
        is_empty = is_empty || t->shape[i] == 0;
    }
    for (int i = 0; i < t->rank && !is_empty; i++)
        if ((n_bytes *= t->shape[i]) > UINT64_MAX)
            abort();
    if (t->n_bytes != (is_empty ? 0 : (uint64_t)n_bytes))
        abort();
}

static void count(void *context, const struct dcpk_hashed *a, const struct dcpk_hashed *b)
{
    size_t *n = context;

    if (a == NULL && b == NULL)
        abort();
    *n += 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash_list list = {0}, none = {0};
    size_t n_called = 0;

    if (dcpk_hash_list_parse((const char *)data, n_bytes, &list, &err) == DCPK_OK) {
        for (size_t i = 0; i < list.n; i++) {
            const int order = i == 0 ? -1 : strcmp(list.items[i - 1].key, list.items[i].key);

            check_item(&list.items[i], list.lacks);
            if (order > 0 || (order == 0 && list.items[i - 1].kind >= list.items[i].kind))
                abort();
        }
        if (dcpk_hash_list_compare(&list, &list, count, &n_called) != 0 || n_called != 0 ||
            dcpk_hash_list_compare(&none, &list, count, &n_called) != list.n || n_called != list.n)
            abort();
    } else if (err.text[0] == '\0') {
        abort();
    }
    dcpk_hash_list_release(&list);
    return 0;
}
