/* SPDX-License-Identifier: Apache-2.0 */
/* value_from_json.c - JSON that people write, as the values that a checkpoint would hold. */
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/ckpt/value.h"

#define MAX_NESTED 8 /* args and configurations have three levels */

struct json_reading {
    struct dcpk_arena *arena;
    struct dcpk_error *err;
};

static const struct dcpk_value *json_node(const struct json_reading *r,
                                          const struct dcpk_json *node, int depth);

static size_t json_count(const struct dcpk_json *node)
{
    size_t n = 0;

    for (const struct dcpk_json *j = dcpk_json_first(node); j != NULL; j = dcpk_json_next(j))
        n++;
    return n;
}

static const struct dcpk_value *json_list(const struct json_reading *r,
                                          const struct dcpk_json *node, int depth)
{
    const struct dcpk_value **items =
        dcpk_arena_array(r->arena, json_count(node), sizeof *items, r->err);
    size_t n = 0;

    if (items == NULL)
        return NULL;
    for (const struct dcpk_json *j = dcpk_json_first(node); j != NULL; j = dcpk_json_next(j)) {
        items[n] = json_node(r, j, depth + 1);
        if (items[n++] == NULL)
            return NULL;
    }
    return dcpk_value_seq(r->arena, DCPK_V_LIST, items, n, r->err);
}

static const struct dcpk_value *json_dict(const struct json_reading *r,
                                          const struct dcpk_json *node, int depth)
{
    struct dcpk_value_pair *pairs =
        dcpk_arena_array(r->arena, json_count(node), sizeof *pairs, r->err);
    size_t n = 0;

    if (pairs == NULL)
        return NULL;
    for (const struct dcpk_json *j = dcpk_json_first(node); j != NULL; j = dcpk_json_next(j)) {
        pairs[n].key = dcpk_value_str(r->arena, dcpk_json_key(j), r->err);
        pairs[n].value = json_node(r, j, depth + 1);
        if (pairs[n].key == NULL || pairs[n].value == NULL)
            return NULL;
        n++;
    }
    return dcpk_value_dict(r->arena, pairs, n, r->err);
}

/* "torch.bfloat16", as print-tensor --json shows a dtype; NULL: any other text. */
static const char *json_dtype(const char *text)
{
    enum dcpk_dtype dtype;

    if (!dcpk_starts_with(text, "torch."))
        return NULL;
    dtype = dcpk_dtype_from_name(text + strlen("torch."));
    return dtype == DCPK_DTYPE_NONE ? NULL : dcpk_dtype_name(dtype);
}

static const struct dcpk_value *json_text(const struct json_reading *r, const char *text)
{
    const char *dtype = json_dtype(text);

    if (dtype == NULL)
        return dcpk_value_str(r->arena, text, r->err);
    return dcpk_value_global(r->arena, "torch", dtype, r->err);
}

static const struct dcpk_value *json_node(const struct json_reading *r,
                                          const struct dcpk_json *node, int depth)
{
    int64_t i;
    double f = 0;
    bool b = false;

    if (depth > MAX_NESTED) {
        dcpk_fail(r->err, DCPK_EUNSUPPORTED, "values nested deeper than %d", MAX_NESTED);
        return NULL;
    }
    switch (dcpk_json_kind(node)) {
    case DCPK_JSON_NULL:
        break;
    case DCPK_JSON_BOOL:
        (void)dcpk_json_bool(node, &b);
        return dcpk_value_bool(b);
    case DCPK_JSON_NUMBER:
        if (dcpk_json_int(node, &i))
            return dcpk_value_int(r->arena, i, r->err);
        (void)dcpk_json_double(node, &f);
        return dcpk_value_float(r->arena, f, r->err);
    case DCPK_JSON_STRING:
        return json_text(r, dcpk_json_string(node));
    case DCPK_JSON_ARRAY:
        return json_list(r, node, depth);
    case DCPK_JSON_OBJECT:
        return json_dict(r, node, depth);
    }
    return dcpk_value_none();
}

const struct dcpk_value *dcpk_value_from_json(struct dcpk_arena *arena,
                                              const struct dcpk_json *node, struct dcpk_error *err)
{
    const struct json_reading r = {arena, err};

    return json_node(&r, node, 0);
}
