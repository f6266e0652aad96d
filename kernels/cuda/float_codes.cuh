/* SPDX-License-Identifier: Apache-2.0 */
/* float_codes.cuh - codes of floating point types cast to one another, as the CPU does
 * (kernels/cpu/cpu_plain.c): to nearest, ties to even; NaN codes by the rule at narrow_nan there.
 */
#ifndef DCPK_KERNELS_CUDA_FLOAT_CODES_CUH
#define DCPK_KERNELS_CUDA_FLOAT_CODES_CUH

#include <cuda_fp16.h>
#include <stdint.h>

/* A code is  sign | exponent + bias | mantissa. Without infinity the largest code is NaN. */
struct F64 {
    enum { BYTES = 8, MANTISSA = 52, BIAS = 1023, HAS_INFINITY = 1 };
};
struct F32 {
    enum { BYTES = 4, MANTISSA = 23, BIAS = 127, HAS_INFINITY = 1 };
};
struct F16 {
    enum { BYTES = 2, MANTISSA = 10, BIAS = 15, HAS_INFINITY = 1 };
};
struct BF16 {
    enum { BYTES = 2, MANTISSA = 7, BIAS = 127, HAS_INFINITY = 1 };
};
struct E5M2 {
    enum { BYTES = 1, MANTISSA = 2, BIAS = 15, HAS_INFINITY = 1 };
};
struct E4M3 {
    enum { BYTES = 1, MANTISSA = 3, BIAS = 7, HAS_INFINITY = 0 };
};

/* --- from f32 and to it: one rounding, since f32 holds every f16, bf16 and f8 --- */

template <typename T> __device__ __forceinline__ uint32_t widen_f32(uint32_t code);

template <> __device__ __forceinline__ uint32_t widen_f32<F32>(uint32_t code)
{
    return code;
}

template <> __device__ __forceinline__ uint32_t widen_f32<BF16>(uint32_t code)
{
    return code << 16;
}

template <> __device__ __forceinline__ uint32_t widen_f32<F16>(uint32_t code)
{
    if ((code & 0x7fff) > 0x7c00) /* the instruction would make one NaN of all */
        return (code & 0x8000) << 16 | 0x7f800000 | (code & 0x3ff) << 13;
    return __float_as_uint(__half2float(__ushort_as_half(static_cast<unsigned short>(code))));
}

template <typename T> __device__ __forceinline__ uint32_t narrow_f32(uint32_t wide);

template <> __device__ __forceinline__ uint32_t narrow_f32<F32>(uint32_t wide)
{
    return wide;
}

template <> __device__ __forceinline__ uint32_t narrow_f32<BF16>(uint32_t wide)
{
    const uint32_t kept = wide >> 16;

    if ((wide & 0x7fffffff) > 0x7f800000)
        return kept | ((kept & 0x7f) == 0 ? 0x40 : 0);
    return (wide + 0x7fff + (kept & 1)) >> 16;
}

template <> __device__ __forceinline__ uint32_t narrow_f32<F16>(uint32_t wide)
{
    const uint32_t kept = wide >> 13 & 0x3ff;

    if ((wide & 0x7fffffff) > 0x7f800000)
        return (wide >> 16 & 0x8000) | 0x7c00 | (kept == 0 ? 0x200 : kept);
    return __half_as_ushort(__float2half_rn(__uint_as_float(wide)));
}

/*
 * f8: a normal number is rounded by adding half of what is cut off; for a subnormal one the sum
 * with a power of two, whose last bit is the type's smallest number, does the same. Codes from
 * `most` on are `most`: infinity, or NaN where there is none, which is what NaN becomes there, too.
 */
template <typename T> __device__ __forceinline__ uint32_t narrow_f8(uint32_t wide, uint32_t most)
{
    const uint32_t cut = F32::MANTISSA - T::MANTISSA;
    const uint32_t least = static_cast<uint32_t>(F32::BIAS + 1 - T::BIAS) << F32::MANTISSA;
    const uint32_t step = least + (cut << F32::MANTISSA);
    const uint32_t size = wide & 0x7fffffff, sign = wide >> 24 & 0x80;
    uint32_t code;

    if (T::HAS_INFINITY && size > 0x7f800000)
        return sign | 0x7f;
    if (size >= least)
        code = ((size + (1u << (cut - 1)) - 1 + (size >> cut & 1)) >> cut) -
               (static_cast<uint32_t>(F32::BIAS - T::BIAS) << T::MANTISSA);
    else
        code = __float_as_uint(__uint_as_float(size) + __uint_as_float(step)) - step;
    return sign | min(code, most);
}

template <> __device__ __forceinline__ uint32_t narrow_f32<E4M3>(uint32_t wide)
{
    return narrow_f8<E4M3>(wide, 0x7f);
}

template <> __device__ __forceinline__ uint32_t narrow_f32<E5M2>(uint32_t wide)
{
    return narrow_f8<E5M2>(wide, 0x7c);
}

/* --- any pair, through f64, in integers: what cpu_plain.c does --- */

struct float_type {
    int n_bytes, mantissa_bits, bias;
    bool has_infinity;
};

__device__ __forceinline__ uint64_t sign_bit(const struct float_type &t)
{
    return UINT64_C(1) << (8 * t.n_bytes - 1);
}

__device__ __forceinline__ uint64_t top_exponent(const struct float_type &t)
{
    return ((UINT64_C(1) << (8 * t.n_bytes - 1 - t.mantissa_bits)) - 1) << t.mantissa_bits;
}

/* Codes above this one are NaN. */
__device__ __forceinline__ uint64_t last_number(const struct float_type &t)
{
    return t.has_infinity ? top_exponent(t) : sign_bit(t) - 2;
}

#define F64_SIGN (UINT64_C(1) << 63)
#define F64_TOP  (UINT64_C(0x7ff) << F64::MANTISSA)
#define F64_ONE  (UINT64_C(1) << F64::MANTISSA)

static __device__ uint64_t widen_f64(const struct float_type &t, uint64_t code)
{
    const int shift = F64::MANTISSA - t.mantissa_bits;
    const uint64_t one = UINT64_C(1) << t.mantissa_bits;
    const uint64_t sign = code & sign_bit(t) ? F64_SIGN : 0;
    const uint64_t size = code & ~sign_bit(t);
    uint64_t mantissa = size & (one - 1);
    int exponent = static_cast<int>(size >> t.mantissa_bits) - t.bias;

    if (t.n_bytes == 8 || size == 0)
        return sign | size;
    if (size > last_number(t) || (t.has_infinity && size == top_exponent(t)))
        return sign | F64_TOP | mantissa << shift;
    if (size < one) {
        for (exponent++; mantissa < one; exponent--)
            mantissa <<= 1;
        mantissa -= one;
    }
    return sign | static_cast<uint64_t>(exponent + F64::BIAS) << F64::MANTISSA | mantissa << shift;
}

/* value / 2^shift, to nearest, ties to even; 0 < shift. */
__device__ __forceinline__ uint64_t round_shift(uint64_t value, int shift)
{
    if (shift > 63)
        return 0;
    const uint64_t quotient = value >> shift, rest = value & ((UINT64_C(1) << shift) - 1);
    const uint64_t half = UINT64_C(1) << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

static __device__ uint64_t narrow_f64(const struct float_type &t, uint64_t wide)
{
    const uint64_t size = wide & ~F64_SIGN, sign = size != wide ? sign_bit(t) : 0;
    const uint64_t significand = (size & (F64_ONE - 1)) | F64_ONE;
    const int least = 1 - t.bias, shift = F64::MANTISSA - t.mantissa_bits;
    const int exponent = static_cast<int>(size >> F64::MANTISSA) - F64::BIAS;
    const uint64_t overflow = t.has_infinity ? top_exponent(t) : sign_bit(t) - 1;
    const uint64_t kept = (size & (F64_ONE - 1)) >> shift;
    uint64_t code;

    if (t.n_bytes == 8)
        return wide;
    if (size > F64_TOP && t.n_bytes == 1)
        return sign | (sign_bit(t) - 1);
    if (size > F64_TOP)
        return sign | top_exponent(t) | (kept != 0 ? kept : UINT64_C(1) << (t.mantissa_bits - 1));
    if (size == F64_TOP)
        return sign | overflow;
    if (size < F64_ONE)
        return sign;
    if (exponent < least)
        code = round_shift(significand, shift + least - exponent);
    else
        code = (static_cast<uint64_t>(exponent - least) << t.mantissa_bits) +
               round_shift(significand, shift);
    return sign | (code > last_number(t) ? overflow : code);
}

#endif
