/* SPDX-License-Identifier: Apache-2.0 */
/* hf_from_model.c - the canonical view -> a folder of Hugging Face's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/hf_ops.h"
#include "formats/safetensors/hf_writing.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/account.h"
#include "lib/model/arg_table.h"
#include "lib/model/norms.h"

/* --- tensors --- */

/* The dtype of stored weights; that of args if there are only masters. With an optimizer, a
 * trainer's weights are its masters. */
static enum dcpk_dtype weights_dtype(const struct dcpk_hf_writing *e)
{
    const struct dcpk_model *m = e->model;
    uint64_t param;

    if (!dcpk_map_get(&m->param_by_name, DCPK_HF_EMBEDDING, strlen(DCPK_HF_EMBEDDING), &param))
        return dcpk_args_working_dtype(dcpk_value_attrs(m->args));
    if (e->scheme != NULL && m->has_optimizer)
        return dcpk_model_value(m, &m->params[param])->dtype;
    if (m->params[param].tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR)
        return m->tensors[m->params[param].tensor[DCPK_WEIGHT]].dtype;
    return dcpk_args_working_dtype(dcpk_value_attrs(e->model->args));
}

/* The dtype of a weight whose rule has none; DCPK_DTYPE_NONE: it has masters, or no float. */
static enum dcpk_dtype binding_stored_dtype(const struct dcpk_hf_writing *e, size_t i)
{
    const struct dcpk_model_tensor *value;

    if (e->params[i] == DCPK_NO_PARAM)
        return DCPK_DTYPE_NONE;
    value = dcpk_model_value(e->model, &e->model->params[e->params[i]]);
    if (value->role != DCPK_WEIGHT || !dcpk_dtype_is_float(value->dtype))
        return DCPK_DTYPE_NONE;
    return value->dtype;
}

/* True if each tensor can be written as it is stored: those of a model of Hugging Face's, unless
 * one tensor is made of experts of several dtypes. */
static bool can_keep_dtypes(const struct dcpk_hf_writing *e)
{
    for (size_t i = 0; i < e->bindings.n; i++) {
        const int64_t expert = e->bindings.list[i].expert;

        if (expert > 0 && binding_stored_dtype(e, i) != binding_stored_dtype(e, i - (size_t)expert))
            return false;
    }
    return (e->model->flags & DCPK_MODEL_OF_FAMILY) != 0;
}

/* Weights without masters that are stored in several dtypes keep them, or become float32, which
 * loses nothing of any. */
static void choose_dtypes(struct dcpk_hf_writing *e)
{
    const enum dcpk_dtype most = weights_dtype(e);
    const char *written = "all are written as float32";

    e->dtype = most;
    e->keeps_dtypes = can_keep_dtypes(e);
    if (e->keeps_dtypes)
        written = "each is written as it is stored";
    for (size_t i = 0; i < e->bindings.n; i++) {
        const enum dcpk_dtype stored = binding_stored_dtype(e, i);

        if (stored == most || stored == DCPK_DTYPE_NONE ||
            e->bindings.list[i].rule->dtype != DCPK_DTYPE_NONE)
            continue;
        if (!e->keeps_dtypes)
            e->dtype = DCPK_F32;
        if (most != DCPK_F32 || e->keeps_dtypes)
            dcpk_output_event(e->out, DCPK_EVENT_NOTE, "dtype",
                              "weights are stored as %s, and '%s' as %s: %s", dcpk_dtype_name(most),
                              e->bindings.list[i].mg, dcpk_dtype_name(stored), written);
        return;
    }
}

/* The moment, or the stored weight where its dtype is the one asked for, else the best there is. */
static const struct dcpk_model_tensor *export_value(const struct dcpk_hf_writing *e, uint32_t param,
                                                    enum dcpk_dtype dtype)
{
    const struct dcpk_param *p = &e->model->params[param];
    const uint32_t weight = p->tensor[DCPK_WEIGHT];

    if (e->role != DCPK_WEIGHT)
        return &e->model->tensors[p->tensor[e->role]];
    if (weight != DCPK_NO_TENSOR && e->model->tensors[weight].dtype == dtype)
        return &e->model->tensors[weight];
    return dcpk_model_value(e->model, p);
}

static enum dcpk_dtype binding_dtype(const struct dcpk_hf_writing *e,
                                     const struct dcpk_hf_binding *b)
{
    const enum dcpk_dtype stored = binding_stored_dtype(e, (size_t)(b - e->bindings.list));

    if (e->keeps_dtypes && stored != DCPK_DTYPE_NONE)
        return stored;
    return b->rule->dtype != DCPK_DTYPE_NONE ? b->rule->dtype : e->dtype;
}

/* Lines in pairs are written as lines. */
static dcpk_status join_pairs(struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b, size_t p,
                              struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    const int of_expert = dcpk_hf_ops_pair_axis(b->rule, p), axis = of_expert + (b->expert >= 0);
    int64_t *shape;

    if (of_expert < 0)
        return DCPK_OK;
    tensor->written_rank = tensor->rank - 1;
    shape = dcpk_arena_array(e->out->arena, (size_t)tensor->written_rank, sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    for (int a = 0; a < tensor->written_rank; a++)
        shape[a] = tensor->shape[a + (a > axis)];
    shape[axis] *= 2;
    tensor->written_shape = shape;
    return DCPK_OK;
}

/* The keys of a part: the embedding of a tied model in memory is the output layer, too. */
static dcpk_status part_keys(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                             size_t p, struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    const char *const names[] = {b->hf[p], e->tied_name};
    const char **keys = dcpk_arena_array(e->out->arena, DCPK_COUNT(names), sizeof *keys, err);

    if (keys == NULL)
        return err->status;
    tensor->n_keys = 1;
    if (e->role == DCPK_WEIGHT && e->tied_name != NULL && strcmp(b->mg, DCPK_HF_EMBEDDING) == 0 &&
        (b->rule->flags & DCPK_HF_COPY) == 0)
        tensor->n_keys = 2;
    for (size_t i = 0; i < tensor->n_keys; i++) {
        keys[i] = dcpk_arena_printf(e->out->arena, err, "%s%s%s", e->prefix, names[i], e->ending);
        if (keys[i] == NULL)
            return err->status;
    }
    tensor->keys = keys;
    return DCPK_OK;
}

static dcpk_status hf_add_part(struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b, size_t p,
                               const struct dcpk_model_tensor *part, struct dcpk_error *err)
{
    struct dcpk_out_tensor tensor = {.dtype =
                                         e->role == DCPK_WEIGHT ? binding_dtype(e, b) : part->dtype,
                                     .rank = part->rank,
                                     .shape = part->shape,
                                     .pieces = part->pieces,
                                     .n_pieces = part->n_pieces};

    if (part_keys(e, b, p, &tensor, err) || join_pairs(e, b, p, &tensor, err))
        return err->status;
    if (dcpk_hf_is_quantised(e, b, &tensor))
        return dcpk_hf_add_blocks(e, b, &tensor, err);
    return dcpk_output_add_tensor(e->out, &tensor, err);
}

static bool has_vocab(const struct dcpk_hf_rule *rule)
{
    for (size_t i = 0; i < rule->n_ops; i++)
        if (rule->ops[i] == DCPK_HF_VOCAB)
            return true;
    return false;
}

/* A norm's weight, where only one side stores it less one: of its master, so that it is rounded
 * once. */
static dcpk_status norm_write(struct dcpk_hf_writing *e, size_t i, struct dcpk_model_tensor *whole,
                              struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[i];
    const struct dcpk_model *m = e->model;
    const float addend = -dcpk_hf_ops_addend(e->map, b, dcpk_value_attrs(e->model->args));

    if (addend == 0)
        return DCPK_OK;
    if (e->n_added++ == 0)
        e->first_added = b->mg;
    e->addend = addend;
    return dcpk_norm_add(m->ckpt, dcpk_model_value(m, &m->params[e->params[i]]), addend,
                         e->out->arena, whole, err);
}

/* The parts of a binding's parameter; of the vocabulary the rows of tokens. */
static dcpk_status binding_split(struct dcpk_hf_writing *e, size_t i,
                                 struct dcpk_model_tensor *parts, struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[i];
    const uint32_t *params = e->role == DCPK_WEIGHT ? e->params : e->states;
    struct dcpk_model_tensor whole = *export_value(e, params[i], binding_dtype(e, b));
    const struct dcpk_rows tokens = {0, e->vocab_size};
    const struct dcpk_stored kept = {"", &tokens, 1};

    if (e->role == DCPK_WEIGHT && norm_write(e, i, &whole, err))
        return err->status;
    if (has_vocab(b->rule) && whole.rank > 0 && whole.shape[0] > e->vocab_size &&
        dcpk_rows_take(e->out->arena, &whole, &kept, &whole, err))
        return err->status;
    if (dcpk_hf_ops_split(b->rule, &e->sizes, &whole, e->out->arena, parts, err))
        return dcpk_context(err, "'%s'", b->mg);
    return DCPK_OK;
}

/* Parameters that no map knows, by their own names. */
static dcpk_status add_others(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    const struct dcpk_model *m = e->model;

    for (size_t p = 0; p < m->n_params; p++) {
        const char *name = m->params[p].name;
        const struct dcpk_model_tensor *value = dcpk_model_value(m, &m->params[p]);
        struct dcpk_out_tensor tensor = {.n_keys = 1};
        const char **key;
        char *text;

        if (!dcpk_starts_with(name, DCPK_HF_OTHER) || value == NULL)
            continue;
        tensor.keys = key = dcpk_arena_array(e->out->arena, 1, sizeof *key, err);
        text =
            dcpk_arena_printf(e->out->arena, err, "%s%s", e->prefix, name + strlen(DCPK_HF_OTHER));
        if (key == NULL || text == NULL)
            return err->status;
        *key = text;
        for (text += strlen(e->prefix); (text = strchr(text, '/')) != NULL;)
            *text = '.';
        tensor.dtype = value->dtype;
        if (e->out->target.family.dtype != DCPK_DTYPE_NONE && dcpk_dtype_is_float(value->dtype)) {
            if (dcpk_dtype_bytes(value->dtype) < 2)
                return dcpk_fail(
                    err, DCPK_EUNSUPPORTED,
                    "'%s' is %s, perhaps with scales, and no map knows it: it is not cast", *key,
                    dcpk_dtype_name(value->dtype));
            tensor.dtype = e->out->target.family.dtype;
        }
        tensor.rank = value->rank;
        tensor.shape = value->shape;
        tensor.pieces = value->pieces;
        tensor.n_pieces = value->n_pieces;
        if (dcpk_output_add_tensor(e->out, &tensor, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status add_binding(struct dcpk_hf_writing *e, size_t i, struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[i];
    struct dcpk_model_tensor parts[DCPK_HF_MAX_PARTS];

    if (binding_split(e, i, parts, err))
        return err->status;
    for (size_t p = 0; p < b->rule->n_hf; p++)
        if (hf_add_part(e, b, p, &parts[p], err))
            return err->status;
    return DCPK_OK;
}

/* A slice's pieces, after the axis of the experts. */
static dcpk_status hf_add_slice(struct dcpk_arena *arena, const struct dcpk_model_tensor *slice,
                                int64_t expert, struct dcpk_piece *pieces, struct dcpk_error *err)
{
    for (size_t i = 0; i < slice->n_pieces; i++) {
        const struct dcpk_piece *piece = &slice->pieces[i];
        struct dcpk_box from, inner, to;

        dcpk_piece_to(piece, &inner);
        to.rank = inner.rank + 1;
        to.offset[0] = expert;
        to.extent[0] = 1;
        for (int a = 0; a < inner.rank; a++) {
            to.offset[a + 1] = inner.offset[a];
            to.extent[a + 1] = inner.extent[a];
        }
        dcpk_piece_from(piece, &from);
        if (dcpk_piece_like(arena, piece, &from, &to, &pieces[i], err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status stack_slices(struct dcpk_hf_writing *e, const struct dcpk_model_tensor *slices,
                                size_t n, struct dcpk_model_tensor *stack, struct dcpk_error *err)
{
    struct dcpk_arena *arena = e->out->arena;
    int64_t *shape;
    struct dcpk_piece *pieces;
    size_t n_pieces = 0;

    for (size_t i = 0; i < n; i++)
        n_pieces += slices[i].n_pieces;
    shape = dcpk_arena_array(arena, (size_t)slices[0].rank + 1, sizeof *shape, err);
    pieces = dcpk_arena_array(arena, n_pieces, sizeof *pieces, err);
    if (shape == NULL || pieces == NULL)
        return err->status;
    *stack = slices[0];
    shape[0] = (int64_t)n;
    memcpy(shape + 1, slices[0].shape, (size_t)slices[0].rank * sizeof *shape);
    stack->shape = shape;
    stack->rank++;
    stack->pieces = pieces;
    stack->n_pieces = 0;
    for (size_t i = 0; i < n; i++) {
        if (slices[i].rank != slices[0].rank ||
            (e->role != DCPK_WEIGHT && slices[i].dtype != slices[0].dtype) ||
            memcmp(slices[i].shape, slices[0].shape, (size_t)slices[0].rank * sizeof *shape) != 0)
            return dcpk_fail(err, DCPK_EMISMATCH, "experts differ in dtype or shape");
        if (hf_add_slice(arena, &slices[i], (int64_t)i, pieces + stack->n_pieces, err))
            return err->status;
        stack->n_pieces += slices[i].n_pieces;
    }
    return DCPK_OK;
}

/* Slices of one tensor, or of one for each part: the n bindings from the first on, an expert
 * each. */
static dcpk_status add_stack(struct dcpk_hf_writing *e, size_t first, size_t n,
                             struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[first];
    struct dcpk_model_tensor *slices = dcpk_alloc_array(n * DCPK_HF_MAX_PARTS, sizeof *slices, err);
    struct dcpk_model_tensor stack, parts[DCPK_HF_MAX_PARTS];

    if (slices == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        if (binding_split(e, first + i, parts, err))
            goto out;
        for (size_t p = 0; p < b->rule->n_hf; p++)
            slices[p * n + i] = parts[p];
    }
    for (size_t p = 0; p < b->rule->n_hf; p++)
        if (stack_slices(e, slices + p * n, n, &stack, err) || hf_add_part(e, b, p, &stack, err)) {
            dcpk_context(err, "'%s'", b->hf[p]);
            goto out;
        }
out:
    dcpk_free(slices);
    return err->status;
}

/* --- order --- */

/* A binding in the order of writing. */
struct placed_binding {
    int64_t place;
    size_t index;
};

static int compare_placed(const void *a, const void *b)
{
    const struct placed_binding *x = a, *y = b;

    return DCPK_ORDER_BY_2(x, y, place, index);
}

/* True if the binding has a tensor of the role that is written: frozen weights have no moments,
 * and copies share those of what they repeat. */
static bool has_value(const struct dcpk_hf_writing *e, size_t i)
{
    if (e->role == DCPK_WEIGHT)
        return e->params[i] != DCPK_NO_PARAM;
    return e->states[i] != DCPK_NO_PARAM && (e->bindings.list[i].rule->flags & DCPK_HF_COPY) == 0 &&
           e->model->params[e->states[i]].tensor[e->role] != DCPK_NO_TENSOR;
}

/* The experts of one tensor that have a value; all of them, or none. */
static dcpk_status check_stack(const struct dcpk_hf_writing *e, size_t first,
                               struct dcpk_error *err)
{
    for (size_t i = 1; i < (size_t)e->sizes.n_experts; i++)
        if (!has_value(e, first + i))
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s' is trained, and '%s' is not",
                             e->bindings.list[first].mg, e->bindings.list[first + i].mg);
    return DCPK_OK;
}

/* Embedding, layers ascending, the rest: files that are cut hold layers that can be loaded
 * alone. */
static dcpk_status add_tensors(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    struct placed_binding *placed = dcpk_alloc_array(e->bindings.n, sizeof *placed, err);
    size_t n_placed = 0;

    if (placed == NULL)
        return err->status;
    for (size_t i = 0; i < e->bindings.n; i++)
        if (e->bindings.list[i].expert <= 0 && has_value(e, i))
            placed[n_placed++] = (struct placed_binding){e->bindings.list[i].place, i};
    qsort(placed, n_placed, sizeof *placed, compare_placed);
    for (size_t i = 0; i < n_placed; i++) {
        const size_t first = placed[i].index;

        if (e->bindings.list[first].expert < 0 && add_binding(e, first, err))
            break;
        if (e->bindings.list[first].expert == 0 &&
            (check_stack(e, first, err) || add_stack(e, first, (size_t)e->sizes.n_experts, err)))
            break;
    }
    dcpk_free(placed);
    return err->status;
}

/* --- files next to tensors --- */

static void take_export_remark(void *context, const char *key, const char *text)
{
    dcpk_output_event(context, DCPK_EVENT_NOTE, key, "%s: %s", key, text);
}

static dcpk_status put_config(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    struct dcpk_hf_export export = {.map = e->map,
                                    .args = dcpk_value_attrs(e->model->args),
                                    .vocab_size = e->vocab_size,
                                    .dtype = e->dtype,
                                    .base = e->base,
                                    .keeps_base = e->base != NULL &&
                                                  (e->model->flags & DCPK_MODEL_OF_FAMILY) != 0,
                                    .is_as_stored = dcpk_hf_map_is_any(e->map) &&
                                                    e->out->target.family.dtype == DCPK_DTYPE_NONE,
                                    .fp8 = e->out->target.family.fp8,
                                    .remark = take_export_remark,
                                    .context = e->out};
    struct dcpk_bytes text = {0};

    if (!e->out->target.family.without_mtp)
        export.n_mtp = e->sizes.n_mtp;
    if (dcpk_hf_config_write(&export, &text, err) == DCPK_OK &&
        dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_output_put_small_file(e->out, DCPK_HF_CONFIG, text.data, text.n_bytes, err);
    dcpk_bytes_release(&text);
    return err->status;
}

static const char reason_weight[] = "a layer that is left out, or a weight (its master is written)";

/* Stored tensors of the view that no output tensor is made of. */
static void hf_note_unused(const struct dcpk_hf_writing *e, const bool *is_used,
                           const bool *is_weight, const bool *is_state)
{
    const struct dcpk_checkpoint *source = e->out->source;

    for (size_t t = 0; t < source->n_tensors; t++)
        if (!is_used[t] && (is_weight[t] || is_state[t]))
            dcpk_output_event(e->out, DCPK_EVENT_OMITTED, source->tensors[t].key, "%s",
                              is_weight[t] ? reason_weight : dcpk_reason_weights_only);
}

static dcpk_status note_left(const struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *source = e->out->source;
    struct dcpk_account used = {0}, weights = {0}, states = {0};

    if (dcpk_account_init(&used, source, err) || dcpk_account_init(&weights, source, err) ||
        dcpk_account_init(&states, source, err))
        goto out;
    for (size_t t = 0; t < e->out->n_tensors; t++)
        dcpk_account_pieces(&used, e->out->tensors[t].pieces, e->out->tensors[t].n_pieces);
    for (size_t t = 0; t < e->model->n_tensors; t++) {
        const struct dcpk_model_tensor *tensor = &e->model->tensors[t];

        dcpk_account_pieces(tensor->role == DCPK_WEIGHT ? &weights : &states, tensor->pieces,
                            tensor->n_pieces);
    }
    hf_note_unused(e, used.tensors, weights.tensors, states.tensors);
out:
    dcpk_account_release(&used);
    dcpk_account_release(&weights);
    dcpk_account_release(&states);
    return err->status;
}

/* The rows of the vocabulary, and what becomes of the others. */
static dcpk_status find_vocab(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    struct dcpk_hf_vocab vocab = {.args = dcpk_value_attrs(e->model->args),
                                  .given = e->out->target.family.vocab_size,
                                  .remark = take_export_remark,
                                  .context = e->out};
    const struct dcpk_model *m = e->model;
    uint64_t param;

    if (!dcpk_map_get(&m->param_by_name, DCPK_HF_EMBEDDING, strlen(DCPK_HF_EMBEDDING), &param))
        return dcpk_fail(err, DCPK_EMISMATCH, "there is no '%s'", DCPK_HF_EMBEDDING);
    if (dcpk_model_value(m, &m->params[param])->rank > 0)
        vocab.stored_rows = dcpk_model_value(m, &m->params[param])->shape[0];
    if (!e->out->source->given.lora.merges) /* an adapter may resize it; else args are the base's */
        vocab.base = e->base;
    if (dcpk_hf_vocab_size(&vocab, &e->vocab_size, err))
        return err->status;
    if (e->vocab_size < vocab.stored_rows)
        dcpk_output_event(e->out, DCPK_EVENT_NOTE, "vocabulary",
                          "%" PRId64 " of %" PRId64
                          " rows of the vocabulary are left out, from %" PRId64 " on",
                          vocab.stored_rows - e->vocab_size, vocab.stored_rows, e->vocab_size);
    return DCPK_OK;
}

static void note_norms_written(const struct dcpk_hf_writing *e)
{
    if (e->n_added == 0)
        return;
    dcpk_output_event(e->out, DCPK_EVENT_NOTE, "norms",
                      "%zu weights of norms, '%s' the first, are written %s one, as family %s has "
                      "them: the sum of float32, rounded to %s, does not give back every bit of w",
                      e->n_added, e->first_added, e->addend < 0 ? "less" : "plus", e->map->family,
                      dcpk_dtype_name(e->dtype));
}

/* --- another container --- */

/* The buffer that the family does not have, and a module of the scheme does: the first pattern of
 * "zero", for each layer with experts. */
static dcpk_status add_zeros(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    for (int64_t l = 0; e->map->n_zero > 0 && l < e->sizes.n_layers; l++) {
        const char *pattern = e->map->zero[0], *at = strstr(pattern, "{l}");
        const struct dcpk_box box = {1, {0}, {e->sizes.n_experts}};
        struct dcpk_out_tensor tensor = {.n_keys = 1, .dtype = DCPK_F32, .rank = 1, .n_pieces = 1};
        int64_t *shape = dcpk_arena_array(e->out->arena, 1, sizeof *shape, err);
        struct dcpk_piece *piece = dcpk_arena_array(e->out->arena, 1, sizeof *piece, err);
        const char **key = dcpk_arena_array(e->out->arena, 1, sizeof *key, err);

        if (at == NULL || !e->sizes.is_moe[l])
            continue;
        if (shape == NULL || piece == NULL || key == NULL ||
            dcpk_piece_make(e->out->arena, DCPK_PIECE_FILL, NULL, &box, piece, err))
            return err->status;
        *key = dcpk_arena_printf(e->out->arena, err, "%s%.*s%" PRId64 "%s", e->prefix,
                                 (int)(at - pattern), pattern, l, at + strlen("{l}"));
        if (*key == NULL)
            return err->status;
        *shape = e->sizes.n_experts;
        tensor.keys = key;
        tensor.shape = shape;
        tensor.pieces = piece;
        if (dcpk_output_add_tensor(e->out, &tensor, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The moments, and what belongs to them. */
static dcpk_status add_states(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    static const struct {
        enum dcpk_role role;
        const char *ending;
    } moments[] = {{DCPK_EXP_AVG, ".exp_avg"}, {DCPK_EXP_AVG_SQ, ".exp_avg_sq"}};

    for (size_t i = 0; i < DCPK_COUNT(moments); i++) {
        e->role = moments[i].role;
        e->prefix = dcpk_arena_printf(e->out->arena, err, "%s.state.", e->state_prefix);
        e->ending = moments[i].ending;
        if (e->prefix == NULL || add_tensors(e, err))
            return err->status;
    }
    return dcpk_hf_put_groups(e, err);
}

/* "app.model" is next to "app.optim", as PyTorch's tutorial has them; torchtitan has "optimizer".
 */
static dcpk_status find_prefixes(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    static const char model[] = "model";
    const char *prefix = dcpk_text_or(e->out->model_prefix, e->scheme->prefix);
    const char *optimizer = e->scheme->is_flattened ? "optimizer" : "optim";
    int n = (int)strlen(prefix), n_before = 0;

    n -= dcpk_ends_with(prefix, ".");
    if (n >= (int)strlen(model) && strncmp(prefix + n - strlen(model), model, strlen(model)) == 0)
        n_before = n - (int)strlen(model);
    e->prefix = dcpk_arena_printf(e->out->arena, err, "%.*s%s", n, prefix, dcpk_joint(n > 0, "."));
    e->state_prefix = e->out->state_prefix;
    if (e->state_prefix == NULL)
        e->state_prefix =
            dcpk_arena_printf(e->out->arena, err, "%.*s%s", n_before, prefix, optimizer);
    if (e->prefix == NULL || e->state_prefix == NULL)
        return err->status;
    for (size_t i = 0; i < e->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &e->bindings.list[i];

        if (!b->applies && strcmp(b->mg, DCPK_HF_OUTPUT_LAYER) == 0 && b->rule->flags == 0)
            e->tied_name = b->hf[0];
    }
    return DCPK_OK;
}

/* An adapter in the checkpoint of a run, which is not merged, next to its base. */
static dcpk_status put_adapter(struct dcpk_output *out, struct dcpk_error *err)
{
    if (!out->source->given.lora.goes_along || dcpk_lora_find(out->source) == NULL)
        return DCPK_OK;
    dcpk_output_event(out, DCPK_EVENT_NOTE, "adapter",
                      "the adapter (LoRA) is not merged: it is in " DCPK_PEFT_FOLDER
                      ", and the model is its base");
    return dcpk_peft_put(out, err);
}

static dcpk_status write_model(struct dcpk_hf_writing *e, struct dcpk_error *err)
{
    if (dcpk_hf_choose_map(e, err) || (e->scheme != NULL && find_prefixes(e, err)))
        return err->status;
    if (e->dtype == DCPK_DTYPE_NONE)
        choose_dtypes(e);
    if ((!dcpk_hf_map_is_any(e->map) && find_vocab(e, err)) || add_tensors(e, err) ||
        add_others(e, err) || put_config(e, err) ||
        (e->scheme == NULL && dcpk_hf_assets_put(e->out, err)) ||
        (e->scheme != NULL && add_zeros(e, err)) ||
        (e->scheme != NULL && e->model->has_optimizer && add_states(e, err)) ||
        put_adapter(e->out, err))
        return err->status;
    return note_left(e, err);
}

dcpk_status dcpk_hf_scheme_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_hf_scheme *scheme, struct dcpk_error *err)
{
    struct dcpk_hf_writing e = {.model = model,
                                .out = out,
                                .scheme = scheme,
                                .prefix = "",
                                .ending = "",
                                .dtype = out->target.family.dtype};

    if (dcpk_hf_base_find(out, &e.base, err) == DCPK_OK && write_model(&e, err) == DCPK_OK) {
        note_norms_written(&e);
        out->family = e.map->family;
        if (strcmp(dcpk_text_or(model->family, ""), out->family) != 0) /* reading notes its own */
            dcpk_output_event(out, DCPK_EVENT_NOTE, "family", "the family is %s", out->family);
        (void)dcpk_hf_check_blocks(&e, err);
    }
    dcpk_json_free(e.base);
    return err->status;
}

dcpk_status dcpk_hf_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                               struct dcpk_error *err)
{
    return dcpk_hf_scheme_from_model(model, out, NULL, err);
}
