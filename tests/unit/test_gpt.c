/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpt.c - gradients of whole models against differences of their loss; what must not change a
 * bit does not. */
#include "lib/base/order.h"
#include "tests/gpt_case.h"

#define STEP 0.001953125 /* 2^-9: between rounding and curvature */

static const uint8_t first_is_dense[] = {0, 1};

/* Every part of a model once. */
static const struct {
    const char *label;
    struct dcpk_train_model more; /* what differs from gpt_config */
} models[] = {
    {"dense", {0}},
    {"tied, q and k norms", {.is_tied = true, .has_qk_norm = true}},
    {"experts", {.experts = 4, .moe_layers = first_is_dense}},
    {"grouped experts, softmax first", {.experts = 4, .has_pre_softmax = true, .is_grouped = true}},
    {"multi-token prediction", {.experts = 4, .mtp_layers = 1, .mtp_loss_factor = 0.3}},
    {"shared experts, biased router", {.experts = 4, .shared_ffn = 16, .has_expert_bias = true}},
};

static struct dcpk_train_config config_of(size_t model)
{
    struct dcpk_train_config config = gpt_config();
    const struct dcpk_train_model *more = &models[model].more;

    config.model.is_tied = more->is_tied;
    config.model.has_qk_norm = more->has_qk_norm;
    config.model.experts = more->experts;
    config.model.moe_layers = more->moe_layers;
    config.model.has_pre_softmax = more->has_pre_softmax;
    config.model.is_grouped = more->is_grouped;
    config.model.shared_ffn = more->shared_ffn;
    config.model.has_expert_bias = more->has_expert_bias;
    config.model.mtp_layers = more->mtp_layers;
    config.model.mtp_loss_factor = more->mtp_loss_factor;
    if (more->mtp_layers > 0)
        config.data.global_batch = 1; /* as many places count one token on: a factor of 1 */
    return config;
}

static double loss_at(struct gpt_whole *whole, int64_t element, double by)
{
    const float value = whole->values[element];

    whole->values[element] = (float)((double)value + by);
    gpt_run_alone(whole, &whole->config);
    whole->values[element] = value;
    return ldexp((double)whole->loss.sum +
                     whole->config.model.mtp_loss_factor * (double)whole->loss.mtp_sum,
                 -32);
}

/* Some elements of every parameter. */
static void gradients_are_differences_of_the_loss(void **state)
{
    (void)state;
    for (size_t m = 0; m < DCPK_COUNT(models); m++) {
        const struct dcpk_train_config config = config_of(m);
        struct gpt_whole whole;
        int64_t *sums;
        struct dcpk_error err = DCPK_ERROR_INIT;

        gpt_whole_init(&whole, &config);
        sums = dcpk_alloc_array((size_t)whole.params.n_elems, sizeof *sums, &err);
        CHECK(sums != NULL, "memory");
        gpt_run_alone(&whole, &config);
        memcpy(sums, whole.sums, (size_t)whole.params.n_elems * sizeof *sums);
        for (size_t i = 0; i < whole.params.n; i++) {
            const struct dcpk_train_param *p = &whole.params.list[i];
            const int64_t n = p->shape[0] * p->shape[1];

            for (int64_t k = 0; k < 3 && !p->is_buffer; k++) {
                const int64_t e = p->first + (k * 7919 + 13) % n;
                const double made = ldexp((double)sums[e], -GPT_LSB);
                const double wanted =
                    (loss_at(&whole, e, STEP) - loss_at(&whole, e, -STEP)) / (2 * STEP);

                if (fabs(made - wanted) > 2e-3 * (1 + fabs(wanted)))
                    fail_msg("%s: gradient of %s is %g, difference %g", models[m].label,
                             p->canonical, made, wanted);
            }
        }
        dcpk_free(sums);
        gpt_whole_release(&whole);
    }
}

/* How microbatches are cut, and what is computed again, is a matter of memory and time. */
static void a1_microbatches_and_recompute_change_no_bit(void **state)
{
    static const enum dcpk_dtype dtypes[] = {DCPK_F32, DCPK_BF16};

    (void)state;
    for (size_t m = 0; m < 2 * DCPK_COUNT(models); m++) {
        struct dcpk_train_config config = config_of(m / 2), other;
        struct gpt_whole one, two;

        /* What is predicted further ahead is weighed by its microbatch. */
        if (config.model.mtp_layers > 0)
            continue;
        config.precision.compute = dtypes[m % 2];
        gpt_whole_init(&one, &config);
        gpt_whole_init(&two, &config);
        gpt_run_alone(&one, &config);
        other = config;
        other.data.micro_batch = 2;
        other.fsdp.recomputes = true;
        gpt_run_alone(&two, &other);
        CHECK_EQ_INT(two.loss.sum, one.loss.sum, models[m / 2].label);
        CHECK_EQ_INT(two.loss.tokens, one.loss.tokens, models[m / 2].label);
        for (int64_t e = 0; e < one.params.n_elems; e++)
            CHECK_EQ_INT(two.sums[e], one.sums[e], models[m / 2].label);
        gpt_whole_release(&one);
        gpt_whole_release(&two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_differences_of_the_loss),
        cmocka_unit_test(a1_microbatches_and_recompute_change_no_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
