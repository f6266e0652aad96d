/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_listing.c - any bytes as the listing of a server, of S3 and as a page of links: names that a
 * store takes or refuses, or an error. */
#include <stdlib.h>

#include "formats/remote/remote_folder.h"
#include "lib/base/alloc.h"
#include "lib/io/store.h"
#include "tests/fuzz/bounded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

size_t bounded_more_bytes;

/* What the store took is in the folder. */
static void enter(const struct remote *r)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store;

    if (dcpk_store_new_calls("fuzz", &store, &err) != DCPK_OK)
        abort();
    for (size_t i = 0; i < r->n; i++) {
        struct dcpk_error refusal = DCPK_ERROR_INIT;
        const char *name = r->files[i].name;

        if (dcpk_store_add_range(store, name, i, 0, &refusal) == DCPK_OK &&
            (name[0] == '/' || strcmp(name, "..") == 0 || strstr(name, "/../") != NULL))
            abort();
    }
    dcpk_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct remote r = {.shown = "fuzz", .prefix = "run/", .arena = dcpk_arena_new()};
    char *page = dcpk_alloc(n_bytes + 1, &err), *token;

    if (r.arena == NULL || page == NULL)
        abort();
    (void)dcpk_remote_take_keys(&r, (struct part){(const char *)data, n_bytes}, &token, &err);
    if (n_bytes > 0)
        memcpy(page, data, n_bytes);
    dcpk_error_clear(&err);
    if (dcpk_remote_take_links(&r, "", page, 0, &err) != DCPK_OK && err.status != DCPK_ERANGE)
        abort();
    enter(&r);
    dcpk_free(page);
    dcpk_free(r.files);
    dcpk_arena_free(r.arena);
    return 0;
}
