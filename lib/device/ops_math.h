/* SPDX-License-Identifier: Apache-2.0 */
/* ops_math.h - exp, log and the sigmoid in fp32, the same bits on every device and with every C
 * library. To be compiled without contraction of a * b + c. */
#ifndef DCPK_LIB_DEVICE_OPS_MATH_H
#define DCPK_LIB_DEVICE_OPS_MATH_H

#include <stdint.h>
#include <string.h>

#include "lib/device/philox.h"

DCPK_BOTH uint32_t dcpk_float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

DCPK_BOTH float dcpk_float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/*
 * e^x within 2 ulp; 0 below -104, infinite above 88.73, NaN of NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2. e^r is its series up to r^7 / 7!, whose rest is below 6e-9;
 * 2^n is multiplied in two steps, which reach all n. Adding 1.5 * 2^23 rounds to an integer, which
 * then stands in the low bits. No branch: loops over it become vectors.
 */
DCPK_BOTH float dcpk_exp(float x)
{
    const float magic = 12582912.0f;
    const float low = x < -104.0f ? -104.0f : x;
    const float in = low > 89.0f ? 89.0f : low;
    const float shifted = in * 1.44269504f + magic;
    const float n = shifted - magic;
    const float r = (in - n * 0.693359375f) - n * -2.12194440e-4f;
    const int32_t power = (int32_t)(dcpk_float_bits(shifted) - dcpk_float_bits(magic));
    const int32_t half = power >> 1;
    float series = 1.0f / 5040;

    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    return series * dcpk_float_of((uint32_t)(half + 127) << 23) *
           dcpk_float_of((uint32_t)(power - half + 127) << 23);
}

/*
 * The natural logarithm of a positive, finite, normal x, within 2 ulp.
 * x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), by its
 * series up to s^9 / 9, whose rest is below 1e-9.
 */
DCPK_BOTH float dcpk_log(float x)
{
    const uint32_t root_half = 0x3f3504f3u;
    const uint32_t bits = dcpk_float_bits(x) - root_half;
    const float n = (float)((int32_t)bits >> 23);
    const float m = dcpk_float_of((bits & 0x7fffffu) + root_half);
    const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float series = 1.0f / 9;

    series = series * z + 1.0f / 7;
    series = series * z + 1.0f / 5;
    series = series * z + 1.0f / 3;
    series = series * z * s + s;
    return n * 0.693359375f + (n * -2.12194440e-4f + 2.0f * series);
}

DCPK_BOTH float dcpk_sigmoid(float x)
{
    return 1.0f / (1.0f + dcpk_exp(-x));
}

#define DCPK_SIGMOID_SUM 1e-20f /* added to a sum of sigmoids that is divided by */

/* p = softmax(x), n at least 1; p may be x. */
DCPK_BOTH void dcpk_softmax(int64_t n, const float *x, float *p)
{
    float most = x[0], sum = 0;

    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        p[i] = dcpk_exp(x[i] - most);
    for (int64_t i = 0; i < n; i++)
        sum += p[i];
    for (int64_t i = 0; i < n; i++)
        p[i] /= sum;
}

#endif
