/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_integrity.c - any bytes as integrity.json: a list that is written and read as the same, or
 * an error. */
#include <stdlib.h>
#include <string.h>

#include "lib/ckpt/integrity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static dcpk_status read_list(const void *data, size_t n_bytes, struct dcpk_integrity *list)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    dcpk_status st;

    if (dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK ||
        dcpk_store_add_memory(store, DCPK_INTEGRITY_NAME, data, n_bytes, &err) != DCPK_OK)
        abort();
    st = dcpk_integrity_read(store, list, &err);
    if (st != DCPK_OK && strstr(err.text, DCPK_INTEGRITY_NAME) == NULL)
        abort(); /* which file it was is always said */
    dcpk_store_close(store);
    return st;
}

static void check_again(const struct dcpk_integrity *list)
{
    struct dcpk_integrity again = {0};
    struct dcpk_bytes text = {0};

    dcpk_integrity_put(list, &text);
    if (text.status != DCPK_OK || read_list(text.data, text.n_bytes, &again) != DCPK_OK ||
        again.n_files != list->n_files)
        abort();
    for (size_t i = 0; i < list->n_files; i++)
        if (strcmp(list->files[i].name, again.files[i].name) != 0 ||
            memcmp(list->files[i].sha256, again.files[i].sha256, DCPK_SHA256_BYTES) != 0)
            abort();
    dcpk_bytes_release(&text);
    dcpk_integrity_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_integrity list = {0};

    if (read_list(data, n_bytes, &list) == DCPK_OK)
        check_again(&list);
    dcpk_integrity_release(&list);
    return 0;
}
