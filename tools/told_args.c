/* SPDX-License-Identifier: Apache-2.0 */
/* told_args.c - options that tell of a checkpoint. */
#include "tools/told_args.h"

#include "lib/model/account.h"

void dcpk_told_args_apply(const struct dcpk_told_args *a, struct dcpk_told *told)
{
    *told = (struct dcpk_told){.bucket_elems = a->bucket_elems,
                               .model_prefix = a->model_prefix,
                               .state_prefix = a->state_prefix,
                               .drops = a->drops.texts,
                               .n_drops = a->drops.n};
}

bool dcpk_told_args_given(const struct dcpk_told_args *a)
{
    return a->bucket_elems != 0 || a->model_prefix != NULL || a->state_prefix != NULL ||
           a->drops.n > 0;
}

void dcpk_told_args_advise(const struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_error old = *err;

    if (model == NULL || model->n_unknown == 0)
        return;
    if (model->unknown_prefix != NULL && dcpk_model_has_values(model))
        dcpk_fail(
            err, old.status,
            "%s (modify-state-dict --op 'rename RE NEW' mends keys, --drop RE leaves them out)",
            old.text);
    else if (model->unknown_prefix != NULL)
        dcpk_fail(err, old.status,
                  "%s (--input-model-weight-prefix %s takes them, --drop RE leaves them out)",
                  old.text, model->unknown_prefix);
    else
        dcpk_fail(err, old.status, "%s (--drop RE leaves them out)", old.text);
}
