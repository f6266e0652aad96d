/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - JSON: cJSON reads it, a small emitter of our own writes it, byte for byte as Python's
 * json does. */
#ifndef DCPK_LIB_BASE_JSON_H
#define DCPK_LIB_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"

/* A parsed document. Nodes are borrowed from it and die with it. */
struct dcpk_json;

/*
 * Parse n bytes of text that must be one JSON value and nothing else.
 * Errors: DCPK_EFORMAT with the byte of the fault; nesting deeper than 64 and duplicate keys of one
 * object too. Owned by the caller: dcpk_json_free.
 */
dcpk_status dcpk_json_parse(const char *text, size_t n, struct dcpk_json **doc,
                            struct dcpk_error *err);
void dcpk_json_free(struct dcpk_json *doc); /* only the root; NULL is a no-op */

enum dcpk_json_kind {
    DCPK_JSON_NULL,
    DCPK_JSON_BOOL,
    DCPK_JSON_NUMBER,
    DCPK_JSON_STRING,
    DCPK_JSON_ARRAY,
    DCPK_JSON_OBJECT
};

/* node: not NULL. */
enum dcpk_json_kind dcpk_json_kind(const struct dcpk_json *node);
/* Children of an array or object in their order; NULL past the end. O(1) each. */
const struct dcpk_json *dcpk_json_first(const struct dcpk_json *node);
/* The next child of the same parent. */
const struct dcpk_json *dcpk_json_next(const struct dcpk_json *node);
const char *dcpk_json_key(const struct dcpk_json *member); /* its name in the object around it */
const struct dcpk_json *dcpk_json_member(const struct dcpk_json *object,
                                         const char *key); /* NULL: none */
/* These take NULL, a member that is not there, like a node of another kind. */
const char *dcpk_json_string(const struct dcpk_json *node); /* NULL unless a string */
bool dcpk_json_int(const struct dcpk_json *node,
                   int64_t *out); /* false unless a whole number, |v| < 2^53 */
bool dcpk_json_double(const struct dcpk_json *node, double *out); /* false unless a number */
/* True for a number with a point or an exponent, which Python reads as a float: 1.0, 1e3. */
bool dcpk_json_is_float(const struct dcpk_json *node);
bool dcpk_json_bool(const struct dcpk_json *node, bool *out); /* false unless a boolean */

/*
 * The emitter. indent > 0: like json.dump(indent=n) ("," newline, ": "); 0: like json.dumps(x) (",
 * " and ": "). Text is escaped as Python does with ensure_ascii (\uXXXX, surrogate pairs; input is
 * UTF-8, bad bytes become \ufffd). Misuse (a value without its key, unbalanced ends) is an assert.
 * Errors are sticky in `out`.
 */
#define DCPK_JSON_MAX_DEPTH 64
struct dcpk_json_out {
    struct dcpk_bytes *out; /* borrowed */
    int indent;
    int depth;
    bool has_item[DCPK_JSON_MAX_DEPTH + 1];
    bool after_key;
    bool is_python; /* NaN, Infinity and -Infinity bare, as json.dumps has them; set after init */
};
/* Borrows `out`, to which it appends. */
void dcpk_json_out_init(struct dcpk_json_out *j, struct dcpk_bytes *out, int indent);
void dcpk_json_begin_object(struct dcpk_json_out *j);             /* "{", until its end */
void dcpk_json_end_object(struct dcpk_json_out *j);               /* "{}" when empty */
void dcpk_json_begin_array(struct dcpk_json_out *j);              /* "[", until its end */
void dcpk_json_end_array(struct dcpk_json_out *j);                /* "[]" when empty */
void dcpk_json_put_key(struct dcpk_json_out *j, const char *key); /* NUL-terminated */
/* A key of n bytes of UTF-8. */
void dcpk_json_put_key_text(struct dcpk_json_out *j, const char *key, size_t n);
/* A string of n bytes of UTF-8. */
void dcpk_json_put_text(struct dcpk_json_out *j, const char *text, size_t n);
void dcpk_json_put_string(struct dcpk_json_out *j, const char *text); /* NUL-terminated */
void dcpk_json_put_int(struct dcpk_json_out *j, int64_t v);           /* in full, also past 2^53 */
void dcpk_json_put_uint(struct dcpk_json_out *j, uint64_t v);         /* in full, also past 2^53 */
/*
 * Python's repr: shortest that reads back, "1.0", "1e-05". JSON has no numbers that are not finite:
 * those become the strings "NaN", "Infinity" and "-Infinity", which Python's float() takes.
 */
void dcpk_json_put_double(struct dcpk_json_out *j, double v);
void dcpk_json_put_bool(struct dcpk_json_out *j, bool v);
void dcpk_json_put_null(struct dcpk_json_out *j);

/* A member of an object: its key, then its value. text: NULL is null. */
void dcpk_json_add_string(struct dcpk_json_out *j, const char *key, const char *text);
void dcpk_json_add_int(struct dcpk_json_out *j, const char *key, int64_t v);   /* as put_int */
void dcpk_json_add_uint(struct dcpk_json_out *j, const char *key, uint64_t v); /* as put_uint */
void dcpk_json_add_bool(struct dcpk_json_out *j, const char *key, bool v);     /* as put_bool */
void dcpk_json_add_null(struct dcpk_json_out *j, const char *key);             /* as put_null */
/* An array of n integers. */
void dcpk_json_add_ints(struct dcpk_json_out *j, const char *key, const int64_t *v, int n);

/* Python's repr(float) of v into text (at least 32 bytes), NUL-terminated. */
void dcpk_format_double(double v, char text[32]);
/*
 * The same of a number type with fewer digits, v one of its values: the shortest decimal that, read
 * back and rounded to mantissa_bits after the leading one (fewer below 2^min_exponent, the
 * smallest normal number), is v. float32: 23, -126.
 */
void dcpk_format_float(double v, int mantissa_bits, int min_exponent, char text[32]);

/* ---- UTF-8 ---- */

#define DCPK_BAD_UTF8 UINT32_MAX

/*
 * Decodes the character at text (n >= 1 bytes left); *n_used: the bytes that it takes. Returns
 * DCPK_BAD_UTF8 for bytes that are not a character (overlong, surrogate, past U+10FFFF, cut short):
 * *n_used is then the longest part that could have begun one, at least 1, as Python's
 * errors="replace" counts.
 */
uint32_t dcpk_utf8_decode(const uint8_t *text, size_t n, size_t *n_used);
/* The same for a text of Python, which may hold lone surrogates: they are characters. */
uint32_t dcpk_utf8_decode_python(const uint8_t *text, size_t n, size_t *n_used);

#endif
