/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_tensors.c - names of a rank's own modules -> those of the whole model, and the boxes that
 * the rank holds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/mp_rank/mp_rank_priv.h"
#include "lib/base/checked.h"
#include "lib/base/text.h"
#include "lib/model/names.h"

#define LAYERS  "decoder.layers."
#define MTP     "mtp.layers."
#define EXPERTS ".mlp.experts."
#define LOCAL   "local_experts."
#define EMBED   "embedding.word_embeddings.weight"
#define OUTPUT  "output_layer.weight"

/* ---- names ---- */

/* `name` with `more` added to the number at `at` in it; NULL and err for memory. */
static const char *renumber(struct dcpk_arena *arena, const char *name, const char *at,
                            int64_t more, struct dcpk_error *err)
{
    const char *rest = at;
    const int64_t n = dcpk_take_number(&rest);

    if (n < 0 || more == 0)
        return name;
    return dcpk_arena_printf(arena, err, "%.*s%" PRId64 "%s", (int)(at - name), name, n + more,
                             rest);
}

/* The first of the digits that end `text`. */
static const char *last_number(const char *text)
{
    const char *at = text + strlen(text);

    while (at > text && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at;
}

/* Where a name has the number of the expert. */
static const char *expert_number(const char *name)
{
    const char *at = strstr(name, EXPERTS) + strlen(EXPERTS);

    return dcpk_starts_with(at, LOCAL) ? at + strlen(LOCAL) : last_number(at);
}

/* The rank numbers the layers of its model chunk, and its experts, from 0 on (FORMAT.md 2). */
static dcpk_status find_name(const struct dcpk_mp_reading *r, int64_t chunk, const char *name,
                             struct dcpk_arena *arena, const char **global, struct dcpk_error *err)
{
    const int64_t *ends = r->cut.layer_ends;
    const int64_t first = chunk > 0 ? ends[chunk - 1] : 0;
    const char *experts, *at = name + strlen(LAYERS);

    if (r->cut.is_tied && strcmp(name, OUTPUT) == 0)
        name = EMBED; /* a copy of it, on the last stage */
    *global = name;
    if (dcpk_starts_with(name, LAYERS)) {
        const int64_t layer = dcpk_take_number(&at);

        if (layer < 0 || layer >= ends[chunk] - first)
            return dcpk_fail(err, DCPK_EFORMAT, "'%.200s': args give the rank %" PRId64 " layers",
                             name, ends[chunk] - first);
        *global = renumber(arena, name, name + strlen(LAYERS), first, err);
    }
    experts = *global == NULL ? NULL : strstr(*global, EXPERTS);
    if (experts != NULL)
        *global = renumber(arena, *global, expert_number(*global),
                           r->at.ep * (r->cut.n_experts / r->cut.ep), err);
    /* By one name, however modules keep experts and the layer in multi-token prediction; its norms
     * stay. */
    if (*global != NULL && (experts != NULL || dcpk_starts_with(*global, MTP)))
        *global = dcpk_name_canonical(arena, *global, DCPK_LAYER_MOE, err);
    return dcpk_made(*global, err);
}

/* Modules of core 0.17 to 0.19 call the layer in multi-token prediction so. */
#define MTP_LAYER ".transformer_layer."

const char *dcpk_mp_local_name(const struct dcpk_cut *cut, int64_t chunk, const char *name,
                               int64_t expert, struct dcpk_arena *arena, struct dcpk_error *err)
{
    const char *inner = dcpk_starts_with(name, MTP) ? strstr(name, MTP_LAYER) : NULL;

    if (inner != NULL)
        name = dcpk_arena_printf(arena, err, "%.*s.mtp_model_layer.%s", (int)(inner - name), name,
                                 inner + strlen(MTP_LAYER));
    else if (dcpk_starts_with(name, LAYERS) && chunk > 0)
        name = renumber(arena, name, name + strlen(LAYERS), -cut->layer_ends[chunk - 1], err);
    if (name == NULL || expert < 0)
        return name;
    return renumber(arena, name, expert_number(name), expert % (cut->n_experts / cut->ep) - expert,
                    err);
}

/* ---- shares ---- */

/* The whole tensor's shape and parts, by the rules for its name. tensor->name, local: set. */
static dcpk_status find_spread(const struct dcpk_mp_reading *r, struct dcpk_arena *arena,
                               struct dcpk_mp_tensor *tensor, struct dcpk_error *err)
{
    const struct dcpk_value_tensor *local = tensor->local;
    const char *canonical =
        dcpk_name_canonical(arena, tensor->name, dcpk_name_layer_flags(tensor->name), err);
    int64_t *shape = dcpk_arena_array(arena, (size_t)local->rank + 4, sizeof *shape, err);
    int64_t *part_at = shape + local->rank;
    struct dcpk_spread *spread = &tensor->spread;
    struct dcpk_registered reg;
    int64_t n_tp;

    if (canonical == NULL || shape == NULL)
        return err->status;
    dcpk_registered_find(canonical, r->cut.spec, &reg);
    n_tp = dcpk_cut_tp(&r->cut, reg.expert >= 0);
    tensor->is_buffer = reg.is_buffer;
    /* Only then has Megatron optimizers, and groups, for them
     * (MC/tensor_parallel/layers.py@0.19.0). */
    tensor->is_expert = reg.expert >= 0 && r->cut.ep > 1;
    memcpy(shape, local->shape, (size_t)local->rank * sizeof *shape);
    *spread = (struct dcpk_spread){
        .shape = shape, .rank = local->rank, .stage = -1, .ep = -1, .tp_axis = -1, .n_tp = 1};
    if (n_tp == 1)
        reg.tp_axis = -1;
    if (reg.tp_axis == DCPK_TP_UNKNOWN)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no rule says how tensor parallelism cuts it");
    if (reg.tp_axis >= local->rank)
        return dcpk_fail(err, DCPK_EFORMAT, "it has %d axes, and tensor parallelism cuts axis %d",
                         local->rank, reg.tp_axis);
    if (reg.tp_axis < 0)
        return DCPK_OK;
    spread->tp_axis = reg.tp_axis;
    spread->n_tp = n_tp;
    if (!dcpk_mul_i64(shape[reg.tp_axis], n_tp, &shape[reg.tp_axis]))
        return dcpk_fail(err, DCPK_ERANGE, "it has more than 2^63 elements");
    if (r->is_gated && dcpk_name_is_fc1(canonical)) {
        spread->part_at = part_at;
        spread->n_parts = 2;
        part_at[0] = 0;
        part_at[1] = shape[0] / 2;
        part_at[2] = shape[0];
    }
    return dcpk_spread_check(spread, err);
}

/* The name of a model in the file: several chunks of a stage are model0, model1, ... */
static const struct dcpk_value *model_of(const struct dcpk_mp_reading *r,
                                         const struct dcpk_value *file, int64_t chunk)
{
    char key[32];

    if (r->cut.vpp == 1)
        return dcpk_value_get(file, "model");
    snprintf(key, sizeof key, "model%" PRId64, chunk);
    return dcpk_value_get(file, key);
}

static dcpk_status list_tensor(const struct dcpk_mp_reading *r, int64_t chunk,
                               const struct dcpk_value_pair *pair, struct dcpk_arena *arena,
                               struct dcpk_mp_tensors *tensors, struct dcpk_error *err)
{
    struct dcpk_mp_tensor *tensor = &tensors->list[tensors->n];
    const char *name = dcpk_value_as_str(pair->key);

    /* Extra states of modules are None, except of Transformer Engine's under FP8. */
    if (dcpk_ends_with(name, "_extra_state")) {
        if (pair->value->kind != DCPK_V_NONE)
            dcpk_checkpoint_note_once(r->rank.ckpt, "states of Transformer Engine's modules "
                                                    "(_extra_state) are not read: FP8 scales "
                                                    "start afresh");
        return DCPK_OK;
    }
    if (strcmp(name, "language_model") == 0 || dcpk_starts_with(name, "language_model."))
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "it holds a model from before core (language_model., --use-legacy-models), "
            "whose classes core 0.12 had last: 'tools/checkpoint/convert.py "
            "--model-type GPT --loader legacy --saver core' of core 0.17 or older "
            "makes core's");
    if (pair->value->kind != DCPK_V_TENSOR)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%.200s' of its model is not a tensor", name);
    *tensor = (struct dcpk_mp_tensor){.local = pair->value->as.tensor};
    if (find_name(r, chunk, name, arena, &tensor->name, err))
        return err->status;
    if (find_spread(r, arena, tensor, err)) {
        dcpk_context(err, "'%.200s'", tensor->name);
        return err->status;
    }
    tensors->n++;
    return DCPK_OK;
}

dcpk_status dcpk_mp_list(const struct dcpk_mp_reading *r, const struct dcpk_value *file,
                         struct dcpk_arena *arena, struct dcpk_mp_tensors *tensors,
                         struct dcpk_error *err)
{
    const struct dcpk_value_pair *pairs;
    size_t n, capacity = 0;

    *tensors = (struct dcpk_mp_tensors){0};
    for (int64_t chunk = 0; chunk < r->cut.vpp; chunk++) {
        if (dcpk_rank_state_dict(model_of(r, file, chunk), &pairs, &n, err)) {
            dcpk_context(err, "model %" PRId64 " of %" PRId64, chunk, r->cut.vpp);
            return err->status;
        }
        capacity += n;
    }
    tensors->list = dcpk_arena_array(arena, capacity, sizeof *tensors->list, err);
    if (tensors->list == NULL)
        return err->status;
    for (int64_t chunk = 0; chunk < r->cut.vpp; chunk++) {
        if (dcpk_rank_state_dict(model_of(r, file, chunk), &pairs, &n, err))
            return err->status;
        for (size_t i = 0; i < n; i++)
            if (list_tensor(r, chunk * r->cut.pp + r->at.pp, &pairs[i], arena, tensors, err))
                return err->status;
    }
    return DCPK_OK;
}

/* ---- pieces ---- */

static dcpk_status find_tensor(struct dcpk_mp_reading *r, const struct dcpk_mp_tensor *tensor,
                               enum dcpk_dtype dtype, const char *key, uint32_t *t,
                               struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->rank.ckpt;
    const struct dcpk_spread *spread = &tensor->spread;
    const struct dcpk_tensor *found = dcpk_checkpoint_tensor(ckpt, key);
    struct dcpk_tensor made = {.dtype = dtype, .rank = spread->rank};

    *t = (uint32_t)ckpt->n_tensors;
    if (found != NULL) {
        *t = (uint32_t)(found - ckpt->tensors);
        if (found->dtype == dtype &&
            dcpk_shape_equal(found->shape, found->rank, spread->shape, spread->rank))
            return DCPK_OK;
        return dcpk_fail(err, DCPK_EFORMAT, "another rank has it with another dtype or shape");
    }
    made.shape =
        dcpk_arena_copy(ckpt->arena, spread->shape, (size_t)spread->rank, sizeof *made.shape, err);
    made.key = dcpk_arena_strdup(ckpt->arena, key, err);
    if (made.shape == NULL || made.key == NULL)
        return err->status;
    return dcpk_checkpoint_add_tensor(ckpt, &made, err);
}

/* A box of the local tensor: all of it, or rows in it, so that its elements lie in one run. span:
 * offset and extent in the tensor, offset in the local one. */
static dcpk_status add_box(struct dcpk_mp_reading *r, struct dcpk_rank_piece *piece,
                           const int64_t *span, struct dcpk_error *err)
{
    const int rank = piece->box.rank;
    uint64_t row_bytes = dcpk_dtype_bytes(piece->local->dtype);

    for (int a = 1; a < rank; a++)
        row_bytes *= (uint64_t)span[rank + a]; /* bytes that lie in the file */
    memcpy(piece->box.offset, span, (size_t)rank * sizeof *span);
    memcpy(piece->box.extent, span + rank, (size_t)rank * sizeof *span);
    piece->first_bytes = piece->local->first_bytes;
    piece->n_bytes = piece->local->n_bytes;
    if (rank > 0) {
        piece->first_bytes += row_bytes * (uint64_t)span[2 * rank];
        piece->n_bytes = row_bytes * (uint64_t)span[rank];
    }
    return dcpk_rank_reading_add(&r->rank, piece, err);
}

static dcpk_status add_boxes(struct dcpk_mp_reading *r, const struct dcpk_mp_tensor *tensor,
                             const struct dcpk_value_tensor *local, const char *key,
                             struct dcpk_error *err)
{
    const struct dcpk_placing placing = {.grid = {.tp = tensor->spread.n_tp}};
    struct dcpk_rank_piece piece = {.local = local, .box = {.rank = tensor->spread.rank}};
    struct dcpk_local held;

    if (!dcpk_shape_equal(local->shape, local->rank, tensor->local->shape, tensor->local->rank))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it does not have the shape of its parameter");
    if (!local->is_row_major)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its elements do not lie in order");
    if (find_tensor(r, tensor, local->dtype, key, &piece.tensor, err) ||
        dcpk_held_of(&placing, &tensor->spread, r->at.tp % tensor->spread.n_tp, r->rank.arena,
                     &held, err))
        return err->status;
    for (size_t i = 0; i < held.n; i++)
        if (add_box(r, &piece, held.spans[i], err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_mp_add(struct dcpk_mp_reading *r, const struct dcpk_mp_tensor *tensor,
                        const struct dcpk_value_tensor *local, const char *key,
                        struct dcpk_error *err)
{
    if (add_boxes(r, tensor, local, key, err))
        dcpk_context(err, "'%.200s'", key);
    return err->status;
}
