/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_json.c - the file that makes a folder Megatron's own and names the backend that wrote
 * it. */
#include <string.h>

#include "formats/megatron/megatron.h"
#include "lib/base/json.h"
#include "lib/io/json_file.h"

#define MAX_JSON_BYTES (1u << 20)

static dcpk_status read_backend(const struct dcpk_json *doc, struct dcpk_megatron_backend *backend,
                                struct dcpk_error *err)
{
    const char *name = dcpk_json_string(dcpk_json_member(doc, "sharded_backend"));

    if (name == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' names no sharded_backend",
                         DCPK_MEGATRON_METADATA_JSON);
    if (strlen(name) >= sizeof backend->name)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' names a sharded_backend of %zu bytes",
                         DCPK_MEGATRON_METADATA_JSON, strlen(name));
    backend->version = 1;
    dcpk_json_int(dcpk_json_member(doc, "sharded_backend_version"), &backend->version);
    memcpy(backend->name, name, strlen(name) + 1);
    return DCPK_OK;
}

dcpk_status dcpk_megatron_read_backend(struct dcpk_store *store,
                                       struct dcpk_megatron_backend *backend,
                                       struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    dcpk_status st = dcpk_json_read(store, DCPK_MEGATRON_METADATA_JSON, MAX_JSON_BYTES, &doc, err);

    if (st != DCPK_OK)
        dcpk_context(err, "reading '%s'", DCPK_MEGATRON_METADATA_JSON);
    else
        st = read_backend(doc, backend, err);
    dcpk_json_free(doc);
    return st;
}

dcpk_status dcpk_megatron_check_backend(struct dcpk_store *store, const char *wanted,
                                        struct dcpk_error *err)
{
    struct dcpk_megatron_backend backend;

    if (dcpk_megatron_read_backend(store, &backend, err))
        return err->status;
    if (strcmp(backend.name, wanted) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' says sharded_backend \"%s\", this reader reads \"%s\"",
                         DCPK_MEGATRON_METADATA_JSON, backend.name, wanted);
    if (backend.version != 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' says sharded_backend_version %lld, known is 1",
                         DCPK_MEGATRON_METADATA_JSON, (long long)backend.version);
    return DCPK_OK;
}
