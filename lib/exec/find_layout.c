/* SPDX-License-Identifier: Apache-2.0 */
/* find_layout.c - the canonical view of a checkpoint's weights, for its format to read the layout
 * off. */
#include "lib/exec/find_layout.h"

#include "lib/ckpt/format.h"
#include "lib/model/parallel.h"
#include "lib/rules/rules.h"

static dcpk_status match(struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved,
                         struct dcpk_error *err)
{
    const struct dcpk_rule_options options = {0};
    struct dcpk_model *model = NULL;
    dcpk_status st = DCPK_OK;

    if (dcpk_model_new(ckpt, &model, err) != DCPK_OK)
        return err->status;
    model->flags = DCPK_MODEL_WEIGHTS_ONLY;
    if (ckpt->format->mapping->to_model(ckpt, model, err) || dcpk_rules_canonical(model, err) ||
        dcpk_rules_gate(model, &options, err) || dcpk_rules_parallel(model, options.impl, err) ||
        ckpt->format->mapping->match_layout(model, saved, err))
        st = err->status;
    dcpk_model_free(model);
    return st;
}

dcpk_status dcpk_find_layout(struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved,
                             struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;

    dcpk_saved_layout_read(ckpt, saved);
    if (ckpt->format->mapping == NULL || ckpt->format->mapping->match_layout == NULL ||
        match(ckpt, saved, &why) != DCPK_ENOMEM)
        return DCPK_OK;
    *err = why;
    return err->status;
}
