/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_round.c - a folder as a model and back: the same names, shapes and dtypes, repeated
 * tensors too. (Where their elements lie: test_hf_families.c.) */
#include <stdio.h>

#include "formats/safetensors/hf_model.h"
#include "lib/base/order.h"
#include "tests/check.h"
#include "tests/hf_folder.h"

/* Seeds of the fuzz target hf_map: letters, a map, config.json and tensors. */
static const char *const seeds[] = {"llama", "qwen3",   "mixtral",  "qwen2_moe",
                                    "gpt2",  "gpt_oss", "nemotron", "deepseek_v3"};

static void read_seed(const char *name, char *text, size_t capacity)
{
    char path[1024];
    FILE *file;
    size_t n;

    (void)snprintf(path, sizeof path, DCPK_SOURCE_DIR "/tests/fuzz/corpus/hf_map/%s", name);
    file = fopen(path, "r");
    CHECK(file != NULL, path);
    n = fread(text, 1, capacity - 1, file);
    (void)fclose(file);
    CHECK(n < capacity - 1, path);
    text[n] = '\0';
}

/* Cut the text at the next empty line; returns what is behind it. */
static char *cut(char *text, const char *label)
{
    char *end = strstr(text, "\n\n");

    CHECK(end != NULL, label);
    *end = '\0';
    return end + 2;
}

/* Every tensor that is written is one that was read, as it was. */
static void check_written(const struct dcpk_checkpoint *ckpt, const struct dcpk_output *out)
{
    for (size_t t = 0; t < out->n_tensors; t++) {
        const struct dcpk_out_tensor *made = &out->tensors[t];
        const char *key = made->keys[0];
        const struct dcpk_tensor *stored = dcpk_checkpoint_tensor(ckpt, key);
        const int rank = made->written_shape == NULL ? made->rank : made->written_rank;
        const int64_t *shape = made->written_shape == NULL ? made->shape : made->written_shape;

        CHECK(stored != NULL, key);
        CHECK_EQ_INT(made->dtype, stored->dtype, key);
        CHECK_EQ_INT(rank, stored->rank, key);
        for (int a = 0; a < rank; a++)
            CHECK_EQ_INT(shape[a], stored->shape[a], key);
    }
}

/* A folder on its way to a model and back. */
struct round {
    struct dcpk_bytes file;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    struct dcpk_output *out;
};

/* dtype: that is asked for; DCPK_DTYPE_NONE: none is. */
static void round_run(struct round *r, const char *config, const char *lines, enum dcpk_dtype dtype)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    *r = (struct round){.ckpt = NULL};
    CHECK(hf_folder_file(lines, &r->file), lines);
    r->ckpt = hf_folder_open(config, &r->file, &err);
    CHECK(r->ckpt != NULL, err.text);
    CHECK_OK(dcpk_model_new(r->ckpt, &r->model, &err), config);
    CHECK_OK(dcpk_hf_to_model(r->ckpt, r->model, &err), config);
    CHECK_OK(dcpk_output_new(r->ckpt, r->ckpt->format, &r->out, &err), config);
    r->out->target.family.dtype = dtype;
    CHECK_OK(dcpk_hf_from_model(r->model, r->out, &err), config);
}

static void round_release(struct round *r)
{
    dcpk_output_free(r->out);
    dcpk_model_free(r->model);
    dcpk_checkpoint_close(r->ckpt);
    dcpk_bytes_release(&r->file);
}

static void there_and_back(void **state)
{
    static char text[1 << 15];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(seeds); i++) {
        struct round r;
        char *config;

        read_seed(seeds[i], text, sizeof text);
        config = cut(text, seeds[i]);
        round_run(&r, config, cut(config, seeds[i]), DCPK_DTYPE_NONE);
        CHECK_EQ_INT(r.out->n_tensors, r.ckpt->n_tensors, seeds[i]);
        check_written(r.ckpt, r.out);
        round_release(&r);
    }
}

/* Norms of float32 beside weights of float16: all become what loses nothing, or what is asked for.
 */
static void several_dtypes(void **state)
{
    static const struct {
        enum dcpk_dtype asked, want;
    } cases[] = {{DCPK_DTYPE_NONE, DCPK_F32}, {DCPK_F16, DCPK_F16}};
    static char text[1 << 15];
    char *config, *lines;

    (void)state;
    read_seed("llama", text, sizeof text);
    config = cut(text, "llama");
    lines = cut(config, "llama");
    for (char *at = lines; (at = strstr(at, "weight F32")) != NULL; at++)
        if (at - lines < 5 || strncmp(at - 5, "norm.", 5) != 0)
            memcpy(at, "weight F16", strlen("weight F16"));
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct round r;

        round_run(&r, config, lines, cases[i].asked);
        for (size_t t = 0; t < r.out->n_tensors; t++)
            CHECK_EQ_INT(r.out->tensors[t].dtype, cases[i].want, r.out->tensors[t].keys[0]);
        round_release(&r);
    }
}

/* What every model computes anew is left out, whatever it is stored as: GPT-2's causal masks are
 * float32, uint8 or bool. */
static void masks_are_left_out(void **state)
{
    static const char *const masks[] = {"F32", "U8", "BOOL"};
    static char text[1 << 15];
    char *config, *lines;

    (void)state;
    read_seed("gpt2", text, sizeof text);
    config = cut(text, "gpt2");
    lines = cut(config, "gpt2");
    for (size_t i = 0; i < DCPK_COUNT(masks); i++) {
        char more[1 << 15];
        struct round r;

        (void)snprintf(more, sizeof more,
                       "h.0.attn.bias %s 1,1,4,4\nh.1.attn.masked_bias F32 1\n%s", masks[i], lines);
        round_run(&r, config, more, DCPK_DTYPE_NONE);
        CHECK_EQ_INT(r.out->n_tensors, r.ckpt->n_tensors - 2, masks[i]);
        check_written(r.ckpt, r.out);
        round_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_left_out),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(several_dtypes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
