/* SPDX-License-Identifier: Apache-2.0 */
/* elem.c - bytes of one element -> a number. */
#include "lib/tensor/elem.h"

#include <math.h>

#include "lib/base/cursor.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

/* A floating point format: how its code is made up, and which codes are not finite. */
struct float_type {
    enum dcpk_dtype dtype;
    int exponent_bits, mantissa_bits, bias;
    /* IEEE: the top exponent is infinity and NaN; FN: all ones alone are NaN; FNUZ: the code of -0
     * is NaN; E8M0: no sign, 0xff is NaN. */
    enum { IEEE, FN, FNUZ, E8M0 } special;
};

static const struct float_type float_types[] = {
    {DCPK_F64, 11, 52, 1023, IEEE},     {DCPK_F32, 8, 23, 127, IEEE},
    {DCPK_F16, 5, 10, 15, IEEE},        {DCPK_BF16, 8, 7, 127, IEEE},
    {DCPK_F8_E5M2, 5, 2, 15, IEEE},     {DCPK_F8_E4M3FN, 4, 3, 7, FN},
    {DCPK_F8_E4M3FNUZ, 4, 3, 8, FNUZ},  {DCPK_F8_E5M2FNUZ, 5, 2, 16, FNUZ},
    {DCPK_F8_E8M0FNU, 8, 0, 127, E8M0},
};

static const struct float_type *find_float(enum dcpk_dtype dtype)
{
    for (size_t i = 0; i < DCPK_COUNT(float_types); i++)
        if (float_types[i].dtype == dtype)
            return &float_types[i];
    return NULL;
}

static uint64_t sign_bit(const struct float_type *t)
{
    return UINT64_C(1) << (t->exponent_bits + t->mantissa_bits);
}

static bool is_nan(const struct float_type *t, uint64_t code)
{
    const uint64_t size = code & (sign_bit(t) - 1);
    const uint64_t infinity = sign_bit(t) - (UINT64_C(1) << t->mantissa_bits);

    switch (t->special) {
    case IEEE:
        return size > infinity;
    case FN:
        return size == sign_bit(t) - 1;
    case FNUZ:
        return code == sign_bit(t);
    case E8M0:
        return code == 0xff;
    }
    return false;
}

static double float_value(const struct float_type *t, uint64_t code)
{
    const uint64_t one = UINT64_C(1) << t->mantissa_bits;
    const uint64_t size = code & (sign_bit(t) - 1);
    const int exponent = (int)(size >> t->mantissa_bits);
    double v;

    if (is_nan(t, code))
        return NAN;
    if (t->special == IEEE && size == sign_bit(t) - one)
        v = INFINITY;
    else if (exponent == 0 && t->special != E8M0) /* e8m0 has no subnormal numbers and no zero */
        v = ldexp((double)size, 1 - t->bias - t->mantissa_bits);
    else
        v = ldexp((double)((size & (one - 1)) | one), exponent - t->bias - t->mantissa_bits);
    return code & sign_bit(t) ? -v : v;
}

bool dcpk_elem_is_narrower(enum dcpk_dtype to, enum dcpk_dtype from)
{
    const struct float_type *narrow = find_float(to), *wide = find_float(from);

    return narrow != NULL && wide != NULL && narrow->exponent_bits < wide->exponent_bits;
}

/* For an IEEE type: counts codes whose exponent is the top one; one loop a width, which
 * vectorizes. */
static uint64_t count_top(const struct float_type *t, const uint8_t *at, uint64_t n)
{
    const uint64_t mask = sign_bit(t) - 1, top = sign_bit(t) - (UINT64_C(1) << t->mantissa_bits);
    const size_t n_bytes = dcpk_dtype_bytes(t->dtype);
    uint64_t count = 0;

    if (n_bytes == 2)
        for (uint64_t i = 0; i < n; i++)
            count += (dcpk_load_u16le(at + 2 * i) & (uint16_t)mask) >= (uint16_t)top;
    else if (n_bytes == 4)
        for (uint64_t i = 0; i < n; i++)
            count += (dcpk_load_u32le(at + 4 * i) & (uint32_t)mask) >= (uint32_t)top;
    else
        for (uint64_t i = 0; i < n; i++)
            count += (dcpk_load_le(at + n_bytes * i, n_bytes) & mask) >= top;
    return count;
}

uint64_t dcpk_elems_count_not_finite(enum dcpk_dtype dtype, const void *elems, uint64_t n)
{
    const struct float_type *t = find_float(dtype);
    const size_t n_bytes = dcpk_dtype_bytes(dtype);
    const uint8_t *at = elems;
    uint64_t count = 0;

    if (t == NULL)
        return 0;
    if (t->special == IEEE)
        return count_top(t, at, n);
    for (uint64_t i = 0; i < n; i++)
        count += is_nan(t, dcpk_load_le(at + n_bytes * i, n_bytes));
    return count;
}

enum dcpk_elem_kind dcpk_elem_kind(enum dcpk_dtype dtype)
{
    switch ((int)dtype) {
    case DCPK_I64:
    case DCPK_I32:
    case DCPK_I16:
    case DCPK_I8:
        return DCPK_ELEM_INT;
    case DCPK_U64:
    case DCPK_U32:
    case DCPK_U16:
    case DCPK_U8:
        return DCPK_ELEM_UINT;
    case DCPK_BOOL:
        return DCPK_ELEM_BOOL;
    case DCPK_C128:
    case DCPK_C64:
    case DCPK_C32:
        return DCPK_ELEM_COMPLEX;
    default:
        return find_float(dtype) != NULL ? DCPK_ELEM_FLOAT : DCPK_ELEM_BITS;
    }
}

/* The type of each half of a complex number. */
static const struct float_type *half_of(enum dcpk_dtype dtype)
{
    switch ((int)dtype) {
    case DCPK_C128:
        return find_float(DCPK_F64);
    case DCPK_C64:
        return find_float(DCPK_F32);
    default:
        return find_float(DCPK_F16);
    }
}

struct dcpk_elem dcpk_elem_load(enum dcpk_dtype dtype, const void *at)
{
    const size_t n_bytes = dcpk_dtype_bytes(dtype), half = n_bytes / 2;
    struct dcpk_elem elem = {.kind = dcpk_elem_kind(dtype)};
    uint64_t sign;

    switch (elem.kind) {
    case DCPK_ELEM_FLOAT:
        elem.re = float_value(find_float(dtype), dcpk_load_le(at, n_bytes));
        break;
    case DCPK_ELEM_COMPLEX:
        elem.re = float_value(half_of(dtype), dcpk_load_le(at, half));
        elem.im = float_value(half_of(dtype), dcpk_load_le((const uint8_t *)at + half, half));
        break;
    case DCPK_ELEM_INT:
        sign = UINT64_C(1) << (8 * n_bytes - 1);
        elem.i =
            (int64_t)((dcpk_load_le(at, n_bytes) ^ sign) - sign); /* the sign in all higher bits */
        break;
    case DCPK_ELEM_BOOL:
        elem.u = dcpk_load_le(at, n_bytes) != 0;
        break;
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BITS:
        elem.u = dcpk_load_le(at, n_bytes);
        break;
    }
    return elem;
}

double dcpk_elem_double(const struct dcpk_elem *elem)
{
    switch (elem->kind) {
    case DCPK_ELEM_FLOAT:
        return elem->re;
    case DCPK_ELEM_COMPLEX:
        return (double)hypotl(elem->re, elem->im); /* hypot asks for glibc 2.35 */
    case DCPK_ELEM_INT:
        return (double)elem->i;
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BOOL:
    case DCPK_ELEM_BITS:
        break;
    }
    return (double)elem->u;
}

bool dcpk_elem_ulp(enum dcpk_dtype dtype, const void *a, const void *b, uint64_t *ulp)
{
    const struct float_type *t = find_float(dtype);
    const size_t n_bytes = dcpk_dtype_bytes(dtype);
    uint64_t x, y, x_size, y_size;

    if (t == NULL)
        return false;
    x = dcpk_load_le(a, n_bytes);
    y = dcpk_load_le(b, n_bytes);
    if (is_nan(t, x) || is_nan(t, y))
        return false;
    x_size = x & (sign_bit(t) - 1);
    y_size = y & (sign_bit(t) - 1);
    if ((x ^ y) & sign_bit(t))
        *ulp = x_size + y_size; /* over zero */
    else
        *ulp = dcpk_max_u64(x_size, y_size) - dcpk_min_u64(x_size, y_size);
    return true;
}

void dcpk_elem_format_float(enum dcpk_dtype dtype, double v, char text[32])
{
    const struct float_type *t = find_float(dtype);

    if (dtype == DCPK_F64)
        dcpk_format_double(v, text);
    else
        dcpk_format_float(v, t->mantissa_bits, 1 - t->bias, text);
}
