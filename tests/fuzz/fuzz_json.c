/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c - any bytes as JSON: a document that reads back as it was written, or an error. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void put_scalar(const struct dcpk_json *node, struct dcpk_json_out *out)
{
    const char *text = dcpk_json_string(node);
    bool truth = false;
    int64_t number;

    if (text != NULL)
        dcpk_json_put_string(out, text);
    else if (dcpk_json_bool(node, &truth))
        dcpk_json_put_bool(out, truth);
    else if (dcpk_json_int(node, &number))
        dcpk_json_put_int(out, number);
    else
        dcpk_json_put_null(out); /* a fraction, or null */
}

#define MAX_SOUGHT 64 /* members of an object that are looked for by their keys: one by one */

/* Recursion: the reader refuses what is nested deeper than the emitter goes. */
static void put(const struct dcpk_json *node, struct dcpk_json_out *out)
{
    const enum dcpk_json_kind kind = dcpk_json_kind(node);
    size_t n_sought = 0;

    if (kind != DCPK_JSON_ARRAY && kind != DCPK_JSON_OBJECT) {
        put_scalar(node, out);
        return;
    }
    if (kind == DCPK_JSON_OBJECT)
        dcpk_json_begin_object(out);
    else
        dcpk_json_begin_array(out);
    for (const struct dcpk_json *n = dcpk_json_first(node); n != NULL; n = dcpk_json_next(n)) {
        if (kind == DCPK_JSON_OBJECT) {
            if (n_sought++ < MAX_SOUGHT && dcpk_json_member(node, dcpk_json_key(n)) != n)
                abort(); /* a key twice, or one that is not found */
            dcpk_json_put_key(out, dcpk_json_key(n));
        }
        put(n, out);
    }
    if (kind == DCPK_JSON_OBJECT)
        dcpk_json_end_object(out);
    else
        dcpk_json_end_array(out);
}

/* The document as text; NULL when n_bytes are none, which says why. */
static struct dcpk_bytes rewrite(const void *data, size_t n_bytes, int indent)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes text = {0};
    struct dcpk_json *doc = NULL;
    struct dcpk_json_out out;

    if (dcpk_json_parse(data, n_bytes, &doc, &err) != DCPK_OK) {
        if (err.text[0] == '\0')
            abort();
        return text;
    }
    dcpk_json_out_init(&out, &text, indent);
    put(doc, &out);
    dcpk_json_free(doc);
    if (dcpk_bytes_status(&text, &err) != DCPK_OK)
        abort();
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_bytes once = rewrite(data, n_bytes, 2);

    if (once.data != NULL) {
        struct dcpk_bytes twice = rewrite(once.data, once.n_bytes, 2);

        if (once.n_bytes != twice.n_bytes || memcmp(once.data, twice.data, once.n_bytes) != 0)
            abort();
        dcpk_bytes_release(&twice);
    }
    dcpk_bytes_release(&once);
    return 0;
}
