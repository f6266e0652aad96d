/* SPDX-License-Identifier: Apache-2.0 */
/* json_out.c - writing JSON byte for byte as Python's json module does, and floats as repr does. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/order.h"

#define MAX_DIGITS 17 /* always enough to read a double back */

/* The range of the second byte after `lead`, and the length of the whole; 0: no character begins
 * so. */
static size_t utf8_length(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    switch (lead) {
    case 0xe0:
        *low = 0xa0; /* below: overlong */
        break;
    case 0xed:
        *high = 0x9f; /* above: a surrogate */
        break;
    case 0xf0:
        *low = 0x90; /* below: overlong */
        break;
    case 0xf4:
        *high = 0x8f; /* above: past U+10FFFF */
        break;
    default:
        break;
    }
    if (lead < 0xe0)
        return 2;
    return lead < 0xf0 ? 3 : 4;
}

uint32_t dcpk_utf8_decode(const uint8_t *text, size_t n, size_t *n_used)
{
    uint8_t low, high;
    const size_t length = utf8_length(text[0], &low, &high);
    uint32_t code = text[0];

    *n_used = 1;
    if (length == 0)
        return DCPK_BAD_UTF8;
    if (length == 1)
        return code;
    code &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) {
        if (i >= n || text[i] < low || text[i] > high)
            return DCPK_BAD_UTF8;
        code = code << 6 | (text[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
        *n_used = i + 1;
    }
    return code;
}

uint32_t dcpk_utf8_decode_python(const uint8_t *text, size_t n, size_t *n_used)
{
    if (n < 3 || text[0] != 0xed || (text[1] & 0xe0) != 0xa0 || (text[2] & 0xc0) != 0x80)
        return dcpk_utf8_decode(text, n, n_used);
    *n_used = 3;
    return 0xd000 | (uint32_t)(text[1] & 0x3f) << 6 | (text[2] & 0x3f);
}

void dcpk_json_out_init(struct dcpk_json_out *j, struct dcpk_bytes *out, int indent)
{
    memset(j, 0, sizeof *j);
    j->out = out;
    j->indent = indent;
}

static void new_line(struct dcpk_json_out *j)
{
    dcpk_bytes_u8(j->out, '\n');
    for (int i = 0; i < j->indent * j->depth; i++)
        dcpk_bytes_u8(j->out, ' ');
}

/* Writes the separator between two items, or before the first; nothing between a key and its
 * value. */
static void separate(struct dcpk_json_out *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->has_item[j->depth])
        dcpk_bytes_text(j->out, j->indent > 0 ? "," : ", ");
    if (j->indent > 0 && j->depth > 0)
        new_line(j);
    assert(j->depth > 0 || !j->has_item[0]); /* one document */
    j->has_item[j->depth] = true;
}

static void begin_container(struct dcpk_json_out *j, char bracket)
{
    separate(j);
    dcpk_bytes_u8(j->out, (uint8_t)bracket);
    assert(j->depth < DCPK_JSON_MAX_DEPTH);
    j->has_item[++j->depth] = false;
}

static void end_container(struct dcpk_json_out *j, char bracket)
{
    assert(j->depth > 0 && !j->after_key);
    if (j->has_item[j->depth--] && j->indent > 0)
        new_line(j);
    dcpk_bytes_u8(j->out, (uint8_t)bracket);
}

void dcpk_json_begin_object(struct dcpk_json_out *j)
{
    begin_container(j, '{');
}

void dcpk_json_end_object(struct dcpk_json_out *j)
{
    end_container(j, '}');
}

void dcpk_json_begin_array(struct dcpk_json_out *j)
{
    begin_container(j, '[');
}

void dcpk_json_end_array(struct dcpk_json_out *j)
{
    end_container(j, ']');
}

/* One character that cannot stand for itself. */
static void put_escaped(struct dcpk_bytes *out, uint32_t code)
{
    static const char shorts[] = "\"\"\\\\\nn\rr\tt\ff\bb"; /* character, letter of its escape */

    for (size_t i = 0; i + 1 < sizeof shorts; i += 2) {
        if (code == (unsigned char)shorts[i]) {
            dcpk_bytes_u8(out, '\\');
            dcpk_bytes_u8(out, (uint8_t)shorts[i + 1]);
            return;
        }
    }
    if (code == DCPK_BAD_UTF8)
        code = 0xfffd;
    if (code > 0xffff) {
        code -= 0x10000;
        dcpk_bytes_printf(out, "\\u%04x", (unsigned)(0xd800 + (code >> 10)));
        code = 0xdc00 + (code & 0x3ff);
    }
    dcpk_bytes_printf(out, "\\u%04x", (unsigned)code);
}

static bool is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_quoted(struct dcpk_bytes *out, const char *chars, size_t n)
{
    const uint8_t *text = (const uint8_t *)chars;
    size_t used;

    dcpk_bytes_u8(out, '"');
    for (size_t i = 0; i < n; i += used) {
        for (used = 0; i + used < n && is_plain(text[i + used]);)
            used++;
        dcpk_bytes_put(out, text + i, used);
        if (used == 0)
            put_escaped(out, dcpk_utf8_decode_python(text + i, n - i, &used));
    }
    dcpk_bytes_u8(out, '"');
}

void dcpk_json_put_key_text(struct dcpk_json_out *j, const char *key, size_t n)
{
    assert(j->depth > 0 && !j->after_key);
    separate(j);
    put_quoted(j->out, key, n);
    dcpk_bytes_text(j->out, ": ");
    j->after_key = true;
}

void dcpk_json_put_key(struct dcpk_json_out *j, const char *key)
{
    dcpk_json_put_key_text(j, key, strlen(key));
}

void dcpk_json_put_text(struct dcpk_json_out *j, const char *text, size_t n)
{
    separate(j);
    put_quoted(j->out, text, n);
}

void dcpk_json_put_string(struct dcpk_json_out *j, const char *text)
{
    dcpk_json_put_text(j, text, strlen(text));
}

void dcpk_json_put_int(struct dcpk_json_out *j, int64_t v)
{
    separate(j);
    dcpk_bytes_printf(j->out, "%" PRId64, v);
}

void dcpk_json_put_uint(struct dcpk_json_out *j, uint64_t v)
{
    separate(j);
    dcpk_bytes_printf(j->out, "%" PRIu64, v);
}

/* json.dumps: as repr, except for the three that JSON has no word for. */
void dcpk_json_put_double(struct dcpk_json_out *j, double v)
{
    const char *quote = j->is_python ? "" : "\"";
    char text[32];

    separate(j);
    if (isfinite(v)) {
        dcpk_format_double(v, text);
        dcpk_bytes_text(j->out, text);
        return;
    }
    dcpk_bytes_text(j->out, quote);
    if (!isnan(v) && v < 0)
        dcpk_bytes_text(j->out, "-");
    dcpk_bytes_text(j->out, isnan(v) ? "NaN" : "Infinity");
    dcpk_bytes_text(j->out, quote);
}

void dcpk_json_put_bool(struct dcpk_json_out *j, bool v)
{
    separate(j);
    dcpk_bytes_text(j->out, v ? "true" : "false");
}

void dcpk_json_put_null(struct dcpk_json_out *j)
{
    separate(j);
    dcpk_bytes_text(j->out, "null");
}

/* A positive number as digits, the first before the point, times 10^exponent. */
struct decimal {
    char digits[MAX_DIGITS + 1];
    int n_digits;
    int exponent;
};

/* A type of numbers: bits after the leading one, exponent of the smallest normal number. */
struct number_type {
    int mantissa_bits, min_exponent;
};
static const struct number_type f64 = {52, -1022};

/* v >= 0 as the nearest number of the type, ties to even; what passes its end stays out of it. */
static double round_to_type(double v, const struct number_type *type)
{
    int exponent;

    if (v == 0 || isinf(v))
        return v;
    frexp(v, &exponent); /* v < 2^exponent */
    exponent--;
    if (exponent < type->min_exponent)
        exponent = type->min_exponent;
    exponent -= type->mantissa_bits;
    return ldexp(rint(ldexp(v, -exponent)), exponent);
}

static double read_back(const struct decimal *d, const struct number_type *type)
{
    char text[40];

    snprintf(text, sizeof text, "%c.%se%d", d->digits[0], d->digits + 1, d->exponent);
    if (type == &f64)
        return strtod(text, NULL);
    return round_to_type(strtod(text, NULL), type);
}

/* v rounded to n digits. */
static void round_to(double v, int n, struct decimal *d)
{
    char text[40];
    size_t at = 0;

    snprintf(text, sizeof text, "%.*e", n - 1, v);
    d->n_digits = n;
    for (const char *p = text; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') /* not the point, however the locale writes it */
            d->digits[at++] = *p;
    }
    d->digits[at] = '\0';
    d->exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
}

/* The next larger number of as many digits; false for 99..9, whose successor has fewer. */
static bool step_up(struct decimal *d)
{
    int i = d->n_digits - 1;

    while (i >= 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    if (i < 0)
        return false;
    d->digits[i]++;
    return true;
}

/*
 * v with n digits that read back as it: the nearest such number, or the next larger one. Below a
 * power of two the neighbours are half as far as above it: there the rounded number may read back
 * as the lower neighbour when the next larger one, farther away, reads back as v (2**-44 is one).
 */
static bool reads_back(double v, int n, const struct number_type *type, struct decimal *d)
{
    round_to(v, n, d);
    return read_back(d, type) == v ||
           (read_back(d, type) < v && step_up(d) && read_back(d, type) == v);
}

/*
 * The fewest digits that read back as v. If n digits read back, more do as well: the same number
 * has them, and the candidates are then nearer.
 */
static void shortest(double v, const struct number_type *type, struct decimal *d)
{
    int least = 1, enough = MAX_DIGITS;

    while (least < enough) {
        const int n = least + (enough - least) / 2;

        if (reads_back(v, n, type, d))
            enough = n;
        else
            least = n + 1;
    }
    if (!reads_back(v, least, type, d)) /* a number that the type does not have */
        round_to(v, least, d);
}

/*
 * Python's float_repr_style "short" (Python/pystrtod.c, format 'r'): positional for 1e-4 <= v <
 * 1e16. Digit i stands for 10^(exponent - i); positions without a digit of their own are 0.
 */
static void json_lay_out(const struct decimal *d, char text[32])
{
    const int e = d->exponent;
    const int64_t n = dcpk_max_i64(d->n_digits, e + 2); /* at least one digit after the point */

    if (e < -4 || e >= 16) {
        snprintf(text, 31, "%c%s%se%c%02d", d->digits[0], d->n_digits > 1 ? "." : "", d->digits + 1,
                 e < 0 ? '-' : '+', abs(e));
        return;
    }
    for (int64_t i = dcpk_min_i64(e, 0); i < n; i++) {
        *text++ = i >= 0 && i < d->n_digits ? d->digits[i] : '0';
        if (i == e)
            *text++ = '.';
    }
    *text = '\0';
}

static void format(double v, const struct number_type *type, char text[32])
{
    struct decimal d;

    if (isnan(v)) {
        memcpy(text, "nan", sizeof "nan");
        return;
    }
    if (signbit(v))
        *text++ = '-';
    if (isinf(v)) {
        memcpy(text, "inf", sizeof "inf");
        return;
    }
    shortest(fabs(v), type, &d);
    json_lay_out(&d, text);
}

void dcpk_format_double(double v, char text[32])
{
    format(v, &f64, text);
}

void dcpk_format_float(double v, int mantissa_bits, int min_exponent, char text[32])
{
    const struct number_type type = {mantissa_bits, min_exponent};

    format(v, &type, text);
}

void dcpk_json_add_int(struct dcpk_json_out *j, const char *key, int64_t v)
{
    dcpk_json_put_key(j, key);
    dcpk_json_put_int(j, v);
}

void dcpk_json_add_uint(struct dcpk_json_out *j, const char *key, uint64_t v)
{
    dcpk_json_put_key(j, key);
    dcpk_json_put_uint(j, v);
}

void dcpk_json_add_bool(struct dcpk_json_out *j, const char *key, bool v)
{
    dcpk_json_put_key(j, key);
    dcpk_json_put_bool(j, v);
}

void dcpk_json_add_null(struct dcpk_json_out *j, const char *key)
{
    dcpk_json_put_key(j, key);
    dcpk_json_put_null(j);
}

void dcpk_json_add_string(struct dcpk_json_out *j, const char *key, const char *text)
{
    dcpk_json_put_key(j, key);
    if (text != NULL)
        dcpk_json_put_string(j, text);
    else
        dcpk_json_put_null(j);
}

void dcpk_json_add_ints(struct dcpk_json_out *j, const char *key, const int64_t *v, int n)
{
    dcpk_json_put_key(j, key);
    dcpk_json_begin_array(j);
    for (int i = 0; i < n; i++)
        dcpk_json_put_int(j, v[i]);
    dcpk_json_end_array(j);
}
