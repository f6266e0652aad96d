/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpt_golden.c - the loss and the gradient norm that Megatron logged for the iteration behind
 * a checkpoint, from the weights in it and the tokens of that iteration. */
#include <stdio.h>

#include "formats/formats.h"
#include "lib/base/order.h"
#include "lib/exec/exec.h"
#include "lib/io/store.h"
#include "lib/model/model.h"
#include "lib/rules/rules.h"
#include "tests/gpt_case.h"

#define CURVE     "fp32_curve_nodropout"
#define ITERATION 9  /* behind iter_0000008 */
#define N_TOKENS  33 /* of a stored sample: the sequence and one more */

static struct dcpk_model *open_model(void)
{
    const struct dcpk_rule_options options = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_model *model = NULL;

    CHECK_OK(dcpk_store_open(DCPK_SAMPLES "/" CURVE "/iter_0000008", &store, &err), CURVE);
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), CURVE);
    CHECK_OK(dcpk_model_new(ckpt, &model, &err), CURVE);
    CHECK_OK(ckpt->format->mapping->to_model(ckpt, model, &err), CURVE);
    CHECK_OK(dcpk_rules_canonical(model, &err), CURVE);
    CHECK_OK(dcpk_rules_gate(model, &options, &err), CURVE);
    return model;
}

static void read_param(struct dcpk_exec *exec, const struct dcpk_model *model,
                       const struct dcpk_train_param *p, float *values)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_view_reader *reader = NULL;
    const struct dcpk_model_tensor *tensor = NULL;
    struct dcpk_view view;
    struct dcpk_box whole;

    for (size_t i = 0; i < model->n_params; i++)
        if (strcmp(model->params[i].name, p->canonical) == 0)
            tensor = &model->tensors[model->params[i].tensor[DCPK_WEIGHT]];
    CHECK(tensor != NULL, p->canonical);
    CHECK_EQ_INT(tensor->dtype, DCPK_F32, p->canonical);
    view = (struct dcpk_view){.dtype = tensor->dtype,
                              .rank = tensor->rank,
                              .shape = tensor->shape,
                              .pieces = tensor->pieces,
                              .n_pieces = tensor->n_pieces};
    dcpk_box_whole(view.shape, view.rank, &whole);
    CHECK_OK(dcpk_view_reader_new(exec, &view, &reader, &err), p->canonical);
    CHECK_OK(dcpk_view_reader_read(reader, &whole, values, &err), p->canonical);
    dcpk_view_reader_free(reader);
}

static void read_values(struct gpt_whole *whole)
{
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = open_model();
    struct dcpk_checkpoint *ckpt = model->ckpt;
    struct dcpk_exec *exec = NULL;

    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), CURVE);
    for (size_t i = 0; i < whole->params.n; i++) {
        const struct dcpk_train_param *p = &whole->params.list[i];

        read_param(exec, model, p, whole->values + p->first);
    }
    dcpk_exec_free(exec);
    dcpk_model_free(model);
    dcpk_checkpoint_close(ckpt);
}

static void read_file(const char *name, void *bytes, size_t n)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s/%s", DCPK_SAMPLES, CURVE, name);
    file = fopen(path, "rb");
    CHECK(file != NULL, path);
    memset(bytes, 0, n);
    CHECK(fread(bytes, 1, n, file) > 0, path);
    fclose(file);
}

/* What stands behind `label` in the log's line of an iteration. */
static double logged(const char *log, int iteration, const char *label)
{
    char begin[64];
    const char *line;

    snprintf(begin, sizeof begin, "iteration %8d/", iteration);
    line = strstr(log, begin);
    CHECK(line != NULL, begin);
    line = strstr(line, label);
    CHECK(line != NULL, label);
    return strtod(line + strlen(label), NULL);
}

static struct dcpk_train_config curve_config(void)
{
    struct dcpk_train_config config = gpt_config();

    config.model.layers = 4;
    config.model.hidden = 64;
    config.model.ffn = 96;
    config.model.head_dim = 16;
    config.model.padded_vocab = 256;
    config.model.seq_length = N_TOKENS - 1;
    config.data.global_batch = 2;
    return config;
}

static void a14_loss_is_that_of_megatron(void **state)
{
    const struct dcpk_train_config config = curve_config();
    struct gpt_whole whole;
    char log[16384];
    int32_t tokens[32 * N_TOKENS];
    double loss, norm = 0;

    (void)state;
    gpt_whole_init(&whole, &config);
    read_values(&whole);
    read_file("log.txt", log, sizeof log - 1);
    log[sizeof log - 1] = '\0';
    read_file("tokens.i32", tokens, sizeof tokens);
    whole.tokens = tokens + (ITERATION - 1) * config.data.global_batch * N_TOKENS;
    gpt_run_alone(&whole, &config);
    CHECK_EQ_INT(whole.loss.tokens, 64, "tokens");
    loss = ldexp((double)whole.loss.sum, -32) / (double)whole.loss.tokens;
    for (int64_t e = 0; e < whole.params.n_elems; e++) {
        const double gradient = ldexp((double)whole.sums[e], -GPT_LSB) / (double)whole.loss.tokens;

        norm += gradient * gradient;
    }
    if (fabs(loss / logged(log, ITERATION, "lm loss: ") - 1) > 1e-5)
        fail_msg("loss %.9f, Megatron's is %.9f", loss, logged(log, ITERATION, "lm loss: "));
    /* It is printed with three decimals. */
    if (fabs(sqrt(norm) - logged(log, ITERATION, "grad norm: ")) > 6e-4)
        fail_msg("norm %.5f, Megatron's is %.3f", sqrt(norm),
                 logged(log, ITERATION, "grad norm: "));
    gpt_whole_release(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a14_loss_is_that_of_megatron)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
