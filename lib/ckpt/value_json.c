/* SPDX-License-Identifier: Apache-2.0 */
/* value_json.c - inert values as JSON for people and tools. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/base/hex.h"
#include "lib/base/json.h"
#include "lib/ckpt/value.h"

#define LEVELS_A_NODE                                                                              \
    3 /* the most that one node opens before its children: object, "pairs", a pair */
#define SHOWN_BYTES 64 /* tensors up to here show their content */

struct printer {
    struct dcpk_json_out *out;
    bool is_key; /* the document is the text of a key in another one */
};

static void printer_put_value(struct printer *p, const struct dcpk_value *v);

static void put_hex(struct dcpk_json_out *out, const void *data, size_t n)
{
    struct dcpk_bytes text = {0};
    uint8_t *at = dcpk_bytes_extend(&text, 2 * n + 1);

    if (at != NULL)
        dcpk_hex_put(data, n, (char *)at);
    if (text.status != DCPK_OK && out->out->status == DCPK_OK)
        out->out->status = text.status;
    if (at != NULL)
        dcpk_json_put_text(out, (const char *)at, 2 * n);
    else
        dcpk_json_put_string(out, "");
    dcpk_bytes_release(&text);
}

static void begin_class(struct dcpk_json_out *out, const char *name)
{
    dcpk_json_begin_object(out);
    dcpk_json_put_key(out, "__class__");
    dcpk_json_put_string(out, name);
}

/* uint64 numbers (seeds) as numbers; larger ones as the hex of their little-endian two's
 * complement. */
static void put_bigint(struct printer *p, const struct dcpk_value *v)
{
    if (v->n == 9 && v->as.str[8] == 0) {
        uint64_t u = 0;
        for (size_t i = 0; i < 8; i++)
            u |= (uint64_t)(uint8_t)v->as.str[i] << 8 * i;
        dcpk_json_put_uint(p->out, u);
        return;
    }
    begin_class(p->out, "int");
    dcpk_json_put_key(p->out, "little_endian_hex");
    put_hex(p->out, v->as.str, v->n);
    dcpk_json_end_object(p->out);
}

static void printer_put_bytes(struct printer *p, const struct dcpk_value *v)
{
    begin_class(p->out, "bytes");
    dcpk_json_put_key(p->out, "hex");
    put_hex(p->out, v->as.str, v->n);
    dcpk_json_end_object(p->out);
}

static void printer_put_tensor(struct printer *p, const struct dcpk_value_tensor *t)
{
    begin_class(p->out, "torch.Tensor");
    dcpk_json_put_key(p->out, "dtype");
    dcpk_json_put_string(p->out, dcpk_dtype_name(t->dtype));
    dcpk_json_put_key(p->out, "shape");
    dcpk_json_begin_array(p->out);
    for (int a = 0; a < t->rank; a++)
        dcpk_json_put_int(p->out, t->shape[a]);
    dcpk_json_end_array(p->out);
    dcpk_json_put_key(p->out, "n_bytes");
    dcpk_json_put_uint(p->out, t->n_bytes);
    if (t->n_bytes <= SHOWN_BYTES && (t->data != NULL || t->n_bytes == 0)) { /* NULL: outline */
        dcpk_json_put_key(p->out, "hex");
        put_hex(p->out, t->data, (size_t)t->n_bytes);
    }
    dcpk_json_end_object(p->out);
}

static void put_dotted(struct dcpk_json_out *out, const char *module, const char *name)
{
    struct dcpk_bytes text = {0};

    dcpk_bytes_printf(&text, "%s%s%s", module, module[0] == '\0' ? "" : ".", name);
    dcpk_json_put_text(out, text.data == NULL ? "" : (const char *)text.data, text.n_bytes);
    dcpk_bytes_release(&text);
}

static void put_array(struct printer *p, const struct dcpk_value *const *items, size_t n)
{
    dcpk_json_begin_array(p->out);
    for (size_t i = 0; i < n; i++)
        printer_put_value(p, items[i]);
    dcpk_json_end_array(p->out);
}

/*
 * A key that JSON cannot have (a tuple, an object) becomes its own JSON text. Python has no key
 * that has such a key inside: one would be escaped on each level, which doubles it.
 */
static void put_odd_key(struct printer *p, const struct dcpk_value *key)
{
    struct dcpk_bytes text = {0};
    struct dcpk_json_out out;
    struct printer inner = {.out = &out, .is_key = true};

    if (p->is_key) {
        dcpk_json_put_key(p->out, "...");
        return;
    }
    dcpk_json_out_init(&out, &text, 0);
    printer_put_value(&inner, key);
    if (text.status != DCPK_OK && p->out->out->status == DCPK_OK)
        p->out->out->status = text.status;
    if (text.status == DCPK_OK)
        dcpk_json_put_key_text(p->out, (const char *)text.data, text.n_bytes);
    else
        dcpk_json_put_key(p->out, "");
    dcpk_bytes_release(&text);
}

/* Numbers, True and None as json.dumps spells them in keys. */
static void printer_put_key(struct printer *p, const struct dcpk_value *key)
{
    char text[32] = "null";

    if (key->kind == DCPK_V_STR) {
        dcpk_json_put_key_text(p->out, key->as.str, key->n);
        return;
    }
    if (key->kind == DCPK_V_INT)
        snprintf(text, sizeof text, "%" PRId64, key->as.i);
    else if (key->kind == DCPK_V_BOOL)
        snprintf(text, sizeof text, "%s", key->as.b ? "true" : "false");
    else if (key->kind == DCPK_V_FLOAT)
        dcpk_format_double(key->as.f, text);
    else if (key->kind != DCPK_V_NONE) {
        put_odd_key(p, key);
        return;
    }
    dcpk_json_put_key(p->out, text);
}

static void printer_put_pairs(struct printer *p, const struct dcpk_value_pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printer_put_key(p, pairs[i].key);
        printer_put_value(p, pairs[i].value);
    }
}

static void put_dict(struct printer *p, const struct dcpk_value_pair *pairs, size_t n)
{
    dcpk_json_begin_object(p->out);
    printer_put_pairs(p, pairs, n);
    dcpk_json_end_object(p->out);
}

/* Attributes are next to "__class__"; what else the object was made of has a member of its
 * own. */
static void printer_put_object(struct printer *p, const struct dcpk_value_object *o)
{
    dcpk_json_begin_object(p->out);
    dcpk_json_put_key(p->out, "__class__");
    put_dotted(p->out, o->module, o->name);
    if (o->args->n > 0) {
        dcpk_json_put_key(p->out, "args");
        put_array(p, o->args->as.items, o->args->n);
    }
    if (o->n_items > 0) {
        dcpk_json_put_key(p->out, "items");
        put_array(p, o->items, o->n_items);
    }
    if (o->n_pairs > 0) {
        dcpk_json_put_key(p->out, "pairs");
        put_dict(p, o->pairs, o->n_pairs);
    }
    if (o->state != NULL && o->state->kind == DCPK_V_DICT) {
        printer_put_pairs(p, o->state->as.pairs, o->state->n);
    } else if (o->state != NULL) {
        dcpk_json_put_key(p->out, "state");
        printer_put_value(p, o->state);
    }
    dcpk_json_end_object(p->out);
}

static void printer_put_value(struct printer *p, const struct dcpk_value *v)
{
    if (p->out->depth + LEVELS_A_NODE > DCPK_JSON_MAX_DEPTH) {
        dcpk_json_put_string(p->out, "...");
        return;
    }
    switch (v->kind) {
    case DCPK_V_NONE:
        dcpk_json_put_null(p->out);
        break;
    case DCPK_V_BOOL:
        dcpk_json_put_bool(p->out, v->as.b);
        break;
    case DCPK_V_INT:
        dcpk_json_put_int(p->out, v->as.i);
        break;
    case DCPK_V_BIGINT:
        put_bigint(p, v);
        break;
    case DCPK_V_FLOAT:
        dcpk_json_put_double(p->out, v->as.f);
        break;
    case DCPK_V_STR:
        dcpk_json_put_text(p->out, v->as.str, v->n);
        break;
    case DCPK_V_BYTES:
        printer_put_bytes(p, v);
        break;
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
        put_array(p, v->as.items, v->n);
        break;
    case DCPK_V_DICT:
        put_dict(p, v->as.pairs, v->n);
        break;
    case DCPK_V_TENSOR:
        printer_put_tensor(p, v->as.tensor);
        break;
    case DCPK_V_GLOBAL:
        put_dotted(p->out, v->as.global.module, v->as.global.name);
        break;
    case DCPK_V_OBJECT:
        printer_put_object(p, v->as.object);
        break;
    }
}

void dcpk_value_to_json(const struct dcpk_value *v, struct dcpk_json_out *out)
{
    struct printer p = {.out = out};

    printer_put_value(&p, v);
}
