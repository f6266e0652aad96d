/* SPDX-License-Identifier: Apache-2.0 */
/* test_mesh_prop.c - random models on random meshes: chunks cover every tensor, and each rank's
 * part is what it would hold. */
#include "formats/megatron/megatron_stacking.h"
#include "lib/model/laid_out.h"
#include "lib/model/registered.h"
#include "tests/fake_model.h"

#define N_ROUNDS 300

/*
 * Sizes of a random model and of the mesh; every size of the model is a multiple of what cuts it.
 */
struct round {
    uint64_t seed;
    char label[64];
    int64_t tp, ep, dp;
    int64_t n_layers, n_experts, hidden, ffn, vocab;
    struct fake fake;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
};

static void add(struct round *r, const char *name, int rank, int64_t rows, int64_t columns,
                bool is_gated)
{
    const uint32_t param = fake_model_weight(r->model, name, rank, rows, columns);

    r->model->params[param].parts = is_gated ? dcpk_gate_up : NULL;
}

static void add_layer(struct round *r, int64_t layer)
{
    const bool has_experts = r->n_experts > 0 && fake_below(&r->seed, 2) == 0;
    char name[128];

#define ADD(rest, ...)                                                                             \
    do {                                                                                           \
        snprintf(name, sizeof name, "decoder.layers.%d." rest, (int)layer);                        \
        add(r, name, __VA_ARGS__);                                                                 \
    } while (0)
    ADD("self_attention.linear_proj.weight", 2, r->hidden, 8 * r->tp, false);
    ADD("self_attention.linear_qkv.layer_norm_weight", 1, r->hidden, 1, false);
    ADD("self_attention.linear_qkv.weight", 2, 24 * r->tp, r->hidden, false);
    ADD("self_attention.linear_qkv.bias", 1, 24 * r->tp, 1, false);
    for (int64_t e = 0; has_experts && e < r->n_experts; e++) {
        snprintf(name, sizeof name, "decoder.layers.%d.mlp.experts.linear_fc1.weight%d", (int)layer,
                 (int)e);
        add(r, name, 2, 2 * r->ffn, r->hidden, true);
        snprintf(name, sizeof name, "decoder.layers.%d.mlp.experts.linear_fc2.weight%d", (int)layer,
                 (int)e);
        add(r, name, 2, r->hidden, r->ffn, false);
    }
    if (has_experts)
        ADD("mlp.router.weight", 2, r->n_experts, r->hidden, false);
    if (has_experts)
        ADD("mlp.router.expert_bias", 1, r->n_experts, 1, false);
    if (!has_experts)
        ADD("mlp.linear_fc1.weight", 2, 2 * r->ffn, r->hidden, true);
    if (!has_experts)
        ADD("mlp.linear_fc2.weight", 2, r->hidden, r->ffn, false);
#undef ADD
}

static void make_round(struct round *r, uint64_t seed)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    memset(r, 0, sizeof *r);
    snprintf(r->label, sizeof r->label, "seed %" PRIu64, seed);
    r->seed = seed;
    r->tp = 1 + fake_below(&r->seed, 4);
    r->ep = 1 + fake_below(&r->seed, 3);
    r->dp = r->ep * (1 + fake_below(&r->seed, 5));
    r->n_layers = 1 + fake_below(&r->seed, 3);
    r->n_experts = r->ep * fake_below(&r->seed, 3);
    r->hidden = 16 * (1 + fake_below(&r->seed, 6));
    r->ffn = r->tp * 8 * (1 + fake_below(&r->seed, 9));
    r->vocab = r->tp * (1 + fake_below(&r->seed, 100));
    r->ckpt = fake_open(&r->fake, r->label);
    r->model = fake_model_new(r->ckpt, r->label);
    add(r, "embedding.word_embeddings.weight", 2, r->vocab, r->hidden, false);
    for (int64_t layer = 0; layer < r->n_layers; layer++)
        add_layer(r, layer);
    add(r, "decoder.final_layernorm.weight", 1, r->hidden, 1, false);
    add(r, "output_layer.weight", 2, r->vocab, r->hidden, false);
    CHECK_OK(dcpk_rules_parallel(r->model, DCPK_IMPL_ANY, &err), r->label);
}

static void release_round(struct round *r)
{
    dcpk_model_free(r->model);
    dcpk_checkpoint_close(r->ckpt);
    fake_release(&r->fake);
}

/* Number of boxes that a tensor must have: stacked slices, halves, ranks. */
static void blocks_are_what_ranks_hold(void **state)
{
    static struct round r;

    (void)state;
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_grid mesh;

        make_round(&r, seed);
        mesh = (struct dcpk_grid){.tp = r.tp, .ep = r.ep, .dp = r.dp};
        for (size_t i = 0; i < r.model->n_tensors; i++) {
            const struct dcpk_model_tensor *t = &r.model->tensors[i];
            const struct dcpk_param *p = &r.model->params[t->param];
            const int n_lead = (int)fake_below(&r.seed, 3);
            const int64_t n_parts = p->parts != NULL ? 2 : 1;
            int64_t shape[4] = {3, 5}, n_blocks = p->tp_axis < 0 ? 1 : n_parts * r.tp;
            const struct dcpk_stacked_shape stored = {shape, n_lead + t->rank, n_lead};
            struct dcpk_span_list list;

            if (n_lead == 1)
                n_blocks *= 3;
            if (n_lead == 2)
                n_blocks *= 15;
            memcpy(shape + n_lead, t->shape, (size_t)t->rank * sizeof *shape);
            CHECK_OK(dcpk_megatron_spans(&mesh, p, &stored, r.model->arena, &list, &err), r.label);
            CHECK_EQ_INT(list.n, n_blocks, r.label);
            CHECK_OK(dcpk_cover_check(shape, stored.rank, list.spans, list.n, &err), r.label);
        }
        release_round(&r);
    }
}

/* Elements of all boxes together. */
static int64_t count_elems(const struct dcpk_out_tensor *t)
{
    int64_t n_elems = 0;

    for (size_t s = 0; s < t->n_spans; s++)
        n_elems += fake_elems(t->spans[s] + t->rank, t->rank);
    return n_elems;
}

/* One part of a parameter (NULL: all): covered, and in at most as many boxes as there are ranks. A
 * cut row is an error that names it. */
static bool check_part(struct round *r, const struct dcpk_laid_out *laid,
                       const struct dcpk_model_tensor *t, const struct dcpk_rows *part)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_out_tensor out = {.rank = t->rank};
    const struct dcpk_param *p = &r->model->params[t->param];
    int64_t shape[2] = {t->shape[0], t->shape[1]},
            n_ranks = (p->expert >= 0 ? r->dp / r->ep : r->dp) * r->tp;

    if (part != NULL)
        shape[0] = part->n_rows;
    out.shape = shape;
    if (dcpk_laid_out_cut(laid, t->param, part, r->model->arena, &out, &err) != DCPK_OK) {
        CHECK(strstr(err.text, "fsdp-layout: row of '") != NULL &&
                  strstr(err.text, p->name) != NULL,
              r->label);
        return false;
    }
    if (p->place == DCPK_NO_PLACE) {
        CHECK(out.spans == NULL, "a buffer is whole");
        return true;
    }
    CHECK(out.spans != NULL, p->name);
    CHECK_OK(dcpk_cover_check(shape, t->rank, out.spans, out.n_spans, &err), p->name);
    CHECK(out.n_spans >= 1 && (int64_t)out.n_spans <= n_ranks, p->name);
    CHECK_EQ_INT(count_elems(&out), fake_elems(shape, t->rank), p->name);
    return true;
}

static void flat_slices_cover_every_parameter(void **state)
{
    static struct round r;
    size_t n_whole = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_laid_out laid = {0};
        struct dcpk_placing placing = {.is_fsdp = true};
        bool good = true;

        make_round(&r, seed);
        placing.grid = (struct dcpk_grid){.tp = r.tp, .ep = r.ep, .dp = r.dp};
        placing.bucket_elems = fake_below(&r.seed, 3) * 500;
        CHECK_OK(dcpk_lay_out(r.model, &placing, &laid, &err), r.label);
        for (size_t i = 0; i < r.model->n_tensors; i++) {
            const struct dcpk_model_tensor *t = &r.model->tensors[i];
            const struct dcpk_param *p = &r.model->params[t->param];
            struct dcpk_split parts;

            CHECK_OK(dcpk_parts_of(r.model, p, r.model->arena, &parts, &err), r.label);
            for (size_t k = 0; k < parts.n; k++)
                good = check_part(&r, &laid, t, parts.list[k].rows) && good;
            if (parts.n == 0)
                good = check_part(&r, &laid, t, NULL) && good;
        }
        n_whole += good;
        dcpk_laid_out_release(&laid);
        release_round(&r);
    }
    CHECK(n_whole > N_ROUNDS / 2, "most layouts cut no row");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_what_ranks_hold),
        cmocka_unit_test(flat_slices_cover_every_parameter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
