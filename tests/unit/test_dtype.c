/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - names and sizes against torch 2.11: str(dtype), dtype.itemsize. */
#include "lib/tensor/dtype.h"
#include "tests/check.h"

static const struct {
    const char *name; /* without "torch." */
    enum dcpk_dtype dtype;
    int n_bytes;
    bool is_float;
} cases[] = {
    {"float64", DCPK_F64, 8, true},
    {"float32", DCPK_F32, 4, true},
    {"float16", DCPK_F16, 2, true},
    {"bfloat16", DCPK_BF16, 2, true},
    {"int64", DCPK_I64, 8, false},
    {"int32", DCPK_I32, 4, false},
    {"int16", DCPK_I16, 2, false},
    {"int8", DCPK_I8, 1, false},
    {"uint64", DCPK_U64, 8, false},
    {"uint32", DCPK_U32, 4, false},
    {"uint16", DCPK_U16, 2, false},
    {"uint8", DCPK_U8, 1, false},
    {"bool", DCPK_BOOL, 1, false},
    {"complex128", DCPK_C128, 16, false},
    {"complex64", DCPK_C64, 8, false},
    {"complex32", DCPK_C32, 4, false},
    {"float8_e4m3fn", DCPK_F8_E4M3FN, 1, true},
    {"float8_e5m2", DCPK_F8_E5M2, 1, true},
    {"float8_e4m3fnuz", DCPK_F8_E4M3FNUZ, 1, false},
    {"float8_e5m2fnuz", DCPK_F8_E5M2FNUZ, 1, false},
    {"float8_e8m0fnu", DCPK_F8_E8M0FNU, 1, false},
    {"float4_e2m1fn_x2", DCPK_F4_E2M1FN_X2, 1, false},
    {"bits8", DCPK_BITS8, 1, false},
    {"bits16", DCPK_BITS16, 2, false},
    {"bits1x8", DCPK_BITS1X8, 1, false},
    {"bits2x4", DCPK_BITS2X4, 1, false},
    {"bits4x2", DCPK_BITS4X2, 1, false},
};

static void each_dtype(void **state)
{
    (void)state;
    CHECK_EQ_INT(sizeof cases / sizeof cases[0], DCPK_N_DTYPES - 1, "all dtypes are listed");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ_STR(dcpk_dtype_name(cases[i].dtype), cases[i].name, cases[i].name);
        CHECK_EQ_INT(dcpk_dtype_from_name(cases[i].name), cases[i].dtype, cases[i].name);
        CHECK_EQ_INT(dcpk_dtype_bytes(cases[i].dtype), cases[i].n_bytes, cases[i].name);
        CHECK_EQ_INT(dcpk_dtype_is_float(cases[i].dtype), cases[i].is_float, cases[i].name);
    }
}

static void no_dtype(void **state)
{
    static const char *const names[] = {"", "none", "(none)", "float", "torch.float32", "Float32"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_EQ_INT(dcpk_dtype_from_name(names[i]), DCPK_DTYPE_NONE, names[i]);
    CHECK_EQ_INT(dcpk_dtype_bytes(DCPK_DTYPE_NONE), 0, "none");
    CHECK_EQ_STR(dcpk_dtype_name(DCPK_DTYPE_NONE), "(none)", "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_dtype), cmocka_unit_test(no_dtype)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
