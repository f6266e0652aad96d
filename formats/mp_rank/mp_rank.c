/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank.c - the format row: how the folder is known, and what Megatron's names of it mean. */
#include <string.h>

#include "formats/formats.h"
#include "formats/megatron/megatron.h"
#include "formats/mp_rank/mp_rank_priv.h"
#include "formats/torch/item.h"
#include "formats/torch/pickle.h"
#include "lib/base/text.h"
#include "lib/model/parts.h"

bool dcpk_mp_is_known(const char *module, const char *name)
{
    /* A tensor with attributes of Megatron's, such as a master. */
    if (strcmp(module, "torch._tensor") == 0)
        return strcmp(name, "_rebuild_from_type_v2") == 0;
    if (strcmp(module, "torch") == 0 && strcmp(name, "Tensor") == 0)
        return true;
    return strcmp(module, "megatron.core.transformer.enums") == 0 ||
           strcmp(module, "megatron.core.enums") == 0 || dcpk_pickle_is_known(module, name);
}

static dcpk_status outline(struct dcpk_source *source, struct dcpk_arena *arena,
                           const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_item_range range = dcpk_item_whole(source);

    return dcpk_item_read_known(&range, dcpk_mp_is_known, arena, value, NULL, err);
}

/* ---- the common state ---- */

/* {"common_step": step} of the first parameter, where torch's Adam keeps a tensor for each. */
static const struct dcpk_value *common_step(struct dcpk_arena *arena,
                                            const struct dcpk_value *states, struct dcpk_error *err)
{
    struct dcpk_dict made = {.arena = arena, .err = err};

    if (states->kind == DCPK_V_DICT && states->n > 0)
        dcpk_dict_put(&made, "common_step", dcpk_value_get(states->as.pairs[0].value, "step"));
    return dcpk_dict_end(&made);
}

/* An optimizer's dict without what became tensors (mp_rank_open.c). */
static const struct dcpk_value *strip_optimizer(struct dcpk_arena *arena,
                                                const struct dcpk_value *optimizer,
                                                struct dcpk_error *err)
{
    struct dcpk_dict m = {.arena = arena, .err = err};

    if (optimizer == NULL || optimizer->kind != DCPK_V_DICT)
        return optimizer == NULL ? dcpk_value_none() : optimizer;
    for (size_t i = 0; i < optimizer->n; i++) {
        const struct dcpk_value_pair *pair = &optimizer->as.pairs[i];
        const char *name = dcpk_text_or(dcpk_value_as_str(pair->key), "");
        const struct dcpk_value *value = pair->value;

        if (strcmp(name, DCPK_MP_MASTERS) == 0)
            continue;
        if (strcmp(name, "optimizer") == 0)
            value = strip_optimizer(arena, value, err);
        else if (strcmp(name, "state") == 0)
            value = common_step(arena, value, err);
        dcpk_dict_add(&m, pair->key, value);
    }
    return dcpk_dict_end(&m);
}

/* One optimizer, or {0: dense, 1: expert}. */
static const struct dcpk_value *
strip_optimizers(struct dcpk_arena *arena, const struct dcpk_value *all, struct dcpk_error *err)
{
    struct dcpk_dict m = {.arena = arena, .err = err};

    if (all->kind != DCPK_V_LIST)
        return strip_optimizer(arena, all, err);
    for (size_t i = 0; i < all->n; i++)
        dcpk_dict_add(&m, dcpk_value_int(arena, (int64_t)i, err),
                      strip_optimizer(arena, all->as.items[i], err));
    return dcpk_dict_end(&m);
}

/* True if the entry is a model, or is read as objects. */
static bool is_elsewhere(const struct dcpk_mp_state *state, const char *name)
{
    return dcpk_starts_with(name, "model") || strcmp(name, "rng_state") == 0 ||
           (strcmp(name, "optimizer") == 0 && state->has_buckets);
}

static dcpk_status mp_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_dict m = {.arena = arena, .err = err};
    const struct dcpk_value *file, *made;

    if (outline(ckpt->files[0], arena, &file, err))
        return err->status;
    for (size_t i = 0; i < file->n; i++) {
        const struct dcpk_value_pair *pair = &file->as.pairs[i];
        const char *name = dcpk_text_or(dcpk_value_as_str(pair->key), "");
        const struct dcpk_value *kept = pair->value;

        if (is_elsewhere(ckpt->state, name))
            continue;
        if (strcmp(name, "optimizer") == 0)
            kept = strip_optimizers(arena, kept, err);
        dcpk_dict_add(&m, pair->key, kept);
    }
    made = dcpk_dict_end(&m);
    if (made == NULL || dcpk_item_fill_outline(ckpt->files[0], arena, made, err))
        return err->status;
    *value = made;
    return DCPK_OK;
}

/* ---- objects ---- */

/* The part of its file that the object is, as a list of one, which torch_dist's items are. */
static dcpk_status take_part(const struct dcpk_object *object, struct dcpk_arena *arena,
                             const struct dcpk_value *file, const struct dcpk_value **value,
                             struct dcpk_error *err)
{
    const bool is_expert = dcpk_starts_with(object->key, "chained_1.");
    const struct dcpk_value *optimizers[2], *part = file;

    if (dcpk_ends_with(object->key, DCPK_MP_GROUPS)) {
        dcpk_mp_optimizers(file, optimizers);
        part = optimizers[is_expert];
    } else if (!dcpk_ends_with(object->key, DCPK_MP_BUCKETS)) {
        part = dcpk_value_get(file, "rng_state");
    } else if (file->kind == DCPK_V_LIST) {
        part = dcpk_value_at(file, is_expert);
    }
    if (part == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "it is not in its rank's file");
    *value = dcpk_value_seq(arena, DCPK_V_LIST, &part, 1, err);
    return dcpk_made(*value, err);
}

static dcpk_status mp_outline_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                     struct dcpk_arena *arena, const struct dcpk_value **value,
                                     struct dcpk_error *err)
{
    const struct dcpk_value *file;

    if (outline(ckpt->files[object->place.file], arena, &file, err))
        return err->status;
    return take_part(object, arena, file, value, err);
}

/* Buckets are all of their file; the others are small parts of one with all weights. */
static dcpk_status mp_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  struct dcpk_error *err)
{
    struct dcpk_source *source = ckpt->files[object->place.file];
    const struct dcpk_item_range range = dcpk_item_whole(source);
    const struct dcpk_value *file, *part;

    if (object->place.n_bytes > 0) {
        if (dcpk_item_read_value(&range, arena, &file, err))
            return err->status;
        return take_part(object, arena, file, value, err);
    }
    if (mp_outline_object(ckpt, object, arena, &part, err) ||
        dcpk_item_fill_outline(source, arena, part, err))
        return err->status;
    *value = part;
    return DCPK_OK;
}

/* ---- the row ---- */

/* The first rank's folder: with a stage and an expert-parallel rank where there are several. */
static const struct dcpk_mark marks[] = {
    {DCPK_MARK_CHECKPOINT, "mp_rank_00/" DCPK_MP_MODEL, NULL, NULL},
    {DCPK_MARK_CHECKPOINT, "mp_rank_00_000/" DCPK_MP_MODEL, NULL, NULL},
    {DCPK_MARK_CHECKPOINT, "mp_rank_00_000_000/" DCPK_MP_MODEL, NULL, NULL},
    {DCPK_MARK_OTHER, DCPK_MP_FOLDER, "",
     "it has folders of ranks of Megatron's format torch, and the first one or its " DCPK_MP_MODEL
     " is missing: copy the folders of all ranks"},
    {DCPK_MARK_OTHER, "model_optim_rng", ".pt",
     "it is the folder of one rank of Megatron's format torch: give the folder above it"},
    {0},
};

static dcpk_status mp_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    for (size_t i = 0; marks[i].kind == DCPK_MARK_CHECKPOINT && kind != DCPK_PATH_FILE; i++)
        if (dcpk_store_look(store, marks[i].start, &kind, err))
            return err->status;
    *score = 90 * (kind == DCPK_PATH_FILE);
    return DCPK_OK;
}

static void mp_close(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_mp_state *state = ckpt->state;

    dcpk_rank_files_release(&state->files);
}

static dcpk_status mp_check_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_mp_state *state = ckpt->state;

    return dcpk_rank_files_compare(ckpt, &state->files, false, err);
}

/* The files that hold more than tensors: those of buckets. */
static dcpk_status mp_each_record(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                  dcpk_take_record *take, void *context, struct dcpk_error *err)
{
    const struct dcpk_item_range range = dcpk_item_whole(ckpt->files[object->place.file]);

    return dcpk_item_each_record(&range, take, context, err);
}

static bool mp_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    (void)ckpt;
    return dcpk_starts_with(name, DCPK_MP_FOLDER);
}

/* Rows of projections that are joined of parts are here in the order of ranks. */
static dcpk_status mp_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err)
{
    const struct dcpk_mp_state *state = ckpt->state;

    if (state->optimizer_fault != NULL && (model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                             "the optimizer is not read: %s", state->optimizer_fault);
    if (dcpk_megatron_to_model(ckpt, model, err))
        return err->status;
    model->rows_tp = state->tp;
    if (state->tp == 1)
        return DCPK_OK;
    return dcpk_parts_unite(model, state->tp, err);
}

static const struct dcpk_format_reader reader = {
    .locate = dcpk_rank_files_locate,
    .load_object = mp_load_object,
    .outline_object = mp_outline_object,
    .each_record = mp_each_record,
    .is_own = mp_is_own,
};

static const struct dcpk_format_mapping mapping = {
    .to_model = mp_to_model,
    .from_model = dcpk_mp_from_model,
    .optimizer_layout = dcpk_megatron_optimizer_layout,
};

const struct dcpk_format dcpk_format_torch = {
    .name = "torch",
    .other_names = "mp_rank legacy",
    .summary = "Megatron's folders mp_rank_XX, a file for each rank",
    .marks = marks,
    .state_bytes = sizeof(struct dcpk_mp_state),
    .is_known = dcpk_mp_is_known,
    .probe = mp_probe,
    .open = dcpk_mp_open,
    .close = mp_close,
    .load_common = mp_load_common,
    .check_copies = mp_check_copies,
    .reader = &reader,
    .writer = &dcpk_mp_writer,
    .mapping = &mapping,
};
