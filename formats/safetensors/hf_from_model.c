/* SPDX-License-Identifier: Apache-2.0 */
/* hf_from_model.c - the canonical view -> a folder of Hugging Face's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/hf_ops.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/account.h"
#include "lib/model/arg_table.h"
#include "lib/model/norms.h"

#define NO_PARAM    UINT32_MAX
#define MAX_NEAREST 3 /* families that do not fit, named with why */

/* Everything while a model is written by a map. */
struct exporting {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    const struct dcpk_hf_map *map;
    struct dcpk_hf_sizes sizes;
    struct dcpk_hf_bindings bindings;
    int64_t vocab_size;     /* rows of the vocabulary that are written */
    enum dcpk_dtype dtype;  /* of all weights whose rule has none */
    struct dcpk_json *base; /* owned; NULL: none */
    uint32_t *params;       /* by binding; NO_PARAM: it is not written */
    size_t n_added;         /* weights of norms that are written plus addend, 1 or -1 */
    const char *first_added;
    float addend;
    struct dcpk_hf_faults faults;
    size_t distance; /* from the map that was tried last */
};

static const struct dcpk_value *export_attrs(const struct exporting *e)
{
    return dcpk_value_attrs(e->model->args);
}

/* --- which map --- */

static bool is_written(const struct exporting *e, const struct dcpk_hf_binding *b)
{
    return b->applies && (b->rule->flags & DCPK_HF_READ_ONLY) == 0 &&
           !(b->is_mtp && e->out->target.family.without_mtp);
}

/* Finds the parameter of a binding. In a tied model a copy of the output layer is one of the
 * embedding. */
static bool binding_find_param(const struct exporting *e, const struct dcpk_hf_binding *b,
                               uint64_t *param)
{
    const struct dcpk_map *by_name = &e->model->param_by_name;

    if (dcpk_map_get(by_name, b->mg, strlen(b->mg), param))
        return true;
    return (b->rule->flags & DCPK_HF_COPY) != 0 && strcmp(b->mg, DCPK_HF_OUTPUT_LAYER) == 0 &&
           dcpk_map_get(by_name, DCPK_HF_EMBEDDING, strlen(DCPK_HF_EMBEDDING), param);
}

/* Every binding has its parameter, and every parameter one binding that is not a copy. */
static void match_params(struct exporting *e, bool *is_taken)
{
    const bool without_mtp = e->out->target.family.without_mtp;

    for (size_t i = 0; i < e->bindings.n; i++) {
        const struct dcpk_hf_binding *b = &e->bindings.list[i];
        uint64_t param;

        e->params[i] = NO_PARAM;
        if (!is_written(e, b))
            continue;
        if (!binding_find_param(e, b, &param)) {
            dcpk_hf_fault(&e->faults, DCPK_EMISMATCH, "there is no '%s'", b->mg);
            continue;
        }
        e->params[i] = (uint32_t)param;
        if ((b->rule->flags & DCPK_HF_COPY) != 0)
            continue;
        if (is_taken[param])
            dcpk_hf_fault(&e->faults, DCPK_EMISMATCH, "two rules take '%s'", b->mg);
        is_taken[param] = true;
    }
    for (size_t p = 0; p < e->model->n_params; p++) {
        const char *name = e->model->params[p].name;

        if (!is_taken[p] && !(without_mtp && dcpk_starts_with(name, "mtp.")))
            dcpk_hf_fault(&e->faults, DCPK_EMISMATCH, "no rule takes '%s'", name);
    }
}

/* Checks that args meet the map, and that every rule has its parameter. */
static dcpk_status match_map(struct exporting *e, const struct dcpk_hf_map *map,
                             struct dcpk_error *err)
{
    struct dcpk_arena *arena = e->out->arena;
    bool *is_taken;

    e->map = map;
    if (((e->model->flags & DCPK_MODEL_OF_FAMILY) == 0 &&
         dcpk_hf_args_hold(map, export_attrs(e), &e->distance, err)) ||
        dcpk_hf_sizes_read(export_attrs(e), arena, &e->sizes, err) ||
        dcpk_hf_bind(map, &e->sizes, NULL, arena, &e->bindings, err))
        return err->status;
    e->params = dcpk_arena_array(arena, e->bindings.n, sizeof *e->params, err);
    is_taken = dcpk_arena_array(arena, e->model->n_params, sizeof *is_taken, err);
    if (e->params == NULL || is_taken == NULL)
        return err->status;
    match_params(e, is_taken);
    e->distance = e->faults.n;
    if (dcpk_hf_faults_end(&e->faults, err))
        dcpk_context(err, "the map of %s does not fit, in %zu places", map->family, e->distance);
    e->faults = (struct dcpk_hf_faults){.n = 0};
    return err->status;
}

/* Why a family does not fit. */
struct misfit {
    const char *family;
    size_t distance;
    struct dcpk_error why;
};

static int compare_misfits(const void *left, const void *right)
{
    const struct misfit *a = left, *b = right;

    if (a->distance != b->distance)
        return DCPK_THREE_WAY(a->distance, b->distance);
    return strcmp(a->family, b->family);
}

/* Reports why the nearest families do not fit, and the names of the others. */
static dcpk_status fail_no_family(struct misfit *misfits, size_t n, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};

    qsort(misfits, n, sizeof *misfits, compare_misfits);
    for (size_t i = 0; i < n && i < MAX_NEAREST; i++)
        dcpk_bytes_printf(&text, "%s%s: %.160s", dcpk_joint(i > 0, "; "), misfits[i].family,
                          misfits[i].why.text);
    for (size_t i = MAX_NEAREST; i < n; i++)
        dcpk_bytes_printf(&text, "%s%s", i == MAX_NEAREST ? "; further away are " : ", ",
                          misfits[i].family);
    if (dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_fail(err, DCPK_EMISMATCH, "no family fits it: %.*s", (int)text.n_bytes,
                        (const char *)text.data);
    dcpk_bytes_release(&text);
    return err->status;
}

/* The first map that fits. */
static dcpk_status find_map(struct exporting *e, const struct dcpk_hf_maps *maps,
                            struct dcpk_error *err)
{
    struct misfit *misfits = dcpk_arena_array(e->out->arena, maps->n, sizeof *misfits, err);

    if (misfits == NULL)
        return err->status;
    for (size_t i = 0; i < maps->n; i++) {
        const dcpk_status st = match_map(e, maps->list[i], err);

        if (st == DCPK_OK || !dcpk_status_is_content(st))
            return st;
        misfits[i] = (struct misfit){maps->list[i]->family, e->distance, *err};
        *err = (struct dcpk_error)DCPK_ERROR_INIT;
    }
    return fail_no_family(misfits, maps->n, err);
}

/* The family that is named, that of the configuration that is laid under, or the first that
 * fits. */
static dcpk_status choose_map(struct exporting *e, struct dcpk_error *err)
{
    const struct dcpk_family_settings *settings = &e->out->target.family;
    const struct dcpk_hf_map *map;
    struct dcpk_hf_maps maps;

    if (e->model->args == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_ARGS,
                             "the checkpoint has no args, and config.json is made from them");
    if (dcpk_hf_maps_load(settings->maps, e->out->arena, &maps, err))
        return err->status;
    if (e->base != NULL) {
        if (dcpk_hf_config_find_map(&maps, settings->family, e->base, &map, err))
            return err->status;
        return match_map(e, map, err);
    }
    if (settings->family == NULL)
        return find_map(e, &maps, err);
    map = dcpk_hf_maps_find(&maps, settings->family);
    if (map == NULL) {
        dcpk_fail(err, DCPK_EUSAGE, "no family is called '%s':", settings->family);
        for (size_t i = 0; i < maps.n; i++)
            dcpk_append(err, " %s", maps.list[i]->family);
        return err->status;
    }
    return match_map(e, map, err);
}

/* --- tensors --- */

/* The dtype that weights are stored in; where masters are all there is, that of args. */
static enum dcpk_dtype weights_dtype(const struct exporting *e)
{
    const struct dcpk_model *m = e->model;
    uint64_t param;

    if (dcpk_map_get(&m->param_by_name, DCPK_HF_EMBEDDING, strlen(DCPK_HF_EMBEDDING), &param) &&
        m->params[param].tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR)
        return m->tensors[m->params[param].tensor[DCPK_WEIGHT]].dtype;
    return dcpk_args_working_dtype(export_attrs(e));
}

/* Weights without masters that are stored in several dtypes: float32 loses nothing of any. */
static void widen_dtype(struct exporting *e)
{
    for (size_t i = 0; i < e->bindings.n && e->dtype != DCPK_F32; i++) {
        const struct dcpk_hf_binding *b = &e->bindings.list[i];
        const struct dcpk_model_tensor *value;

        if (e->params[i] == NO_PARAM || b->rule->dtype != DCPK_DTYPE_NONE)
            continue;
        value = dcpk_model_value(e->model, &e->model->params[e->params[i]]);
        if (value->role != DCPK_WEIGHT || value->dtype == e->dtype ||
            !dcpk_dtype_is_float(value->dtype))
            continue;
        dcpk_output_event(e->out, DCPK_EVENT_NOTE, "dtype",
                          "weights are stored as %s, and '%s' as %s: all are written as float32",
                          dcpk_dtype_name(e->dtype), b->mg, dcpk_dtype_name(value->dtype));
        e->dtype = DCPK_F32;
    }
}

/* The stored weight where its dtype is the one asked for, else the best there is. */
static const struct dcpk_model_tensor *export_value(const struct exporting *e, uint32_t param,
                                                    enum dcpk_dtype dtype)
{
    const struct dcpk_param *p = &e->model->params[param];
    const uint32_t weight = p->tensor[DCPK_WEIGHT];

    if (weight != DCPK_NO_TENSOR && e->model->tensors[weight].dtype == dtype)
        return &e->model->tensors[weight];
    return dcpk_model_value(e->model, p);
}

static enum dcpk_dtype binding_dtype(const struct exporting *e, const struct dcpk_hf_binding *b)
{
    return b->rule->dtype != DCPK_DTYPE_NONE ? b->rule->dtype : e->dtype;
}

/* Lines in pairs are written as lines. */
static dcpk_status join_pairs(struct exporting *e, const struct dcpk_hf_binding *b, size_t p,
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

static dcpk_status hf_add_part(struct exporting *e, const struct dcpk_hf_binding *b, size_t p,
                               const struct dcpk_model_tensor *part, struct dcpk_error *err)
{
    struct dcpk_out_tensor tensor = {.n_keys = 1,
                                     .dtype = binding_dtype(e, b),
                                     .rank = part->rank,
                                     .shape = part->shape,
                                     .pieces = part->pieces,
                                     .n_pieces = part->n_pieces};
    const char **keys = dcpk_arena_alloc(e->out->arena, sizeof *keys, err);

    if (keys == NULL || join_pairs(e, b, p, &tensor, err))
        return err->status;
    *keys = b->hf[p];
    tensor.keys = keys;
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
static dcpk_status norm_write(struct exporting *e, size_t i, struct dcpk_model_tensor *whole,
                              struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[i];
    const struct dcpk_model *m = e->model;
    const float addend = -dcpk_hf_ops_addend(e->map, b, export_attrs(e));

    if (addend == 0)
        return DCPK_OK;
    if (e->n_added++ == 0)
        e->first_added = b->mg;
    e->addend = addend;
    return dcpk_norm_add(m->ckpt, dcpk_model_value(m, &m->params[e->params[i]]), addend,
                         e->out->arena, whole, err);
}

/* The parts of a binding's parameter; of the vocabulary the rows of tokens. */
static dcpk_status binding_split(struct exporting *e, size_t i, struct dcpk_model_tensor *parts,
                                 struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[i];
    struct dcpk_model_tensor whole = *export_value(e, e->params[i], binding_dtype(e, b));
    const struct dcpk_rows tokens = {0, e->vocab_size};
    const struct dcpk_stored kept = {"", &tokens, 1};

    if (norm_write(e, i, &whole, err))
        return err->status;
    if (has_vocab(b->rule) && whole.rank > 0 && whole.shape[0] > e->vocab_size &&
        dcpk_rows_take(e->out->arena, &whole, &kept, &whole, err))
        return err->status;
    if (dcpk_hf_ops_split(b->rule, &e->sizes, &whole, e->out->arena, parts, err)) {
        dcpk_context(err, "'%s'", b->mg);
        return err->status;
    }
    return DCPK_OK;
}

static dcpk_status add_binding(struct exporting *e, size_t i, struct dcpk_error *err)
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

static dcpk_status stack_slices(struct exporting *e, const struct dcpk_model_tensor *slices,
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
            memcmp(slices[i].shape, slices[0].shape, (size_t)slices[0].rank * sizeof *shape) != 0)
            return dcpk_fail(err, DCPK_EMISMATCH, "experts differ in shape");
        if (hf_add_slice(arena, &slices[i], (int64_t)i, pieces + stack->n_pieces, err))
            return err->status;
        stack->n_pieces += slices[i].n_pieces;
    }
    return DCPK_OK;
}

/* Slices of one tensor: the n bindings from the first on, an expert each. */
static dcpk_status add_stack(struct exporting *e, size_t first, size_t n, struct dcpk_error *err)
{
    const struct dcpk_hf_binding *b = &e->bindings.list[first];
    struct dcpk_model_tensor *slices = dcpk_alloc_array(n, sizeof *slices, err);
    struct dcpk_model_tensor stack;

    if (slices == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        struct dcpk_model_tensor parts[DCPK_HF_MAX_PARTS];

        if (binding_split(e, first + i, parts, err))
            goto out;
        slices[i] = parts[0];
    }
    if (stack_slices(e, slices, n, &stack, err)) {
        dcpk_context(err, "'%s'", b->hf[0]);
        goto out;
    }
    (void)hf_add_part(e, b, 0, &stack, err);
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

/* Embedding, layers ascending, the rest: files that are cut hold layers that can be loaded
 * alone. */
static dcpk_status add_tensors(struct exporting *e, struct dcpk_error *err)
{
    struct placed_binding *placed = dcpk_alloc_array(e->bindings.n, sizeof *placed, err);
    size_t n_placed = 0;

    if (placed == NULL)
        return err->status;
    for (size_t i = 0; i < e->bindings.n; i++)
        if (e->params[i] != NO_PARAM && e->bindings.list[i].expert <= 0)
            placed[n_placed++] = (struct placed_binding){e->bindings.list[i].place, i};
    qsort(placed, n_placed, sizeof *placed, compare_placed);
    for (size_t i = 0; i < n_placed; i++) {
        const size_t first = placed[i].index;

        if (e->bindings.list[first].expert < 0 && add_binding(e, first, err))
            break;
        if (e->bindings.list[first].expert == 0 &&
            add_stack(e, first, (size_t)e->sizes.n_experts, err))
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

static dcpk_status put_config(struct exporting *e, struct dcpk_error *err)
{
    struct dcpk_hf_export export = {.map = e->map,
                                    .args = export_attrs(e),
                                    .vocab_size = e->vocab_size,
                                    .dtype = e->dtype,
                                    .base = e->base,
                                    .keeps_base = (e->model->flags & DCPK_MODEL_OF_FAMILY) != 0,
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

static const char reason_weight[] = "a layer that is left out, or a weight whose master is written";

/* Stored tensors of the view that no output tensor is made of. */
static void hf_note_unused(const struct exporting *e, const bool *is_used, const bool *is_weight,
                           const bool *is_state)
{
    const struct dcpk_checkpoint *source = e->out->source;

    for (size_t t = 0; t < source->n_tensors; t++)
        if (!is_used[t] && (is_weight[t] || is_state[t]))
            dcpk_output_event(e->out, DCPK_EVENT_OMITTED, source->tensors[t].key, "%s",
                              is_weight[t] ? reason_weight : dcpk_reason_weights_only);
}

static dcpk_status note_left(const struct exporting *e, struct dcpk_error *err)
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
static dcpk_status find_vocab(struct exporting *e, struct dcpk_error *err)
{
    struct dcpk_hf_vocab vocab = {.args = export_attrs(e),
                                  .base = e->base,
                                  .given = e->out->target.family.vocab_size,
                                  .remark = take_export_remark,
                                  .context = e->out};
    const struct dcpk_model *m = e->model;
    uint64_t param;

    if (!dcpk_map_get(&m->param_by_name, DCPK_HF_EMBEDDING, strlen(DCPK_HF_EMBEDDING), &param))
        return dcpk_fail(err, DCPK_EMISMATCH, "there is no '%s'", DCPK_HF_EMBEDDING);
    if (dcpk_model_value(m, &m->params[param])->rank > 0)
        vocab.stored_rows = dcpk_model_value(m, &m->params[param])->shape[0];
    if (dcpk_hf_vocab_size(&vocab, &e->vocab_size, err))
        return err->status;
    if (e->vocab_size < vocab.stored_rows)
        dcpk_output_event(e->out, DCPK_EVENT_NOTE, "vocabulary",
                          "%" PRId64 " of %" PRId64
                          " rows of the vocabulary are left out, from %" PRId64 " on",
                          vocab.stored_rows - e->vocab_size, vocab.stored_rows, e->vocab_size);
    return DCPK_OK;
}

static void note_norms_written(const struct exporting *e)
{
    if (e->n_added == 0)
        return;
    dcpk_output_event(e->out, DCPK_EVENT_NOTE, "norms",
                      "%zu weights of norms, '%s' the first, are written %s one, as family %s has "
                      "them: the sum of float32, rounded to %s, does not give back every bit of w",
                      e->n_added, e->first_added, e->addend < 0 ? "less" : "plus", e->map->family,
                      dcpk_dtype_name(e->dtype));
}

dcpk_status dcpk_hf_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                               struct dcpk_error *err)
{
    struct exporting e = {.model = model, .out = out, .dtype = out->target.family.dtype};

    if (dcpk_hf_base_find(out, &e.base, err))
        return err->status;
    if (choose_map(&e, err))
        goto out;
    if (e.dtype == DCPK_DTYPE_NONE) {
        e.dtype = weights_dtype(&e);
        widen_dtype(&e);
    }
    if (find_vocab(&e, err) || add_tensors(&e, err) || put_config(&e, err) ||
        dcpk_hf_assets_put(out, err) || note_left(&e, err))
        goto out;
    note_norms_written(&e);
    out->family = e.map->family;
    dcpk_output_event(out, DCPK_EVENT_NOTE, "family", "the family is %s", out->family);
out:
    dcpk_json_free(e.base);
    return err->status;
}
