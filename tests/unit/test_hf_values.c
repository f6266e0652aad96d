/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_values.c - weights of 8 and 4 bits, read from a folder: each element is its value times
 * the scale of its block. */
#include <math.h>
#include <stdio.h>

#include "formats/safetensors/hf_model.h"
#include "kernels/kernels.h"
#include "lib/base/order.h"
#include "lib/exec/exec.h"
#include "tests/check.h"
#include "tests/hf_folder.h"

#define SIZES                                                                                      \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 8, "       \
    "\"rope_theta\": 10000.0, \"vocab_size\": 5, "
#define L "model.layers.0."

/* Blocks of 3 x 2, which the end of a matrix of 4 x 4 cuts off. */
static const char fp8_config[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES
    "\"hidden_size\": 4, \"head_dim\": 2, \"num_key_value_heads\": 2,"
    " \"intermediate_size\": 6, \"quantization_config\": {\"quant_method\": \"fp8\","
    " \"weight_block_size\": [3, 2]}}";
static const char fp8_lines[] =
    "model.embed_tokens.weight F32 5,4\nlm_head.weight F32 5,4\nmodel.norm.weight F32 4\n" /**/
    L "input_layernorm.weight F32 4\n" L "post_attention_layernorm.weight F32 4\n"         /**/
    L "self_attn.q_proj.weight F32 4,4\n" L "self_attn.k_proj.weight F32 4,4\n"            /**/
    L "self_attn.v_proj.weight F32 4,4\n" L "self_attn.q_norm.weight F32 2\n"              /**/
    L "self_attn.k_norm.weight F32 2\n" L "self_attn.o_proj.weight F8_E4M3 4,4 50+\n"      /**/
    L "self_attn.o_proj.weight_scale_inv F32 2,2 3+\n" L "mlp.gate_proj.weight F32 6,4\n"  /**/
    L "mlp.up_proj.weight F32 6,4\n" L "mlp.down_proj.weight F32 4,6\n";

/* An expert's matrices are of a block a row. */
static const char mxfp4_config[] =
    "{\"architectures\": [\"GptOssForCausalLM\"], " SIZES "\"hidden_size\": 32, \"head_dim\": 2,"
    " \"intermediate_size\": 32, \"num_local_experts\": 2, \"num_experts_per_tok\": 2,"
    " \"num_key_value_heads\": 1, \"sliding_window\": 4, \"rope_scaling\": {\"rope_type\": "
    "\"yarn\","
    " \"factor\": 8.0, \"original_max_position_embeddings\": 32},"
    " \"quantization_config\": {\"quant_method\": \"mxfp4\"}}";
static const char mxfp4_lines[] =
    "model.embed_tokens.weight F32 5,32\nlm_head.weight F32 5,32\nmodel.norm.weight F32 32\n" /**/
    L "input_layernorm.weight F32 32\n" L "post_attention_layernorm.weight F32 32\n"          /**/
    L "self_attn.q_proj.weight F32 4,32\n" L "self_attn.q_proj.bias F32 4\n"                  /**/
    L "self_attn.k_proj.weight F32 2,32\n" L "self_attn.k_proj.bias F32 2\n"                  /**/
    L "self_attn.v_proj.weight F32 2,32\n" L "self_attn.v_proj.bias F32 2\n"                  /**/
    L "self_attn.o_proj.weight F32 32,4\n" L "self_attn.o_proj.bias F32 32\n"                 /**/
    L "self_attn.sinks F32 2\n" L "mlp.router.weight F32 2,32\n" L "mlp.router.bias F32 2\n"  /**/
    L "mlp.experts.gate_up_proj_blocks U8 2,64,1,16 5+\n"                                     /**/
    L "mlp.experts.gate_up_proj_scales U8 2,64,1 100+\n"                                      /**/
    L "mlp.experts.gate_up_proj_bias F32 2,64\n"                                              /**/
    L "mlp.experts.down_proj_blocks U8 2,32,1,16 9+\n"                                        /**/
    L "mlp.experts.down_proj_scales U8 2,32,1 110+\n" L "mlp.experts.down_proj_bias F32 2,32\n";

/* A folder, opened, and the canonical view of it. */
struct view_case {
    struct dcpk_bytes file;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    struct dcpk_exec *exec;
};

static void case_open(struct view_case *c, const char *config, const char *lines)
{
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;

    *c = (struct view_case){.ckpt = NULL};
    CHECK(hf_folder_file(lines, &c->file), lines);
    c->ckpt = hf_folder_open(config, &c->file, &err);
    CHECK(c->ckpt != NULL, err.text);
    CHECK_OK(dcpk_model_new(c->ckpt, &c->model, &err), "a model");
    CHECK_OK(dcpk_hf_to_model(c->ckpt, c->model, &err), "a model");
    CHECK_OK(dcpk_exec_new(c->ckpt, &env, &c->exec, &err), "an executor");
}

static void case_close(struct view_case *c)
{
    dcpk_exec_free(c->exec);
    dcpk_model_free(c->model);
    dcpk_checkpoint_close(c->ckpt);
    dcpk_bytes_release(&c->file);
}

/* All elements of a parameter. */
static void case_read(const struct view_case *c, const char *name, float *elements)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_view_reader *reader = NULL;
    const struct dcpk_model_tensor *t;
    struct dcpk_view view;
    struct dcpk_box whole;
    uint64_t param;

    CHECK(dcpk_map_get(&c->model->param_by_name, name, strlen(name), &param), name);
    t = dcpk_model_value(c->model, &c->model->params[param]);
    CHECK_EQ_INT(t->dtype, DCPK_F32, name);
    view = (struct dcpk_view){.dtype = t->dtype,
                              .rank = t->rank,
                              .shape = t->shape,
                              .pieces = t->pieces,
                              .n_pieces = t->n_pieces};
    dcpk_box_whole(t->shape, t->rank, &whole);
    CHECK_OK(dcpk_view_reader_new(c->exec, &view, &reader, &err), name);
    CHECK_OK(dcpk_view_reader_read(reader, &whole, elements, &err), name);
    dcpk_view_reader_free(reader);
}

/* OCP 8-bit floating point, E4M3: 4 bits of exponent, biased by 7, and 3 of fraction. */
static double e4m3(unsigned code)
{
    const int exponent = code >> 3 & 15;
    const double fraction = code & 7, sign = code & 128 ? -1 : 1;

    if (exponent == 0)
        return sign * ldexp(fraction, -9);
    return sign * ldexp(8 + fraction, exponent - 10);
}

static void values_of_8_bits(void **state)
{
    struct view_case c;
    float got[16];

    (void)state;
    case_open(&c, fp8_config, fp8_lines);
    case_read(&c, "decoder.layers.0.self_attention.linear_proj.weight", got);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 4; j++) {
            const double scale = 3 + i / 3 * 2 + j / 2;

            CHECK(got[4 * i + j] == (float)(e4m3(50 + 4 * i + j) * scale), "an element");
        }
    case_close(&c);
}

/* Element (row, column) of expert e, of rows of one block each; first: of the codes, of the scales.
 */
static double mxfp4(unsigned e, unsigned row, unsigned column, unsigned n_rows,
                    const unsigned first[2])
{
    static const double values[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    const unsigned block = e * n_rows + row;
    const unsigned byte = first[0] + (16 * block + column / 2) % 64;
    const unsigned code = column % 2 == 0 ? byte & 15 : byte >> 4;

    return ldexp(code & 8 ? -values[code & 7] : values[code], (int)(first[1] + block % 64) - 127);
}

static void values_of_4_bits(void **state)
{
    static const unsigned up[] = {5, 100}, down[] = {9, 110};
    static float got[64 * 32];
    struct view_case c;
    char name[100];

    (void)state;
    case_open(&c, mxfp4_config, mxfp4_lines);
    for (unsigned e = 0; e < 2; e++) {
        (void)snprintf(name, sizeof name, "decoder.layers.0.mlp.experts.linear_fc1.weight%u", e);
        case_read(&c, name, got);
        for (unsigned i = 0; i < 64 * 32; i++) {
            const unsigned r = i / 32, stored = r < 32 ? 2 * r : 2 * (r - 32) + 1;

            CHECK(got[i] == (float)mxfp4(e, stored, i % 32, 64, up), name);
        }
        (void)snprintf(name, sizeof name, "decoder.layers.0.mlp.experts.linear_fc2.weight%u", e);
        case_read(&c, name, got);
        for (unsigned i = 0; i < 32 * 32; i++)
            CHECK(got[i] == (float)mxfp4(e, i / 32, i % 32, 32, down), name);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_8_bits),
        cmocka_unit_test(values_of_4_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
