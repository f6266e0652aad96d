/* SPDX-License-Identifier: Apache-2.0 */
/* merge_args.c - what args of a merge's inputs say of their weights: how they are stored, and what
 * they compute. */
#include "lib/job/merge_priv.h"
#include "lib/model/arg_table.h"
#include "lib/model/norms.h"

static const struct dcpk_value *attrs_of(const struct dcpk_merged *in)
{
    return dcpk_value_attrs(in->model->args);
}

dcpk_status dcpk_merge_align_args(struct dcpk_merge *merge, struct dcpk_error *err)
{
    const struct dcpk_merged *first = &merge->inputs[0];
    const struct dcpk_value *wanted = attrs_of(first);
    const bool centered = dcpk_norms_are_centered(wanted);

    for (size_t i = 1; i < merge->n_inputs; i++) {
        struct dcpk_merged *in = &merge->inputs[i];
        const struct dcpk_value *attrs = attrs_of(in);
        const char *order;

        if (wanted == NULL || attrs == NULL)
            continue;
        order = dcpk_ordering_arg(wanted, attrs);
        if (order != NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s' and '%s' have their rows in other orders, by args.%s",
                             in->run.folder, first->run.folder, order);
        if (dcpk_norms_are_centered(attrs) != centered)
            in->norm_addend = centered ? -1.0F : 1.0F;
    }
    return DCPK_OK;
}

dcpk_status dcpk_merged_value(const struct dcpk_merge *merge, const struct dcpk_merged *in,
                              const struct dcpk_model_tensor *stored, const char *name,
                              struct dcpk_model_tensor *value, struct dcpk_error *err)
{
    *value = *stored;
    if (in->norm_addend == 0 || !dcpk_name_is_norm_weight(name))
        return DCPK_OK;
    if (dcpk_norm_add(in->ckpt, stored, in->norm_addend, merge->arena, value, err) != DCPK_OK)
        dcpk_context(err, "merging '%s'", in->run.folder);
    return err->status;
}

static void note_args(const struct dcpk_merge *m, const struct dcpk_merged *first,
                      const struct dcpk_merged *in)
{
    if (in->norm_addend != 0)
        dcpk_checkpoint_note(m->ckpt,
                             "weights of norms of '%s' are taken %s one, as '%s' stores them "
                             "(args.%s)",
                             in->run.folder, in->norm_addend > 0 ? "plus" : "less",
                             first->run.folder, DCPK_ARG_ZERO_CENTERED);
}

void dcpk_merge_note_args(const struct dcpk_merge *merge)
{
    const struct dcpk_merged *first = &merge->inputs[0];

    for (size_t i = 1; i < merge->n_inputs && attrs_of(first) != NULL; i++) {
        const struct dcpk_merged *in = &merge->inputs[i];

        if (attrs_of(in) == NULL)
            dcpk_checkpoint_note(merge->ckpt,
                                 "'%s' has no args: its weights are taken to be stored, and to "
                                 "compute, as those of '%s'",
                                 in->run.folder, first->run.folder);
        else
            note_args(merge, first, in);
    }
}
