/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - element types: every one that torch saves in a tensor item. */
#ifndef DCPK_LIB_TENSOR_DTYPE_H
#define DCPK_LIB_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* Source: formats/torch/FORMAT.md 3. The order is of no meaning outside a process. */
enum dcpk_dtype {
    DCPK_DTYPE_NONE, /* not a dtype */
    DCPK_F64,
    DCPK_F32,
    DCPK_F16,
    DCPK_BF16,
    DCPK_I64,
    DCPK_I32,
    DCPK_I16,
    DCPK_I8,
    DCPK_U64,
    DCPK_U32,
    DCPK_U16,
    DCPK_U8,
    DCPK_BOOL,
    DCPK_C128,
    DCPK_C64,
    DCPK_C32,
    DCPK_F8_E4M3FN,
    DCPK_F8_E5M2,
    DCPK_F8_E4M3FNUZ,
    DCPK_F8_E5M2FNUZ,
    DCPK_F8_E8M0FNU,
    DCPK_F4_E2M1FN_X2, /* one element = one byte = two values */
    DCPK_BITS8,
    DCPK_BITS16,
    DCPK_BITS1X8,
    DCPK_BITS2X4,
    DCPK_BITS4X2,
    DCPK_N_DTYPES,
};

/* Bytes of one element; 0 for DCPK_DTYPE_NONE. */
size_t dcpk_dtype_bytes(enum dcpk_dtype dtype);
/* torch's name without "torch.": "bfloat16", "float8_e4m3fn". */
const char *dcpk_dtype_name(enum dcpk_dtype dtype);
/* The dtype of that name, or DCPK_DTYPE_NONE. */
enum dcpk_dtype dcpk_dtype_from_name(const char *name);
/* True for a real floating point type that dcpk_host_kernels.cast knows (f64 f32 f16 bf16 f8_e4m3fn
 * f8_e5m2). */
bool dcpk_dtype_is_float(enum dcpk_dtype dtype);

#endif
