/* SPDX-License-Identifier: Apache-2.0 */
/* json_file.c - JSON in the file of a store. */
#include "lib/io/json_file.h"

#include "lib/base/alloc.h"

dcpk_status dcpk_json_read(struct dcpk_store *store, const char *name, uint64_t limit_bytes,
                           struct dcpk_json **doc, struct dcpk_error *err)
{
    struct dcpk_source *source;
    char *text = NULL;
    size_t n_bytes;
    dcpk_status st = dcpk_store_find(store, name, &source, err);

    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, limit_bytes, &text, &n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_json_parse(text, n_bytes, doc, err);
    dcpk_free(text);
    return st;
}
