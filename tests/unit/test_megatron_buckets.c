/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_buckets.c - DDP buckets replayed: where parameters lie, and what does not fit. */
#include "formats/megatron/buckets/megatron_bucket_list.h"
#include "formats/megatron/buckets/megatron_cut.h"
#include "formats/megatron/megatron.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "tests/fake_model.h"

/* --- a checkpoint of bucket tensors --- */

#define PREFIX "optimizer.distributed.dp_group_idx_0."

/*
 * The dense model of formats/torch_dist/FORMAT.md 5.4: hidden 64, 4 heads, ffn 96, vocabulary 256,
 * 4 layers, TP1 DP4, one bucket of 172608 elements, padded 172672, slices of 43168.
 */
static const struct {
    const char *key;
    int rank;
    int64_t shape[3];
} weights[] = {
    {"embedding.word_embeddings.weight", 2, {256, 64}},
    {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", 2, {4, 64}},
    {"decoder.layers.self_attention.linear_proj.weight", 3, {4, 64, 64}},
    {"decoder.layers.self_attention.linear_qkv.weight", 3, {4, 192, 64}},
    {"decoder.layers.mlp.linear_fc1.layer_norm_weight", 2, {4, 64}},
    {"decoder.layers.mlp.linear_fc1.weight", 3, {4, 192, 64}},
    {"decoder.layers.mlp.linear_fc2.weight", 3, {4, 64, 96}},
    {"decoder.final_layernorm.weight", 1, {64}},
    {"output_layer.weight", 2, {256, 64}},
};
#define N_WEIGHTS (sizeof weights / sizeof weights[0])

/*
 * Sizes in the order in which they lie in a layer, the last registered first: output_layer,
 * final_layernorm, then layers 3..0, then embedding (formats/torch_dist/FORMAT.md 5.4).
 */
static const int64_t local_layer[] = {6144, 12288, 64, 12288, 4096, 64};
static const int64_t te_layer[] = {6144, 12288, 64, 12288, 64, 4096};

/* What a test changes. */
struct variant {
    const char *label;
    bool is_te;       /* lies in Transformer Engine's order */
    int padded_axes;  /* of fully_sharded_bucket_space; 0: dp_reshardable */
    bool slices_only; /* chunks are the slices of ranks, as in zarr */
    int64_t ranks;    /* data-parallel ranks whose slices the first chunk holds, 0: one */
    int64_t moved;    /* element that the second boundary is moved by */
    int64_t more;     /* elements behind the last parameter */
    int64_t recorded; /* other than n_elems by this */
    bool no_record;
    bool has_scaler;        /* of an fp16 run */
    bool bad_scaler;        /* an empty list */
    bool odd_moment;        /* exp_avg_sq is cut once less */
    const char *extra;      /* a further weight */
    const char *dtype;      /* of parameters in the key: NULL: bfloat16 */
    enum dcpk_dtype master; /* DCPK_DTYPE_NONE: fp32 */
    bool is_plain;          /* no buckets */
    const char *set;        /* args.<set> is True; NULL: none */
    const char *off;        /* args.<off> is 0, as False is; NULL: none */
    int64_t pp;             /* pipeline stages that args tell in a plain one; 0: one */
    const char *layout;     /* NULL: dp_reshardable */
    unsigned flags;         /* enum dcpk_model_flags */
    dcpk_status status;
    const char *text;
};

#define OLD .layout = "fully_sharded_bucket_space"

#define MAX_CUTS 64
#define N_PADDED 172672
#define SLICE    43168
struct made {
    int64_t cuts[MAX_CUTS];
    size_t n_cuts;
    int64_t n_elems;
    const struct variant *variant;
};
static struct made made; /* what `buckets_format` opens */

static void add_cut(int64_t at)
{
    size_t i = made.n_cuts;

    for (size_t k = 0; k < made.n_cuts; k++)
        if (made.cuts[k] == at)
            return;
    for (; i > 0 && made.cuts[i - 1] > at; i--)
        made.cuts[i] = made.cuts[i - 1];
    made.cuts[i] = at;
    made.n_cuts++;
}

static void make_cuts(const struct variant *v)
{
    const int64_t *layer = v->is_te ? te_layer : local_layer;
    int64_t at = 16384 + 64;

    made.n_cuts = 0;
    add_cut(0);
    add_cut(16384 + v->moved);
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < 6; i++) {
            add_cut(at);
            at += layer[i];
        }
    add_cut(at);
    made.n_elems = at + 16384 + v->more;
    if (v->slices_only)
        made.n_cuts = 1;
    for (int r = 1; r < 4; r++)
        add_cut(SLICE * r);
    if (v->padded_axes > 0 && !v->slices_only)
        add_cut(made.n_elems); /* the padding is a chunk of the last rank */
}

/* One tensor with chunks along axis 0 that begin at `starts`. */
static dcpk_status add_tensor(struct dcpk_checkpoint *ckpt, const char *key, enum dcpk_dtype dtype,
                              int rank, const int64_t *shape, const int64_t *starts, size_t n,
                              struct dcpk_error *err)
{
    const struct dcpk_tensor tensor = {.key = key,
                                       .dtype = dtype,
                                       .rank = rank,
                                       .shape = shape,
                                       .first_chunk = ckpt->n_chunks,
                                       .n_chunks = n};

    for (size_t i = 0; i < n; i++) {
        struct dcpk_box box;
        int64_t *span = dcpk_arena_array(ckpt->arena, 2 * (size_t)rank, sizeof *span, err);

        dcpk_box_whole(shape, rank, &box);
        box.offset[0] = starts[i];
        box.extent[0] = (i + 1 < n ? starts[i + 1] : shape[0]) - starts[i];
        dcpk_box_pack(&box, span);
        ckpt->chunks[ckpt->n_chunks++] =
            (struct dcpk_chunk){.tensor = (uint32_t)ckpt->n_tensors, .span = span};
    }
    return dcpk_checkpoint_add_tensor(ckpt, &tensor, err);
}

/* One state of the bucket: its parameters, and with `padded_axes` its padding; on two axes the
 * first is that of the slices. */
static dcpk_status add_bucket(struct dcpk_checkpoint *ckpt, const char *key, enum dcpk_dtype dtype,
                              size_t n_cuts, struct dcpk_error *err)
{
    static const int64_t padded[] = {N_PADDED}, slices[] = {N_PADDED / SLICE, SLICE};
    const struct variant *v = made.variant;
    const bool is_flat = v->padded_axes < 2;
    dcpk_status st = add_tensor(ckpt, key, dtype, 1, v->padded_axes == 0 ? &made.n_elems : padded,
                                made.cuts, n_cuts, err);
    struct dcpk_tensor *tensor = &ckpt->tensors[ckpt->n_tensors - 1];

    if (st != DCPK_OK || is_flat)
        return st;
    tensor->rank = 2;
    tensor->shape = slices;
    for (size_t i = 0; i < n_cuts; i++) {
        int64_t *span = dcpk_arena_array(ckpt->arena, 4, sizeof *span, err);
        const int64_t *of = ckpt->chunks[tensor->first_chunk + i].span;

        span[0] = of[0] / SLICE;
        span[1] = of[0] % SLICE;
        span[2] = i == 0 && v->ranks > 0 ? v->ranks : 1;
        span[3] = of[1];
        ckpt->chunks[tensor->first_chunk + i].span = span;
    }
    return DCPK_OK;
}

static dcpk_status open_buckets(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char *const states[] = {"param", "exp_avg", "exp_avg_sq"};
    static const char *const records[] = {PREFIX "per_bucket_numel/shard_0_1",
                                          PREFIX "per_bucket_numel_unpadded/shard_0_1",
                                          PREFIX "optimizer/shard_0_1"};
    static const int64_t layers[] = {0, 1, 2, 3}, gate_up[] = {0};
    const struct variant *v = made.variant;
    dcpk_status st = DCPK_OK;

    ckpt->files = dcpk_alloc_array(1, sizeof *ckpt->files, err);
    ckpt->chunks = dcpk_alloc_array(1024, sizeof *ckpt->chunks, err);
    CHECK(dcpk_store_find(ckpt->store, "file", &ckpt->files[0], err) == DCPK_OK, v->label);
    ckpt->n_files = 1;
    for (size_t i = 0; i < N_WEIGHTS && st == DCPK_OK; i++)
        st = add_tensor(ckpt, weights[i].key, DCPK_BF16, weights[i].rank, weights[i].shape,
                        weights[i].shape[0] == 4 ? layers : gate_up,
                        weights[i].shape[0] == 4 ? 4 : 1, err);
    if (v->extra != NULL && st == DCPK_OK)
        st = add_tensor(ckpt, v->extra, DCPK_BF16, 1, weights[7].shape, gate_up, 1, err);
    for (size_t s = 0; s < 3 && st == DCPK_OK && !v->is_plain; s++) {
        const enum dcpk_dtype dtype = s == 0 && v->master != DCPK_DTYPE_NONE ? v->master : DCPK_F32;
        const char *key = dcpk_arena_printf(
            ckpt->arena, err, PREFIX "gbuf_idx_0.dtype_(torch.%s, torch.float32).bucket_idx_0.%s",
            v->dtype != NULL ? v->dtype : "bfloat16", states[s]);

        st = add_bucket(ckpt, key, dtype, made.n_cuts - (s == 2 && v->odd_moment), err);
    }
    for (size_t i = v->no_record ? 2 : 0; i < 3 && st == DCPK_OK && !v->is_plain; i++) {
        const struct dcpk_object object = {.key = records[i]};

        st = dcpk_checkpoint_add_object(ckpt, &object, err);
    }
    if (v->has_scaler && st == DCPK_OK)
        st = dcpk_checkpoint_add_object(
            ckpt, &(struct dcpk_object){.key = PREFIX "grad_scaler/shard_0_1"}, err);
    return st;
}

/* [[{(dtype, dtype): [numel]}]], and [{"param_groups": []}]. */
static dcpk_status load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                               struct dcpk_arena *arena, const struct dcpk_value **value,
                               struct dcpk_error *err)
{
    const int64_t n =
        strstr(object->key, "unpadded") != NULL ? made.n_elems + made.variant->recorded : N_PADDED;
    const struct dcpk_value *item = dcpk_value_int(arena, n, err), *list;
    struct dcpk_value_pair pair = {dcpk_value_str(arena, "(dtype, dtype)", err), NULL};

    (void)ckpt;
    if (strstr(object->key, ".grad_scaler/") != NULL) {
        *value = dcpk_value_seq(arena, DCPK_V_LIST, &item, made.variant->bad_scaler ? 0 : 1, err);
        return DCPK_OK;
    }
    if (strstr(object->key, ".optimizer/") != NULL) {
        pair.key = dcpk_value_str(arena, "param_groups", err);
        pair.value = dcpk_value_seq(arena, DCPK_V_LIST, NULL, 0, err);
        item = dcpk_value_dict(arena, &pair, 1, err);
        *value = dcpk_value_seq(arena, DCPK_V_LIST, &item, 1, err);
        return DCPK_OK;
    }
    pair.value = dcpk_value_seq(arena, DCPK_V_LIST, &item, 1, err);
    item = dcpk_value_dict(arena, &pair, 1, err);
    list = dcpk_value_seq(arena, DCPK_V_LIST, &item, 1, err);
    *value = dcpk_value_seq(arena, DCPK_V_LIST, &list, 1, err);
    return DCPK_OK;
}

/* Common state with these args; dcpk_megatron_to_model asks for it. */
static dcpk_status load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct variant *v = made.variant;
    const struct fake_arg settings[] = {
        {"pipeline_model_parallel_size", .value = v->pp > 0 ? v->pp : 1},
        FAKE_ARGS,
        {v->set != NULL ? v->set : v->off, .text = v->set != NULL ? "True" : NULL},
        {.name = NULL}};
    const char *layout = v->layout != NULL ? v->layout : "dp_reshardable";
    struct dcpk_value_pair content = {dcpk_value_str(arena, "distrib_optim_sharding_type", err),
                                      dcpk_value_str(arena, layout, err)};
    const struct dcpk_value_pair pairs[] = {
        {dcpk_value_str(arena, "args", err), fake_args(arena, settings)},
        {dcpk_value_str(arena, "content_metadata", err), dcpk_value_dict(arena, &content, 1, err)},
    };

    (void)ckpt;
    *value = dcpk_value_dict(arena, pairs, 2, err);
    return DCPK_OK;
}

static const struct dcpk_format_reader buckets_reader = {.load_object = load_object};
static const struct dcpk_format buckets_format = {.name = "buckets",
                                                  .probe = fake_probe,
                                                  .open = open_buckets,
                                                  .load_common = load_common,
                                                  .reader = &buckets_reader};

/* Open a variant and view it; the caller closes the model. */
static dcpk_status view_variant(const struct variant *v, struct dcpk_model **model,
                                struct dcpk_error *err)
{
    made.variant = v;
    make_cuts(v);
    *model = fake_model_open(&buckets_format, "", 0, v->label);
    (*model)->flags = v->flags;
    return dcpk_megatron_to_model((*model)->ckpt, *model, err);
}

/* Where the first element of a parameter's state lies in its bucket. */
static int64_t place_of(const struct dcpk_model *model, const char *name, enum dcpk_role role)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    const struct dcpk_chunk *chunk;
    const struct dcpk_chunk_run *run;
    uint64_t p;

    if (!dcpk_map_get(&model->param_by_name, name, strlen(name), &p))
        return -1;
    chunk = &ckpt->chunks[ckpt->tensors[model->tensors[model->params[p].tensor[role]].pieces->src]
                              .first_chunk];
    run = dcpk_checkpoint_chunk_run(ckpt, chunk);
    chunk = &ckpt->chunks[run->of];
    return (ckpt->tensors[chunk->tensor].rank == 1 ? chunk->span[0]
                                                   : chunk->span[0] * SLICE + chunk->span[1]) +
           run->first;
}

static const struct {
    const char *name;
    int64_t local, te;
} places[] = {
    /*
     * formats/torch_dist/FORMAT.md 5.4: chunks at 0, 16384, 16448, 22592, 34880, 34944 | 43168,
     * 47232, 51328.
     */
    {"output_layer.weight", 0, 0},
    {"decoder.final_layernorm.weight", 16384, 16384},
    {"decoder.layers.3.mlp.linear_fc2.weight", 16448, 16448},
    {"decoder.layers.3.mlp.linear_fc1.weight", 22592, 22592},
    {"decoder.layers.3.mlp.linear_fc1.layer_norm_weight", 34880, 34880},
    {"decoder.layers.3.self_attention.linear_qkv.weight", 34944, 34944},
    {"decoder.layers.3.self_attention.linear_proj.weight", 47232, 47296},
    {"decoder.layers.3.self_attention.linear_qkv.layer_norm_weight", 51328, 47232},
    {"decoder.layers.2.mlp.linear_fc2.weight", 51392, 51392},
    {"embedding.word_embeddings.weight", 156224, 156224},
};

static void parameters_lie_where_the_spec_found_them(void **state)
{
    static const struct variant variants[] = {
        {.label = "local"},
        {.label = "te", .is_te = true},
        {.label = "core 0.8", .padded_axes = 1, OLD},
        {.label = "core 0.11", .padded_axes = 2, OLD},
        {.label = "zarr", .padded_axes = 1, .slices_only = true, OLD},
    };

    (void)state;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model;

        CHECK_OK(view_variant(&variants[v], &model, &err), variants[v].label);
        CHECK(model->needs_proof && model->has_optimizer, variants[v].label);
        CHECK_EQ_INT(model->n_params, 27, variants[v].label);
        CHECK_EQ_INT(model->n_tensors, 4 * 27, variants[v].label);
        CHECK_EQ_INT(model->ckpt->n_views, 3 * 27, variants[v].label);
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
            for (enum dcpk_role role = DCPK_MASTER; role <= DCPK_EXP_AVG_SQ; role++)
                CHECK_EQ_INT(place_of(model, places[i].name, role),
                             variants[v].is_te ? places[i].te : places[i].local, places[i].name);
        /* args say local, and name no option of a later release than core 0.6: each starts where
         * the one before ends, which is a multiple of 64 here; another order is told. */
        CHECK((model->ckpt->notes != NULL) == variants[v].is_te, variants[v].label);
        fake_model_close(model);
    }
}

static const struct variant bad[] = {
    {.label = "a boundary that no parameter makes",
     .moved = 64,
     .status = DCPK_EMISMATCH,
     .text = "cuts it at element 16384, the next stored chunk begins at 16448"},
    {.label = "elements behind the last parameter",
     .more = 64,
     .status = DCPK_EMISMATCH,
     .text = "has 172672 elements, the parameters laid into it end at 172608"},
    {.label = "too small for the last",
     .more = -64,
     .status = DCPK_EMISMATCH,
     .text = "parameter 'embedding.word_embeddings.weight' of 16384 begins at 156224"},
    {.label = "another size on record",
     .recorded = 128,
     .status = DCPK_EFORMAT,
     .text = "172608 elements, recorded are 172736"},
    {.label = "no record",
     .no_record = true,
     .status = DCPK_EFORMAT,
     .text = "sizes of buckets are not recorded"},
    {.label = "a moment that is cut otherwise",
     .odd_moment = true,
     .status = DCPK_EFORMAT,
     .text = "must be cut alike"},
    {.label = "a parameter of no known order",
     .extra = "decoder.vision.weight",
     .status = DCPK_EUNSUPPORTED,
     .text = "'decoder.vision.weight': the place of this parameter"},
    {.label = "a parameter more than the bucket has",
     .extra = "decoder.final_layernorm.bias",
     .status = DCPK_EMISMATCH,
     .text = "no known order of registration fits"},
    {.label = "FP8 parameters",
     .dtype = "uint8",
     .status = DCPK_EUNSUPPORTED,
     .text = "buckets of uint8 parameters are not decoded"},
    {.label = "remainders of masters",
     .master = DCPK_I16,
     .status = DCPK_EUNSUPPORTED,
     .text = "holds remainders of masters"},
    {.label = "masters in another encoding",
     .master = DCPK_BF16,
     .status = DCPK_EUNSUPPORTED,
     .text = "own encoding is not decoded"},
    {.label = "zarr, elements behind the last parameter",
     .padded_axes = 1,
     .slices_only = true,
     .more = 64,
     OLD,
     .status = DCPK_EMISMATCH,
     .text = "has 172672 elements, the parameters laid into it end at 172608"},
    {.label = "padding that is not stored",
     .padded_axes = 1,
     .status = DCPK_EFORMAT,
     .text = "172672 elements, recorded are 172608, padded 172672"},
    {.label = "no padding stored",
     OLD,
     .status = DCPK_EFORMAT,
     .text = "172608 elements, recorded are 172608, padded 172672"},
    {.label = "two axes",
     .padded_axes = 2,
     .status = DCPK_EFORMAT,
     .text = "has 2 axes, a bucket has one"},
    {.label = "a chunk of two slices",
     .padded_axes = 2,
     .ranks = 2,
     OLD,
     .status = DCPK_EFORMAT,
     .text = "a chunk of 2 ranks' slices at once"},
    {.label = "a boundary that no release makes",
     .padded_axes = 1,
     .moved = 64,
     OLD,
     .status = DCPK_EMISMATCH,
     .text = "cuts it at element 16384, the next stored chunk begins at 16448"},
    {.label = "a dtype that the weights do not have",
     .dtype = "float16",
     .status = DCPK_EMISMATCH,
     .text = "no float16 parameters are expected"},
};

static void buckets_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model;

        CHECK_FAILS(view_variant(&bad[i], &model, &err), bad[i].status, bad[i].text, bad[i].label);
        CHECK((err.fixes & DCPK_FIX_WEIGHTS_ONLY) != 0, bad[i].label);
        CHECK(!model->needs_proof, bad[i].label);
        fake_model_close(model);
    }
}

static bool is_left_out(const struct dcpk_model *model, const char *key)
{
    const struct dcpk_note *lists[] = {model->omitted, model->dropped};

    for (size_t i = 0; i < 2; i++)
        for (const struct dcpk_note *note = lists[i]; note != NULL; note = note->next)
            if (dcpk_starts_with(note->text, key))
                return true;
    return false;
}

/* fully_reshardable of a precision-aware optimizer may hold remainders of masters as numbers (seen
 * in saves of core 0.19.0): only the weights show it. */
static void masters_in_doubt_need_a_proof(void **state)
{
#define MASTER "optimizer.state.param.decoder.final_layernorm.weight"
    static const struct {
        struct variant variant;
        bool has_master, needs_proof;
    } cases[] = {
        {{.label = "plain"}, .has_master = true},
        {{.label = "precise", .set = "use_precision_aware_optimizer"},
         .has_master = true,
         .needs_proof = true},
        {{.label = "weights alone",
          .set = "use_precision_aware_optimizer",
          .flags = DCPK_MODEL_WEIGHTS_ONLY},
         .has_master = false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model;
        struct variant variant = cases[i].variant;
        bool has_master = false;

        variant.is_plain = true;
        variant.extra = MASTER;
        CHECK_OK(view_variant(&variant, &model, &err), cases[i].variant.label);
        for (size_t t = 0; t < model->n_tensors; t++)
            has_master |= model->tensors[t].role == DCPK_MASTER;
        CHECK_EQ_INT(has_master, cases[i].has_master, cases[i].variant.label);
        CHECK_EQ_INT(model->needs_proof, cases[i].needs_proof, cases[i].variant.label);
        CHECK_EQ_INT(is_left_out(model, MASTER), !cases[i].has_master, cases[i].variant.label);
        fake_model_close(model);
    }
}

/* dp_reshardable keeps it in an object of its own (seen in a save of core 0.19.0 with --fp16). */
static void loss_scalers_are_kept(void **state)
{
    static const struct {
        struct variant variant;
        bool is_kept, is_dropped;
    } cases[] = {
        {{.label = "none"}, .is_kept = false},
        {{.label = "one", .has_scaler = true}, .is_kept = true},
        {{.label = "weights alone", .has_scaler = true, .flags = DCPK_MODEL_WEIGHTS_ONLY},
         .is_dropped = true},
        {{.label = "no value", .has_scaler = true, .bad_scaler = true}, .is_dropped = true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model;

        CHECK(view_variant(&cases[i].variant, &model, &err) == cases[i].variant.status,
              cases[i].variant.label);
        CHECK_EQ_INT(model->scaler != NULL, cases[i].is_kept, cases[i].variant.label);
        CHECK_EQ_INT(is_left_out(model, cases[i].variant.bad_scaler ? PREFIX "grad_scaler"
                                                                    : "optimizer.grad_scaler"),
                     cases[i].is_dropped, cases[i].variant.label);
        fake_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_scalers_are_kept),
        cmocka_unit_test(parameters_lie_where_the_spec_found_them),
        cmocka_unit_test(buckets_that_do_not_fit_are_refused),
        cmocka_unit_test(masters_in_doubt_need_a_proof),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
