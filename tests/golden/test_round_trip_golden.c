/* SPDX-License-Identifier: Apache-2.0 */
/* test_round_trip_golden.c - torch_dist to another format and back: what came from Megatron comes
 * back bit for bit. */
#include <stdlib.h>

#include "lib/base/digest.h"
#include "tests/golden/conversions.h"
#include "tests/golden/hashes.h"

/* The hashes of a sample are those that PyTorch made: test_hash_golden holds them against its
 * MANIFEST. */
static void check_same_tensors(struct dcpk_checkpoint *want, struct dcpk_checkpoint *got,
                               struct dcpk_arena *arena, bool more)
{
    struct dcpk_hash *a = hash_all(want, arena, "want"), *b = hash_all(got, arena, "got");

    for (size_t i = 0; i < want->n_tensors; i++) {
        const struct dcpk_tensor *t = &want->tensors[i];
        const struct dcpk_tensor *u = dcpk_checkpoint_tensor(got, t->key);

        CHECK(u != NULL, t->key);
        CHECK_EQ_INT(u->dtype, t->dtype, t->key);
        CHECK_EQ_INT(u->rank, t->rank, t->key);
        CHECK(t->rank == 0 || memcmp(u->shape, t->shape, (size_t)t->rank * sizeof *t->shape) == 0,
              t->key);
        CHECK(memcmp(a[i].digest, b[u - got->tensors].digest, sizeof a[i].digest) == 0, t->key);
    }
    if (!more)
        CHECK_EQ_INT(got->n_tensors, want->n_tensors, "no further keys");
    free(a);
    free(b);
}

/* fsdp_dtensor has the fields of Transformer Engine's and of torch's optimizer
 * (formats/fsdp_dtensor/FORMAT.md 7).
 */
static bool is_field_of_either(const char *name)
{
    static const char *const fields[] = {
        "bias_correction", "amsgrad",    "maximize",       "foreach",
        "fused",           "capturable", "differentiable", "decoupled_weight_decay"};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(name, fields[i]) == 0)
            return true;
    return false;
}

/* Equal, but that `step` comes back as the int that Transformer Engine keeps (4.0: 4). */
static void check_same_group(const struct dcpk_value *want, const struct dcpk_value *got)
{
    for (size_t i = 0; i < want->n; i++) {
        const char *field = dcpk_value_as_str(want->as.pairs[i].key);
        const struct dcpk_value *v = dcpk_value_get(got, field);
        double x, y;

        CHECK(v != NULL, field);
        if (strcmp(field, "step") == 0) {
            CHECK(dcpk_value_as_float(want->as.pairs[i].value, &x), field);
            CHECK(dcpk_value_as_float(v, &y) && x == y, field);
        } else {
            CHECK(dcpk_value_equal(want->as.pairs[i].value, v), field);
        }
    }
    for (size_t i = 0; i < got->n; i++) {
        const char *field = dcpk_value_as_str(got->as.pairs[i].key);

        CHECK(dcpk_value_get(want, field) != NULL || is_field_of_either(field), field);
    }
}

static void check_same_optimizer(const struct dcpk_value *want, const struct dcpk_value *got)
{
    const struct dcpk_value *a = dcpk_value_get(dcpk_value_get(want, "optimizer"), "param_groups");
    const struct dcpk_value *b = dcpk_value_get(dcpk_value_get(got, "optimizer"), "param_groups");

    CHECK(a != NULL && b != NULL, "param_groups");
    CHECK_EQ_INT(b->n, a->n, "param_groups");
    CHECK(dcpk_value_equal(dcpk_value_get(want, "param_state_sharding_type"),
                           dcpk_value_get(got, "param_state_sharding_type")),
          "sharding type");
    for (size_t i = 0; i < a->n; i++)
        check_same_group(dcpk_value_at(a, i), dcpk_value_at(b, i));
}

/* What Megatron-FSDP's loader needs to find, also where a script's args lack it. */
static bool is_set_by_format(const char *name)
{
    return strcmp(name, "ckpt_format") == 0 || strcmp(name, "use_megatron_fsdp") == 0 ||
           strcmp(name, "pipeline_model_parallel_size") == 0;
}

/* What says how many stages there are, or cuts them (validate_args). */
static bool is_of_stages(const char *name)
{
    return strstr(name, "pipeline") != NULL;
}

static int64_t size_of(const struct dcpk_value *attrs, const char *name)
{
    int64_t size = 1;

    dcpk_value_as_int(dcpk_value_get(attrs, name), &size);
    return size;
}

/* As many ranks as validate_args asks for, of which one stage is left. */
static void check_one_stage(const struct dcpk_value *want, const struct dcpk_value *got)
{
    CHECK_EQ_INT(size_of(got, "world_size"),
                 size_of(want, "world_size") / size_of(want, "pipeline_model_parallel_size"),
                 "world_size");
}

/*
 * All attributes are the source's, but for the pipeline's stages by the way of fsdp_dtensor, which
 * has one, and their ranks; those of classes that another Megatron may not have are left out.
 */
static void check_same_args(const struct dcpk_value *want, const struct dcpk_value *got,
                            size_t n_left_out, bool has_all_stages)
{
    const struct dcpk_value *a = dcpk_value_attrs(want), *b = dcpk_value_attrs(got);
    bool no_save_rng = false;
    int64_t pp = 0;
    size_t n_set = 0;

    CHECK(a != NULL && b != NULL, "args");
    for (size_t i = 0; i < b->n; i++) {
        const char *name = dcpk_value_as_str(b->as.pairs[i].key);

        if (dcpk_value_get(a, name) == NULL && is_set_by_format(name)) {
            n_set++;
            continue;
        }
        if (!has_all_stages && strcmp(name, "world_size") == 0)
            check_one_stage(a, b);
        else if (has_all_stages || !is_of_stages(name))
            CHECK(dcpk_value_equal(dcpk_value_get(a, name), b->as.pairs[i].value), name);
    }
    CHECK_EQ_INT(b->n, a->n - n_left_out + n_set, "attributes");
    dcpk_value_as_bool(dcpk_value_get(b, "no_save_rng"), &no_save_rng);
    CHECK(!no_save_rng, "no_save_rng");
    dcpk_value_as_int(dcpk_value_get(b, "pipeline_model_parallel_size"), &pp);
    CHECK(has_all_stages || pp == 1, "stages");
}

static void check_same_common(const struct dcpk_value *want, const struct dcpk_value *got,
                              size_t n_args_left_out, bool has_all_stages)
{
    static const char *const equal[] = {"checkpoint_version", "iteration", "opt_param_scheduler",
                                        "num_floating_point_operations_so_far", "content_metadata"};
    const struct dcpk_value *a = dcpk_value_get(want, "optimizer"),
                            *b = dcpk_value_get(got, "optimizer");

    for (size_t i = 0; i < sizeof equal / sizeof equal[0]; i++)
        CHECK(dcpk_value_equal(dcpk_value_get(want, equal[i]), dcpk_value_get(got, equal[i])),
              equal[i]);
    check_same_args(dcpk_value_get(want, "args"), dcpk_value_get(got, "args"), n_args_left_out,
                    has_all_stages);
    CHECK_EQ_INT(b->n, a->n, "optimizers");
    if (dcpk_value_get_int(a, 0) == NULL)
        check_same_optimizer(a, b);
    for (int64_t i = 0; dcpk_value_get_int(a, i) != NULL; i++)
        check_same_optimizer(dcpk_value_get_int(a, i), dcpk_value_get_int(b, i));
    /* The rerun state is reported as dropped; nothing else is missing or new. */
    CHECK(dcpk_value_get(got, "rerun_state_machine") == NULL, "rerun state");
    CHECK_EQ_INT(got->n, want->n - (dcpk_value_get(want, "rerun_state_machine") != NULL), "keys");
}

/*
 * The object whose value must come back as that of the i-th: itself, or where a format between had
 * one RNG state for all data-parallel ranks that of the first: "..._1.0.3_..." is "..._1.0.0_...".
 */
static const struct dcpk_object *original(struct dcpk_checkpoint *want, size_t i, bool by_rank)
{
    const char *key = want->objects[i].key;
    int pp, tp, dp, end = 0;
    char first[128];

    if (by_rank || sscanf(key, "rng_state/shard_%d.%d.%d_%n", &pp, &tp, &dp, &end) != 3 || end == 0)
        return &want->objects[i];
    snprintf(first, sizeof first, "rng_state/shard_%d.%d.0_%s", pp, tp, key + end);
    return dcpk_checkpoint_object(want, first);
}

/* Every object comes back with its value but for what fsdp_dtensor does not hold. */
static void check_same_objects(struct dcpk_checkpoint *want, struct dcpk_checkpoint *got,
                               struct dcpk_arena *arena, bool has_all_stages, bool rng_by_rank)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; i < want->n_objects; i++) {
        const char *key = want->objects[i].key;
        const struct dcpk_value *a = NULL, *b = NULL;
        const bool is_rng = strncmp(key, "rng_state/", strlen("rng_state/")) == 0;
        const bool later_stage =
            !has_all_stages && is_rng &&
            strncmp(key, "rng_state/shard_0.", strlen("rng_state/shard_0.")) != 0;
        const struct dcpk_object *object;
        char name[256];

        snprintf(name, sizeof name, "%s", key);
        if (is_rng && !has_all_stages) /* "shard_0.1_2.4" is now "shard_0.1_1.4" */
            strchr(strchr(name + strlen("rng_state/"), '_') + 1, '_')[1] = '1';
        object = dcpk_checkpoint_object(got, later_stage ? key : name);
        if (strncmp(key, "rerun_state", strlen("rerun_state")) == 0 || later_stage) {
            CHECK(object == NULL, key);
            continue;
        }
        if (strncmp(key, "common_state/", strlen("common_state/")) == 0)
            continue;
        CHECK(object != NULL, key);
        CHECK_OK(dcpk_checkpoint_load_object(want, original(want, i, rng_by_rank), arena, &a, &err),
                 key);
        CHECK_OK(dcpk_checkpoint_load_object(got, object, arena, &b, &err), key);
        CHECK(dcpk_value_equal(a, b), key);
    }
}

static void round_trips_give_the_same(void **state)
{
    static const struct {
        const char *sample, *via, *generation; /* of what comes back; NULL: not asked for, B */
        enum dcpk_impl impl;
        size_t n_args_left_out; /* attributes of enum classes, as the sample's pickle has them */
        bool has_one_stage;     /* as fsdp_dtensor has, the sample several */
        bool more_keys;         /* both spellings of norms */
    } cases[] = {
        {"torch_dist_b_dense_tp2pp2", .via = "fsdp_dtensor", .n_args_left_out = 3,
         .has_one_stage = true},
        {"torch_dist_c_dense_tp2pp2", .via = "fsdp_dtensor", .generation = "B",
         .n_args_left_out = 3, .has_one_stage = true},
        {"torch_dist_c_dense_tp2pp2", .via = "fsdp_dtensor", .generation = "C",
         .impl = DCPK_IMPL_TE, .n_args_left_out = 3, .has_one_stage = true},
        {"torch_dist_c_moe_ep2pp2", .via = "fsdp_dtensor", .n_args_left_out = 3, .more_keys = true,
         .has_one_stage = true},
        {"torch_dist_c_moe_ep2pp2", .via = "fsdp_dtensor", .generation = "C",
         .impl = DCPK_IMPL_LOCAL, .n_args_left_out = 3, .has_one_stage = true},
        {"torch_dist_c_fp32_dp1", .via = "fsdp_dtensor", .n_args_left_out = 3},
        {"v016_moe_ep2pp2", .via = "fsdp_dtensor", .generation = "B", .impl = DCPK_IMPL_LOCAL,
         .n_args_left_out = 3, .has_one_stage = true},
        {"v016_moe_ep2pp2", .via = "torch_dist", .generation = "C", .impl = DCPK_IMPL_LOCAL,
         .n_args_left_out = 3},
        {"v016_moe_ep2pp2", .via = "zarr", .generation = "B", .impl = DCPK_IMPL_LOCAL,
         .n_args_left_out = 3},
        /* By the way of zarr also what content_metadata says: that layers are apart. */
        {"torch_dist_c_moe_ep2pp2", .via = "torch_dist", .generation = "C", .impl = DCPK_IMPL_LOCAL,
         .n_args_left_out = 3},
        {"torch_dist_c_extra_state", .via = "torch_dist", .generation = "C",
         .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_extra_state", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_gdn", .via = "fsdp_dtensor", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_gdn", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_mamba", .via = "fsdp_dtensor", .generation = "C", .more_keys = true},
        {"torch_dist_c_mamba", .via = "zarr", .generation = "C", .more_keys = true},
        {"torch_dist_c_mla_moe", .via = "fsdp_dtensor", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_mla_moe", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_moe_bias", .via = "fsdp_dtensor", .generation = "C",
         .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_moe_bias", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_moe_shared", .via = "fsdp_dtensor", .generation = "C",
         .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_moe_shared", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_mtp", .via = "fsdp_dtensor", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_mtp", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_per_layer", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_tied", .via = "fsdp_dtensor", .generation = "C", .impl = DCPK_IMPL_LOCAL},
        {"torch_dist_c_tied", .via = "zarr", .generation = "C", .impl = DCPK_IMPL_LOCAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wish forth = {
            .to = cases[i].via, .generation = strcmp(cases[i].via, "torch_dist") == 0 ? "B" : NULL};
        const struct wish back = {
            .to = "torch_dist", .generation = cases[i].generation, .impl = cases[i].impl};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_checkpoint *want, *got;

        CHECK_OK(convert_as(sample_path(cases[i].sample), scratch("forth"), &forth, &err),
                 cases[i].sample);
        CHECK_OK(convert_as(scratch("forth"), scratch("back"), &back, &err), cases[i].sample);
        want = open_at(sample_path(cases[i].sample));
        got = open_at(scratch("back"));
        CHECK_EQ_INT(got->generation[0], cases[i].generation == NULL ? 'B' : cases[i].generation[0],
                     cases[i].sample);
        CHECK_OK(dcpk_checkpoint_check_cover(got, &err), cases[i].sample);
        check_same_tensors(want, got, arena, cases[i].more_keys);
        check_same_common(load_common(want, arena), load_common(got, arena),
                          cases[i].n_args_left_out, !cases[i].has_one_stage);
        check_same_objects(want, got, arena, !cases[i].has_one_stage,
                           strcmp(cases[i].via, "torch_dist") == 0);
        dcpk_checkpoint_close(want);
        dcpk_checkpoint_close(got);
        dcpk_arena_free(arena);
        scratch_clean("forth");
        scratch_clean("back");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trips_give_the_same, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
