/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_parts.c - the parts of Mamba's and Gated DeltaNet's projections, by names. */
#include "formats/megatron/megatron_parts.h"
#include "tests/check.h"

#define MAX_TENSORS 10
#define M           "decoder.layers.0.mixer."
#define G           "decoder.layers.0.self_attention."
#define O           "optimizer.state.exp_avg."

/* A checkpoint of these keys; tensor i has shape (2, i + 1, 5). */
struct fake {
    struct dcpk_tensor tensors[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][3];
    struct dcpk_checkpoint ckpt;
};

static void fake_release(struct fake *fake)
{
    dcpk_map_release(&fake->ckpt.tensor_by_key);
    dcpk_arena_free(fake->ckpt.arena);
}

static void fake_make(struct fake *fake, const char *const *keys, const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    memset(fake, 0, sizeof *fake);
    fake->ckpt.arena = dcpk_arena_new(0, &err);
    CHECK(fake->ckpt.arena != NULL, label);
    fake->ckpt.tensors = fake->tensors;
    for (size_t i = 0; i < MAX_TENSORS && keys[i] != NULL; i++) {
        bool existed;
        uint64_t found;

        fake->shapes[i][0] = 2;
        fake->shapes[i][1] = (int64_t)i + 1;
        fake->shapes[i][2] = 5;
        fake->tensors[i] = (struct dcpk_tensor){
            .key = keys[i], .dtype = DCPK_F32, .rank = 3, .shape = fake->shapes[i]};
        fake->ckpt.n_tensors++;
        CHECK_OK(dcpk_map_put(&fake->ckpt.tensor_by_key, keys[i], strlen(keys[i]), i, &existed,
                              &found, &err),
                 label);
    }
}

/* The order of the parts is that of megatron/core/ssm at the tags that megatron_parts.c names. */
static void parts_are_found_in_order(void **state)
{
    static const struct {
        const char *keys[MAX_TENSORS];
        size_t ask, n;
        uint32_t first, last;
        const char *whole;
    } cases[] = {
        {{M "in_proj.weight.dt", M "in_proj.weight.x", M "in_proj.weight.B", M "in_proj.weight.C",
          M "in_proj.weight.z"},
         4,
         5,
         4,
         0,
         M "in_proj.weight"},
        {{M "in_proj.weight.dt", M "in_proj.weight.x", M "in_proj.weight.B", M "in_proj.weight.C",
          M "in_proj.weight.z"},
         1,
         0,
         1,
         0,
         M "in_proj.weight"},
        {{O M "conv1d.bias.C", O M "conv1d.bias.B", O M "conv1d.bias.x", M "conv1d.bias.x"},
         2,
         3,
         2,
         0,
         O M "conv1d.bias"},
        {{G "in_proj.weight.query", G "in_proj.weight.key", G "in_proj.weight.value",
          G "in_proj.weight.z", G "in_proj.weight.beta", G "in_proj.weight.alpha"},
         0,
         6,
         0,
         5,
         G "in_proj.weight"},
        {{G "in_proj.weight.query", G "in_proj.weight.key", G "in_proj.weight.value",
          G "in_proj.weight.z", G "in_proj.weight.f", G "in_proj.weight.b", G "in_proj.weight.w"},
         0,
         7,
         0,
         6,
         G "in_proj.weight"},
        {{G "conv1d.weight.value", G "conv1d.weight.query", G "conv1d.weight.key"},
         1,
         3,
         1,
         0,
         G "conv1d.weight"},
        {{M "in_proj.weight"}, 0, 1, 0, 0, M "in_proj.weight"},
        {{M "in_proj.layer_norm_weight"}, 0, 1, 0, 0, M "in_proj.layer_norm_weight"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *label = cases[i].keys[cases[i].ask];
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_parts parts;
        struct fake fake;

        fake_make(&fake, cases[i].keys, label);
        CHECK_OK(dcpk_megatron_parts_find(&fake.ckpt, (uint32_t)cases[i].ask, &parts, &err), label);
        CHECK_EQ_INT(parts.n, cases[i].n, label);
        CHECK_EQ_INT(parts.tensor[0], cases[i].first, label);
        if (parts.n > 0)
            CHECK_EQ_INT(parts.tensor[parts.n - 1], cases[i].last, label);
        CHECK_EQ_INT(parts.whole_bytes, strlen(cases[i].whole), label);
        CHECK(strncmp(label, cases[i].whole, parts.whole_bytes) == 0, label);
        fake_release(&fake);
    }
}

static void other_parts_are_refused(void **state)
{
    static const struct {
        const char *keys[MAX_TENSORS];
        const char *label;
    } cases[] = {
        {{M "in_proj.weight.z", M "in_proj.weight.x", M "in_proj.weight.B", M "in_proj.weight.C"},
         "one is missing"},
        {{M "in_proj.weight.k_0", M "in_proj.weight.z", M "in_proj.weight.x", M "in_proj.weight.B",
          M "in_proj.weight.C", M "in_proj.weight.dt"},
         "one too many"},
        {{M "conv1d.weight.z", M "conv1d.weight.x"}, "another module's"},
        {{M "conv1d.weight."}, "no name"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_parts parts;
        struct fake fake;

        fake_make(&fake, cases[i].keys, cases[i].label);
        CHECK_FAILS(dcpk_megatron_parts_find(&fake.ckpt, 0, &parts, &err), DCPK_EUNSUPPORTED,
                    "not those of Mamba or Gated DeltaNet", cases[i].label);
        fake_release(&fake);
    }
}

/* Behind the stacked axes rows add up; all else must be the same. */
static void rows_add_up(void **state)
{
    static const char *const keys[MAX_TENSORS] = {M "conv1d.weight.x", M "conv1d.weight.B",
                                                  M "conv1d.weight.C"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_parts parts;
    const int64_t *shape;
    struct fake fake;

    (void)state;
    fake_make(&fake, keys, "conv");
    CHECK_OK(dcpk_megatron_parts_find(&fake.ckpt, 0, &parts, &err), "conv");
    CHECK_OK(dcpk_megatron_parts_join(&fake.ckpt, &parts, 1, &shape, &err), "stacked");
    CHECK_EQ_INT(shape[0], 1 + 2 + 3, "rows");
    CHECK_EQ_INT(shape[1], 5, "columns");
    CHECK_FAILS(dcpk_megatron_parts_join(&fake.ckpt, &parts, 0, &shape, &err), DCPK_EFORMAT,
                "differ in dtype or shape", "columns differ");
    fake.tensors[2].dtype = DCPK_BF16;
    CHECK_FAILS(dcpk_megatron_parts_join(&fake.ckpt, &parts, 1, &shape, &err), DCPK_EFORMAT,
                M "conv1d.weight.C", "dtype");
    fake.tensors[2].dtype = DCPK_F32;
    fake.shapes[2][1] = INT64_MAX;
    CHECK_FAILS(dcpk_megatron_parts_join(&fake.ckpt, &parts, 1, &shape, &err), DCPK_EFORMAT,
                M "conv1d.weight.C", "too many rows");
    fake_release(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_found_in_order),
        cmocka_unit_test(other_parts_are_refused),
        cmocka_unit_test(rows_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
