/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - the table of element types. */
#include "lib/tensor/dtype.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[DCPK_N_DTYPES] = {
    [DCPK_DTYPE_NONE] = {"(none)", 0},
    [DCPK_F64] = {"float64", 8},
    [DCPK_F32] = {"float32", 4},
    [DCPK_F16] = {"float16", 2},
    [DCPK_BF16] = {"bfloat16", 2},
    [DCPK_I64] = {"int64", 8},
    [DCPK_I32] = {"int32", 4},
    [DCPK_I16] = {"int16", 2},
    [DCPK_I8] = {"int8", 1},
    [DCPK_U64] = {"uint64", 8},
    [DCPK_U32] = {"uint32", 4},
    [DCPK_U16] = {"uint16", 2},
    [DCPK_U8] = {"uint8", 1},
    [DCPK_BOOL] = {"bool", 1},
    [DCPK_C128] = {"complex128", 16},
    [DCPK_C64] = {"complex64", 8},
    [DCPK_C32] = {"complex32", 4},
    [DCPK_F8_E4M3FN] = {"float8_e4m3fn", 1},
    [DCPK_F8_E5M2] = {"float8_e5m2", 1},
    [DCPK_F8_E4M3FNUZ] = {"float8_e4m3fnuz", 1},
    [DCPK_F8_E5M2FNUZ] = {"float8_e5m2fnuz", 1},
    [DCPK_F8_E8M0FNU] = {"float8_e8m0fnu", 1},
    [DCPK_F4_E2M1FN_X2] = {"float4_e2m1fn_x2", 1},
    [DCPK_BITS8] = {"bits8", 1},
    [DCPK_BITS16] = {"bits16", 2},
    [DCPK_BITS1X8] = {"bits1x8", 1},
    [DCPK_BITS2X4] = {"bits2x4", 1},
    [DCPK_BITS4X2] = {"bits4x2", 1},
};

size_t dcpk_dtype_bytes(enum dcpk_dtype dtype)
{
    assert(dtype < DCPK_N_DTYPES);
    return dtypes[dtype].n_bytes;
}

const char *dcpk_dtype_name(enum dcpk_dtype dtype)
{
    assert(dtype < DCPK_N_DTYPES);
    return dtypes[dtype].name;
}

enum dcpk_dtype dcpk_dtype_from_name(const char *name)
{
    for (unsigned d = DCPK_DTYPE_NONE + 1; d < DCPK_N_DTYPES; d++)
        if (strcmp(dtypes[d].name, name) == 0)
            return (enum dcpk_dtype)d;
    return DCPK_DTYPE_NONE;
}

bool dcpk_dtype_is_float(enum dcpk_dtype dtype)
{
    return dtype == DCPK_F64 || dtype == DCPK_F32 || dtype == DCPK_F16 || dtype == DCPK_BF16 ||
           dtype == DCPK_F8_E4M3FN || dtype == DCPK_F8_E5M2;
}
