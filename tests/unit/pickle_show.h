/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_show.h - for the pickle tests: hex to bytes, and trees spelled as
 * tests/interop/pickle_peer.py does. */
#ifndef DCPK_TESTS_PICKLE_SHOW_H
#define DCPK_TESTS_PICKLE_SHOW_H

#include <stdbool.h>
#include <stdlib.h>

#include "formats/torch/pickle.h"
#include "tests/check.h"

static inline int nibble(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* The bytes that lower case hex spells; freed by the caller. */
static inline uint8_t *from_hex(const char *hex, size_t *n)
{
    uint8_t *data = malloc(strlen(hex) / 2 + 1);

    assert_non_null(data);
    *n = strlen(hex) / 2;
    for (size_t i = 0; i < *n; i++)
        data[i] = (uint8_t)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    return data;
}

static inline void show(const struct dcpk_value *v, struct dcpk_bytes *out);

static inline void show_text(const char *text, size_t n, struct dcpk_bytes *out)
{
    dcpk_bytes_text(out, "\"");
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        dcpk_bytes_printf(out, c >= 32 && c < 127 && c != '"' && c != '\\' ? "%c" : "\\x%02x", c);
    }
    dcpk_bytes_text(out, "\"");
}

static inline void show_items(const char *open, const struct dcpk_value *const *items, size_t n,
                              const char *close, struct dcpk_bytes *out)
{
    dcpk_bytes_text(out, open);
    for (size_t i = 0; i < n; i++) {
        show(items[i], out);
        dcpk_bytes_text(out, ",");
    }
    dcpk_bytes_text(out, close);
}

static inline void show_pairs(const struct dcpk_value_pair *pairs, size_t n, struct dcpk_bytes *out)
{
    dcpk_bytes_text(out, "{");
    for (size_t i = 0; i < n; i++) {
        show(pairs[i].key, out);
        dcpk_bytes_text(out, ":");
        show(pairs[i].value, out);
        dcpk_bytes_text(out, ",");
    }
    dcpk_bytes_text(out, "}");
}

static inline void show_object(const struct dcpk_value_object *o, struct dcpk_bytes *out)
{
    dcpk_bytes_printf(out, "%s:%s%s%s", o->is_reduce ? "reduce" : "new", o->module,
                      o->module[0] == '\0' ? "" : ".", o->name);
    show(o->args, out);
    if (o->n_items > 0)
        show_items("[", o->items, o->n_items, "]", out);
    if (o->n_pairs > 0)
        show_pairs(o->pairs, o->n_pairs, out);
    if (o->state != NULL) {
        dcpk_bytes_text(out, "|");
        show(o->state, out);
    }
}

static inline void show_number(const struct dcpk_value *v, struct dcpk_bytes *out)
{
    uint64_t bits;

    if (v->kind == DCPK_V_INT) {
        dcpk_bytes_printf(out, "%" PRId64, v->as.i);
    } else if (v->kind == DCPK_V_FLOAT) {
        memcpy(&bits, &v->as.f, sizeof bits);
        dcpk_bytes_printf(out, "f%016" PRIx64, bits);
    } else {
        dcpk_bytes_text(out, "L");
        for (size_t i = 0; i < v->n; i++)
            dcpk_bytes_printf(out, "%02x", (unsigned)(uint8_t)v->as.str[i]);
    }
}

static inline void show(const struct dcpk_value *v, struct dcpk_bytes *out)
{
    switch (v->kind) {
    case DCPK_V_NONE:
        dcpk_bytes_text(out, "None");
        break;
    case DCPK_V_BOOL:
        dcpk_bytes_text(out, v->as.b ? "True" : "False");
        break;
    case DCPK_V_INT:
    case DCPK_V_BIGINT:
    case DCPK_V_FLOAT:
        show_number(v, out);
        break;
    case DCPK_V_BYTES:
        dcpk_bytes_text(out, "b");
        show_text(v->as.str, v->n, out);
        break;
    case DCPK_V_STR:
        show_text(v->as.str, v->n, out);
        break;
    case DCPK_V_TUPLE:
        show_items("(", v->as.items, v->n, ")", out);
        break;
    case DCPK_V_LIST:
        show_items("[", v->as.items, v->n, "]", out);
        break;
    case DCPK_V_SET: /* the peer pickles sets of one or two small integers: their order is fixed */
        show_items("<", v->as.items, v->n, ">", out);
        break;
    case DCPK_V_DICT:
        show_pairs(v->as.pairs, v->n, out);
        break;
    case DCPK_V_TENSOR:
        dcpk_bytes_text(out, "tensor");
        break;
    case DCPK_V_GLOBAL:
        dcpk_bytes_printf(out, "@%s.%s", v->as.global.module, v->as.global.name);
        break;
    case DCPK_V_OBJECT:
        show_object(v->as.object, out);
        break;
    }
}

#endif
