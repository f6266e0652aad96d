/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_plain.c - the specification of every kernel: one element at a time, nothing clever. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/base/cursor.h"

static void plain_copy(const struct dcpk_copy *c, const void *src, void *dst)
{
    int64_t index[DCPK_MAX_RANK] = {0};
    const char *from = src;
    char *to = dst;
    int a;

    for (a = 0; a < c->rank; a++)
        if (c->extent[a] == 0)
            return;
    do {
        memcpy(to, from, c->elem_bytes);
        for (a = c->rank - 1; a >= 0; a--) {
            from += c->src_stride_bytes[a];
            to += c->dst_stride_bytes[a];
            if (++index[a] < c->extent[a])
                break;
            from -= c->extent[a] * c->src_stride_bytes[a];
            to -= c->extent[a] * c->dst_stride_bytes[a];
            index[a] = 0;
        }
    } while (a >= 0);
}

/*
 * Casting goes through f64: every type here widens to it exactly, and only narrowing rounds, once.
 * (torch goes from f64 to the small types through f32 and rounds twice.)
 *
 * A code is  sign | exponent + bias | mantissa,  its value  +-1.mantissa * 2^exponent.
 */
struct float_type {
    int n_bytes, mantissa_bits, bias;
    bool has_infinity; /* else the largest code is NaN and overflow goes there */
};

static const struct float_type f64 = {8, 52, 1023, true};
static const struct float_type f32 = {4, 23, 127, true};
static const struct float_type f16 = {2, 10, 15, true};
static const struct float_type bf16 = {2, 7, 127, true};
static const struct float_type e5m2 = {1, 2, 15, true};
static const struct float_type e4m3fn = {1, 3, 7, false};

static const struct float_type *float_type(enum dcpk_dtype dtype)
{
    switch ((int)dtype) {
    case DCPK_F64:
        return &f64;
    case DCPK_F32:
        return &f32;
    case DCPK_F16:
        return &f16;
    case DCPK_BF16:
        return &bf16;
    case DCPK_F8_E4M3FN:
        return &e4m3fn;
    case DCPK_F8_E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

/* The code of the largest exponent and mantissa zero: infinity, where there is one. */
static uint64_t top_exponent(const struct float_type *t)
{
    const int exponent_bits = 8 * t->n_bytes - 1 - t->mantissa_bits;

    return ((UINT64_C(1) << exponent_bits) - 1) << t->mantissa_bits;
}

static uint64_t sign_bit(const struct float_type *t)
{
    return UINT64_C(1) << (8 * t->n_bytes - 1);
}

/* Codes above this one are NaN. */
static uint64_t last_number(const struct float_type *t)
{
    return t->has_infinity ? top_exponent(t) : sign_bit(t) - 2;
}

/* The code of what is larger than any number: infinity, or NaN where there is none. */
static uint64_t overflow(const struct float_type *t)
{
    return t->has_infinity ? top_exponent(t) : sign_bit(t) - 1;
}

/* The f64 of the same value; of a NaN: the same sign and leading mantissa bits. */
static uint64_t widen(const struct float_type *t, uint64_t code)
{
    const int shift = f64.mantissa_bits - t->mantissa_bits;
    const uint64_t one = UINT64_C(1) << t->mantissa_bits; /* the bit before the mantissa */
    const uint64_t sign = code & sign_bit(t) ? sign_bit(&f64) : 0;
    const uint64_t size = code & ~sign_bit(t);
    uint64_t mantissa = size & (one - 1);
    int exponent = (int)(size >> t->mantissa_bits) - t->bias;

    if (t == &f64 || size == 0)
        return sign | size;
    if (size > last_number(t) || (t->has_infinity && size == top_exponent(t)))
        return sign | top_exponent(&f64) | mantissa << shift;
    if (size < one) { /* subnormal: shift its first one bit into place */
        for (exponent++; mantissa < one; exponent--)
            mantissa <<= 1;
        mantissa -= one;
    }
    return sign | (uint64_t)(exponent + f64.bias) << f64.mantissa_bits | mantissa << shift;
}

/*
 * The NaN codes are not the same on all paths of torch (its vector and scalar code differ), so this
 * is our rule: the sign and the leading mantissa bits stay, and where these are all zero the first
 * one is set; so narrowing what was widened gives the code back. f8: all ones, as torch does.
 */
static uint64_t narrow_nan(const struct float_type *t, uint64_t mantissa)
{
    const uint64_t kept = mantissa >> (f64.mantissa_bits - t->mantissa_bits);

    if (t->n_bytes == 1)
        return sign_bit(t) - 1;
    if (kept == 0) /* would be infinity */
        return top_exponent(t) | UINT64_C(1) << (t->mantissa_bits - 1);
    return top_exponent(t) | kept;
}

/* value / 2^shift, to nearest, ties to even; 0 < shift. */
static uint64_t round_shift(uint64_t value, int shift)
{
    uint64_t quotient, rest, half;

    if (shift > 63)
        return 0; /* less than half: value has 53 bits */
    quotient = value >> shift;
    rest = value & ((UINT64_C(1) << shift) - 1);
    half = UINT64_C(1) << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

/* The code of type t nearest to an f64. */
static uint64_t narrow(const struct float_type *t, uint64_t wide)
{
    const uint64_t one = UINT64_C(1) << f64.mantissa_bits;
    const uint64_t size = wide & ~sign_bit(&f64);
    const uint64_t sign = size != wide ? sign_bit(t) : 0;
    const int least = 1 - t->bias; /* the exponent of the smallest normal number */
    const int exponent = (int)(size >> f64.mantissa_bits) - f64.bias;
    const int shift = f64.mantissa_bits - t->mantissa_bits;
    uint64_t code;

    if (t == &f64)
        return wide;
    if (size > top_exponent(&f64))
        return sign | narrow_nan(t, size & (one - 1));
    if (size == top_exponent(&f64))
        return sign | overflow(t);
    if (size < one) /* an f64 subnormal is far below half of any type's smallest number */
        return sign;
    if (exponent < least)
        code = round_shift((size & (one - 1)) | one, shift + least - exponent);
    else /* the leading one adds 1 to the exponent field; a carry out of rounding does the same */
        code = ((uint64_t)(exponent - least) << t->mantissa_bits) +
               round_shift((size & (one - 1)) | one, shift);
    if (code > last_number(t))
        code = overflow(t);
    return sign | code;
}

static void code_store(void *at, int n_bytes, uint64_t code)
{
    uint8_t *bytes = at;

    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(code >> (8 * i));
}

dcpk_status dcpk_cpu_cast(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                          size_t n_elems, struct dcpk_error *err)
{
    const struct float_type *f = float_type(from), *t = float_type(to);
    const char *in = src;
    char *out = dst;

    if (f == NULL || t == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "cannot cast %s to %s", dcpk_dtype_name(from),
                         dcpk_dtype_name(to));
    for (size_t i = 0; i < n_elems; i++) {
        uint64_t code = dcpk_load_le(in, (size_t)f->n_bytes);

        if (from != to)
            code = narrow(t, widen(f, code));
        code_store(out, t->n_bytes, code);
        in += f->n_bytes;
        out += t->n_bytes;
    }
    return DCPK_OK;
}

const float dcpk_cpu_e2m1[16] = {0,     0.5,   1,  1.5,   2,  3,  4,  6,
                                 -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

/* The value of element `at` of a row of values, in float32. */
static float value_load(enum dcpk_dtype dtype, const uint8_t *row, int64_t at)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    float value;

    if (dtype == DCPK_F4_E2M1FN_X2)
        return dcpk_cpu_e2m1[row[at / 2] >> (at % 2 * 4) & 0xf];
    (void)dcpk_cpu_cast(dtype, row + at, DCPK_F32, &value, 1, &ignored);
    return value;
}

static void plain_scale(const struct dcpk_scale *s, const void *values, const float *scales,
                        float *out)
{
    const int64_t first = s->dtype == DCPK_F4_E2M1FN_X2 ? s->col % 2 : 0;

    for (int64_t i = 0; i < s->n_rows; i++) {
        const uint8_t *row = (const uint8_t *)values + i * dcpk_scale_row_bytes(s);
        const float *of_row = scales + (s->row + i) / s->block_rows * dcpk_scale_cols(s);

        for (int64_t j = 0; j < s->n_cols; j++)
            out[i * s->n_cols + j] =
                value_load(s->dtype, row, first + j) * of_row[(s->col + j) / s->block_cols];
    }
}

const struct dcpk_host_kernels dcpk_host_kernels_plain = {
    .name = "cpu-plain",
    .summary = "plain loops on the CPU, the specification",
    .copy = plain_copy,
    .cast = dcpk_cpu_cast,
    .scale = plain_scale,
    .add_term = dcpk_cpu_add_term,
    .add_fused = dcpk_cpu_add_fused,
};
