/* SPDX-License-Identifier: Apache-2.0 */
/* test_product.c - matrices plus a product of two others, as views of chunks of any cut: each
 * element against the formula of lib/ckpt/checkpoint.h. */
#include <math.h>

#include "lib/exec/exec.h"
#include "tests/fake_ckpt.h"

enum { VALUES, LEFT, RIGHT, N_TENSORS };

struct round {
    struct fake fake;
    int64_t rows, columns, rank;
    bool is_turned;
    float factor;
    char label[64];
};

/* Element (row, column) of a tensor, or (column, row) where it is turned. */
static float at(const struct round *r, int tensor, int64_t row, int64_t column)
{
    const struct dcpk_tensor *t = &r->fake.tensors[tensor];
    const bool turns = r->is_turned && tensor != VALUES;
    const int64_t i = turns ? column * t->shape[1] + row : row * t->shape[1] + column;
    struct dcpk_error err = DCPK_ERROR_INIT;
    float value;

    CHECK_OK(dcpk_host_kernels_plain.cast(
                 t->dtype, r->fake.data[tensor] + (size_t)i * dcpk_dtype_bytes(t->dtype), DCPK_F32,
                 &value, 1, &err),
             r->label);
    return value;
}

static float wanted(const struct round *r, int64_t row, int64_t column)
{
    float sum = at(r, LEFT, row, 0) * at(r, RIGHT, 0, column);
    volatile float product; /* rounded before it is added */

    for (int64_t k = 1; k < r->rank; k++)
        sum = fmaf(at(r, LEFT, row, k), at(r, RIGHT, k, column), sum);
    product = r->factor * sum;
    return at(r, VALUES, row, column) + product;
}

static void make_round(struct round *r, uint64_t seed)
{
    static const enum dcpk_dtype dtypes[] = {DCPK_F32, DCPK_BF16};
    int64_t shapes[N_TENSORS][2];

    memset(r, 0, sizeof *r);
    snprintf(r->label, sizeof r->label, "seed %" PRIu64, seed);
    r->is_turned = seed % 2 == 1;
    r->rows = 1 + fake_below(&seed, 40);
    r->columns = 1 + fake_below(&seed, 40);
    r->rank = 1 + fake_below(&seed, 60);
    r->factor = (float)(1 + fake_below(&seed, 64)) / 7;
    if (seed % 16 == 0) { /* several slabs, of parts of a row */
        r->rows = 1 + fake_below(&seed, 2);
        r->columns = 70000 + fake_below(&seed, 70000);
        r->rank = 1 + fake_below(&seed, 3);
    } else if (seed % 16 == 1) { /* of rows */
        r->columns = 3000 + fake_below(&seed, 2000);
        r->rank = 1 + fake_below(&seed, 3);
    }
    shapes[VALUES][0] = shapes[LEFT][r->is_turned] = r->rows;
    shapes[VALUES][1] = shapes[RIGHT][!r->is_turned] = r->columns;
    shapes[LEFT][!r->is_turned] = shapes[RIGHT][r->is_turned] = r->rank;
    for (int t = 0; t < N_TENSORS; t++)
        (void)fake_add(&r->fake, dtypes[fake_below(&seed, 2)], 2, shapes[t],
                       (size_t)fake_below(&seed, 5), &seed);
}

static void check_view(const struct round *r, struct dcpk_exec *exec, const struct dcpk_view *view)
{
    struct dcpk_view_reader *reader;
    struct dcpk_error err = DCPK_ERROR_INIT;
    float *got = malloc((size_t)(r->rows * r->columns) * sizeof *got);
    struct dcpk_box whole;

    dcpk_box_whole(view->shape, 2, &whole);
    CHECK_OK(dcpk_view_reader_new(exec, view, &reader, &err), r->label);
    CHECK_OK(dcpk_view_reader_read(reader, &whole, got, &err), r->label);
    for (int64_t i = 0; i < r->rows * r->columns; i++) {
        const float want = wanted(r, i / r->columns, i % r->columns);

        if (isnan(want))
            CHECK(isnan(got[i]), r->label);
        else
            CHECK(memcmp(&got[i], &want, sizeof want) == 0, r->label);
    }
    dcpk_view_reader_free(reader);
    free(got);
}

static void run_round(struct round *r, const struct dcpk_host_kernels *kernels)
{
    const struct dcpk_env env = {
        .kernels = kernels, .n_threads = 1, .memory_bytes = DCPK_EXEC_MIN_MEMORY_BYTES};
    struct dcpk_checkpoint *ckpt = fake_open(&r->fake, r->label);
    struct dcpk_tensor sum = ckpt->tensors[VALUES];
    const struct dcpk_computed how = {
        .values = VALUES,
        .scales = DCPK_NO_SCALES,
        .addend = r->factor,
        .product = {.left = LEFT, .right = RIGHT, .rank = r->rank, .is_turned = r->is_turned}};
    int64_t span[8] = {0, 0, r->rows, r->columns, 0, 0, r->rows, r->columns};
    struct dcpk_piece piece = {.src_rank = 2, .dst_rank = 2, .span = span};
    struct dcpk_view view = {
        .dtype = DCPK_F32, .rank = 2, .shape = sum.shape, .pieces = &piece, .n_pieces = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_exec *exec;

    sum.dtype = DCPK_F32;
    CHECK_OK(dcpk_checkpoint_add_computed(ckpt, &sum, &how, &piece.src, &err), r->label);
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), r->label);
    check_view(r, exec, &view);
    dcpk_exec_free(exec);
    dcpk_checkpoint_close(ckpt);
}

static void every_element_is_by_the_formula(void **state)
{
    static struct round r;

    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        make_round(&r, seed);
        run_round(&r, seed % 3 == 0 ? &dcpk_host_kernels_plain : dcpk_host_kernel_sets[0]);
        fake_release(&r.fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_is_by_the_formula)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
