/* SPDX-License-Identifier: Apache-2.0 */
/* give_options.c - gives an opened checkpoint what the caller states of it, and leaves keys out. */
#include "lib/job/give_options.h"

#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/rules/edit.h"

/* The keys of all tensors, then of all objects; owned. NULL: err. */
static struct dcpk_edit_item *list_keys(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_edit_item *items =
        dcpk_alloc_array(ckpt->n_tensors + ckpt->n_objects, sizeof *items, err);

    for (size_t t = 0; items != NULL && t < ckpt->n_tensors; t++)
        items[t] =
            (struct dcpk_edit_item){.key = ckpt->tensors[t].key, .dtype = ckpt->tensors[t].dtype};
    for (size_t i = 0; items != NULL && i < ckpt->n_objects; i++)
        items[ckpt->n_tensors + i] =
            (struct dcpk_edit_item){.key = ckpt->objects[i].key, .dtype = DCPK_DTYPE_NONE};
    return items;
}

/* Leave out what was removed and is not yet left out. */
static dcpk_status leave_out(struct dcpk_checkpoint *ckpt, const struct dcpk_edit_item *items,
                             const char *expression, struct dcpk_error *err)
{
    const char *reason =
        dcpk_arena_printf(ckpt->arena, err, "left out on request ('%s')", expression);

    if (reason == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_tensors + ckpt->n_objects; i++) {
        const bool is_object = i >= ckpt->n_tensors;
        const size_t number = is_object ? i - ckpt->n_tensors : i;

        if (items[i].removed_by == NULL || (ckpt->left_out != NULL && ckpt->left_out[i] != NULL))
            continue;
        if (dcpk_checkpoint_leave_out(ckpt, is_object, number, reason, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* Each expression by itself: one of them may match less than another. */
static dcpk_status drop_keys(struct dcpk_checkpoint *ckpt, struct dcpk_edit_item *items,
                             const char *expression, struct dcpk_error *err)
{
    const char *text = dcpk_arena_printf(ckpt->arena, err, "remove %s", expression);
    struct dcpk_edits *edits = NULL;
    dcpk_status st;

    if (text == NULL || dcpk_edits_parse(&text, 1, &edits, err))
        return err->status;
    st = dcpk_edits_apply(edits, ckpt->arena, items, ckpt->n_tensors + ckpt->n_objects, err);
    if (st == DCPK_OK)
        st = leave_out(ckpt, items, expression, err);
    dcpk_edits_free(edits);
    return st;
}

dcpk_status dcpk_checkpoint_give(struct dcpk_checkpoint *ckpt,
                                 const struct dcpk_open_options *options, struct dcpk_error *err)
{
    struct dcpk_edit_item *items;
    dcpk_status st = DCPK_OK;

    ckpt->given = *options;
    if ((options->model_prefix != NULL || options->state_prefix != NULL) &&
        (ckpt->format->mapping == NULL || !ckpt->format->mapping->has_prefixes))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' was opened as %s: keys of that format have no prefix to give",
                         dcpk_store_path(ckpt->store), ckpt->format->name);
    if (options->n_drops == 0)
        return DCPK_OK;
    items = list_keys(ckpt, err);
    if (items == NULL)
        return err->status;
    for (size_t i = 0; i < options->n_drops && st == DCPK_OK; i++)
        st = drop_keys(ckpt, items, options->drops[i], err);
    dcpk_free(items);
    if (st != DCPK_OK)
        dcpk_context(err, "keys to leave out");
    return st;
}
