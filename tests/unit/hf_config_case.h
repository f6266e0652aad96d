/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_case.h - a config.json on its way to args, and args on theirs to config.json. */
#ifndef DCPK_TESTS_UNIT_HF_CONFIG_CASE_H
#define DCPK_TESTS_UNIT_HF_CONFIG_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "formats/safetensors/hf_config.h"
#include "lib/base/order.h"
#include "tests/check.h"

static struct dcpk_arena *arena;
static struct dcpk_error err;

static inline const char *show(const struct dcpk_value *value)
{
    static char text[4096];
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out out;

    if (value == NULL)
        return "absent";
    dcpk_json_out_init(&out, &bytes, 0);
    dcpk_value_to_json(value, &out);
    (void)snprintf(text, sizeof text, "%.*s", (int)bytes.n_bytes, (const char *)bytes.data);
    dcpk_bytes_release(&bytes);
    return text;
}

static inline const struct dcpk_json *parse(const char *text, const char *label)
{
    struct dcpk_json *doc = NULL;

    CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), label);
    return doc;
}

/* What was remarked, "key text|key text|". */
static char remarks[4096];

static inline void take_remark(void *context, const char *key, const char *text)
{
    const size_t n = strlen(remarks);

    (void)context;
    (void)snprintf(remarks + n, sizeof remarks - n, "%s %s|", key, text);
}

static inline dcpk_status import(const struct dcpk_hf_map *map, const char *config,
                                 const char *label, const struct dcpk_value **attrs)
{
    const struct dcpk_json *doc = parse(config, label);
    const struct dcpk_hf_import wish = {.map = map, .config = doc, .remark = take_remark};
    const struct dcpk_value *args = NULL;

    remarks[0] = '\0';
    (void)dcpk_hf_config_to_args(&wish, arena, &args, &err);
    dcpk_json_free((struct dcpk_json *)(uintptr_t)doc);
    *attrs = dcpk_value_attrs(args);
    return err.status;
}

static inline dcpk_status export(const struct dcpk_hf_map *map, const struct dcpk_value *attrs,
                                 const char *base, struct dcpk_bytes *text)
{
    struct dcpk_json *doc = NULL;
    struct dcpk_hf_export wish = {
        .map = map, .args = attrs, .vocab_size = 99, .dtype = DCPK_F32, .remark = take_remark};

    remarks[0] = '\0';
    if (base != NULL && dcpk_json_parse(base, strlen(base), &doc, &err))
        return err.status;
    wish.base = doc;
    (void)dcpk_hf_config_write(&wish, text, &err);
    dcpk_json_free(doc);
    return err.status;
}

/* The member of an exported config.json, as text. */
static inline const char *member(const struct dcpk_bytes *text, const char *key, const char *label)
{
    struct dcpk_json *doc = NULL;
    const struct dcpk_json *node;
    const char *shown = "absent";

    CHECK_OK(dcpk_json_parse((const char *)text->data, text->n_bytes, &doc, &err), label);
    node = dcpk_json_member(doc, key);
    if (node != NULL)
        shown = show(dcpk_hf_value(arena, node, &err));
    dcpk_json_free(doc);
    return shown;
}

static inline void fresh(void)
{
    dcpk_arena_free(arena);
    dcpk_error_clear(&err);
    arena = dcpk_arena_new();
    if (arena == NULL)
        abort();
}

static inline int release(void **state)
{
    (void)state;
    dcpk_arena_free(arena);
    return 0;
}

#endif
