/* SPDX-License-Identifier: Apache-2.0 */
/* test_mesh_golden.c - the rules cut every tensor as Megatron of that mesh did (the chunks are
 * PyTorch's, test_hash_golden.c). */
#include "formats/megatron/megatron_spans.h"
#include "lib/rules/rules.h"
#include "tests/golden/samples.h"

/* torch_dist checkpoints of whole models; `optimizer`: its state is stored like the weights. */
static const struct {
    const char *name;
    int64_t tp;
    bool optimizer;
    size_t n_tensors; /* stored ones that the rules must account for, counted in the MANIFEST by
                         hand */
} runs[] = {
    {"torch_dist_a_dense_tp2pp2", 2, false, 9}, {"torch_dist_b_dense_tp2pp2", 2, true, 36},
    {"torch_dist_c_dense_tp2pp2", 2, true, 36}, {"torch_dist_c_dp_reshardable_tp2dp2", 2, false, 9},
    {"torch_dist_c_fp32_dp1", 1, true, 36},     {"torch_dist_c_moe_ep2pp2", 1, true, 120},
};

static bool has_chunk(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t,
                      const int64_t *span)
{
    for (size_t i = t->first_chunk; i < t->first_chunk + t->n_chunks; i++)
        if (memcmp(ckpt->chunks[i].span, span, 2 * (size_t)t->rank * sizeof *span) == 0)
            return true;
    return false;
}

static void check_tensor(const struct dcpk_model *model, const struct dcpk_param *p, int rank,
                         uint32_t stored)
{
    const struct dcpk_tensor *t = &model->ckpt->tensors[stored];
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int64_t **spans;
    size_t n;

    CHECK(p->tp_axis != DCPK_TP_UNKNOWN, p->name);
    CHECK_OK(dcpk_megatron_spans(&model->layout, p, t->shape, t->rank, t->rank - rank, model->arena,
                                 &spans, &n, &err),
             t->key);
    CHECK_EQ_INT(n, t->n_chunks, t->key);
    for (size_t i = 0; i < n; i++)
        CHECK(has_chunk(model->ckpt, t, spans[i]), t->key);
}

static void rules_cut_as_megatron_did(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const struct dcpk_rule_options options = {0};
        struct dcpk_model *model = NULL;
        struct dcpk_checkpoint *ckpt = NULL;
        size_t n_checked = 0;

        for (size_t s = 0; s < N_SAMPLES && ckpt == NULL; s++)
            if (strncmp(samples[s].folder, runs[r].name, strlen(runs[r].name)) == 0 &&
                samples[s].folder[strlen(runs[r].name)] == '/')
                ckpt = sample_open(&samples[s]);
        CHECK(ckpt != NULL, runs[r].name);
        CHECK_OK(dcpk_model_new(ckpt, &model, &err), runs[r].name);
        model->flags = runs[r].optimizer ? 0 : DCPK_MODEL_WEIGHTS_ONLY;
        CHECK_OK(ckpt->format->to_model(ckpt, model, &err), runs[r].name);
        CHECK_OK(dcpk_rules_apply(model, &options, &err), runs[r].name);
        CHECK_EQ_INT(model->layout.tp, runs[r].tp, runs[r].name);
        for (size_t i = 0; i < model->n_tensors; i++) {
            const struct dcpk_model_tensor *t = &model->tensors[i];
            bool is_slice = false; /* of a stored tensor that was checked by its first one */

            CHECK_EQ_INT(t->n_pieces, 1, model->params[t->param].name);
            for (int a = 0; a < t->pieces->src_rank; a++)
                is_slice = is_slice || t->pieces->span[a] > 0;
            if (t->pieces->src >= ckpt->n_tensors || is_slice)
                continue;
            check_tensor(model, &model->params[t->param], t->rank, t->pieces->src);
            n_checked++;
        }
        CHECK_EQ_INT(n_checked, runs[r].n_tensors, runs[r].name);
        dcpk_model_free(model);
        dcpk_checkpoint_close(ckpt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_cut_as_megatron_did)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
