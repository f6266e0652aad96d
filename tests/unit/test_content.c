/* SPDX-License-Identifier: Apache-2.0 */
/* test_content.c - keys of every format and optimizer layout, and what is stored there. */
#include "lib/ckpt/content.h"
#include "tests/check.h"

/*
 * Keys as formats/torch_dist/FORMAT.md 5, formats/fsdp_dtensor/FORMAT.md 4 and
 * formats/zarr/FORMAT.md spell them.
 */
static const struct {
    const char *key;
    enum dcpk_content content;
} cases[] = {
    {"embedding.word_embeddings.weight", DCPK_CONTENT_WEIGHTS},
    {"decoder.layers.mlp.linear_fc1.weight", DCPK_CONTENT_WEIGHTS},
    {"model.module.decoder.layers.0.mlp.linear_fc1.weight_w", DCPK_CONTENT_WEIGHTS},
    {"optimizer.state.param.decoder.layers.mlp.linear_fc1.weight", DCPK_CONTENT_MASTERS},
    {"optimizer.state.fp32_param.output_layer.weight", DCPK_CONTENT_MASTERS},
    {"optimizer.state.exp_avg.decoder.final_layernorm.weight", DCPK_CONTENT_MOMENTS},
    {"chained_1.optimizer.state.exp_avg_sq.decoder.final_layernorm.weight", DCPK_CONTENT_MOMENTS},
    {"optimizer.state.momentum_buffer.output_layer.weight", DCPK_CONTENT_MOMENTS},
    {"optimizer.state.step.output_layer.weight", DCPK_CONTENT_OTHER},
    {"optimizer.state.module.module.module.output_layer.weight.exp_avg", DCPK_CONTENT_MOMENTS},
    {"optimizer.state.module.module.output_layer.weight.exp_avg_sq", DCPK_CONTENT_MOMENTS},
    {"optimizer.state.module.module.module.output_layer.weight.master_param", DCPK_CONTENT_MASTERS},
    {"optimizer.state.module.module.module.output_layer.weight.step", DCPK_CONTENT_OTHER},
    {"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)."
     "bucket_idx_0.param",
     DCPK_CONTENT_MASTERS},
    {"chained_0.optimizer.distributed.dp_group_idx_3.gbuf_idx_0.dtype_(torch.bfloat16, "
     "torch.float32).bucket_idx_2.exp_avg_sq",
     DCPK_CONTENT_MOMENTS},
    {"app.optim.state.model.norm.weight.exp_avg", DCPK_CONTENT_MOMENTS},
    {"optim.state.lm_head.weight.exp_avg_sq", DCPK_CONTENT_MOMENTS},
    {"optim.state.lm_head.weight.step", DCPK_CONTENT_OTHER},
    {"model.layers.0.optim.weight", DCPK_CONTENT_WEIGHTS},
    {"rng_state.(0, 0).0.torch_rng_state", DCPK_CONTENT_OTHER},
    {"decoder.layers.0.mlp.router.expert_bias", DCPK_CONTENT_WEIGHTS},
};

static void keys_tell(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQ_STR(dcpk_content_name(dcpk_content_of(cases[i].key)),
                     dcpk_content_name(cases[i].content), cases[i].key);
    CHECK(dcpk_content_is_buffer("decoder.layers.0.mlp.router.expert_bias"), "expert_bias");
    CHECK(!dcpk_content_is_buffer("decoder.layers.0.mlp.router.weight"), "router");
    CHECK(!dcpk_content_is_buffer("decoder.layers.0.mlp.linear_fc1.bias"), "bias");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_tell)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
