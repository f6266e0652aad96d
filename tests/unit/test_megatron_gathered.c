/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_gathered.c - optimizer state gathered into an object: every element where DDP's
 * rules put it, whatever release, and what does not fit. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/megatron/buckets/megatron_bucket_list.h"
#include "formats/megatron/megatron.h"
#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/model/model.h"
#include "tests/fake_model.h"

#define PREFIX "optimizer.distributed.dp_group_idx_0."

/* Hidden 8, ffn 12, vocabulary 16, 2 layers: few sizes are multiples of 64. Stored as Megatron
 * does, layers stacked. */
static const struct {
    const char *key;
    bool is_stacked;
    int rank;
    int64_t shape[3];
} weights[] = {
    {"embedding.word_embeddings.weight", false, 2, {16, 8}},
    {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", true, 2, {2, 8}},
    {"decoder.layers.self_attention.linear_proj.weight", true, 3, {2, 8, 8}},
    {"decoder.layers.self_attention.linear_qkv.weight", true, 3, {2, 24, 8}},
    {"decoder.layers.mlp.linear_fc1.layer_norm_weight", true, 2, {2, 8}},
    {"decoder.layers.mlp.linear_fc1.weight", true, 3, {2, 24, 8}},
    {"decoder.layers.mlp.linear_fc2.weight", true, 3, {2, 8, 12}},
    {"decoder.final_layernorm.weight", false, 1, {8}},
    {"output_layer.weight", false, 2, {16, 8}},
};
#define N_WEIGHTS (sizeof weights / sizeof weights[0])

/*
 * The order in a buffer of Megatron's local modules, the last registered first
 * (formats/fsdp_dtensor/FORMAT.md 8.2): rows of `weights` and layers.
 */
static const struct {
    size_t weight;
    int64_t layer;
} order[] = {{8, 0}, {7, 0}, {6, 1}, {5, 1}, {4, 1}, {3, 1}, {2, 1}, {1, 1},
             {6, 0}, {5, 0}, {4, 0}, {3, 0}, {2, 0}, {1, 0}, {0, 0}};
#define N_ORDER (sizeof order / sizeof order[0])

enum fault {
    NONE,
    LESS_UNPADDED,  /* numel_unpadded is 8 less */
    SHORT_TENSOR,   /* exp_avg has 8 elements less */
    HALF_TENSOR,    /* exp_avg is float16 */
    STRIDED_TENSOR, /* exp_avg is no run of bytes */
    SHORT_LIST,     /* exp_avg_sq lacks the last bucket */
    PAST_THE_FILE,  /* exp_avg lies behind it */
    NO_FORM,        /* neither mark of a form */
    ODD_KEY,        /* a buffer 7 */
    NO_DICT,
    NO_PAIR,      /* the key of the buffer's dict is a number */
    BYTE_WEIGHTS, /* torch.uint8 */
    SWAPPED,      /* the two layers of a weight */
    NO_MASTERS,   /* param is called master */
    NO_GROUPS,    /* no item with parameter groups */
    LAST_PADDED,  /* elements behind the last parameter */
};

struct variant {
    const char *label;
    int64_t alignment;       /* of starts */
    int64_t bucket;          /* elements; 0: one bucket */
    int64_t padding;         /* not 0: core 0.6, whose buckets end at multiples of it */
    struct fake_arg told[3]; /* of args */
    enum fault fault;
    dcpk_status status;
    const char *text;
};

#define MAX_STATE   4096 /* elements */
#define MAX_BUCKETS 16
static struct made {
    const struct variant *variant;
    uint8_t file[8192 + 3 * MAX_STATE * 4];
    size_t n_bytes;
    uint64_t state_bytes[3]; /* where the states begin in it */
    int64_t n_elems;         /* of each, padding between buckets included */
    int64_t starts[MAX_BUCKETS + 1], unpadded[MAX_BUCKETS];
    size_t n_buckets;
} made;

/* What element i (row-major) of a parameter is in a role: an integer that bfloat16 holds. */
static float value_of(size_t weight, int64_t layer, int64_t i, int role)
{
    const uint32_t mix = (uint32_t)((int64_t)(weight * 7919) + layer * 104729 + i * 31 + role * 53);

    return (float)(int)(mix % 251) - 125;
}

static int64_t elems_of(size_t w)
{
    int64_t n = 1;

    for (int a = weights[w].is_stacked ? 1 : 0; a < weights[w].rank; a++)
        n *= weights[w].shape[a];
    return n;
}

static void put_states(void)
{
    const enum fault fault = made.variant->fault;
    int64_t at = 0, start = 0;
    float(*states)[MAX_STATE] = calloc(3, sizeof *states);

    CHECK(states != NULL, "memory");
    made.n_buckets = 0;
    for (size_t p = 0; p < N_ORDER; p++) {
        const size_t w = order[p].weight;
        const int64_t layer = fault == SWAPPED && w == 5 ? 1 - order[p].layer : order[p].layer;
        const int64_t step = made.variant->alignment;

        at = start + (at - start + step - 1) / step * step;
        for (int64_t i = 0; i < elems_of(w); i++)
            for (int role = 0; role < 3; role++)
                states[role][at + i] = value_of(w, layer, i, role);
        at += elems_of(w);
        if (p + 1 < N_ORDER && (made.variant->bucket == 0 || at - start < made.variant->bucket))
            continue;
        made.starts[made.n_buckets] = start;
        made.unpadded[made.n_buckets++] = at - start;
        if (made.variant->padding > 0)
            at = (at + made.variant->padding - 1) / made.variant->padding * made.variant->padding;
        start = at;
    }
    made.n_elems = made.starts[made.n_buckets] = at + (fault == LAST_PADDED ? 8 : 0);
    for (int role = 0; role < 3; role++) {
        made.state_bytes[role] = made.n_bytes;
        memcpy(made.file + made.n_bytes, states[role], (size_t)made.n_elems * sizeof(float));
        made.n_bytes += (size_t)made.n_elems * sizeof(float);
    }
    free(states);
}

/* Weights one behind the other, bfloat16: the upper half of a float. */
static void put_weights(void)
{
    made.n_bytes = 0;
    for (size_t w = 0; w < N_WEIGHTS; w++)
        for (int64_t layer = 0; layer < (weights[w].is_stacked ? 2 : 1); layer++)
            for (int64_t i = 0; i < elems_of(w); i++) {
                const float v = value_of(w, layer, i, 0);

                memcpy(made.file + made.n_bytes, (const uint8_t *)&v + 2, 2);
                made.n_bytes += 2;
            }
}

/* --- a format over it --- */

static dcpk_status open_gathered(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char *const objects[] = {PREFIX "param_state/shard_0_1",
                                          PREFIX "optimizer/shard_0_1"};
    uint64_t at = 0;
    dcpk_status st = DCPK_OK;

    ckpt->files = dcpk_alloc_array(1, sizeof *ckpt->files, err);
    ckpt->chunks = dcpk_alloc_array(2 * N_WEIGHTS, sizeof *ckpt->chunks, err);
    CHECK(dcpk_store_find(ckpt->store, "file", &ckpt->files[0], err) == DCPK_OK, "file");
    ckpt->n_files = 1;
    for (size_t w = 0; w < N_WEIGHTS && st == DCPK_OK; w++) {
        struct dcpk_tensor t = {.key = weights[w].key,
                                .dtype = DCPK_BF16,
                                .rank = weights[w].rank,
                                .shape = weights[w].shape,
                                .first_chunk = ckpt->n_chunks,
                                .n_chunks = weights[w].is_stacked ? 2 : 1};

        for (size_t c = 0; c < t.n_chunks; c++) {
            int64_t *span = dcpk_arena_array(ckpt->arena, 2 * (size_t)t.rank, sizeof *span, err);
            struct dcpk_box box;

            dcpk_box_whole(t.shape, t.rank, &box);
            box.offset[0] = (int64_t)c;
            box.extent[0] /= (int64_t)t.n_chunks;
            dcpk_box_pack(&box, span);
            ckpt->chunks[ckpt->n_chunks++] = (struct dcpk_chunk){
                .tensor = (uint32_t)w,
                .span = span,
                .place = {.offset_bytes = at, .n_bytes = (uint64_t)elems_of(w) * 2}};
            at += (uint64_t)elems_of(w) * 2;
        }
        st = dcpk_checkpoint_add_tensor(ckpt, &t, err);
    }
    for (size_t i = 0; i < (made.variant->fault == NO_GROUPS ? 1 : 2) && st == DCPK_OK; i++)
        st = dcpk_checkpoint_add_object(
            ckpt, &(struct dcpk_object){objects[i], {0, 0, made.n_bytes}}, err);
    return st;
}

static dcpk_status locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                          const struct dcpk_reader *reader, struct dcpk_extent *where,
                          struct dcpk_error *err)
{
    const int rank = ckpt->tensors[chunk->tensor].rank;
    int64_t stride = 2;

    (void)reader;
    (void)err;
    *where = (struct dcpk_extent){
        .source = ckpt->files[0], .first_bytes = chunk->place.offset_bytes, .is_row_major = true};
    for (int a = rank; a-- > 0; stride *= chunk->span[rank + a])
        where->stride_bytes[a] = stride;
    return DCPK_OK;
}

/* --- values --- */

static struct dcpk_arena *making; /* where values are made */
static struct dcpk_error making_err = DCPK_ERROR_INIT;

static const struct dcpk_value *text(const char *s)
{
    return dcpk_value_str(making, s, &making_err);
}

static const struct dcpk_value *number(int64_t i)
{
    return dcpk_value_int(making, i, &making_err);
}

static const struct dcpk_value *list_of(const struct dcpk_value *const *items, size_t n)
{
    return dcpk_value_seq(making, DCPK_V_LIST, items, n, &making_err);
}

static const struct dcpk_value *tensor(int role, size_t bucket, bool is_odd)
{
    const enum fault fault = is_odd ? made.variant->fault : NONE;
    struct dcpk_value_tensor *t = dcpk_arena_alloc(making, sizeof *t, &making_err);
    struct dcpk_value *v = dcpk_arena_alloc(making, sizeof *v, &making_err);
    int64_t *shape = dcpk_arena_alloc(making, sizeof *shape, &making_err);
    const int64_t first = made.variant->padding > 0 ? made.starts[bucket] : 0;

    shape[0] = (made.variant->padding > 0 ? made.starts[bucket + 1] : made.n_elems) - first -
               (fault == SHORT_TENSOR ? 8 : 0);
    *t = (struct dcpk_value_tensor){
        .dtype = fault == HALF_TENSOR ? DCPK_F16 : DCPK_F32,
        .rank = 1,
        .shape = shape,
        .n_bytes = (uint64_t)shape[0] * 4,
        .first_bytes = made.state_bytes[role] + (uint64_t)first * 4 +
                       (fault == PAST_THE_FILE ? made.n_bytes : 0),
        .is_row_major = fault != STRIDED_TENSOR,
    };
    v->kind = DCPK_V_TENSOR;
    v->as.tensor = t;
    return v;
}

/* A tensor, or for core 0.6 a list of one for each bucket. */
static const struct dcpk_value *state_value(int role)
{
    const struct dcpk_value *items[MAX_BUCKETS];

    for (size_t i = 0; i < made.n_buckets; i++)
        items[i] = tensor(role, i, role == 1 && i == 0);
    return made.variant->padding == 0
               ? items[0]
               : list_of(items,
                         made.n_buckets - (role == 2 && made.variant->fault == SHORT_LIST ? 1 : 0));
}

static const struct dcpk_value *dict_of_dtypes(const struct dcpk_value *v)
{
    struct dcpk_value *dtypes = dcpk_arena_array(making, 2, sizeof *dtypes, &making_err);
    const struct dcpk_value *pair[2] = {&dtypes[0], &dtypes[1]};
    struct dcpk_value_pair item;

    for (int i = 0; i < 2; i++) {
        dtypes[i].kind = DCPK_V_GLOBAL;
        dtypes[i].as.global.module = "torch";
        dtypes[i].as.global.name = i == 1                                ? "float32"
                                   : made.variant->fault == BYTE_WEIGHTS ? "uint8"
                                                                         : "bfloat16";
    }
    item.key = made.variant->fault == NO_PAIR
                   ? number(3)
                   : dcpk_value_seq(making, DCPK_V_TUPLE, pair, 2, &making_err);
    item.value = v;
    return dcpk_value_dict(making, &item, 1, &making_err);
}

/* [{(dtype, dtype): [elements, ...]}] */
static const struct dcpk_value *record(bool is_padded)
{
    const struct dcpk_value *items[MAX_BUCKETS], *dict;

    for (size_t i = 0; i < made.n_buckets; i++)
        items[i] = number(is_padded ? made.starts[i + 1] - made.starts[i] : made.unpadded[i]);
    dict = dict_of_dtypes(list_of(items, made.n_buckets));
    return list_of(&dict, 1);
}

static const struct dcpk_value *buffer_value(void)
{
    static const char *const names[] = {"param", "exp_avg", "exp_avg_sq"};
    struct dcpk_value_pair pairs[4];
    size_t n = 0;

    for (int role = 0; role < 3; role++) {
        pairs[n].key =
            text(role == 0 && made.variant->fault == NO_MASTERS ? "master" : names[role]);
        pairs[n++].value = state_value(role);
    }
    if (made.variant->padding == 0) {
        pairs[n].key = text("numel_unpadded");
        pairs[n++].value = number(made.n_elems - (made.variant->fault == LESS_UNPADDED ? 8 : 0));
    }
    return dict_of_dtypes(dcpk_value_dict(making, pairs, n, &making_err));
}

static const struct dcpk_value *gathered_value(void)
{
    const enum fault fault = made.variant->fault;
    struct dcpk_value_pair pairs[3];
    const struct dcpk_value *dict;
    size_t n = 0;

    if (made.variant->padding > 0) {
        pairs[n].key = text("per_bucket_numel");
        pairs[n++].value = record(true);
        pairs[n].key = text("per_bucket_numel_unpadded");
        pairs[n++].value = record(false);
    } else {
        pairs[n].key = text(fault == NO_FORM ? "buckets" : "buckets_coalesced");
        pairs[n++].value = dcpk_value_bool(true);
    }
    pairs[n].key = number(fault == ODD_KEY ? 7 : 0);
    pairs[n++].value = buffer_value();
    dict = fault == NO_DICT ? number(1) : dcpk_value_dict(making, pairs, n, &making_err);
    return list_of(&dict, 1);
}

static dcpk_status load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                               struct dcpk_arena *arena, const struct dcpk_value **value,
                               struct dcpk_error *err)
{
    struct dcpk_value_pair pair;
    const struct dcpk_value *dict;

    (void)ckpt;
    (void)err;
    making = arena;
    if (strcmp(object->key, PREFIX "param_state/shard_0_1") == 0) {
        *value = gathered_value();
        return DCPK_OK;
    }
    pair.key = text("param_groups");
    pair.value = list_of(NULL, 0);
    dict = dcpk_value_dict(making, &pair, 1, &making_err);
    *value = list_of(&dict, 1);
    return DCPK_OK;
}

static dcpk_status load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct fake_arg settings[] = {{"tensor_model_parallel_size", .value = 1},
                                        {"pipeline_model_parallel_size", .value = 1},
                                        {"num_layers", .value = 2},
                                        {"world_size", .value = 2},
                                        {"transformer_impl", .text = "local"},
                                        {"expert_tensor_parallel_size", .value = 1},
                                        made.variant->told[0],
                                        made.variant->told[1],
                                        {.name = NULL}};
    struct dcpk_value_pair pair;

    (void)ckpt;
    (void)err;
    making = arena;
    pair.key = text("args");
    pair.value = fake_args(arena, settings);
    *value = dcpk_value_dict(arena, &pair, 1, &making_err);
    return DCPK_OK;
}

static const struct dcpk_format_reader reader = {
    .locate = locate, .load_object = load_object, .outline_object = load_object};
static const struct dcpk_format format = {.name = "gathered",
                                          .probe = fake_probe,
                                          .open = open_gathered,
                                          .load_common = load_common,
                                          .reader = &reader};

/* Open a variant and view it; the caller closes the model. */
static dcpk_status view_variant(const struct variant *v, struct dcpk_model **model,
                                struct dcpk_error *err)
{
    made.variant = v;
    put_weights();
    put_states();
    CHECK(made.n_bytes <= sizeof made.file, v->label);
    *model = fake_model_open(&format, made.file, made.n_bytes, v->label);
    return dcpk_megatron_to_model((*model)->ckpt, *model, err);
}

/* Compare every element of a view with what was put into the buffer. */
static int64_t check_view(struct dcpk_checkpoint *ckpt, uint32_t view, size_t weight, int64_t layer,
                          int role, const char *label)
{
    const struct dcpk_tensor *t = &ckpt->tensors[view];
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t n = 0;

    for (size_t c = t->first_chunk; c < t->first_chunk + t->n_chunks; c++) {
        struct dcpk_extent where;
        struct dcpk_box box;

        CHECK_OK(dcpk_checkpoint_locate(ckpt, &ckpt->chunks[c], NULL, &where, &err), label);
        dcpk_box_unpack(ckpt->chunks[c].span, t->rank, &box);
        for (int64_t i = 0; i < box.extent[0] * (t->rank > 1 ? box.extent[1] : 1); i++, n++) {
            const int64_t row = t->rank > 1 ? i / box.extent[1] : i;
            const int64_t column = t->rank > 1 ? i % box.extent[1] : 0;
            const int64_t width = t->rank > 1 ? t->shape[1] : 1;
            const int64_t index =
                (box.offset[0] + row) * width + (t->rank > 1 ? box.offset[1] : 0) + column;
            float got;

            CHECK_OK(
                dcpk_source_read(where.source, where.first_bytes + (uint64_t)i * 4, &got, 4, &err),
                label);
            CHECK(got == value_of(weight, layer, index, role), label);
        }
    }
    return n;
}

/* formats/torch_dist/FORMAT.md 5.4 and 5.5, and the sources that megatron_replay.c and
 * megatron_gathered.c name.
 */
static const struct variant good[] = {
    {.label = "one bucket", .alignment = 64},
    {.label = "core 0.7: no gaps", .alignment = 1, .bucket = 300},
    {.label = "several buckets, args.ddp_bucket_size",
     .alignment = 64,
     .bucket = 300,
     .told = {{"overlap_grad_reduce", .text = "True"}, {"ddp_bucket_size", .value = 300}}},
    {.label = "several buckets, args.ddp_num_buckets",
     .alignment = 64,
     .bucket = 346,
     .told = {{"overlap_grad_reduce", .text = "True"}, {"ddp_num_buckets", .value = 4}}},
    {.label = "the default of 40 000 000 elements",
     .alignment = 64,
     .told = {{"overlap_grad_reduce", .text = "True"}}},
    {.label = "args tell of buckets that were not made",
     .alignment = 64,
     .told = {{"overlap_grad_reduce", .text = "True"}, {"ddp_bucket_size", .value = 200}}},
    {.label = "args.ddp_bucket_size does not count without overlap",
     .alignment = 64,
     .told = {{"ddp_bucket_size", .value = 200}}},
    {.label = "Transformer Engine's order in args",
     .alignment = 64,
     .told = {{"transformer_impl", .text = "transformer_engine"}}},
    {.label = "core 0.6, one bucket", .alignment = 1, .padding = 16},
    {.label = "core 0.6, several buckets", .alignment = 1, .padding = 16, .bucket = 300},
};

static void every_element_is_found(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof good / sizeof good[0]; v++) {
        const char *label = good[v].label;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model;
        int64_t n = 0;

        CHECK_OK(view_variant(&good[v], &model, &err), label);
        CHECK(model->needs_proof && model->has_optimizer, label);
        CHECK(strcmp(model->optimizer_layout, "dp_zero_gather_scatter") == 0, label);
        CHECK_EQ_INT(model->n_params, N_ORDER, label);
        for (size_t p = 0; p < N_ORDER; p++) {
            const size_t w = order[p].weight;
            char name[96];
            uint64_t param = UINT64_MAX;

            if (weights[w].is_stacked)
                snprintf(name, sizeof name, "decoder.layers.%d.%s", (int)order[p].layer,
                         weights[w].key + strlen("decoder.layers."));
            else
                snprintf(name, sizeof name, "%s", weights[w].key);
            CHECK(dcpk_map_get(&model->param_by_name, name, strlen(name), &param), name);
            for (enum dcpk_role role = DCPK_MASTER; role <= DCPK_EXP_AVG_SQ; role++)
                n += check_view(model->ckpt,
                                model->tensors[model->params[param].tensor[role]].pieces->src, w,
                                order[p].layer, (int)(role - DCPK_MASTER), label);
        }
        CHECK_EQ_INT(n, 3 * 1384, label);
        fake_model_close(model);
    }
}

static const struct variant bad[] = {
    {.label = "a size that is less than the tensors",
     .fault = LESS_UNPADDED,
     .status = DCPK_EFORMAT,
     .text = ".param' has "},
    {.label = "a tensor shorter than recorded",
     .fault = SHORT_TENSOR,
     .status = DCPK_EFORMAT,
     .text = ".exp_avg' has "},
    {.label = "a tensor of another dtype",
     .fault = HALF_TENSOR,
     .status = DCPK_EFORMAT,
     .text = "'exp_avg' of bucket 0 is not a float32 tensor in one run"},
    {.label = "a tensor with strides",
     .fault = STRIDED_TENSOR,
     .status = DCPK_EFORMAT,
     .text = "is not a float32 tensor in one run"},
    {.label = "a moment is missing in one bucket",
     .fault = SHORT_LIST,
     .bucket = 300,
     .padding = 16,
     .status = DCPK_EFORMAT,
     .text = "the bucket has no 'exp_avg_sq'"},
    {.label = "a tensor behind the file",
     .fault = PAST_THE_FILE,
     .status = DCPK_EFORMAT,
     .text = "of 'file' are not its"},
    {.label = "no form that is known",
     .fault = NO_FORM,
     .status = DCPK_EUNSUPPORTED,
     .text = "a form of gathered optimizer state that is not known"},
    {.label = "buffers that do not begin at 0",
     .fault = ODD_KEY,
     .status = DCPK_EFORMAT,
     .text = "2 keys, of them 1 texts and 0 numbers of buffers"},
    {.label = "no dict",
     .fault = NO_DICT,
     .status = DCPK_EFORMAT,
     .text = "not a list of one dict"},
    {.label = "no dtypes",
     .fault = NO_PAIR,
     .status = DCPK_EFORMAT,
     .text = "not a pair of dtypes"},
    {.label = "FP8 parameters",
     .fault = BYTE_WEIGHTS,
     .status = DCPK_EUNSUPPORTED,
     .text = "buckets of uint8 parameters are not decoded"},
    {.label = "layers that changed places",
     .fault = SWAPPED,
     .status = DCPK_EMISMATCH,
     .text = "is 63 as a weight, 125 where the replayed layout has its master"},
    {.label = "no masters",
     .fault = NO_MASTERS,
     .status = DCPK_EFORMAT,
     .text = "the buckets have no 'param'"},
    {.label = "no parameter groups",
     .fault = NO_GROUPS,
     .status = DCPK_EFORMAT,
     .text = "parameter groups are missing"},
    {.label = "elements behind the last parameter",
     .fault = LAST_PADDED,
     .status = DCPK_EMISMATCH,
     .text = "the parameters laid into it end at"},
    {.label = "buckets of a size that nothing tells",
     .bucket = 150,
     .status = DCPK_EMISMATCH,
     .text = "where they end is not recorded"},
};

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model;
        struct variant variant = bad[i];

        variant.alignment = 64;
        CHECK_FAILS(view_variant(&variant, &model, &err), bad[i].status, bad[i].text, bad[i].label);
        CHECK((err.fixes & DCPK_FIX_WEIGHTS_ONLY) != 0 && !model->needs_proof, bad[i].label);
        fake_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_found),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
