/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare_masters.c - weights and masters that are equal or not: what fails. */
#include "lib/job/compare.h"

#include "kernels/kernels.h"
#include "tests/fake_model.h"

enum { NORM, MATRIX, EXPERT, N_PARAMS };

/*
 * A weight is stored tensor 2 * p, its master the same one, or where it differs 2 * p + 1. All
 * fp32, so that rounding is no part of it.
 */
static const struct {
    const char *label;
    unsigned masters, different; /* bits of parameters */
    bool needs_proof;
    dcpk_status sample, all;
} cases[] = {
    {"all fit", 7, 0, false, DCPK_OK, DCPK_OK},
    {"a norm is another", 7, 1 << NORM, false, DCPK_EMISMATCH, DCPK_EMISMATCH},
    {"a matrix is another", 7, 1 << MATRIX, false, DCPK_EMISMATCH, DCPK_EMISMATCH},
    {"a matrix of an expert", 7, 1 << EXPERT, false, DCPK_EMISMATCH, DCPK_EMISMATCH},
    {"no masters", 0, 0, false, DCPK_OK, DCPK_OK},
    {"no masters, which a proof needs", 0, 0, true, DCPK_EMISMATCH, DCPK_EMISMATCH},
    {"only a matrix has one", 1 << MATRIX, 0, true, DCPK_OK, DCPK_OK},
};

static void add_params(struct dcpk_model *model, unsigned masters, unsigned different)
{
    static const char *const names[] = {"norm", "matrix", "expert"};

    for (uint32_t p = 0; p < N_PARAMS; p++) {
        const uint32_t param = fake_model_param(model, names[p]);

        model->params[param].expert = p == EXPERT ? 0 : -1;
        model->params[param].tp_axis = p == NORM ? -1 : 1;
        fake_model_stored(model, param, DCPK_WEIGHT, 2 * p, 0);
        if ((masters >> p & 1) != 0)
            fake_model_stored(model, param, DCPK_MASTER, 2 * p + (different >> p & 1), 0);
    }
}

static void masters_are_held_against_weights(void **state)
{
    static const int64_t norm[] = {64}, matrix[] = {8, 64};
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct fake fake = {0};
        struct dcpk_checkpoint *ckpt;
        struct dcpk_model *model;
        uint64_t seed = i;

        for (uint32_t t = 0; t < 2 * N_PARAMS; t++)
            fake_add(&fake, DCPK_F32, t < 2 ? 1 : 2, t < 2 ? norm : matrix, 2, &seed);
        ckpt = fake_open(&fake, cases[i].label);
        model = fake_model_new(ckpt, cases[i].label);
        add_params(model, cases[i].masters, cases[i].different);
        model->needs_proof = cases[i].needs_proof;
        CHECK_EQ_INT(dcpk_check_masters(model, &env, DCPK_MASTERS_SAMPLE, &err), cases[i].sample,
                     cases[i].label);
        CHECK_EQ_INT(dcpk_check_masters(model, &env, DCPK_MASTERS_ALL, &err), cases[i].all,
                     cases[i].label);
        dcpk_model_free(model);
        dcpk_checkpoint_close(ckpt);
        fake_release(&fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masters_are_held_against_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
