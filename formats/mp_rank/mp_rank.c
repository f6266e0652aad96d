/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank.c - the format row: how the folder is known, and what Megatron's names of it mean. */
#include "formats/formats.h"

#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/mp_rank/mp_rank_put.h"
#include "formats/torch/item.h"
#include "lib/base/text.h"
#include "lib/model/parts.h"

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
    .load_object = dcpk_mp_load_object,
    .outline_object = dcpk_mp_outline_object,
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
    .load_common = dcpk_mp_load_common,
    .check_copies = mp_check_copies,
    .reader = &reader,
    .writer = &dcpk_mp_writer,
    .mapping = &mapping,
};
