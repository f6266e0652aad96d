/* SPDX-License-Identifier: Apache-2.0 */
/* test_mesh_golden.c - the rules cut every tensor as Megatron of that mesh did (the chunks are
 * PyTorch's, test_hash_golden.c). */
#include "formats/megatron/megatron_stacking.h"
#include "lib/exec/find_layout.h"
#include "lib/rules/rules.h"
#include "tests/golden/samples.h"

/* torch_dist checkpoints of whole models; `optimizer`: its state is stored like the weights. */
static const struct {
    const char *name;
    int64_t tp;
    bool optimizer;
    /* Stored ones that the rules must account for, counted in the MANIFEST by hand. */
    size_t n_tensors;
} runs[] = {
    {"torch_dist_a_dense_tp2pp2", 2, false, 9}, {"torch_dist_b_dense_tp2pp2", 2, true, 36},
    {"torch_dist_c_dense_tp2pp2", 2, true, 36}, {"torch_dist_c_dp_reshardable_tp2dp2", 2, false, 9},
    {"torch_dist_c_fp32_dp1", 1, true, 36},     {"torch_dist_c_moe_ep2pp2", 1, true, 120},
    {"v016_moe_ep2pp2", 1, true, 120},
};

static struct dcpk_checkpoint *open_sample(const char *name)
{
    for (size_t s = 0; s < N_SAMPLES; s++)
        if (strncmp(samples[s].folder, name, strlen(name)) == 0 &&
            samples[s].folder[strlen(name)] == '/')
            return sample_open(&samples[s]);
    fail_msg("no sample is called %s", name);
    return NULL;
}

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
    const struct dcpk_stacked_shape stacked = {t->shape, t->rank, t->rank - rank};
    struct dcpk_span_list list;

    CHECK(p->tp_axis != DCPK_TP_UNKNOWN, p->name);
    CHECK_OK(dcpk_megatron_spans(&model->layout, p, &stacked, model->arena, &list, &err), t->key);
    CHECK_EQ_INT(list.n, t->n_chunks, t->key);
    for (size_t i = 0; i < list.n; i++)
        CHECK(has_chunk(model->ckpt, t, list.spans[i]), t->key);
}

static void rules_cut_as_megatron_did(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const struct dcpk_rule_options options = {0};
        struct dcpk_model *model = NULL;
        struct dcpk_checkpoint *ckpt = open_sample(runs[r].name);
        size_t n_checked = 0;

        CHECK_OK(dcpk_model_new(ckpt, &model, &err), runs[r].name);
        model->flags = runs[r].optimizer ? 0 : DCPK_MODEL_WEIGHTS_ONLY;
        CHECK_OK(ckpt->format->mapping->to_model(ckpt, model, &err), runs[r].name);
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

/* fsdp_dtensor checkpoints that Megatron-FSDP's ranks wrote, and how many there were. */
static const struct {
    const char *name;
    struct dcpk_grid mesh;
    size_t n_tensors; /* weights and moments in the MANIFEST */
    size_t n_cut;     /* of them in several chunks */
} fsdp_runs[] = {
    {"fsdp_dtensor_native_dp2", {.dp = 2}, 93, 15},
    {"fsdp_dtensor_native_moe_ep2dp4", {.dp = 4, .ep = 2}, 183, 33},
    {"fsdp_dtensor_telike_dp2_015", {.dp = 2}, 51, 9},
    {"fsdp_dtensor_telike_dp2_019", {.dp = 2}, 51, 9},
    {"fsdp_dtensor_telike_ep2dp4", {.dp = 4, .ep = 2}, 90, 21},
    {"fsdp_dtensor_telike_tp2dp2", {.tp = 2, .dp = 2}, 51, 36},
};

/* The output's boxes of every weight and moment are the source's, which has the same layout. */
static void check_output(const struct dcpk_output *out, size_t *n_tensors, size_t *n_cut)
{
    for (size_t t = 0; t < out->n_tensors; t++) {
        const struct dcpk_out_tensor *made = &out->tensors[t];
        const struct dcpk_tensor *stored = NULL;

        for (size_t k = 0; k < made->n_keys && stored == NULL; k++)
            stored = dcpk_checkpoint_tensor(out->source, made->keys[k]);
        if (made->literal != NULL)
            continue;
        CHECK(stored != NULL, made->keys[0]);
        CHECK_EQ_INT(made->n_spans, stored->n_chunks, stored->key);
        for (size_t i = 0; i < made->n_spans; i++)
            CHECK(has_chunk(out->source, stored, made->spans[i]), stored->key);
        ++*n_tensors;
        *n_cut += made->n_spans > 1;
    }
}

/* The output for `mesh` in the sample's own format, and how its tensors compare with the sample. */
static void check_sample(const char *label, const struct dcpk_grid *mesh, unsigned flags,
                         size_t *n_tensors, size_t *n_cut)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_rule_options options = {.swiglu = DCPK_SWIGLU_ON};
    struct dcpk_checkpoint *ckpt = open_sample(label);
    struct dcpk_model *model = NULL;
    struct dcpk_output *out = NULL;

    *n_tensors = *n_cut = 0;
    CHECK_OK(dcpk_model_new(ckpt, &model, &err), label);
    model->flags = flags;
    CHECK_OK(ckpt->format->mapping->to_model(ckpt, model, &err), label);
    CHECK_OK(dcpk_rules_apply(model, &options, &err), label);
    CHECK_OK(dcpk_output_new(ckpt, ckpt->format, &out, &err), label);
    out->target.mesh = *mesh;
    CHECK_OK(ckpt->format->mapping->from_model(model, out, &err), label);
    check_output(out, n_tensors, n_cut);
    dcpk_output_free(out);
    dcpk_model_free(model);
    dcpk_checkpoint_close(ckpt);
}

static void flat_buffers_are_megatrons(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof fsdp_runs / sizeof fsdp_runs[0]; r++) {
        size_t n_tensors, n_cut;

        check_sample(fsdp_runs[r].name, &fsdp_runs[r].mesh, 0, &n_tensors, &n_cut);
        CHECK_EQ_INT(n_tensors, fsdp_runs[r].n_tensors, fsdp_runs[r].name);
        CHECK_EQ_INT(n_cut, fsdp_runs[r].n_cut, fsdp_runs[r].name);
    }
}

/* Mamba's projections are stored in parts, which a rank has its block of each. */
static void parts_are_cut_as_megatron_did(void **state)
{
    const struct dcpk_grid mesh = {.tp = 2};
    size_t n_tensors, n_cut;

    (void)state;
    check_sample("torch_dist_c_dp_reshardable_mamba", &mesh, DCPK_MODEL_WEIGHTS_ONLY, &n_tensors,
                 &n_cut);
    CHECK_EQ_INT(n_tensors, 43, "weights in the MANIFEST");
    CHECK_EQ_INT(n_cut, 38, "of them in several chunks"); /* all but five norms */
}

/* The layouts of PROVENANCE.txt and of the samples' names, as chunks, RNG states and files show
 * them. */
static const struct {
    const char *name;
    struct dcpk_saved_layout saved;
} saved_runs[] = {
    {"torch_dist_a_dense_tp2pp2", {.tp = 2, .pp = 2, .n_ranks = 4}},
    {"torch_dist_b_dense_tp2pp2", {.tp = 2, .pp = 2, .n_ranks = 4}},
    {"torch_dist_c_dense_tp2pp2", {.tp = 2, .pp = 2, .n_ranks = 4}},
    {"torch_dist_c_dp_reshardable_tp2dp2", {.tp = 2, .pp = 1, .n_ranks = 4}},
    {"torch_dist_c_fp32_dp1", {.tp = 1, .pp = 1}},
    {"torch_dist_c_moe_ep2pp2", {.tp = 1, .etp = 1, .pp = 2, .n_ranks = 4}},
    {"zarr_dense_tp2dp2", {.tp = 2, .pp = 1}},
    {"fsdp_dtensor_native_dp2",
     {.tp = 1, .dp = 2, .hsdp = 1, .n_ranks = 2, .sharding = DCPK_SHARDING_ROWS}},
    {"fsdp_dtensor_native_moe_ep2dp4",
     {.tp = 1, .ep = 2, .dp = 4, .hsdp = 1, .n_ranks = 4, .sharding = DCPK_SHARDING_ROWS}},
    {"fsdp_dtensor_telike_dp2_015",
     {.tp = 1, .dp = 2, .hsdp = 1, .n_ranks = 2, .sharding = DCPK_SHARDING_ROWS}},
    {"fsdp_dtensor_telike_dp2_019",
     {.tp = 1, .dp = 2, .hsdp = 1, .n_ranks = 2, .sharding = DCPK_SHARDING_ROWS}},
    {"fsdp_dtensor_telike_ep2dp4",
     {.tp = 1, .ep = 2, .dp = 4, .hsdp = 1, .n_ranks = 4, .sharding = DCPK_SHARDING_ROWS}},
    {"fsdp_dtensor_telike_tp2dp2",
     {.tp = 2, .dp = 2, .hsdp = 1, .n_ranks = 4, .sharding = DCPK_SHARDING_ROWS}},
    /* two ranks of Megatron's converter, which cut every tensor in two */
    {"fsdp_dtensor_converted_by_megatron", {.n_ranks = 2}},
};

static void layout_is_read_off_chunks(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof saved_runs / sizeof saved_runs[0]; r++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ckpt = open_sample(saved_runs[r].name);
        const struct dcpk_saved_layout *want = &saved_runs[r].saved;
        struct dcpk_saved_layout got;

        CHECK_OK(dcpk_find_layout(ckpt, &got, &err), saved_runs[r].name);
        CHECK_EQ_INT(got.tp, want->tp, saved_runs[r].name);
        CHECK_EQ_INT(got.etp, want->etp, saved_runs[r].name);
        CHECK_EQ_INT(got.pp, want->pp, saved_runs[r].name);
        CHECK_EQ_INT(got.ep, want->ep, saved_runs[r].name);
        CHECK_EQ_INT(got.dp, want->dp, saved_runs[r].name);
        CHECK_EQ_INT(got.hsdp, want->hsdp, saved_runs[r].name);
        CHECK_EQ_INT(got.n_ranks, want->n_ranks, saved_runs[r].name);
        CHECK_EQ_INT(got.sharding, want->sharding, saved_runs[r].name);
        dcpk_checkpoint_close(ckpt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_read_off_chunks),
        cmocka_unit_test(rules_cut_as_megatron_did),
        cmocka_unit_test(flat_buffers_are_megatrons),
        cmocka_unit_test(parts_are_cut_as_megatron_did),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
