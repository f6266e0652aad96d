/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_from_model.c - the canonical view -> the state that the modules of each rank return. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/megatron/megatron_flatten.h"
#include "formats/mp_rank/mp_rank_priv.h"
#include "formats/torch/item.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define OUTPUT "output_layer"

/* ---- tensors ---- */

const struct dcpk_value *dcpk_mp_put_tensor(struct dcpk_mp_putting *p, struct dcpk_out_tensor *out,
                                            const char *name, struct dcpk_error *err)
{
    struct dcpk_arena *arena = p->out->arena;
    struct dcpk_value_tensor *tensor = dcpk_arena_alloc(arena, sizeof *tensor, err);
    struct dcpk_value *value = dcpk_arena_alloc(arena, sizeof *value, err);
    int64_t *span = dcpk_arena_array(arena, 2 * (size_t)out->rank + 1, sizeof *span, err);
    const int64_t **spans = dcpk_arena_array(arena, 1, sizeof *spans, err);
    const char **key = dcpk_arena_array(arena, 1, sizeof *key, err);
    int64_t n_elems;

    if (tensor == NULL || value == NULL || span == NULL || spans == NULL || key == NULL)
        return NULL;
    *key = dcpk_arena_printf(arena, err, "%s/%s", p->folder, name);
    if (*key == NULL || dcpk_shape_count(out->shape, out->rank, &n_elems, err))
        return NULL;
    if (n_elems == 0) {
        dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' would have no elements", *key);
        return NULL;
    }
    *tensor =
        (struct dcpk_value_tensor){.dtype = out->dtype,
                                   .rank = out->rank,
                                   .shape = out->shape,
                                   .n_bytes = (uint64_t)n_elems * dcpk_dtype_bytes(out->dtype)};
    *value = (struct dcpk_value){.kind = DCPK_V_TENSOR, .as.tensor = tensor};
    for (int a = 0; a < out->rank; a++) {
        span[a] = 0;
        span[out->rank + a] = out->shape[a];
    }
    spans[0] = span;
    out->keys = key;
    out->n_keys = 1;
    out->spans = spans;
    out->n_spans = 1;
    if (dcpk_output_add_tensor(p->out, out, err))
        return NULL;
    return value;
}

/* The block of each part that a rank holds, one after the other on the axis. */
static dcpk_status put_blocks(struct dcpk_mp_putting *p, const struct dcpk_blocks *blocks,
                              const struct dcpk_model_tensor *tensor, struct dcpk_out_tensor *out,
                              int64_t tp_rank, struct dcpk_error *err)
{
    const size_t n_most = tensor->n_pieces * (size_t)blocks->n_parts;
    struct dcpk_piece *pieces = dcpk_arena_array(p->out->arena, n_most, sizeof *pieces, err);
    int64_t *shape = dcpk_arena_array(p->out->arena, (size_t)tensor->rank + 1, sizeof *shape, err);
    int64_t first = 0;

    if (pieces == NULL || shape == NULL)
        return err->status;
    for (int a = 0; a < tensor->rank; a++)
        shape[a] = tensor->shape[a];
    if (blocks->axis >= 0)
        shape[blocks->axis] /= blocks->n_ranks;
    for (int part = 0; part < blocks->n_parts; part++) {
        struct dcpk_box box, from = {0}, to;

        dcpk_blocks_box(blocks, tensor->shape, tensor->rank, tp_rank % blocks->n_ranks, part, &box);
        for (size_t i = 0; i < tensor->n_pieces; i++) {
            if (!dcpk_piece_clip(&tensor->pieces[i], &box, &from, &to))
                continue;
            if (blocks->axis >= 0)
                to.offset[blocks->axis] += first - box.offset[blocks->axis];
            if (dcpk_piece_like(p->out->arena, &tensor->pieces[i], &from, &to,
                                &pieces[out->n_pieces++], err))
                return err->status;
        }
        if (blocks->axis >= 0)
            first += box.extent[blocks->axis];
    }
    out->pieces = pieces;
    out->rank = tensor->rank;
    out->shape = shape;
    return DCPK_OK;
}

const struct dcpk_value *dcpk_mp_put_slot(struct dcpk_mp_putting *p,
                                          const struct dcpk_replay_slot *slot,
                                          const struct dcpk_model_tensor *tensor,
                                          enum dcpk_dtype dtype, const char *name,
                                          struct dcpk_error *err)
{
    struct dcpk_out_tensor out = {.dtype = dtype};

    if (put_blocks(p, slot->blocks, tensor, &out, p->at.tp, err))
        return NULL;
    return dcpk_mp_put_tensor(p, &out, name, err);
}

bool dcpk_mp_holds(const struct dcpk_mp_putting *p, const struct dcpk_replay_slot *slot,
                   int64_t chunk)
{
    const struct dcpk_cut *cut = &p->replay.cut;

    return slot->chunk == chunk &&
           (slot->reg.expert < 0 || slot->reg.expert / (cut->n_experts / cut->ep) == p->at.ep);
}

/* ---- models ---- */

/* True if its name is that of local modules: of norms that Transformer Engine has in the linear
 * layers after them, and of experts one by one. It is then the last spelling. */
static bool is_local(const struct dcpk_mp_putting *p, const struct dcpk_replay_slot *slot)
{
    const unsigned spec = p->replay.cut.spec;

    if (slot->reg.expert >= 0)
        return (spec & DCPK_SPEC_GROUPED) == 0;
    return (spec & DCPK_SPEC_TE) == 0 &&
           strstr(p->model->params[slot->param].name, ".layer_norm_") != NULL;
}

/* The name that the rank's modules have for it. */
static const char *find_local_name(const struct dcpk_mp_putting *p,
                                   const struct dcpk_replay_slot *slot, struct dcpk_error *err)
{
    const struct dcpk_param *param = &p->model->params[slot->param];
    const char *name = param->name;

    if (slot->is_output)
        return OUTPUT ".weight";
    if (is_local(p, slot) && param->n_spellings > 0)
        name = param->spellings[param->n_spellings - 1];
    return dcpk_mp_local_name(&p->replay.cut, slot->chunk, name, slot->reg.expert, p->out->arena,
                              err);
}

/*
 * True if a module has an extra state: local ones that are linear layers of tensor parallelism, and
 * all of Transformer Engine's (MC/tensor_parallel/layers.py@0.19.0 get_extra_state;
 * MC/extensions/transformer_engine.py).
 */
static bool has_extra(const char *module, bool is_te)
{
    static const char *const linear[] = {"in_proj", "out_proj", "eh_proj", OUTPUT};
    const char *last = strrchr(module, '.');

    if (last == NULL)
        last = module;
    else
        last++;
    for (size_t i = 0; i < DCPK_COUNT(linear); i++)
        if (strcmp(last, linear[i]) == 0)
            return true;
    return dcpk_starts_with(last, "linear_") || (is_te && dcpk_ends_with(last, "norm"));
}

/* The dict of one model chunk. */
struct chunk_dict {
    struct dcpk_dict dict;
    const char *module; /* of the parameter that was added last */
    bool is_te;
};

/* All parameters of a module are there: its extra state, and that of the attention kernel. */
static void end_module(struct chunk_dict *c, struct dcpk_error *err)
{
    static const char projection[] = "attention.linear_proj";
    struct dcpk_arena *arena = c->dict.arena;
    const char *key = NULL;

    if (c->module != NULL && has_extra(c->module, c->is_te))
        key = dcpk_arena_printf(arena, err, "%s._extra_state", c->module);
    if (key != NULL)
        dcpk_dict_put(&c->dict, key, dcpk_value_none());
    if (key == NULL || !c->is_te || !dcpk_ends_with(c->module, projection))
        return;
    key = dcpk_arena_printf(arena, err, "%.*score_attention._extra_state",
                            (int)(strlen(c->module) - strlen("linear_proj")), c->module);
    if (key != NULL)
        dcpk_dict_put(&c->dict, key, dcpk_value_none());
}

/* A parameter's name is the module's, and its own after the last dot. */
static dcpk_status begin_module(struct chunk_dict *c, const char *name, struct dcpk_error *err)
{
    const char *module =
        dcpk_arena_strndup(c->dict.arena, name, (size_t)(strrchr(name, '.') - name), err);

    if (module == NULL)
        return err->status;
    if (c->module == NULL || strcmp(c->module, module) != 0)
        end_module(c, err);
    c->module = module;
    return err->status;
}

static dcpk_status add_slot_weight(struct dcpk_mp_putting *p, struct chunk_dict *c,
                                   const struct dcpk_replay_slot *slot, struct dcpk_error *err)
{
    const struct dcpk_param *param = &p->model->params[slot->param];
    const char *name = find_local_name(p, slot, err);
    const struct dcpk_model_tensor *tensor = dcpk_model_value(p->model, param);

    if (name == NULL || begin_module(c, name, err))
        return err->status;
    if (param->tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR && !dcpk_mp_is_own_master(p, slot))
        tensor = &p->model->tensors[param->tensor[DCPK_WEIGHT]];
    dcpk_dict_put(&c->dict, name, dcpk_mp_put_slot(p, slot, tensor, slot->dtype, name, err));
    return err->status;
}

/* The state dict of chunk `chunk` of the rank. The output layer is there also where it has the
 * embedding's weight. */
static const struct dcpk_value *put_chunk(struct dcpk_mp_putting *p, int64_t chunk,
                                          struct dcpk_error *err)
{
    const struct dcpk_cut *cut = &p->replay.cut;
    struct chunk_dict c = {.dict = {.arena = p->out->arena, .err = err},
                           .is_te = (cut->spec & DCPK_SPEC_TE) != 0};

    for (size_t s = 0; s < p->replay.n_slots; s++)
        if (dcpk_mp_holds(p, &p->replay.slots[s], chunk) &&
            add_slot_weight(p, &c, &p->replay.slots[s], err))
            return NULL;
    end_module(&c, err);
    if (chunk == cut->pp * cut->vpp - 1 && (c.module == NULL || strcmp(c.module, OUTPUT) != 0))
        dcpk_dict_put(&c.dict, OUTPUT "._extra_state", dcpk_value_none());
    return dcpk_dict_end(&c.dict);
}

static dcpk_status put_models(struct dcpk_mp_putting *p, struct dcpk_dict *file,
                              struct dcpk_error *err)
{
    const struct dcpk_cut *cut = &p->replay.cut;
    char key[32] = "model";

    for (int64_t v = 0; v < cut->vpp; v++) {
        if (cut->vpp > 1)
            snprintf(key, sizeof key, "model%" PRId64, v);
        dcpk_dict_put(file, key, put_chunk(p, v * cut->pp + p->at.pp, err));
    }
    return err->status;
}

/* ---- files ---- */

dcpk_status dcpk_mp_put_file(struct dcpk_mp_putting *p, const char *prefix,
                             const struct dcpk_value *value, size_t first_tensor,
                             struct dcpk_error *err)
{
    struct dcpk_mp_file file = {.prefix = prefix,
                                .first_tensor = first_tensor,
                                .n_tensors = p->out->n_tensors - first_tensor};

    if (value == NULL ||
        dcpk_grow(&p->files->list, &p->files->capacity, p->files->n, sizeof file, err) ||
        dcpk_output_add_payload(p->out, value, NULL, &file.payload, err))
        return err->status;
    file.name = dcpk_arena_printf(p->out->arena, err, "%s/%s.pt", p->folder, prefix);
    if (file.name == NULL)
        return err->status;
    p->files->list[p->files->n++] = file;
    return dcpk_output_add_object(p->out, file.name, file.payload, err);
}

/* The file of a rank with all that is not the state of a distributed optimizer. */
static dcpk_status put_rank(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    const struct dcpk_rng rank = {.pp = p->at.pp, .tp = p->at.tp};
    const struct dcpk_rng *rng = dcpk_model_rng(p->model, &rank);
    struct dcpk_dict file = {.arena = p->out->arena, .err = err};
    const size_t first_tensor = p->out->n_tensors;
    const struct dcpk_value *optimizer = NULL;
    char folder[DCPK_MP_NAME_BYTES];

    dcpk_mp_name_folder(&p->replay.cut, &p->at, folder);
    p->folder = dcpk_arena_strdup(p->out->arena, folder, err);
    if (p->folder == NULL)
        return err->status;
    for (size_t i = 0; i < p->common->n; i++) {
        const struct dcpk_value_pair *pair = &p->common->as.pairs[i];

        if (dcpk_value_is_str(pair->key, "optimizer")) {
            if (put_models(p, &file, err) || dcpk_mp_put_optimizer(p, &optimizer, err))
                return err->status;
            dcpk_dict_add(&file, pair->key, optimizer);
        } else if (!dcpk_value_is_str(pair->key, "content_metadata"))
            dcpk_dict_add(&file, pair->key, pair->value);
    }
    if (optimizer == NULL && put_models(p, &file, err))
        return err->status;
    if (p->is_rng_whole)
        dcpk_dict_put(&file, "rng_state", rng->states);
    if (dcpk_mp_put_file(p, "model_optim_rng", dcpk_dict_end(&file), first_tensor, err))
        return err->status;
    return dcpk_mp_put_buckets(p, err);
}

static dcpk_status put_ranks(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    const struct dcpk_cut *cut = &p->replay.cut;
    struct dcpk_mp_rank *at = &p->at;

    for (at->pp = 0; at->pp < cut->pp; at->pp++)
        for (at->ep = 0; at->ep < cut->ep; at->ep++)
            for (at->tp = 0; at->tp < cut->tp; at->tp++)
                if (dcpk_mp_first_rank(cut, p->n_data_parallel, at) >= 0 && put_rank(p, err))
                    return err->status;
    return DCPK_OK;
}

/* A run loads RNG states of all ranks or of none. */
static void find_rng(struct dcpk_mp_putting *p)
{
    const struct dcpk_cut *cut = &p->replay.cut;
    int64_t n_found = 0;

    for (int64_t pp = 0; pp < cut->pp; pp++)
        for (int64_t tp = 0; tp < cut->tp; tp++)
            n_found += dcpk_model_rng(p->model, &(struct dcpk_rng){.pp = pp, .tp = tp}) != NULL;
    p->is_rng_whole = n_found == cut->pp * cut->tp;
    if (!p->is_rng_whole)
        p->out->load_needs |= DCPK_LOAD_WITHOUT_RNG;
    for (size_t i = 0; i < p->model->n_rng; i++) {
        const struct dcpk_rng *rng = &p->model->rng[i];
        const struct dcpk_rng rank = {.pp = rng->pp, .tp = rng->tp};
        const char *why = "RNG state of a data-parallel rank that has no file: its rank gets that "
                          "of the first";

        if (p->is_rng_whole && dcpk_model_rng(p->model, &rank) == rng)
            continue;
        if (!p->is_rng_whole)
            why = "another rank has no RNG state, and a run loads those of all or none";
        dcpk_output_event(p->out, DCPK_EVENT_OMITTED, "rng_state", "%s", why);
    }
}

/* The one of a weight and its master that is not written, where there are both. */
static dcpk_status note_unwritten(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    const struct dcpk_model *m = p->model;
    bool *is_noted = dcpk_arena_alloc(p->out->arena, p->out->source->n_tensors, err);

    if (is_noted == NULL)
        return err->status;
    for (size_t s = 0; s < p->replay.n_slots; s++) {
        const struct dcpk_replay_slot *slot = &p->replay.slots[s];
        const uint32_t *tensor = m->params[slot->param].tensor;

        if (tensor[DCPK_WEIGHT] == DCPK_NO_TENSOR || tensor[DCPK_MASTER] == DCPK_NO_TENSOR)
            continue;
        if (!m->has_optimizer)
            dcpk_megatron_omit(p->out, &m->tensors[tensor[DCPK_MASTER]], is_noted,
                               dcpk_megatron_master_left);
        else if (dcpk_mp_is_own_master(p, slot))
            dcpk_megatron_omit(p->out, &m->tensors[tensor[DCPK_WEIGHT]], is_noted,
                               "the fp32 weight is its own master, which is written");
    }
    return DCPK_OK;
}

/* Find the parameters and buffers of the ranks of args. */
static dcpk_status find_ranks(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(p->model->args);
    struct dcpk_arena *arena = p->out->arena;
    struct dcpk_cut *cut = &p->replay.cut;

    if (dcpk_cut_read_ranks(p->model->args, arena, cut, err))
        return err->status;
    cut->spec = dcpk_cut_spec(attrs, p->out->target.impl);
    for (size_t i = 0; i < p->model->n_params; i++)
        if (p->model->params[i].expert >= 0 && dcpk_megatron_has_grouped_mlp(p->model))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s': the weights of GroupedMLP experts, which args ask for, are not "
                             "written as their modules have them",
                             p->model->params[i].name);
    if (!dcpk_value_as_int(dcpk_value_get(attrs, "world_size"), &p->n_data_parallel))
        p->n_data_parallel = cut->tp * cut->pp;
    p->n_data_parallel = dcpk_max_i64(p->n_data_parallel / (cut->tp * cut->pp), 1);
    return dcpk_bucket_layout_collect(p->model, &p->run, arena, &p->replay, err);
}

/* The list of files, from the heap into the arena. */
static dcpk_status keep_files(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    struct dcpk_mp_file *list =
        dcpk_arena_copy(p->out->arena, p->files->list, p->files->n, sizeof *list, err);

    dcpk_free(p->files->list);
    p->files->list = list;
    return dcpk_made(list, err);
}

dcpk_status dcpk_mp_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                               struct dcpk_error *err)
{
    struct dcpk_mp_putting p = {.model = model, .out = out};
    bool is_known;

    p.files = dcpk_arena_alloc(out->arena, sizeof *p.files, err);
    if (p.files == NULL)
        return err->status;
    *p.files = (struct dcpk_mp_files){0};
    p.run = (struct dcpk_bucket_run){.args = model->args,
                                     .impl = out->target.impl,
                                     .model_dtype = dcpk_megatron_model_dtype(model, &is_known),
                                     .has_buffers = true};
    if (find_ranks(&p, err))
        return err->status;
    find_rng(&p);
    if (dcpk_megatron_common(model, out, p.is_rng_whole, &p.common, err) == DCPK_OK &&
        dcpk_mp_find_buckets(&p, err) == DCPK_OK && note_unwritten(&p, err) == DCPK_OK)
        (void)put_ranks(&p, err);
    if (keep_files(&p, err))
        return err->status;
    out->common = p.common;
    out->form = p.files;
    return DCPK_OK;
}
