/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_json.c - the file that makes a folder Megatron's own and names the backend that wrote
 * it. */
#include <string.h>

#include "formats/megatron/megatron.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/model/request.h"

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
    backend->version = 1; /* also where it is not a number: see ask_field */
    dcpk_json_int(dcpk_json_member(doc, "sharded_backend_version"), &backend->version);
    memcpy(backend->name, name, strlen(name) + 1);
    return DCPK_OK;
}

dcpk_status dcpk_megatron_read_backend(struct dcpk_store *store,
                                       struct dcpk_megatron_backend *backend,
                                       struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;

    if (dcpk_json_read(store, DCPK_MEGATRON_METADATA_JSON, MAX_JSON_BYTES, &doc, err))
        return dcpk_context(err, "reading '%s'", DCPK_MEGATRON_METADATA_JSON);
    (void)read_backend(doc, backend, err);
    dcpk_json_free(doc);
    return err->status;
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

/* The fields that releases up to core 0.18 know, and their values; text NULL: the number 1
 * (formats/torch_dist/FORMAT.md 1.2). */
static const struct field {
    const char *name, *text;
    bool is_any; /* the reader of the format has looked at it */
} fields[] = {
    {"sharded_backend", NULL, true},
    {"sharded_backend_version", NULL, false},
    {"common_backend", "torch", false},
    {"common_backend_version", NULL, false},
};

static const struct field *field_find(const char *name)
{
    for (size_t i = 0; i < DCPK_COUNT(fields); i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

/* True if Python finds the value equal to that of the field. 1.0 and true are 1 there. */
static bool field_holds(const struct field *field, const struct dcpk_json *value)
{
    const char *text = dcpk_json_string(value);
    int64_t number = 0;
    bool is_true = false;

    if (field->is_any)
        return true;
    if (field->text != NULL)
        return text != NULL && strcmp(text, field->text) == 0;
    return (dcpk_json_int(value, &number) && number == 1) ||
           (dcpk_json_bool(value, &is_true) && is_true);
}

static dcpk_status ask_field(const struct dcpk_loading *loading, const struct dcpk_json *member,
                             struct dcpk_error *err)
{
    const struct field *field = field_find(dcpk_json_key(member));
    enum dcpk_release last = DCPK_CORE_0_16;
    const char *text = "has a value that core 0.15 and 0.16 have no loader for", *key;

    if (field != NULL && field_holds(field, member))
        return DCPK_OK;
    if (field == NULL) {
        last = DCPK_CORE_0_18;
        text = "is a field that stops releases up to core 0.18 (TypeError of CheckpointingConfig)";
    }
    key = dcpk_arena_printf(loading->arena, err, DCPK_MEGATRON_METADATA_JSON ".%s",
                            dcpk_json_key(member));
    if (key == NULL)
        return err->status;
    return dcpk_request_fault(loading, DCPK_FOR_COMMON, dcpk_loaders_of(DCPK_CORE_0_15, last), key,
                              text, err);
}

dcpk_status dcpk_megatron_request_backend(const struct dcpk_loading *loading,
                                          struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;

    if (loading->out != NULL || /* a planned output has Megatron's own text */
        dcpk_json_read(loading->ckpt->store, DCPK_MEGATRON_METADATA_JSON, MAX_JSON_BYTES, &doc,
                       err))
        return err->status;
    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL && err->status == DCPK_OK;
         m = dcpk_json_next(m))
        (void)ask_field(loading, m, err);
    dcpk_json_free(doc);
    return err->status;
}
