/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_optimizer.c - which layout of optimizer state keys and common state show. */
#include "formats/megatron/megatron.h"
#include "tests/check.h"

enum { MAX_KEYS = 2 };

/* Names of layouts and of keys: formats/torch_dist/FORMAT.md 5, and what core 0.8 to 0.19 wrote
 * into sample-data. */
static const struct {
    const char *label;
    const char *tensors[MAX_KEYS], *objects[MAX_KEYS];
    bool is_flattened;   /* the first tensor */
    const char *content; /* content_metadata's distrib_optim_sharding_type */
    const char *own;     /* the optimizer's param_state_sharding_type */
    const char *layout;
} cases[] = {
    {"weights", .tensors = {"decoder.layers.mlp.linear_fc1.weight"}, .layout = "none"},
    {"not saved", .tensors = {"a.weight"}, .content = "fully_reshardable", .layout = "none"},
    {"named", .tensors = {"optimizer.state.exp_avg.a.weight"}, .content = "x", .layout = "x"},
    {"by itself", .tensors = {"optimizer.state.exp_avg.a.weight"}, .own = "y", .layout = "y"},
    {"the content's name", .tensors = {"optimizer.state.exp_avg.a.weight"}, .content = "x",
     .own = "y", .layout = "x"},
    {"by its masters",
     .tensors = {"optimizer.state.exp_avg.a.weight", "optimizer.state.param.a.weight"},
     .layout = "fully_reshardable"},
    {"chained", .tensors = {"chained_1.optimizer.state.param.a.weight"},
     .layout = "fully_reshardable"},
    {"whole", .tensors = {"optimizer.state.exp_avg.a.weight"}, .layout = "model-shaped"},
    {"flattened", .tensors = {"optimizer.state.exp_avg.a.weight"}, .is_flattened = true,
     .content = "x", .layout = "fully_sharded_model_space"},
    {"old buckets",
     .tensors = {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_0.param"},
     .layout = "fully_sharded_bucket_space"},
    {"buckets",
     .tensors = {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(a, b).bucket_idx_0.param"},
     .content = "dp_reshardable", .layout = "dp_reshardable"},
    {"gathered", .objects = {"optimizer.distributed.dp_group_idx_0.param_state/shard_0_1"},
     .content = "x", .layout = "dp_zero_gather_scatter"},
    {"groups alone", .objects = {"optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1"},
     .layout = "unknown"},
};

static const struct dcpk_value *one(struct dcpk_arena *arena, const char *key,
                                    const struct dcpk_value *value)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value_pair pair = {dcpk_value_str(arena, key, &err), value};

    return dcpk_value_dict(arena, &pair, 1, &err);
}

static const struct dcpk_value *make_common(struct dcpk_arena *arena, const char *content,
                                            const char *own)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair pairs[2];
    size_t n = 0;

    if (content != NULL)
        pairs[n++] = (struct dcpk_value_pair){
            dcpk_value_str(arena, "content_metadata", &err),
            one(arena, "distrib_optim_sharding_type", dcpk_value_str(arena, content, &err))};
    if (own != NULL)
        pairs[n++] = (struct dcpk_value_pair){
            dcpk_value_str(arena, "optimizer", &err),
            one(arena, "param_state_sharding_type", dcpk_value_str(arena, own, &err))};
    return dcpk_value_dict(arena, pairs, n, &err);
}

static void layouts_are_found(void **state)
{
    static const int64_t shape[] = {2};
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_tensor tensors[MAX_KEYS] = {
            {.model_rank = 1, .model_shape = cases[i].is_flattened ? shape : NULL}};
        struct dcpk_object objects[MAX_KEYS] = {{.key = NULL}};
        struct dcpk_checkpoint ckpt = {.tensors = tensors, .objects = objects};

        for (; ckpt.n_tensors < MAX_KEYS && cases[i].tensors[ckpt.n_tensors] != NULL;
             ckpt.n_tensors++)
            tensors[ckpt.n_tensors].key = cases[i].tensors[ckpt.n_tensors];
        for (; ckpt.n_objects < MAX_KEYS && cases[i].objects[ckpt.n_objects] != NULL;
             ckpt.n_objects++)
            objects[ckpt.n_objects].key = cases[i].objects[ckpt.n_objects];
        CHECK_EQ_STR(dcpk_megatron_optimizer_layout(
                         &ckpt, make_common(arena, cases[i].content, cases[i].own)),
                     cases[i].layout, cases[i].label);
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_are_found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
