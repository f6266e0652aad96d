/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - absolute, relative and ULP distance of elements. */
#include "lib/exec/measure.h"

#include <math.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/tensor/elem.h"

/* |a - b|; whole numbers are subtracted as such. */
static double distance(const struct dcpk_elem *a, const struct dcpk_elem *b)
{
    switch (a->kind) {
    case DCPK_ELEM_INT:
        return (double)((uint64_t)dcpk_max_i64(a->i, b->i) - (uint64_t)dcpk_min_i64(a->i, b->i));
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BOOL:
    case DCPK_ELEM_BITS:
        return (double)(dcpk_max_u64(a->u, b->u) - dcpk_min_u64(a->u, b->u));
    case DCPK_ELEM_COMPLEX:
        if (a->re == b->re && a->im == b->im) /* infinities too */
            return 0;
        return (double)hypotl(a->re - b->re, a->im - b->im); /* hypot asks for glibc 2.35 */
    case DCPK_ELEM_FLOAT:
        break;
    }
    return a->re == b->re ? 0 : fabs(a->re - b->re);
}

/* A finite number is infinitely far from an infinity, in relation to it too. */
static double relative_distance(double apart, double size)
{
    if (apart == 0)
        return 0;
    if (isinf(apart) || size == 0)
        return INFINITY;
    return apart / size;
}

/* Measure one pair whose bits differ; returns whether it is within the tolerance. */
static bool measure_pair(enum dcpk_dtype dtype, const void *at, const void *bt, int64_t at_index,
                         const struct dcpk_tolerance *tolerance, struct dcpk_compare *result)
{
    const struct dcpk_elem a = dcpk_elem_load(dtype, at), b = dcpk_elem_load(dtype, bt);
    const double x = dcpk_elem_double(&a), y = dcpk_elem_double(&b);
    const double apart = distance(&a, &b), size = fabs(y);
    double relative;
    uint64_t ulp;

    if (isnan(x) || isnan(y)) {
        if (isnan(x) && isnan(y))
            return tolerance != NULL;
        if (result->n_nan++ == 0) /* further apart than any two numbers */
            result->worst = at_index;
        return false;
    }
    if (dcpk_elem_ulp(dtype, at, bt, &ulp)) {
        result->has_ulp = true;
        result->max_ulp = dcpk_max_u64(result->max_ulp, ulp);
    }
    relative = relative_distance(apart, size);
    result->max_abs = fmax(result->max_abs, apart);
    if (result->n_nan == 0 && (result->worst < 0 || relative > result->max_rel))
        result->worst = at_index;
    result->max_rel = fmax(result->max_rel, relative);
    if (tolerance == NULL || (isinf(apart) && (isinf(x) || isinf(y))))
        return false;
    return apart <= tolerance->atol + tolerance->rtol * size;
}

void dcpk_measure(const struct dcpk_element_run *run, const struct dcpk_tolerance *tolerance,
                  struct dcpk_compare *result)
{
    const size_t elem_bytes = dcpk_dtype_bytes(run->dtype);
    const uint8_t *left = run->a, *right = run->b;

    if (memcmp(left, right, (size_t)run->n * elem_bytes) == 0)
        return;
    for (uint64_t i = 0; i < run->n; i++, left += elem_bytes, right += elem_bytes) {
        const int64_t at = (int64_t)(run->first + i);

        if (memcmp(left, right, elem_bytes) == 0)
            continue;
        result->n_unequal_bits++;
        if (measure_pair(run->dtype, left, right, at, tolerance, result))
            continue;
        result->equal = false;
        if (result->n_different++ == 0 || at < result->first_different)
            result->first_different = at;
    }
}

/* A NaN is worse than any number; of two alike the first in the tensor is taken, so that the order
 * of merging makes no difference. */
static bool is_worse(const struct dcpk_compare *a, const struct dcpk_compare *b)
{
    if (b->worst < 0 || (a->n_nan > 0) != (b->n_nan > 0))
        return b->worst < 0 || a->n_nan > 0;
    if (a->n_nan == 0 && a->max_rel != b->max_rel)
        return a->max_rel > b->max_rel;
    return a->worst < b->worst;
}

void dcpk_compare_merge(struct dcpk_compare *into, const struct dcpk_compare *other)
{
    if (!other->equal &&
        (into->first_different < 0 || other->first_different < into->first_different))
        into->first_different = other->first_different;
    if (other->worst >= 0 && is_worse(other, into))
        into->worst = other->worst;
    into->equal = into->equal && other->equal;
    into->n_different += other->n_different;
    into->n_not_finite[0] += other->n_not_finite[0];
    into->n_not_finite[1] += other->n_not_finite[1];
    into->n_unequal_bits += other->n_unequal_bits;
    into->n_nan += other->n_nan;
    into->max_abs = fmax(into->max_abs, other->max_abs);
    into->max_rel = fmax(into->max_rel, other->max_rel);
    into->has_ulp = into->has_ulp || other->has_ulp;
    into->max_ulp = dcpk_max_u64(into->max_ulp, other->max_ulp);
}
