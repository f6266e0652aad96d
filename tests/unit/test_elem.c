/* SPDX-License-Identifier: Apache-2.0 */
/* test_elem.c - elements as numbers and as the shortest text, against torch and numpy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/tensor/elem.h"
#include "tests/check.h"

/* tensor.view(dtype).to(float32)[code] of torch 2.11 */
static const struct {
    enum dcpk_dtype dtype;
    double want[12]; /* of the codes below */
} small[] = {
    {DCPK_F8_E4M3FN,
     {0.0, 0.001953125, 0.013671875, 0.015625, 352.0, 384.0, 448.0, NAN, -0.0, -0.001953125, -384.0,
      NAN}},
    {DCPK_F8_E5M2,
     {0.0, 1.52587890625e-05, 0.0001068115234375, 0.0001220703125, 57344.0, INFINITY, NAN, NAN,
      -0.0, -1.52587890625e-05, -INFINITY, NAN}},
    {DCPK_F8_E4M3FNUZ,
     {0.0, 0.0009765625, 0.0068359375, 0.0078125, 176.0, 192.0, 224.0, 240.0, NAN, -0.0009765625,
      -192.0, -240.0}},
    {DCPK_F8_E5M2FNUZ,
     {0.0, 7.62939453125e-06, 5.340576171875e-05, 6.103515625e-05, 28672.0, 32768.0, 49152.0,
      57344.0, NAN, -7.62939453125e-06, -32768.0, -57344.0}},
    {DCPK_F8_E8M0FNU,
     {5.877471754111438e-39, 1.1754943508222875e-38, 7.52316384526264e-37, 1.504632769052528e-36,
      0.0625, 0.125, 0.5, 1.0, 2.0, 4.0, 4.253529586511731e+37, NAN}},
};
static const uint8_t codes[12] = {0, 1, 7, 8, 0x7b, 0x7c, 0x7e, 0x7f, 0x80, 0x81, 0xfc, 0xff};

static void test_small_floats(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof small / sizeof *small; c++)
        for (size_t i = 0; i < 12; i++) {
            const struct dcpk_elem got = dcpk_elem_load(small[c].dtype, &codes[i]);
            const double want = small[c].want[i];

            CHECK_EQ_INT(isnan(got.re) != 0, isnan(want) != 0, dcpk_dtype_name(small[c].dtype));
            CHECK(isnan(want) || (got.re == want && signbit(got.re) == signbit(want)),
                  dcpk_dtype_name(small[c].dtype));
        }
}

/* By the table above, and by what IEEE 754 says of the others; 7 codes, so that none is aligned. */
static void test_not_finite(void **state)
{
    static const struct {
        enum dcpk_dtype dtype;
        uint64_t codes[7]; /* the largest finite, Inf, -Inf, two NaN, zero, the largest again */
    } wide[] = {
        {DCPK_F16, {0x7bff, 0x7c00, 0xfc00, 0x7e00, 0xffff, 0, 0xfbff}},
        {DCPK_BF16, {0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0xffff, 0, 0xff7f}},
        {DCPK_F32, {0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0, 0xff7fffff}},
        {DCPK_F64,
         {0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
          UINT64_MAX, 0, 0xffefffffffffffff}},
    };
    uint8_t bytes[1 + 7 * 8];

    (void)state;
    for (size_t c = 0; c < sizeof small / sizeof *small; c++) {
        uint64_t want = 0;

        for (size_t i = 0; i < 12; i++)
            want += isfinite(small[c].want[i]) ? 0 : 1;
        CHECK_EQ_INT(dcpk_elems_count_not_finite(small[c].dtype, codes, 12), want,
                     dcpk_dtype_name(small[c].dtype));
    }
    for (size_t c = 0; c < sizeof wide / sizeof *wide; c++) {
        const size_t n_bytes = dcpk_dtype_bytes(wide[c].dtype);

        for (size_t i = 0; i < 7; i++)
            memcpy(bytes + 1 + i * n_bytes, &wide[c].codes[i], n_bytes);
        CHECK_EQ_INT(dcpk_elems_count_not_finite(wide[c].dtype, bytes + 1, 7), 4,
                     dcpk_dtype_name(wide[c].dtype));
    }
    CHECK_EQ_INT(dcpk_elems_count_not_finite(DCPK_I16, bytes, 7), 0, "integers");
    CHECK(dcpk_elem_is_narrower(DCPK_F16, DCPK_BF16), "float16 of bfloat16");
    CHECK(!dcpk_elem_is_narrower(DCPK_BF16, DCPK_F32), "bfloat16 has float32's exponent");
    CHECK(!dcpk_elem_is_narrower(DCPK_F16, DCPK_I64), "integers");
}

static void test_numbers(void **state)
{
    static const uint8_t ones[16] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const double complex_128[2] = {3.0, -4.0};
    struct dcpk_elem e;

    (void)state;
    CHECK_EQ_INT(dcpk_elem_load(DCPK_I8, ones).i, -2, "int8");
    CHECK_EQ_INT(dcpk_elem_load(DCPK_I16, ones).i, -2, "int16");
    CHECK_EQ_INT(dcpk_elem_load(DCPK_I32, ones).i, -2, "int32");
    CHECK_EQ_INT(dcpk_elem_load(DCPK_I64, ones).i, -2, "int64");
    CHECK_EQ_INT(dcpk_elem_load(DCPK_U8, ones).u, 254, "uint8");
    CHECK(dcpk_elem_load(DCPK_U64, ones).u == UINT64_MAX - 1, "uint64");
    CHECK_EQ_INT(dcpk_elem_load(DCPK_BOOL, ones).u, 1, "bool");
    CHECK_EQ_INT(dcpk_elem_load(DCPK_F4_E2M1FN_X2, ones).kind, DCPK_ELEM_BITS, "packed");
    e = dcpk_elem_load(DCPK_C128, complex_128);
    CHECK(e.re == 3.0 && e.im == -4.0 && dcpk_elem_double(&e) == 5.0, "complex128");
}

/*
 * numpy's digits (np.format_float_scientific, unique) laid out as Python's repr does; of bfloat16
 * and float8 the shortest decimal that torch reads as this number, found by trying.
 */
static const struct {
    enum dcpk_dtype dtype;
    uint8_t bytes[4];
    const char *want;
} texts[] = {
    {DCPK_F32, {0xcd, 0xcc, 0xcc, 0x3d}, "0.1"},
    {DCPK_F32, {0xac, 0xc5, 0x27, 0x37}, "1e-05"},
    {DCPK_F32, {0x00, 0x00, 0x80, 0x4b}, "16777216.0"},
    {DCPK_F32, {0xff, 0xff, 0x7f, 0x7f}, "3.4028235e+38"},
    {DCPK_F32, {0x00, 0x00, 0x80, 0x00}, "1.1754944e-38"},
    {DCPK_F32, {0x01, 0x00, 0x00, 0x00}, "1e-45"},
    {DCPK_F32, {0x00, 0x00, 0x80, 0x29}, "5.684342e-14"},
    {DCPK_F32, {0xaa, 0xaa, 0xaa, 0x3e}, "0.3333333"},
    {DCPK_F32, {0x00, 0x00, 0x20, 0xc0}, "-2.5"},
    {DCPK_F32, {0xca, 0x1b, 0x0e, 0x5a}, "1e+16"},
    {DCPK_F32, {0xc9, 0x1b, 0x0e, 0x5a}, "9999999000000000.0"},
    {DCPK_F32, {0x26, 0x00, 0x00, 0x50}, "8589974000.0"},
    {DCPK_F32, {0x00, 0x00, 0x00, 0x00}, "0.0"},
    {DCPK_F32, {0x00, 0x00, 0x00, 0x80}, "-0.0"},
    {DCPK_F32, {0x65, 0x20, 0xf1, 0x47}, "123456.79"},
    {DCPK_F16, {0x66, 0x2e}, "0.1"},
    {DCPK_F16, {0xff, 0x7b}, "65500.0"},
    {DCPK_F16, {0xff, 0x03}, "6.1e-05"},
    {DCPK_F16, {0x01, 0x00}, "6e-08"},
    {DCPK_F16, {0x54, 0x35}, "0.333"},
    {DCPK_F16, {0x00, 0x68}, "2048.0"},
    {DCPK_F16, {0x00, 0x14}, "0.000977"},
    {DCPK_F16, {0x8e, 0x06}, "0.0001"},
    {DCPK_BF16, {0xcd, 0x3d}, "0.1"},
    {DCPK_BF16, {0x80, 0x3f}, "1.0"},
    {DCPK_BF16, {0x49, 0x40}, "3.14"},
    {DCPK_BF16, {0x28, 0x37}, "1e-05"},
    {DCPK_BF16, {0x7f, 0x7f}, "3.39e+38"},
    {DCPK_BF16, {0x01, 0x00}, "9e-41"},
    {DCPK_BF16, {0x80, 0xc3}, "-256.0"},
    {DCPK_BF16, {0x7f, 0x47}, "65300.0"},
    {DCPK_BF16, {0x80, 0x35}, "9.54e-07"},
    {DCPK_F8_E4M3FN, {0x1d}, "0.1"},
    {DCPK_F8_E4M3FN, {0x7e}, "450.0"},
    {DCPK_F8_E4M3FN, {0xc6}, "-3.5"},
    {DCPK_F8_E4M3FN, {0x08}, "0.016"},
    {DCPK_F8_E4M3FN, {0x01}, "0.002"},
    {DCPK_F8_E5M2, {0x2e}, "0.09"},
    {DCPK_F8_E5M2, {0x5f}, "450.0"},
    {DCPK_F8_E5M2, {0xc3}, "-3.5"},
    {DCPK_F8_E5M2, {0x24}, "0.016"},
    {DCPK_F8_E5M2, {0x18}, "0.002"},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        char text[32];

        dcpk_elem_format_float(texts[c].dtype, dcpk_elem_load(texts[c].dtype, texts[c].bytes).re,
                               text);
        CHECK_EQ_STR(text, texts[c].want, dcpk_dtype_name(texts[c].dtype));
    }
}

/* Every float16: its text lies within half a step of it. */
static void test_all_f16(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x7c00; code++) {
        const uint8_t bytes[2] = {(uint8_t)code, (uint8_t)(code >> 8)};
        const uint8_t after[2] = {(uint8_t)(code + 1), (uint8_t)((code + 1) >> 8)};
        const double v = dcpk_elem_load(DCPK_F16, bytes).re;
        const double next = code == 0x7bff ? 65536 : dcpk_elem_load(DCPK_F16, after).re;
        char text[32];
        double back;

        dcpk_elem_format_float(DCPK_F16, v, text);
        back = strtod(text, NULL);
        CHECK(fabs(back - v) <= (next - v) / 2, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_floats), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_texts),
        cmocka_unit_test(test_all_f16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
