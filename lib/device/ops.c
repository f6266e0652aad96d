/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - what every device gets from the host. */
#include "lib/device/ops.h"

#include <math.h>

dcpk_status dcpk_math_open(const struct dcpk_ops *ops, int ordinal, struct dcpk_math **math,
                           struct dcpk_error *err)
{
    const struct dcpk_device_options options = {.ordinal = ordinal, .math = ops};
    struct dcpk_device *device;

    if (ops->device->open(&options, &device, err))
        return err->status;
    *math = device->math;
    return DCPK_OK;
}

void dcpk_math_fault(struct dcpk_math *math, const struct dcpk_error *fault)
{
    if (math->failed.status == DCPK_OK)
        math->failed = *fault;
}

dcpk_status dcpk_math_take_fault(struct dcpk_math *math, struct dcpk_error *err)
{
    if (math->failed.status == DCPK_OK)
        return DCPK_OK;
    *err = math->failed;
    dcpk_error_clear(&math->failed);
    return err->status;
}

/* x to the nearest number of `digits` significant bits, ties to even; below 2^smallest in steps. */
static float round_digits(double x, int digits, int smallest)
{
    int exponent;
    double step;

    (void)frexp(x, &exponent);
    exponent -= digits;
    if (exponent < smallest)
        exponent = smallest;
    step = ldexp(1.0, exponent);
    return (float)(nearbyint(x / step) * step);
}

/* For a number between -1 and 1. */
static float round_to(enum dcpk_dtype dtype, double x)
{
    if (dtype == DCPK_BF16)
        return round_digits(x, 8, -133);
    if (dtype == DCPK_F16)
        return round_digits(x, 11, -24);
    return (float)x;
}

void dcpk_rope_table(const struct dcpk_rope *shape, int64_t first, double base, float *table)
{
    const int64_t half = shape->head_dim / 2;

    for (int64_t row = 0; row < shape->rows; row++)
        for (int64_t j = 0; j < half; j++) {
            const float power = (float)(2 * j) / (float)shape->head_dim;
            const float frequency = (float)(1.0 / (double)(float)pow(base, (double)power));
            const float angle = (float)(first + row) * frequency;
            const int64_t at = row * half + j;

            table[at] = round_to(shape->dtype, (double)(float)cos((double)angle));
            table[shape->rows * half + at] =
                round_to(shape->dtype, (double)(float)sin((double)angle));
        }
}
