/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_processes.c - losses and gradients of a model cut over processes are those of one process, to
 * the bit, in every layout. Started by mpirun. */

#include "lib/base/order.h"
#include "tests/gpt_case.h"
#include "tests/world_case.h"

#define N_LEAF 2 /* tokens; divides a chunk of four context-parallel ranks */

static const uint8_t first_is_dense[] = {0, 1, 1, 1};

static const struct {
    const char *label;
    int64_t tp, cp, ep, pp;
} layouts[] = {
    {"DP", 1, 1, 1, 1},      {"TP2", 2, 1, 1, 1},     {"TP4", 4, 1, 1, 1},
    {"EP2", 1, 1, 2, 1},     {"EP4", 1, 1, 4, 1},     {"CP2", 1, 2, 1, 1},
    {"CP4", 1, 4, 1, 1},     {"PP2", 1, 1, 1, 2},     {"PP4", 1, 1, 1, 4},
    {"TP2 CP2", 2, 2, 1, 1}, {"TP2 PP2", 2, 1, 1, 2}, {"TP2 EP2", 2, 1, 2, 1},
    {"EP2 PP2", 1, 1, 2, 2}, {"CP2 EP2", 1, 2, 2, 1}, {"CP2 PP2", 1, 2, 1, 2},
};

static const struct {
    const char *label;
    bool is_tied, has_qk_norm, is_moe, has_shared;
    enum dcpk_dtype dtype;
    int64_t mtp_layers;
} models[] = {
    {"dense", false, false, false, false, DCPK_F32, 0},
    {"dense, tied, q and k norms, bf16", true, true, false, false, DCPK_BF16, 0},
    {"experts, q and k norms, two tokens ahead", false, true, true, false, DCPK_F32, 2},
    {"tied experts and shared ones, one token ahead, bf16", true, false, true, true, DCPK_BF16, 1},
};

static struct dcpk_train_config config_of(size_t model)
{
    struct dcpk_train_config config = gpt_config();

    config.model.layers = 4;
    config.model.heads = 8;
    config.model.groups = 4;
    config.model.head_dim = 2;
    config.model.seq_length = 16;
    config.model.is_tied = models[model].is_tied;
    config.model.has_qk_norm = models[model].has_qk_norm;
    config.model.experts = models[model].is_moe ? 4 : 0;
    config.model.moe_layers = first_is_dense;
    config.model.shared_ffn = models[model].has_shared ? 16 : 0;
    config.model.mtp_layers = models[model].mtp_layers;
    config.model.mtp_loss_factor = 0.3;
    config.precision.compute = models[model].dtype;
    config.precision.leaf_tokens = N_LEAF;
    config.data.global_batch = 4;
    return config;
}

static bool layout_fits(size_t l, size_t model)
{
    const int64_t n = layouts[l].tp * layouts[l].cp * layouts[l].pp;

    if (world->n_ranks % n != 0 ||
        world->n_ranks / layouts[l].tp / layouts[l].pp % layouts[l].ep != 0)
        return false;
    return models[model].is_moe || layouts[l].ep == 1;
}

/* Sums over all ranks of what each of them added. Of the losses one tensor-parallel rank counts. */
static void sum_over_ranks(struct gpt_whole *whole, int64_t tp)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t loss[3] = {whole->loss.sum, whole->loss.tokens, whole->loss.mtp_sum};

    CHECK_OK(world->by->all_reduce(world, DCPK_SUM_I64, whole->sums, (size_t)whole->params.n_elems,
                                   NULL, &err),
             "gradients");
    CHECK_OK(world->by->all_reduce(world, DCPK_SUM_I64, loss, 3, NULL, &err), "losses");
    whole->loss.sum = loss[0] / tp;
    whole->loss.tokens = loss[1] / tp;
    whole->loss.mtp_sum = loss[2] / tp;
}

static void check_layout(const struct gpt_whole *alone, size_t model, size_t l)
{
    struct dcpk_train_config config = alone->config;
    struct gpt_whole whole;
    char label[128];

    snprintf(label, sizeof label, "%s, %s, %d ranks", models[model].label, layouts[l].label,
             world->n_ranks);
    config.layout.tp = layouts[l].tp;
    config.layout.cp = layouts[l].cp;
    config.layout.ep = layouts[l].ep;
    config.layout.pp = layouts[l].pp;
    config.layout.dp = world->n_ranks / (layouts[l].tp * layouts[l].cp * layouts[l].pp);
    gpt_whole_init(&whole, &alone->config);
    gpt_run(&whole, &config, world, dcpk_math_ops[0]);
    sum_over_ranks(&whole, layouts[l].tp);
    CHECK_EQ_INT(whole.loss.tokens, alone->loss.tokens, label);
    CHECK_EQ_INT(whole.loss.sum, alone->loss.sum, label);
    CHECK_EQ_INT(whole.loss.mtp_sum, alone->loss.mtp_sum, label);
    for (size_t i = 0; i < whole.params.n; i++) {
        const struct dcpk_train_param *p = &whole.params.list[i];

        for (int64_t e = 0; e < p->shape[0] * p->shape[1]; e++)
            if (whole.sums[p->first + e] != alone->sums[p->first + e])
                fail_msg("%s: gradient of %s at %" PRId64 " is %" PRId64 ", alone %" PRId64, label,
                         p->canonical, e, whole.sums[p->first + e], alone->sums[p->first + e]);
    }
    gpt_whole_release(&whole);
}

static void layouts_change_no_bit(void **state)
{
    (void)state;
    for (size_t m = 0; m < DCPK_COUNT(models); m++) {
        const struct dcpk_train_config config = config_of(m);
        struct gpt_whole alone;

        gpt_whole_init(&alone, &config);
        gpt_run_alone(&alone, &config);
        for (size_t l = 0; l < DCPK_COUNT(layouts); l++)
            if (layout_fits(l, m))
                check_layout(&alone, m, l);
        gpt_whole_release(&alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_change_no_bit)};
    const int exit_with = world_join();
    int n_failed;

    if (exit_with != 0)
        return exit_with;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    world_leave();
    return 0;
}
