/* SPDX-License-Identifier: Apache-2.0 */
/* test_optim.c - three clipped steps of Adam in both forms and of SGD, against torch in fp64; the
 * scale of fp16 against Megatron's scaler. */
#include "lib/train/optim.h"

#include <math.h>

#include "tests/train_case.h"

#define N 6

/*
 * torch 2.11: AdamW and SGD (momentum 0.9) with a group of a 2 x 2 matrix and one of a vector of 2
 * without decay, in float64; "te": transformer_engine/common/multi_tensor/adam.cu ADAM_MODE_1,
 * written out in Python floats. Rate 0.01, betas 0.9 and 0.999, eps 1e-8. Element i is
 * ((29 i) % 13 - 6) / 8, its gradient of step t ((37 i + 11 t) % 17 - 8) / 16.
 */
static const struct {
    const char *label;
    enum dcpk_train_optimizer kind;
    enum dcpk_adam_form form;
    double decay, clip;
    double want[N];
} cases[] = {
    {"te, clipped",
     DCPK_ADAM,
     DCPK_ADAM_TE,
     0.1,
     0.5,
     {-0.76269498992450835, -0.38990105845160611, 0.01841989232289494, 0.38144587443134748,
      0.77320969037706466, -0.50578142566360629}},
    {"te",
     DCPK_ADAM,
     DCPK_ADAM_TE,
     0.1,
     0,
     {-0.76266050771973104, -0.38969133894875269, 0.01842288944196644, 0.38132314961605401,
      0.77308268065730934, -0.50589095429504982}},
    {"torch, clipped",
     DCPK_ADAM,
     DCPK_ADAM_TORCH,
     0.1,
     0.5,
     {-0.76269498992450835, -0.38990105845160605, 0.01841989232289493, 0.38144587443134748,
      0.77320969037706466, -0.50578142566360618}},
    {"torch",
     DCPK_ADAM,
     DCPK_ADAM_TORCH,
     0.1,
     0,
     {-0.76266050771973104, -0.38969133894875263, 0.018422889441966437, 0.38132314961605385,
      0.77308268065730934, -0.50589095429504982}},
    {"sgd, clipped",
     DCPK_SGD,
     DCPK_ADAM_TE,
     0.1,
     0.5,
     {-0.75008040469384851, -0.37736668369372772, 0.0080081671677882608, 0.37387240180485082,
      0.75744528676498268, -0.49959461598234783}},
    {"sgd",
     DCPK_SGD,
     DCPK_ADAM_TE,
     0.1,
     0,
     {-0.75230960112500012, -0.37929630337499998, 0.011845379999999999, 0.37423367774999999,
      0.76101249999999998, -0.49950624999999998}},
};

#define LAST_NORM 0.7756046028744286 /* of the third step's gradients, before clipping */

static void make_case(struct train_case *c)
{
    train_case_begin(c);
    c->config.precision.virtual_slices = 2;
    train_case_param(c, &(struct dcpk_train_param){.kind = DCPK_P_PROJ,
                                                   .canonical = "w",
                                                   .rank = 2,
                                                   .shape = {2, 2},
                                                   .whole = {2, 2},
                                                   .tp_axis = 1,
                                                   .is_decayed = true});
    train_case_shard(c, 0, 2);
    train_case_param(c, &(struct dcpk_train_param){.kind = DCPK_P_INPUT_NORM,
                                                   .canonical = "v",
                                                   .rank = 1,
                                                   .shape = {2, 1},
                                                   .whole = {2, 1},
                                                   .tp_axis = -1});
    train_case_shard(c, 0, 2);
}

static void put_gradients(struct train_case *c, int t)
{
    for (int i = 0; i < N; i++)
        c->shard[0].grad[i] = (float)((i * 37 + t * 11) % 17 - 8) / 16;
}

static void run_case(size_t at)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_optim_result result;
    struct dcpk_optim optim;
    struct train_case c;

    make_case(&c);
    c.config.optim = (struct dcpk_train_optim){.kind = cases[at].kind,
                                               .form = cases[at].form,
                                               .beta1 = 0.9,
                                               .beta2 = 0.999,
                                               .eps = 1e-8,
                                               .momentum = 0.9,
                                               .clip = cases[at].clip,
                                               .lr = 0.01,
                                               .lr_style = "constant",
                                               .wd_style = "constant",
                                               .start_wd = cases[at].decay,
                                               .end_wd = cases[at].decay};
    c.config.data.train_iters = 10;
    c.config.data.global_batch = 4;
    CHECK_OK(dcpk_optim_init(&c.config, &optim, &err), cases[at].label);
    for (int i = 0; i < N; i++)
        c.shard[0].main[i] = (float)((i * 29) % 13 - 6) / 8;
    for (int t = 1; t <= 3; t++) {
        put_gradients(&c, t);
        CHECK_OK(dcpk_optim_step(&optim, &c.state, &result, &err), cases[at].label);
    }
    CHECK(fabs(result.norm - LAST_NORM) < 1e-15, cases[at].label);
    CHECK_EQ_INT(optim.step, 3, cases[at].label);
    CHECK_EQ_INT(optim.schedule.num_steps, 12, cases[at].label);
    for (int i = 0; i < N; i++)
        CHECK(fabs((double)c.shard[0].main[i] - cases[at].want[i]) < 1.5e-7, cases[at].label);
    train_case_end(&c);
}

static void updates_as_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(i);
}

/* Nothing is updated, and the parameter is named. */
static void refuses_what_is_not_finite(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_optim optim = {.step = 7};
    struct dcpk_optim_result result;
    struct train_case c;

    (void)state;
    make_case(&c);
    c.config.optim.lr_style = c.config.optim.wd_style = "constant";
    put_gradients(&c, 1);
    c.shard[1].grad[1] = INFINITY;
    CHECK_FAILS(dcpk_optim_step(&optim, &c.state, &result, &err), DCPK_ERANGE,
                "gradient of 'v' is not finite", "inf");
    CHECK_EQ_INT(optim.step, 7, "step");
    for (int i = 0; i < N; i++)
        CHECK(c.shard[0].main[i] == 0 && c.shard[0].exp_avg[i] == 0, "as before");
    train_case_end(&c);
}

/* What DynamicGradScaler(initial 16, minimum 2, growth 2, backoff 0.5, interval 3, hysteresis 2) of
 * core 0.19.0 has after each update; x: an overflow. */
static void scales_as_megatron(void **state)
{
    static const char overflows[] = "x.x...xxxxxx...";
    static const double want[] = {16, 16, 8, 8, 8, 16, 16, 8, 4, 2, 2, 2, 2, 2, 4};
    const struct dcpk_train_precision precision = {
        .min_scale = 2, .scale_window = 3, .hysteresis = 2};
    struct dcpk_loss_scale scale = {16, 0, 2};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        dcpk_loss_scale_update(&scale, &precision, overflows[i] == 'x');
        CHECK(scale.scale == want[i], "scale");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_as_torch),
        cmocka_unit_test(refuses_what_is_not_finite),
        cmocka_unit_test(scales_as_megatron),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
