/* SPDX-License-Identifier: Apache-2.0 */
/* live_megatron.c - what Megatron's modules on a rank call their parameters. */
/*
 *   decoder.layers.6.mlp.experts.linear_fc1.weight5      of 8 layers and 8 experts, pp=2, ep=2:
 *   decoder.layers.2.mlp.experts.linear_fc1.weight1      on stage 1, expert-parallel rank 1
 *   decoder.layers.2.mlp.experts.local_experts.1.linear_fc1.weight
 *
 * Sources: MC/transformer/transformer_block.py@0.19.0 (ModuleList of the layers of a chunk),
 * MC/transformer/moe/experts.py@0.19.0 (weight0 and on, local_experts), MC/models/gpt/gpt_model.py
 * @0.19.0 (embeddings of the first stage and of multi-token prediction; output_layer of a tied
 * model with stages).
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/live_priv.h"
#include "lib/model/account.h"
#include "lib/model/laid_out.h"
#include "lib/place/pipeline.h"
#include "lib/rules/rules.h"

struct lister {
    struct dcpk_live_tensor made;
    struct dcpk_laid_out laid;
    int64_t rank, n_layers, n_experts;
    bool is_fsdp;
    const int64_t *chunk_layers; /* of a pipeline with a layout, by chunk; NULL: the grid cuts it */
    int64_t n_chunks;
};

static const char layers[] = "decoder.layers.";

/* The number of a parameter's layer in the decoder; -1: in none. */
static int64_t find_layer(const struct dcpk_param *param)
{
    const char *digits = param->name + strlen(layers);

    if (!dcpk_starts_with(param->name, layers))
        return -1;
    return dcpk_take_number(&digits);
}

/* The chunk of a layer, and the first layer of that chunk. */
static int64_t layout_find_chunk(const struct lister *l, int64_t layer, int64_t *first)
{
    int64_t chunk = 0;

    if (l->chunk_layers == NULL)
        return dcpk_grid_layer_chunk(&l->laid.placing.grid, l->n_layers, layer, first);
    for (*first = 0; *first + l->chunk_layers[chunk] <= layer; chunk++)
        *first += l->chunk_layers[chunk];
    return chunk;
}

/* Where a parameter is among those of a rank. */
struct numbers {
    int64_t stage, chunk; /* of the model; -1: it may be in any */
    int64_t layer;        /* in the chunk; -1: in none */
    int64_t expert;
};

static struct numbers find_numbers(const struct lister *l, const struct dcpk_param *param)
{
    const struct dcpk_grid *grid = &l->laid.placing.grid;
    struct numbers found = {-1, -1, find_layer(param), param->expert};
    int64_t chunk, first;

    if (found.expert >= 0)
        found.expert %= l->n_experts / grid->ep;
    if (found.layer < 0)
        return found;
    chunk = layout_find_chunk(l, found.layer, &first);
    found.layer -= first;
    found.stage = chunk % grid->pp;
    found.chunk = chunk / grid->pp;
    return found;
}

/* The expert's number in a name: digits at its end, or after "local_experts."; NULL: none. */
static const char *find_expert(const char *name)
{
    static const char sequential[] = ".local_experts.";
    const char *digits = strstr(name, sequential);

    if (digits != NULL)
        return digits + strlen(sequential);
    digits = name + strlen(name);
    while (digits > name && isdigit((unsigned char)digits[-1]))
        digits--;
    return digits;
}

/* A spelling with the numbers of a rank. */
static const char *number_name(struct dcpk_arena *arena, const char *name,
                               const struct numbers *numbers, struct dcpk_error *err)
{
    const char *digits, *end;

    if (numbers->layer >= 0) {
        end = name + strlen(layers);
        (void)dcpk_take_number(&end);
        name = dcpk_arena_printf(arena, err, "%s%" PRId64 "%s", layers, numbers->layer, end);
    }
    if (numbers->expert < 0 || name == NULL)
        return name;
    end = digits = find_expert(name);
    (void)dcpk_take_number(&end);
    return dcpk_arena_printf(arena, err, "%.*s%" PRId64 "%s", (int)(digits - name), name,
                             numbers->expert, end);
}

/* Adds the tensor under a name; with several chunks under that of its chunk, or of each. */
static dcpk_status put_name(struct lister *l, const char *name, int64_t chunk,
                            const struct dcpk_model_tensor *value, const struct dcpk_box *shape,
                            struct dcpk_error *err)
{
    struct dcpk_feed_views *views = l->made.views;

    for (int64_t i = 0; i < views->n_chunks; i++) {
        const char *key = name;

        if (chunk >= 0 && chunk != i)
            continue;
        if (views->n_chunks > 1)
            key = dcpk_arena_printf(views->arena, err, "%" PRId64 ".%s", i, name);
        if (key == NULL || dcpk_live_put(&l->made, key, value->dtype, shape, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The part of a value that a rank holds. */
struct block {
    struct dcpk_local local;
    int axis; /* along which ranks cut it; -1: it is whole */
};

static dcpk_status find_block(struct lister *l, const struct dcpk_model_tensor *value, int64_t rank,
                              struct block *block, struct dcpk_error *err)
{
    block->axis = -1;
    if (dcpk_laid_out_find(&l->laid, value, rank, l->made.views->arena, &block->local, err))
        return err->status;
    for (int a = 0; a < value->rank; a++)
        if (block->local.shape[a] != value->shape[a])
            block->axis = a;
    return DCPK_OK;
}

/* Appends a block to the tensor, after `before` of its size. */
static dcpk_status take_block(struct lister *l, const struct dcpk_model_tensor *value,
                              const struct block *block, int64_t before, struct dcpk_error *err)
{
    const struct dcpk_view view = dcpk_model_view(value);
    const struct dcpk_local *local = &block->local;

    for (size_t i = 0; i < local->n; i++) {
        int64_t at[DCPK_MAX_RANK];
        struct dcpk_box box;

        dcpk_box_unpack(local->spans[i], value->rank, &box);
        memcpy(at, local->spans[i] + 2 * value->rank, (size_t)value->rank * sizeof *at);
        if (block->axis >= 0)
            at[block->axis] += before * local->shape[block->axis];
        if (dcpk_live_take(&l->made, &view, &box, at, 0, err))
            return err->status;
    }
    return DCPK_OK;
}

/*
 * Begins the tensor of a value with what the rank holds; *is_there: something. A DTensor of
 * Megatron-FSDP is the blocks of all tensor-parallel ranks, one after the other (make_fsdp_dtensor
 * of megatron_fsdp/param_and_grad_buffer.py@core_v0.19.0).
 */
static dcpk_status take_blocks(struct lister *l, const struct dcpk_param *param, bool *is_there,
                               struct dcpk_box *box, struct dcpk_error *err)
{
    const struct dcpk_model_tensor *value = dcpk_model_value(l->laid.model, param);
    const struct dcpk_grid grid = dcpk_grid_full(&l->laid.placing.grid);
    const struct dcpk_coords at = dcpk_grid_coords(&grid, l->rank);
    int64_t n = 1, rank = l->rank;
    struct block block;

    l->made.n = 0;
    if (find_block(l, value, rank, &block, err))
        return err->status;
    *is_there = block.local.copy >= 0;
    dcpk_box_whole(block.local.shape, value->rank, box);
    if (!*is_there)
        return DCPK_OK;
    if (l->is_fsdp && block.axis >= 0) {
        n = param->expert >= 0 ? grid.etp : grid.tp;
        rank -= param->expert >= 0 ? at.etp : at.tp;
        box->extent[block.axis] *= n;
    }
    for (int64_t i = 0; i < n; i++)
        if (find_block(l, value, rank + i, &block, err) || take_block(l, value, &block, i, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status list_param(struct lister *l, const struct dcpk_param *param,
                              struct dcpk_error *err)
{
    static const char embedding[] = "embedding.word_embeddings.weight",
                      output[] = "output_layer.weight";
    const struct dcpk_model *model = l->laid.model;
    const struct dcpk_model_tensor *value = dcpk_model_value(model, param);
    const struct numbers numbers = find_numbers(l, param);
    struct dcpk_box box;
    bool is_there;
    uint64_t found;

    l->laid.spreads[param - model->params].stage = numbers.stage;
    if (take_blocks(l, param, &is_there, &box, err))
        return err->status;
    for (size_t i = 0; i < param->n_spellings && is_there; i++) {
        const char *name = number_name(l->made.views->arena, param->spellings[i], &numbers, err);

        if (name == NULL || put_name(l, name, numbers.chunk, value, &box, err))
            return err->status;
    }
    if (is_there && strcmp(param->name, embedding) == 0 &&
        !dcpk_map_get(&model->param_by_name, output, strlen(output), &found))
        return put_name(l, output, -1, value, &box, err);
    return DCPK_OK;
}

/* Stages that the layout does not describe would have other layers. */
static dcpk_status check_stages(const struct dcpk_model *model, const struct dcpk_grid *grid,
                                struct dcpk_error *err)
{
    static const char *const names[] = {"account_for_embedding_in_pipeline_split",
                                        "account_for_loss_in_pipeline_split",
                                        "pipeline_model_parallel_layout"};
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    for (size_t i = 0; i < DCPK_COUNT(names) && grid->pp > 1; i++) {
        const struct dcpk_value *v = dcpk_value_get(attrs, names[i]);
        bool cuts = true;

        (void)dcpk_value_as_bool(v, &cuts);
        if (v != NULL && !dcpk_value_is_none(v) && cuts)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "args.%s cuts the pipeline: give its layers as 'layout=Et|ttL'",
                             names[i]);
    }
    return DCPK_OK;
}

/* As many rows of vocabulary as the run has; targets lack those past the tokens. */
static dcpk_status pad_vocab(struct dcpk_model *model, int64_t tp, bool are_targets,
                             struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    struct dcpk_vocab vocab = {.tp = tp};

    if (!dcpk_value_as_int(dcpk_value_get(attrs, "vocab_size"), &vocab.size))
        return DCPK_OK;
    if (!dcpk_value_as_int(dcpk_value_get(attrs, "make_vocab_size_divisible_by"),
                           &vocab.divisible_by))
        vocab.divisible_by = DCPK_USUAL_DIVISIBLE_BY;
    if (are_targets && dcpk_rules_vocab_resize(model, vocab.size, vocab.size, err))
        return err->status;
    return dcpk_rules_vocab(model, &vocab, err);
}

static dcpk_status read_model(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                              const struct dcpk_live *live, struct dcpk_grid *grid,
                              struct dcpk_error *err)
{
    struct dcpk_rule_options rules = {.impl = DCPK_IMPL_ANY};

    if (dcpk_model_read(ckpt, DCPK_MODEL_WEIGHTS_ONLY, &views->model, err) ||
        dcpk_model_check_known(views->model, err))
        return err->status;
    if (views->model->foreign != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "Megatron core has no model of family %s",
                         views->model->family);
    grid->is_tp_pp_dp =
        dcpk_value_is_true(dcpk_value_attrs(views->model->args), "use_tp_pp_dp_mapping");
    rules.mesh = *grid;
    if ((live->layout == NULL && check_stages(views->model, grid, err)) ||
        dcpk_rules_apply(views->model, &rules, err) ||
        pad_vocab(views->model, grid->tp, live->options->are_targets, err))
        return err->status;
    dcpk_feed_drop_masters(views->model);
    return DCPK_OK;
}

/* Reads the layout of a pipeline, whose grid has vpp then. */
static dcpk_status read_layout(struct lister *l, const struct dcpk_live *live,
                               struct dcpk_grid *grid, struct dcpk_error *err)
{
    struct dcpk_arena *arena = l->made.views->arena;
    const char *text = dcpk_pipeline_unroll(arena, live->layout, err);
    const int64_t pp = dcpk_max_i64(grid->pp, 1);
    struct dcpk_pipeline pipeline = {0};

    if (text == NULL)
        return err->status;
    if (grid->first > 0 || grid->last > 0 || l->is_fsdp)
        return dcpk_fail(err, DCPK_EUSAGE, "a layout does not go with fsdp, first or last");
    l->n_chunks = dcpk_pipeline_parts(text);
    if (l->n_chunks % pp != 0 || (grid->vpp > 0 && grid->vpp * pp != l->n_chunks))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the layout has %" PRId64 " parts, which %" PRId64 " stages of %" PRId64
                         " chunks do not have",
                         l->n_chunks, pp, dcpk_max_i64(grid->vpp, 1));
    grid->vpp = l->n_chunks / pp;
    pipeline.layers = dcpk_arena_array(arena, (size_t)l->n_chunks, sizeof *pipeline.layers, err);
    l->chunk_layers = pipeline.layers;
    if (pipeline.layers == NULL)
        return err->status;
    return dcpk_pipeline_count(text, "t", &pipeline, err);
}

/* Checks that the layout has all layers. */
static dcpk_status check_layout(const struct lister *l, struct dcpk_error *err)
{
    int64_t n = 0;

    for (int64_t i = 0; i < l->n_chunks; i++)
        n += l->chunk_layers[i];
    if (l->chunk_layers != NULL && n != l->n_layers)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the layout has %" PRId64 " layers 't', the model %" PRId64, n,
                         l->n_layers);
    return DCPK_OK;
}

static dcpk_status list_params(struct lister *l, struct dcpk_error *err)
{
    const struct dcpk_model *model = l->laid.model;

    for (size_t i = 0; i < model->n_params; i++) {
        l->n_experts = dcpk_max_i64(l->n_experts, model->params[i].expert + 1);
        l->n_layers = dcpk_max_i64(l->n_layers, find_layer(&model->params[i]) + 1);
    }
    if (check_layout(l, err))
        return err->status;
    for (size_t i = 0; i < model->n_params && l->rank >= 0; i++)
        if (list_param(l, &model->params[i], err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_live_megatron(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                               const struct dcpk_live *live, struct dcpk_error *err)
{
    struct dcpk_placing placing = live->placing;
    struct lister l = {.made = {.views = views}, .rank = live->rank};
    struct dcpk_grid grid = placing.grid;
    dcpk_status st = DCPK_OK;

    l.is_fsdp = placing.is_fsdp;
    placing.is_fsdp = false; /* DTensors have their boxes */
    if (live->layout != NULL) {
        st = read_layout(&l, live, &grid, err);
        placing.grid.pp = 1; /* its stages are not those that a grid cuts */
        placing.grid.vpp = 0;
    }
    views->n_chunks = dcpk_max_i64(grid.vpp, 1);
    if (st == DCPK_OK)
        st = read_model(views, ckpt, live, &placing.grid, err);
    if (st == DCPK_OK)
        st = dcpk_lay_out(views->model, &placing, &l.laid, err);
    grid.is_tp_pp_dp = placing.grid.is_tp_pp_dp;
    l.laid.placing.grid = dcpk_grid_full(&grid);
    if (st == DCPK_OK)
        st = list_params(&l, err);
    dcpk_laid_out_release(&l.laid);
    dcpk_free(l.made.pieces);
    if (st != DCPK_OK)
        dcpk_context(err, "'%.200s'", live->options->text);
    return st;
}
