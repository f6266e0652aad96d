/* SPDX-License-Identifier: Apache-2.0 */
/* test_state_hash.c - initial values, hashes and norms do not depend on how a model is cut. */
#include "lib/train/state_hash.h"

#include <math.h>

#include "lib/train/initial.h"
#include "lib/train/optim.h"
#include "tests/train_case.h"

#define ROWS    8
#define COLUMNS 12

static struct dcpk_train_param part_of(enum dcpk_param_kind kind, int64_t part, int64_t n_parts)
{
    struct dcpk_train_param param = {.kind = kind,
                                     .canonical = "decoder.layers.0.matrix",
                                     .rank = 2,
                                     .shape = {ROWS, COLUMNS},
                                     .whole = {ROWS, COLUMNS},
                                     .tp_axis = 0,
                                     .has_halves = kind == DCPK_P_FC1};

    if (kind == DCPK_P_FC2)
        param.tp_axis = 1;
    param.shape[param.tp_axis] /= n_parts;
    param.offset[param.tp_axis] = part * param.shape[param.tp_axis];
    if (param.has_halves)
        param.offset[0] /= 2;
    return param;
}

/* A norm, and a matrix as n_parts tensor-parallel ranks have it, each part in shards of `rows`
 * rows. */
static void make_cut(struct train_case *c, enum dcpk_param_kind kind, int64_t n_parts, int64_t rows)
{
    train_case_begin(c);
    c->config.model.init_std = 0.02;
    c->config.model.layers = 2;
    c->config.data.seed = 5;
    c->config.optim.lr_style = c->config.optim.wd_style = "constant";
    for (int64_t part = 0; part < n_parts; part++) {
        const struct dcpk_train_param param = part_of(kind, part, n_parts);

        train_case_param(c, &param);
        for (int64_t row = 0; row < param.shape[0]; row += rows) {
            const int64_t left = param.shape[0] - row;

            train_case_shard(c, row, left < rows ? left : rows);
        }
    }
    train_case_param(c, &(struct dcpk_train_param){.kind = DCPK_P_INPUT_NORM,
                                                   .canonical = "decoder.layers.0.norm",
                                                   .rank = 1,
                                                   .shape = {3, 1},
                                                   .whole = {3, 1},
                                                   .tp_axis = -1});
    train_case_shard(c, 0, 3);
}

/* The initial values as gradients too. */
static void fill_case(struct train_case *c)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_initial_fill(&c->state, &err), "initial values");
    for (size_t i = 0; i < c->shards.n; i++)
        memcpy(c->shard[i].grad, c->shard[i].main, (size_t)c->shard[i].n_elems * sizeof(float));
}

static uint64_t hash_of(const struct train_case *c)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t hash = 0;

    CHECK_OK(dcpk_state_hash(&c->state, &hash, &err), "hash");
    return hash;
}

static double norm_of(const struct train_case *c)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_optim optim = {.schedule.max_lr = 0};
    struct dcpk_optim_result result;

    CHECK_OK(dcpk_optim_step(&optim, &c->state, &result, &err), "norm");
    return result.norm;
}

static const enum dcpk_param_kind kinds[] = {DCPK_P_QKV, DCPK_P_FC1, DCPK_P_FC2};

static void no_cut_shows(void **state)
{
    static const struct {
        const char *label;
        int64_t n_parts, rows;
    } cuts[] = {{"rows of 3", 1, 3},
                {"2 parts", 2, ROWS},
                {"4 parts, single rows", 4, 1},
                {"2 parts, rows of 3", 2, 3}};
    struct train_case whole, cut;

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            if (kinds[k] == DCPK_P_FC2 && cuts[i].n_parts == 4 && cuts[i].rows == 1)
                continue; /* more shards than there is room for */
            make_cut(&whole, kinds[k], 1, ROWS);
            make_cut(&cut, kinds[k], cuts[i].n_parts, cuts[i].rows);
            fill_case(&whole);
            fill_case(&cut);
            CHECK(hash_of(&whole) == hash_of(&cut), cuts[i].label);
            CHECK(norm_of(&whole) == norm_of(&cut), cuts[i].label);
            train_case_end(&cut);
            train_case_end(&whole);
        }
    }
}

/* Each element of each array, rows that change places, and a copy that is counted. */
static void each_change_shows(void **state)
{
    struct train_case c;
    uint64_t before;
    float row[COLUMNS];

    (void)state;
    make_cut(&c, DCPK_P_FC2, 1, ROWS);
    fill_case(&c);
    before = hash_of(&c);
    for (int64_t i = 0; i < c.n_elems; i++) {
        float *const at[] = {&c.shard[0].main[i], &c.shard[0].exp_avg[i],
                             &c.shard[0].exp_avg_sq[i]};

        for (int a = 0; a < 3; a++) {
            const float was = *at[a];

            *at[a] = nextafterf(was, 9);
            CHECK(hash_of(&c) != before, "one unit of the last bit");
            *at[a] = was;
        }
    }
    memcpy(row, c.shard[0].main, sizeof row);
    memcpy(c.shard[0].main, c.shard[0].main + COLUMNS, sizeof row);
    memcpy(c.shard[0].main + COLUMNS, row, sizeof row);
    CHECK(hash_of(&c) != before, "two rows");
    memcpy(c.shard[0].main + COLUMNS, c.shard[0].main, sizeof row);
    memcpy(c.shard[0].main, row, sizeof row);
    c.shard[1].is_counted = false;
    CHECK(hash_of(&c) != before, "a parameter that is left out");
    train_case_end(&c);
}

/* Ones, and normal numbers of the right width, which the seed and the name change. */
static void begins_as_it_should(void **state)
{
    struct train_case c, other;
    double squares = 0, sum = 0;

    (void)state;
    make_cut(&c, DCPK_P_FC2, 1, ROWS);
    fill_case(&c);
    for (int i = 0; i < 3; i++)
        CHECK(c.shard[1].main[i] == 1, "norm");
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        sum += (double)c.shard[0].main[i];
        squares += (double)c.shard[0].main[i] * (double)c.shard[0].main[i];
    }
    CHECK(fabs(sqrt(squares / (ROWS * COLUMNS)) - 0.01) < 0.0015, "0.02 / sqrt(2 * 2)");
    CHECK(fabs(sum / (ROWS * COLUMNS)) < 0.003, "mean");
    make_cut(&other, DCPK_P_FC2, 1, ROWS);
    other.param[0].canonical = "decoder.layers.1.matrix";
    fill_case(&other);
    CHECK(other.shard[0].main[0] != c.shard[0].main[0], "name");
    other.param[0].canonical = c.param[0].canonical;
    other.config.data.seed = 6;
    fill_case(&other);
    CHECK(other.shard[0].main[0] != c.shard[0].main[0], "seed");
    train_case_end(&other);
    train_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_shows),
        cmocka_unit_test(each_change_shows),
        cmocka_unit_test(begins_as_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
