/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_fault.c - every allocation fails once while a folder of Hugging Face's is planned as a
 * checkpoint, with an adapter, back, merged, as modules in memory: DCPK_ENOMEM, nothing is lost.
 */
/*
 * The family is made up, so that one small layer has all that maps know: each op, experts in one
 * tensor, weights of 8 bits. Its map is the only one that is built in: of the others each would add
 * a thousand allocations of the same reader.
 */
#include "formats/formats.h"
#include "formats/safetensors/hf_map.h"
#include "kernels/kernels.h"
#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/job/convert.h"
#include "lib/job/live_names.h"
#include "lib/job/merge.h"
#include "lib/job/rename_shards.h"
#include "tests/every_alloc.h"
#include "tests/unit/scratch.h"

static const char map_text[] =
    "{\"family\": \"toy\", \"architectures\": [\"Toy\"], \"model_type\": \"toy\","
    " \"config\": [[\"layers\", \"num_layers\"], [\"hidden_size\", \"hidden_size\"],"
    "  [\"intermediate_size\", \"ffn_hidden_size\"],"
    "  [\"intermediate_size\", \"moe_ffn_hidden_size\"], [\"experts\", \"num_experts\"],"
    "  [\"num_attention_heads\", \"num_attention_heads|num_query_groups\"],"
    "  [\"max_position_embeddings\", \"max_position_embeddings\"],"
    "  [\"tie_word_embeddings\", \"untie_embeddings_and_output_weights\", \"not\", false],"
    "  [\"sliding_window\", \"window_size\", \"window\"],"
    "  [\"dense\", \"moe_layer_freq\", \"leading\"]],"
    " \"args\": {\"normalization\": \"RMSNorm\", \"swiglu\": true, \"add_bias_linear\": false},"
    " \"set\": {\"group_query_attention\": true}, \"hf\": {\"hidden_act\": \"silu\"},"
    " \"rope\": {\"theta\": \"rotary_base\", \"kinds\": {\"default\": {\"args\":"
    "  {\"use_rope_scaling\": false, \"position_embedding_type\": \"rope\"}}}},"
    " \"scales\": {\"suffix\": \"_scale\", \"block\": \"quantization_config.block\"},"
    " \"top\": [{\"mg\": \"embedding.word_embeddings.weight\", \"hf\": \"embed_tokens.weight\", "
    "\"op\": "
    "\"vocab\"},"
    "  {\"mg\": \"output_layer.weight\", \"hf\": \"head\", \"op\": \"vocab\", \"if\":"
    "   \"untie_embeddings_and_output_weights\"},"
    "  {\"mg\": \"decoder.final_layernorm.weight\", \"hf\": \"norm\"}],"
    " \"at\": [{\"mg\": \"decoder.layers.{l}.\", \"hf\": \"{l}.\"}],"
    " \"layer\": [{\"mg\": \"self_attention.linear_qkv.layer_norm_weight\", \"hf\": \"n1\"},"
    "  {\"mg\": \"self_attention.linear_qkv.weight\", \"hf\": [\"q_proj.weight\", "
    "\"k_proj.weight\", \"v_proj.weight\"], \"op\": "
    "\"qkv\"},"
    "  {\"mg\": \"self_attention.linear_proj.weight\", \"hf\": \"o_proj.weight\"},"
    "  {\"mg\": \"mlp.linear_fc1.layer_norm_weight\", \"hf\": \"n2\", \"if\": \"dense\"},"
    "  {\"mg\": \"mlp.linear_fc1.weight\", \"hf\": [\"gate_proj.weight\", \"up_proj.weight\"], "
    "\"op\": \"cat\", \"if\": "
    "\"dense\"},"
    "  {\"mg\": \"mlp.linear_fc2.weight\", \"hf\": \"down_proj.weight\", \"if\": \"dense\"},"
    "  {\"mg\": \"pre_mlp_layernorm.weight\", \"hf\": \"n2\", \"if\": \"moe\"},"
    "  {\"mg\": \"mlp.router.weight\", \"hf\": \"router\", \"dtype\": \"float32\"},"
    "  {\"mg\": \"mlp.experts.linear_fc1.weight{e}\", \"hf\": \"all_up\", \"op\":"
    "   [\"transpose\", \"deinterleave\"]},"
    "  {\"mg\": \"mlp.experts.linear_fc2.weight{e}\", \"hf\": \"all_down\", \"op\":"
    "   \"transpose\"}],"
    " \"drop\": [\"{*}inv_freq\"]}";

const struct dcpk_hf_built_in dcpk_hf_built_in[] = {{"toy.json", map_text, sizeof map_text - 1}};
const size_t dcpk_hf_n_built_in = 1;

static const char config_text[] =
    "{\"architectures\": [\"Toy\"], \"layers\": 2, \"hidden_size\": 4, \"intermediate_size\": 6,"
    " \"num_attention_heads\": 2, \"experts\": 2, \"dense\": 1, \"max_position_embeddings\": 8,"
    " \"sliding_window\": 4, \"vocab_size\": 5, \"rope_theta\": 10000.0, \"torch_dtype\": "
    "\"bfloat16\","
    " \"quantization_config\": {\"quant_method\": \"fp8\", \"block\": [2, 2]}}";

static const struct stored {
    const char *name, *dtype, *shape;
    size_t n_bytes;
} stored[] = {
    {"embed_tokens.weight", "BF16", "5, 4", 40},
    {"head", "BF16", "5, 4", 40},
    {"norm", "BF16", "4", 8},
    {"inv_freq", "F32", "1", 4},
    {"0.n1", "BF16", "4", 8},
    {"0.q_proj.weight", "F8_E4M3", "4, 4", 16},
    {"0.q_proj.weight_scale", "F32", "2, 2", 16},
    {"0.k_proj.weight", "BF16", "4, 4", 32},
    {"0.v_proj.weight", "BF16", "4, 4", 32},
    {"0.o_proj.weight", "BF16", "4, 4", 32},
    {"0.n2", "BF16", "4", 8},
    {"0.gate_proj.weight", "BF16", "6, 4", 48},
    {"0.up_proj.weight", "BF16", "6, 4", 48},
    {"0.down_proj.weight", "BF16", "4, 6", 48},
    {"1.n1", "BF16", "4", 8},
    {"1.q_proj.weight", "BF16", "4, 4", 32},
    {"1.k_proj.weight", "BF16", "4, 4", 32},
    {"1.v_proj.weight", "BF16", "4, 4", 32},
    {"1.o_proj.weight", "BF16", "4, 4", 32},
    {"1.n2", "BF16", "4", 8},
    {"1.router", "F32", "2, 4", 32},
    {"1.all_up", "BF16", "2, 4, 12", 192},
    {"1.all_down", "BF16", "2, 6, 4", 96},
};

/* Of an adapter: two matrices, and a tensor in the place of the base's. */
static const struct stored adapted[] = {
    {"base_model.model.0.o_proj.lora_A.weight", "F32", "2, 4", 32},
    {"base_model.model.0.o_proj.lora_B.weight", "F32", "4, 2", 32},
    {"base_model.model.norm", "BF16", "4", 8},
};
static const char adapter_text[] =
    "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": {\"o_proj\": 2}}";

static char folder[4096], run[4096], adapter[4096];

/* A file of tensors, every byte of them 0. */
static void write_tensors(const char *name, const struct stored *list, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes header = {0}, file = {0};
    size_t at = 0;
    FILE *f;

    for (size_t i = 0; i < n; i++, at += list[i - 1].n_bytes)
        dcpk_bytes_printf(
            &header, "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
            i == 0 ? "{" : ", ", list[i].name, list[i].dtype, list[i].shape, at,
            at + list[i].n_bytes);
    dcpk_bytes_u8(&header, '}');
    dcpk_bytes_u64(&file, header.n_bytes);
    dcpk_bytes_put(&file, header.data, header.n_bytes);
    dcpk_bytes_zeros(&file, at);
    CHECK_OK(dcpk_bytes_status(&file, &err), "a file");
    f = fopen(scratch(name), "w");
    CHECK(f != NULL && fwrite(file.data, 1, file.n_bytes, f) == file.n_bytes, name);
    CHECK_EQ_INT(fclose(f), 0, name);
    dcpk_bytes_release(&header);
    dcpk_bytes_release(&file);
}

static void write_folders(void)
{
    CHECK_EQ_INT(mkdir(folder, 0700), 0, folder);
    scratch_write("hf/config.json", config_text);
    write_tensors("hf/model.safetensors", stored, DCPK_COUNT(stored));
    CHECK_EQ_INT(mkdir(adapter, 0700), 0, adapter);
    scratch_write("lora/adapter_config.json", adapter_text);
    write_tensors("lora/adapter_model.safetensors", adapted, DCPK_COUNT(adapted));
}

static struct dcpk_env usual_env(void)
{
    return (struct dcpk_env){
        .formats = dcpk_formats, .kernels = dcpk_host_kernel_sets[0], .n_threads = 1};
}

static struct dcpk_convert_options usual_options(const char *to)
{
    return (struct dcpk_convert_options){.env = usual_env(),
                                         .to = dcpk_format_find(to),
                                         .rules.impl = DCPK_IMPL_TE,
                                         .target.impl = "te"};
}

static dcpk_status plan_only(const struct dcpk_convert_options *options, struct dcpk_error *err)
{
    struct dcpk_conversion c = {0};
    const dcpk_status st = dcpk_conversion_plan(&c, options, err);

    dcpk_conversion_free(&c);
    return st;
}

static dcpk_status import_use(struct dcpk_error *err)
{
    struct dcpk_convert_options options = usual_options("torch_dist");

    options.in = folder;
    return plan_only(&options, err);
}

static dcpk_status adapt_use(struct dcpk_error *err)
{
    struct dcpk_convert_options options = usual_options("torch_dist");

    options.in = folder;
    options.given.lora = (struct dcpk_lora_settings){.merges = true, .adapter = adapter};
    return plan_only(&options, err);
}

static dcpk_status export_use(struct dcpk_error *err)
{
    struct dcpk_convert_options options = usual_options("safetensors");

    options.in = run;
    options.target.family.dtype = DCPK_F32;
    options.target.family.max_file_bytes = 256;
    return plan_only(&options, err);
}

static dcpk_status merge_use(struct dcpk_error *err)
{
    const struct dcpk_merge_input inputs[] = {{folder, 0.75}, {run, 0.25}};
    const struct dcpk_merge_options options = {.env = usual_env(), .inputs = inputs, .n_inputs = 2};
    struct dcpk_convert_options conversion = usual_options("safetensors");
    struct dcpk_merge *merge = NULL;
    uint64_t n_different = 0;

    if (dcpk_merge_open(&options, &merge, &n_different, err))
        return err->status;
    conversion.opened = dcpk_merge_checkpoint(merge);
    (void)plan_only(&conversion, err);
    dcpk_merge_close(merge);
    return err->status;
}

/* A shard of a view's tensor, in memory that nothing touches, as boxes of stored tensors. */
static dcpk_status rename_one(const struct dcpk_remap_view *view,
                              const struct dcpk_feed_views *from, const struct dcpk_feed_views *to,
                              struct dcpk_error *err)
{
    const size_t rank = (size_t)view->view.rank;
    struct dcpk_renamed made = {.arena = dcpk_arena_new(), .are_targets = true};
    int64_t span[2 * DCPK_MAX_RANK] = {0}, strides[DCPK_MAX_RANK] = {0};
    const struct dcpk_shard shard = {.name = view->name,
                                     .dtype = view->view.dtype,
                                     .rank = view->view.rank,
                                     .shape = view->view.shape,
                                     .span = span,
                                     .stride_bytes = strides};
    dcpk_status st;

    memcpy(span + rank, view->view.shape, rank * sizeof *span);
    st = dcpk_rename_shards(from, to, &shard, 1, &made, err);
    dcpk_free(made.shards);
    dcpk_arena_free(made.arena);
    return st;
}

static dcpk_status names_use(struct dcpk_error *err)
{
    static const char *const texts[] = {"megatron:tp=2,ranks=2", "vllm:tp=2,family=toy",
                                        "transformers"};
    const struct dcpk_env env = usual_env();
    struct dcpk_live_options options = {.rank = 1,
                                        .n_ranks = 2,
                                        .hf = dcpk_format_find("safetensors"),
                                        .dcp_hf = dcpk_format_find("dcp_hf")};
    struct dcpk_feed_views *as_stored = NULL, *views = NULL;
    struct dcpk_checkpoint *ckpt = NULL;
    dcpk_status st = dcpk_env_open(&env, run, NULL, NULL, &ckpt, err);

    if (st == DCPK_OK)
        st = dcpk_feed_views_new(ckpt, NULL, NULL, DCPK_FEED_WEIGHTS, &as_stored, err);
    for (size_t i = 0; i < DCPK_COUNT(texts) && st == DCPK_OK; i++) {
        size_t n;

        options.text = texts[i];
        st = dcpk_live_views_new(ckpt, &options, &views, err);
        if (st == DCPK_OK)
            st = rename_one(&dcpk_feed_views(views, &n)[0], views, as_stored, err);
        dcpk_feed_views_free(views);
        views = NULL;
    }
    dcpk_feed_views_free(as_stored);
    dcpk_checkpoint_close(ckpt);
    return st;
}

/* The run that the folder becomes, with which the others begin. */
static int set_up(void **state)
{
    struct dcpk_convert_options options = usual_options("torch_dist");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_conversion c = {0};

    if (scratch_setup(state) != 0)
        return -1;
    (void)snprintf(folder, sizeof folder, "%s", scratch("hf"));
    (void)snprintf(run, sizeof run, "%s", scratch("run"));
    (void)snprintf(adapter, sizeof adapter, "%s", scratch("lora"));
    write_folders();
    options.in = folder;
    options.out = run;
    CHECK_OK(dcpk_conversion_plan(&c, &options, &err), "a run");
    CHECK_OK(dcpk_conversion_run(&c, &err), "a run");
    dcpk_conversion_free(&c);
    return 0;
}

static void imports(void **state)
{
    (void)state;
    every_alloc_fails_but(import_use, 300, 8);
}

static void adapters(void **state)
{
    (void)state;
    every_alloc_fails_but(adapt_use, 300, 30); /* reading its configuration for a note */
}

static void exports(void **state)
{
    (void)state;
    every_alloc_fails_but(export_use, 300, 8);
}

static void merges(void **state)
{
    (void)state;
    every_alloc_fails_but(merge_use, 500, 8);
}

static void names(void **state)
{
    (void)state;
    every_alloc_fails_but(names_use, 500, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(imports), cmocka_unit_test(adapters), cmocka_unit_test(exports),
        cmocka_unit_test(merges),  cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, set_up, scratch_teardown);
}
