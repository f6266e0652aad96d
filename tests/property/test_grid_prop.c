/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid_prop.c - all that know where ranks and layers are agree with Megatron, and with each
 * other about what a rank holds. */
/*
 * tests/golden/grids.txt has what Megatron's RankGenerator and its layer rules say
 * (tests/interop/grids.py). Random models on random grids of up to 64 ranks then go through remap,
 * the flat buffers of a conversion and the tables of a training run.
 */
#include <stdlib.h>

#include "formats/megatron/buckets/megatron_cut.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/laid_out.h"
#include "lib/model/registered.h"
#include "lib/model/sizes.h"
#include "lib/place/grid.h"
#include "lib/rules/mesh.h"
#include "lib/train/fsdp.h"
#include "lib/train/run_mesh.h"
#include "tests/fake_model.h"

#define N_ROUNDS  1000
#define MAX_RANKS 64
#define WIDTH     24 /* of every weight: what 1, 2, 3 and 4 ranks divide */

/* ---- models ---- */

struct fixture {
    struct fake fake;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
};

static void fixture_open(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    f->ckpt = fake_open(&f->fake, "fixture");
    f->model = fake_model_new(f->ckpt, "model");
}

static void fixture_close(struct fixture *f)
{
    dcpk_model_free(f->model);
    dcpk_checkpoint_close(f->ckpt);
    fake_release(&f->fake);
}

/* One weight a layer, each with an expert per number if there are any, and both ends. */
static void fixture_fill(struct fixture *f, int64_t n_layers, int64_t n_experts)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char name[80];

    fixture_open(f);
    fake_model_weight(f->model, "embedding.word_embeddings.weight", 2, WIDTH, 2);
    for (int64_t layer = 0; layer < n_layers; layer++) {
        snprintf(name, sizeof name, "decoder.layers.%d.self_attention.linear_qkv.weight",
                 (int)layer);
        fake_model_weight(f->model, name, 2, WIDTH, 2);
        for (int64_t e = 0; e < n_experts; e++) {
            snprintf(name, sizeof name, "decoder.layers.%d.mlp.experts.linear_fc2.weight%d",
                     (int)layer, (int)e);
            fake_model_weight(f->model, name, 2, 2, WIDTH);
        }
    }
    fake_model_weight(f->model, "decoder.final_layernorm.weight", 1, WIDTH, 1);
    fake_model_weight(f->model, "output_layer.weight", 2, WIDTH, 2);
    CHECK_OK(dcpk_rules_parallel(f->model, DCPK_IMPL_ANY, &err), "parallel");
}

/* ---- Megatron's grids ---- */

/* A line of tests/golden/grids.txt. */
struct grid_line {
    char label[160];
    int64_t tp, cp, ep, etp, dp, pp;
    bool is_tp_pp_dp, is_refused;
    int64_t ranks[MAX_RANKS][6]; /* tp, cp, dp, pp, ep, edp */
};

static const char *take_word(char **line)
{
    char *word = *line;

    *line += strcspn(*line, " \n");
    if (**line != '\0')
        *(*line)++ = '\0';
    return word;
}

static int64_t take_size(char **line)
{
    return strtoll(take_word(line), NULL, 10);
}

static void grid_parse(char *line, struct grid_line *g)
{
    snprintf(g->label, sizeof g->label, "%.40s", line);
    take_word(&line);
    g->tp = take_size(&line);
    g->cp = take_size(&line);
    g->ep = take_size(&line);
    g->etp = take_size(&line);
    g->dp = take_size(&line);
    g->pp = take_size(&line);
    g->is_tp_pp_dp = strcmp(take_word(&line), "tp-cp-ep-pp-dp") == 0;
    g->is_refused = *line == '-';
    for (int64_t r = 0; r < g->tp * g->cp * g->dp * g->pp && !g->is_refused; r++) {
        char *word = (char *)(uintptr_t)take_word(&line);

        for (int i = 0; i < 6; i++, word++)
            g->ranks[r][i] = strtoll(word, &word, 10);
    }
}

/* Groups are not looked at: test_run_mesh.c does. */
static dcpk_status no_split(struct dcpk_group *of, int colour, struct dcpk_group **group,
                            struct dcpk_error *err)
{
    (void)of;
    (void)colour;
    (void)err;
    *group = NULL;
    return DCPK_OK;
}

static const struct dcpk_collectives no_collectives = {.split = no_split};

/* A training run has no tensor parallelism of its own for experts. */
static void check_training(const struct grid_line *g)
{
    const struct dcpk_grid layout = {.tp = g->tp,
                                     .cp = g->cp,
                                     .ep = g->ep,
                                     .pp = g->pp,
                                     .dp = g->dp,
                                     .instances = 1,
                                     .is_tp_pp_dp = g->is_tp_pp_dp};
    const int n = (int)(g->tp * g->cp * g->dp * g->pp);

    if (g->etp != g->tp)
        return;
    for (int r = 0; r < n; r++) {
        struct dcpk_group world = {&no_collectives, r, n, 0, NULL};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_train_mesh m;

        if (g->is_refused) {
            CHECK_FAILS(dcpk_train_mesh_init(&layout, &world, &m, &err), DCPK_EUSAGE, "ranks",
                        g->label);
            continue;
        }
        CHECK_OK(dcpk_train_mesh_init(&layout, &world, &m, &err), g->label);
        CHECK_EQ_INT(m.at.tp, g->ranks[r][0], g->label);
        CHECK_EQ_INT(m.at.cp, g->ranks[r][1], g->label);
        CHECK_EQ_INT(m.at.dp, g->ranks[r][2], g->label);
        CHECK_EQ_INT(m.at.pp, g->ranks[r][3], g->label);
        CHECK_EQ_INT(m.at.ep, g->ranks[r][4], g->label);
        CHECK_EQ_INT(m.at.edp, g->ranks[r][5], g->label);
    }
}

static void check_grid(const struct grid_line *g)
{
    const struct dcpk_grid grid = {.tp = g->tp,
                                   .cp = g->cp,
                                   .ep = g->ep,
                                   .etp = g->etp,
                                   .dp = g->dp,
                                   .pp = g->pp,
                                   .is_tp_pp_dp = g->is_tp_pp_dp};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_EQ_INT(dcpk_grid_check_ranks(&grid, dcpk_grid_ranks(&grid), &err) != DCPK_OK,
                 g->is_refused, g->label);
    for (int64_t r = 0; r < dcpk_grid_ranks(&grid) && !g->is_refused; r++) {
        const struct dcpk_coords c = dcpk_grid_coords(&grid, r);
        const int64_t found[] = {c.tp, c.cp, c.dp, c.pp, c.ep, c.edp};

        for (size_t i = 0; i < DCPK_COUNT(found); i++)
            CHECK_EQ_INT(found[i], g->ranks[r][i], g->label);
    }
}

/* Is the tensor where Megatron has it: on the rank, in that block of its axis, in that copy? */
static void check_local(const struct dcpk_laid_out *laid, const struct grid_line *g, size_t t,
                        int64_t rank)
{
    const struct dcpk_model_tensor *tensor = &laid->model->tensors[t];
    const struct dcpk_param *p = &laid->model->params[tensor->param];
    const int64_t *at = g->ranks[rank], n_layers = 2 * g->pp;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_local local;
    int64_t stage = g->pp - 1, tp = at[0], n_tp = g->tp, copy = at[1] + g->cp * at[2];
    const char *number = p->name + strlen("decoder.layers.");
    bool holds = true;

    if (dcpk_starts_with(p->name, "embedding."))
        stage = 0;
    if (dcpk_starts_with(p->name, "decoder.layers."))
        stage = strtoll(number, NULL, 10) / (n_layers / g->pp);
    if (p->expert >= 0) {
        holds = p->expert / 2 == at[4];
        n_tp = g->etp;
        copy = at[5];
        /* A stage's ranks count etp fastest. */
        tp = rank % (g->tp * g->cp * g->dp) % g->etp;
    }
    if (p->tp_axis < 0) {
        copy = copy * n_tp + tp;
        tp = 0;
        n_tp = 1;
    }
    CHECK_OK(dcpk_laid_out_find(laid, tensor, rank, laid->arena, &local, &err), g->label);
    CHECK_EQ_INT(local.copy >= 0, holds && stage == at[3], g->label);
    if (local.copy < 0)
        return;
    CHECK_EQ_INT(local.copy, copy, g->label);
    CHECK_EQ_INT(local.n, 1, g->label);
    if (p->tp_axis >= 0)
        CHECK_EQ_INT(local.spans[0][p->tp_axis], tp * (WIDTH / n_tp), p->name);
}

/* remap: stages are last, so that the other order has no name there. */
static void check_remap(const struct grid_line *g)
{
    struct dcpk_grid mesh = {
        .tp = g->tp, .pp = g->pp, .dp = g->dp, .ep = g->ep, .cp = g->cp, .etp = g->etp};
    const struct dcpk_placing layout = {.grid = mesh};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_laid_out laid = {0};
    static struct fixture f;

    if (g->is_tp_pp_dp)
        return;
    fixture_fill(&f, 2 * g->pp, 2 * g->ep);
    if (g->is_refused) {
        CHECK_FAILS(dcpk_rules_mesh(f.model, &mesh, &err), DCPK_EMISMATCH, "does not divide",
                    g->label);
        fixture_close(&f);
        return;
    }
    CHECK_OK(dcpk_rules_mesh(f.model, &mesh, &err), g->label);
    if (mesh.etp == mesh.tp) { /* left out, it means the same */
        mesh.etp = 0;
        CHECK_OK(dcpk_rules_mesh(f.model, &mesh, &err), g->label);
    }
    CHECK_OK(dcpk_lay_out(f.model, &layout, &laid, &err), g->label);
    for (size_t t = 0; t < f.model->n_tensors; t++)
        for (int64_t r = 0; r < g->tp * g->cp * g->dp * g->pp; r++)
            check_local(&laid, g, t, r);
    dcpk_laid_out_release(&laid);
    fixture_close(&f);
}

/* The buckets of 3D-parallel training: how many ranks share one. */
static void check_buckets(const struct grid_line *g)
{
    const struct fake_arg args[] = {
        {"tensor_model_parallel_size", .value = g->tp},
        {"pipeline_model_parallel_size", .value = g->pp},
        {"expert_model_parallel_size", .value = g->ep},
        {"expert_tensor_parallel_size", .value = g->etp},
        {"num_layers", .value = 2 * g->pp},
        {"num_experts", .value = 2 * g->ep},
        {"world_size", .value = g->tp * g->cp * g->dp * g->pp},
        {.name = NULL},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    int64_t n_slices = 0, n_expert_slices = 0;
    struct dcpk_cut cut;

    if (g->is_refused && !g->is_tp_pp_dp) {
        CHECK_FAILS(dcpk_cut_read(fake_args(arena, args), arena, &cut, &err), DCPK_EFORMAT, "args",
                    g->label);
    } else if (!g->is_refused) {
        CHECK_OK(dcpk_cut_read(fake_args(arena, args), arena, &cut, &err), g->label);
        for (int64_t r = 0; r < g->tp * g->cp * g->dp * g->pp; r++) {
            n_slices = dcpk_max_i64(n_slices, g->ranks[r][1] + g->cp * g->ranks[r][2] + 1);
            n_expert_slices = dcpk_max_i64(n_expert_slices, g->ranks[r][5] + 1);
        }
        CHECK_EQ_INT(cut.n_slices, n_slices, g->label);
        CHECK_EQ_INT(cut.n_expert_slices, n_expert_slices, g->label);
    }
    dcpk_arena_free(arena);
}

/* ---- Megatron's pipelines ---- */

struct stages_line {
    char label[160];
    int64_t layers, pp, vpp, first, last;
    bool is_refused;
    int64_t chunk_of[16]; /* by layer: chunk * pp + stage */
};

static void stages_parse(char *line, struct stages_line *s)
{
    snprintf(s->label, sizeof s->label, "%.40s", line);
    take_word(&line);
    s->layers = take_size(&line);
    s->pp = take_size(&line);
    s->vpp = take_size(&line);
    s->first = take_size(&line);
    s->last = take_size(&line);
    s->is_refused = *line == '-';
    for (int64_t c = 0; c < s->pp * dcpk_max_i64(s->vpp, 1) && !s->is_refused; c++) {
        char *word = (char *)(uintptr_t)take_word(&line);
        const int64_t first = strtoll(word, &word, 10), n = strtoll(word + 1, NULL, 10);

        for (int64_t layer = first; layer < first + n; layer++)
            s->chunk_of[layer] = c;
    }
}

/* Args of a pipeline that Megatron refuses are in no checkpoint. */
static void check_stages_of_cut(const struct stages_line *s)
{
    struct fake_arg args[] = {
        {"tensor_model_parallel_size", .value = 1},
        {"pipeline_model_parallel_size", .value = s->pp},
        {"num_layers", .value = s->layers},
        {"world_size", .value = s->pp},
        {"virtual_pipeline_model_parallel_size", .value = s->vpp},
        {"decoder_first_pipeline_num_layers", .value = s->first},
        {"decoder_last_pipeline_num_layers", .value = s->last},
        {.name = NULL},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_cut cut;

    for (size_t i = 4; i < 7; i++)
        if (args[i].value == 0)
            args[i].text = "None";
    if (!s->is_refused) {
        CHECK_OK(dcpk_cut_read(fake_args(arena, args), arena, &cut, &err), s->label);
        for (int64_t layer = 0; layer < s->layers; layer++) {
            const struct dcpk_registered reg = {
                .section = DCPK_DECODER_LAYERS, .layer = layer, .expert = -1};
            int64_t chunk;

            CHECK_OK(dcpk_cut_find(&cut, &reg, &chunk, &err), s->label);
            CHECK_EQ_INT(chunk, s->chunk_of[layer], s->label);
        }
    }
    dcpk_arena_free(arena);
}

static void check_stages_of_grid(const struct stages_line *s)
{
    const struct dcpk_grid grid = {.pp = s->pp, .vpp = s->vpp, .first = s->first, .last = s->last};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t layer = 0;

    CHECK_EQ_INT(dcpk_grid_check_stages(&grid, s->layers, 0, &err) != DCPK_OK, s->is_refused,
                 s->label);
    for (int64_t c = 0; c < s->pp * dcpk_max_i64(s->vpp, 1) && !s->is_refused; c++)
        for (int64_t i = dcpk_grid_chunk_layers(&grid, s->layers, 0, c); i > 0; i--, layer++) {
            CHECK_EQ_INT(s->chunk_of[layer], c, s->label);
            CHECK_EQ_INT(dcpk_grid_stage(&grid, s->layers, layer), c % s->pp, s->label);
        }
    CHECK_EQ_INT(layer, s->is_refused ? 0 : s->layers, s->label);
}

static void check_stages_of_remap(const struct stages_line *s)
{
    const struct dcpk_grid mesh = {.tp = 1,
                                   .pp = s->pp,
                                   .dp = 1,
                                   .ep = 1,
                                   .cp = 1,
                                   .etp = 1,
                                   .vpp = s->vpp,
                                   .first = s->first,
                                   .last = s->last};
    const struct dcpk_placing layout = {.grid = mesh};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_laid_out laid = {0};
    static struct fixture f;

    fixture_fill(&f, s->layers, 0);
    if (s->is_refused) {
        CHECK_FAILS(dcpk_rules_mesh(f.model, &mesh, &err), DCPK_EMISMATCH, "layers", s->label);
    } else {
        CHECK_OK(dcpk_rules_mesh(f.model, &mesh, &err), s->label);
        CHECK_OK(dcpk_lay_out(f.model, &layout, &laid, &err), s->label);
        for (int64_t layer = 0; layer < s->layers; layer++) {
            const struct dcpk_model_tensor *t = &f.model->tensors[1 + layer];

            for (int64_t rank = 0; rank < s->pp; rank++) {
                struct dcpk_local local;

                CHECK_OK(dcpk_laid_out_find(&laid, t, rank, laid.arena, &local, &err), s->label);
                CHECK_EQ_INT(local.copy >= 0, s->chunk_of[layer] % s->pp == rank, s->label);
            }
        }
    }
    dcpk_laid_out_release(&laid);
    fixture_close(&f);
}

/* The stages of a training run are equal, and each is one chunk. */
static void check_stages_of_training(const struct stages_line *s)
{
    const struct dcpk_train_config config = {.model = {.layers = s->layers},
                                             .layout = {.pp = s->pp}};

    if (s->is_refused || s->vpp > 0 || s->first > 0 || s->last > 0)
        return;
    for (int64_t pp = 0; pp < s->pp; pp++) {
        int64_t first, last;

        dcpk_train_stage(&config, pp, &first, &last);
        for (int64_t layer = 0; layer < s->layers; layer++)
            CHECK_EQ_INT(layer >= first && layer < last, s->chunk_of[layer] == pp, s->label);
    }
}

static void all_stand_where_megatron_does(void **state)
{
    FILE *file = fopen(DCPK_SOURCE_DIR "/tests/golden/grids.txt", "r");
    static struct grid_line g;
    static struct stages_line s;
    static char line[4096];
    size_t n_grids = 0, n_stages = 0;

    (void)state;
    CHECK(file != NULL, "grids.txt");
    while (fgets(line, sizeof line, file) != NULL) {
        if (dcpk_starts_with(line, "grid ")) {
            grid_parse(line, &g);
            check_grid(&g);
            check_training(&g);
            check_remap(&g);
            check_buckets(&g);
            n_grids++;
        } else {
            stages_parse(line, &s);
            check_stages_of_grid(&s);
            check_stages_of_cut(&s);
            check_stages_of_remap(&s);
            check_stages_of_training(&s);
            n_stages++;
        }
    }
    fclose(file);
    CHECK(n_grids > 50 && n_stages > 200, "lines");
}

/* ---- what a rank holds ---- */

/* A small GPT on a random grid. */
struct round {
    char label[200];
    struct dcpk_train_config config;
    bool is_fsdp;
    int64_t n_ranks;
    struct fixture f;
    struct dcpk_laid_out laid;
    struct dcpk_arena *arena;
    struct dcpk_train_params params; /* of one rank */
};

static void round_make_config(struct round *r, uint64_t seed)
{
    struct dcpk_grid *l = &r->config.layout;
    struct dcpk_train_model *m = &r->config.model;

    do {
        *l = (struct dcpk_grid){.tp = INT64_C(1) << fake_below(&seed, 3),
                                .cp = 1 + fake_below(&seed, 3),
                                .dp = 1 + fake_below(&seed, 6),
                                .pp = 1 + fake_below(&seed, 4),
                                .ep = INT64_C(1) << fake_below(&seed, 3),
                                .instances = 1 + fake_below(&seed, 3)};
        r->is_fsdp = fake_below(&seed, 2) == 1;
        if (r->is_fsdp)
            l->pp = 1;
        else
            l->instances = 1;
        r->n_ranks = l->tp * l->cp * l->dp * l->pp;
    } while (r->n_ranks > MAX_RANKS || l->cp * l->dp % (l->ep * l->instances) != 0);
    *m = (struct dcpk_train_model){.layers = l->pp * (1 + fake_below(&seed, 2)),
                                   .hidden = 8 * l->tp * (1 + fake_below(&seed, 3)),
                                   .ffn = 4 * l->tp * (1 + fake_below(&seed, 9)),
                                   .heads = 2 * l->tp,
                                   .groups = l->tp,
                                   .head_dim = 4 * (1 + fake_below(&seed, 2)),
                                   .padded_vocab = 16 * l->tp * (1 + fake_below(&seed, 8)),
                                   .has_qk_norm = fake_below(&seed, 2) == 1,
                                   .mtp_layers = fake_below(&seed, 4) == 0,
                                   .impl = DCPK_IMPL_TE,
                                   .is_grouped = true};
    /* Experts of a training run are not cut: of a conversion's FSDP ranks they are. */
    if (l->ep > 1 && l->tp > 1)
        l->ep = 1;
    if (l->ep > 1 || (l->tp == 1 && fake_below(&seed, 3) == 0)) {
        m->experts = l->ep * (1 + fake_below(&seed, 2));
        m->moe_ffn = 4 * (1 + fake_below(&seed, 9));
        m->has_expert_bias = fake_below(&seed, 2) == 1;
    }
    r->config.fsdp.mode = r->is_fsdp ? DCPK_MODE_MEGATRON_FSDP : DCPK_MODE_DDP;
    r->config.fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
    r->config.fsdp.bucket_elems = fake_below(&seed, 3) * 500;
}

static void round_read_params(struct round *r, int64_t tp, int64_t ep, int64_t pp)
{
    const struct dcpk_coords place = {.tp = tp, .ep = ep, .pp = pp};
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_train_params(&r->config, &place, r->arena, &r->params, &err), r->label);
}

/* The model whose ranks have the table's parameters. */
static void round_fill_model(struct round *r)
{
    const struct dcpk_grid *l = &r->config.layout;
    struct dcpk_error err = DCPK_ERROR_INIT;

    fixture_open(&r->f);
    for (int64_t i = 0; i < l->pp * l->ep; i++) {
        round_read_params(r, 0, i % l->ep, i / l->ep);
        for (size_t k = 0; k < r->params.n; k++) {
            const struct dcpk_train_param *p = &r->params.list[k];
            uint32_t param;

            if (p->is_shared || (i % l->ep > 0 && p->expert < 0))
                continue;
            param = fake_model_weight(r->f.model, p->canonical, p->rank, p->whole[0], p->whole[1]);
            r->f.model->params[param].parts = p->has_halves ? dcpk_gate_up : NULL;
        }
    }
    CHECK_OK(dcpk_rules_parallel(r->f.model, DCPK_IMPL_TE, &err), r->label);
}

static void round_make(struct round *r, uint64_t seed)
{
    const struct dcpk_grid *l = &r->config.layout;
    struct dcpk_placing layout = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;

    memset(r, 0, sizeof *r);
    round_make_config(r, seed);
    snprintf(r->label, sizeof r->label,
             "seed %" PRIu64 ": tp %" PRId64 " cp %" PRId64 " ep %" PRId64 " dp %" PRId64
             " pp %" PRId64 " instances %" PRId64 " experts %" PRId64 " %s",
             seed, l->tp, l->cp, l->ep, l->dp, l->pp, l->instances, r->config.model.experts,
             r->is_fsdp ? "FSDP" : "DDP");
    r->arena = dcpk_arena_new();
    round_fill_model(r);
    layout.grid = (struct dcpk_grid){
        .tp = l->tp, .cp = l->cp, .dp = l->dp, .pp = l->pp, .ep = l->ep, .etp = 1};
    if (r->is_fsdp) {
        layout.is_fsdp = true;
        layout.bucket_elems = r->config.fsdp.bucket_elems;
        layout.grid = (struct dcpk_grid){
            .tp = l->tp, .dp = l->dp * l->cp, .ep = l->ep, .instances = l->instances};
    }
    CHECK_OK(dcpk_lay_out(r->f.model, &layout, &r->laid, &err), r->label);
}

static void round_release(struct round *r)
{
    dcpk_laid_out_release(&r->laid);
    dcpk_arena_free(r->arena);
    fixture_close(&r->f);
}

/* Rows [row, row + n_rows) of this rank's part of a parameter are what remap gives the rank. */
static void check_rows(const struct round *r, const struct dcpk_train_param *p,
                       const struct dcpk_local *local, int64_t row, int64_t n_rows)
{
    int64_t n = 0;

    CHECK_EQ_INT(local->shape[0], n_rows, p->canonical);
    for (size_t b = 0; b < local->n; b++) {
        const int64_t *span = local->spans[b], at = span[2 * p->rank];

        for (int64_t i = 0; i < span[p->rank]; i++, n++)
            CHECK_EQ_INT(span[0] + i, dcpk_train_param_row(p, row + at + i), r->label);
        if (p->rank > 1) {
            CHECK_EQ_INT(span[1], p->offset[1], p->canonical);
            CHECK_EQ_INT(span[p->rank + 1], p->shape[1], p->canonical);
        }
    }
    CHECK_EQ_INT(n, n_rows, p->canonical);
}

/* The buffers of this rank's table, in rows of each parameter. */
struct buffers {
    struct dcpk_fsdp_param *params;
    struct dcpk_fsdp_place *places;
};

static void buffers_make(struct round *r, struct buffers *b)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n = 0;

    b->params = dcpk_arena_array(r->arena, r->params.n, sizeof *b->params, &err);
    b->places = dcpk_arena_array(r->arena, r->params.n, sizeof *b->places, &err);
    CHECK(b->params != NULL && b->places != NULL, "memory");
    for (size_t i = 0; i < r->params.n; i++)
        if (!r->params.list[i].is_buffer)
            b->params[n++] = dcpk_fsdp_flat(&r->config, &r->params.list[i]);
    CHECK_OK(dcpk_fsdp_layout(b->params, n, r->config.fsdp.bucket_elems, b->places, &err),
             r->label);
}

static void check_rank(struct round *r, const struct dcpk_train_mesh *at)
{
    const int64_t n_inner = r->config.layout.cp * r->config.layout.dp / r->config.layout.instances;
    const int64_t shard = (at->at.cp + r->config.layout.cp * at->at.dp) % n_inner;
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n_held = 0, n_table = 0, in_buffers = 0;
    struct buffers buffers = {0};
    struct dcpk_local local;

    round_read_params(r, at->at.tp, at->at.ep, at->at.pp);
    if (r->is_fsdp)
        buffers_make(r, &buffers);
    for (size_t t = 0; t < r->f.model->n_tensors; t++) {
        CHECK_OK(
            dcpk_laid_out_find(&r->laid, &r->f.model->tensors[t], at->rank, r->arena, &local, &err),
            r->label);
        n_held += local.copy >= 0;
    }
    for (size_t i = 0; i < r->params.n; i++) {
        const struct dcpk_train_param *p = &r->params.list[i];
        int64_t row = 0, n_rows = p->shape[0], first;
        uint32_t param;

        if (r->is_fsdp && !p->is_buffer) {
            const int64_t share =
                p->expert >= 0 ? at->at.edp % (n_inner / r->config.layout.ep) : shard;
            struct dcpk_box box;

            CHECK_OK(dcpk_fsdp_shard(&buffers.params[in_buffers], &buffers.places[in_buffers],
                                     share, &box, &first, &err),
                     r->label);
            row = box.offset[0];
            n_rows = box.extent[0];
            in_buffers++;
        }
        if (p->is_shared)
            continue;
        n_table++;
        param = fake_model_param(r->f.model, p->canonical);
        CHECK_OK(dcpk_laid_out_find(
                     &r->laid, &r->f.model->tensors[r->f.model->params[param].tensor[DCPK_WEIGHT]],
                     at->rank, r->arena, &local, &err),
                 r->label);
        CHECK(local.copy >= 0, p->canonical);
        check_rows(r, p, &local, row, n_rows);
    }
    CHECK_EQ_INT(n_held, n_table, r->label);
}

/* The chunks that a conversion writes of rows of a parameter are what ranks of the first copy hold
 * of them; every element once. */
static void check_chunks(struct round *r, const struct dcpk_model_tensor *t,
                         const struct dcpk_rows *rows)
{
    const int64_t first = rows == NULL ? 0 : rows->row;
    int64_t shape[2] = {rows == NULL ? t->shape[0] : rows->n_rows, t->shape[1]};
    struct dcpk_out_tensor made = {.rank = t->rank, .shape = shape};
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n_found = 0;

    CHECK_OK(dcpk_laid_out_cut(&r->laid, t->param, rows, r->arena, &made, &err), r->label);
    if (r->f.model->params[t->param].place == DCPK_NO_PLACE) {
        CHECK(made.spans == NULL, "a buffer is whole");
        return;
    }
    CHECK_OK(dcpk_cover_check(shape, t->rank, made.spans, made.n_spans, &err), r->label);
    for (int64_t rank = 0; rank < r->n_ranks; rank++) {
        struct dcpk_local local;

        CHECK_OK(dcpk_laid_out_find(&r->laid, t, rank, r->arena, &local, &err), r->label);
        for (size_t b = 0; b < local.n && local.copy == 0; b++) {
            const int64_t *span = local.spans[b];
            const int64_t low = dcpk_max_i64(span[0] - first, 0);
            const int64_t high = dcpk_min_i64(span[0] + span[t->rank] - first, shape[0]);

            for (size_t i = 0; i < made.n_spans; i++)
                n_found +=
                    made.spans[i][0] == low && made.spans[i][t->rank] == high - low &&
                    (t->rank == 1 || (made.spans[i][1] == span[1] && made.spans[i][3] == span[3]));
        }
    }
    CHECK_EQ_INT(n_found, made.n_spans, r->f.model->params[t->param].name);
}

static void check_all_chunks(struct round *r)
{
    for (size_t i = 0; i < r->f.model->n_tensors && r->is_fsdp; i++) {
        const struct dcpk_model_tensor *t = &r->f.model->tensors[i];
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_split parts;

        CHECK_OK(dcpk_parts_of(r->f.model, &r->f.model->params[t->param], r->arena, &parts, &err),
                 r->label);
        for (size_t k = 0; k < parts.n; k++)
            check_chunks(r, t, parts.list[k].rows);
        if (parts.n == 0)
            check_chunks(r, t, NULL);
    }
}

static void ranks_hold_the_same_everywhere(void **state)
{
    static struct round r;

    (void)state;
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++) {
        round_make(&r, seed);
        for (int rank = 0; rank < (int)r.n_ranks; rank++) {
            struct dcpk_group world = {&no_collectives, rank, (int)r.n_ranks, 0, NULL};
            struct dcpk_error err = DCPK_ERROR_INIT;
            struct dcpk_train_mesh at;

            CHECK_OK(dcpk_train_mesh_init(&r.config.layout, &world, &at, &err), r.label);
            check_rank(&r, &at);
        }
        check_all_chunks(&r);
        round_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stand_where_megatron_does),
        cmocka_unit_test(ranks_hold_the_same_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
