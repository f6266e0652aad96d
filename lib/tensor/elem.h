/* SPDX-License-Identifier: Apache-2.0 */
/* elem.h - single elements as numbers: for printing, statistics and measuring differences. */
#ifndef DCPK_LIB_TENSOR_ELEM_H
#define DCPK_LIB_TENSOR_ELEM_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/tensor/dtype.h"

/* The kind of a dtype's elements. */
enum dcpk_elem_kind {
    DCPK_ELEM_FLOAT,   /* every float, the f8 types included: exact in a double */
    DCPK_ELEM_INT,     /* signed */
    DCPK_ELEM_UINT,    /* unsigned */
    DCPK_ELEM_BOOL,    /* 0: false, anything else: true */
    DCPK_ELEM_COMPLEX, /* two floats */
    DCPK_ELEM_BITS,    /* packed or without a meaning of its own: its bits as a number */
};
enum dcpk_elem_kind dcpk_elem_kind(enum dcpk_dtype dtype);

/* One element; only the fields of its kind are set. A value. */
struct dcpk_elem {
    enum dcpk_elem_kind kind;
    double re, im; /* FLOAT: re; COMPLEX: both */
    int64_t i;     /* INT */
    uint64_t u;    /* UINT, BOOL (0 or 1), BITS */
};

/*
 * Decode the element at `at` (little-endian, any alignment).
 * Source of the f8 types: OCP 8-bit floating point specification 1.0 (e4m3fn, e5m2, e8m0) and
 * arXiv:2206.02915 (the fnuz types), as torch reads them.
 */
struct dcpk_elem dcpk_elem_load(enum dcpk_dtype dtype, const void *at);

/* The value as a double, rounded where it has more digits; COMPLEX: its modulus. */
double dcpk_elem_double(const struct dcpk_elem *elem);

/*
 * The number of NaN and infinite elements of n floats, one after the other at any alignment. 0 for
 * dtypes that are not DCPK_ELEM_FLOAT.
 */
uint64_t dcpk_elems_count_not_finite(enum dcpk_dtype dtype, const void *elems, uint64_t n);

/* True if the largest exponent of a float `to` is below that of a float `from`: then numbers of
 * half of the range of `from` and more become infinite. False for other dtypes. */
bool dcpk_elem_is_narrower(enum dcpk_dtype to, enum dcpk_dtype from);

/* Steps between two floats of one dtype on the line of all its numbers (-0 and +0 are one of them);
 * false, *ulp untouched, when one is NaN or the dtype is not a float. */
bool dcpk_elem_ulp(enum dcpk_dtype dtype, const void *a, const void *b, uint64_t *ulp);

/*
 * The shortest decimal that reads back as this float of its own dtype (numpy's str of float16 and
 * float32, Python's repr of float64): "0.1", "1e-05", "inf", "nan". For DCPK_ELEM_FLOAT dtypes.
 */
void dcpk_elem_format_float(enum dcpk_dtype dtype, double v, char text[32]);

#endif
