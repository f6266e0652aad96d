/* SPDX-License-Identifier: Apache-2.0 */
/* trust.c - makes masters of weights, or weights of masters. */
#include "lib/model/trust.h"

#include "lib/model/account.h"

/* The elements of `from` replace those of `to`, whose role and dtype stay. */
static dcpk_status replace(struct dcpk_model *model, uint32_t from, uint32_t to,
                           struct dcpk_account *replaced, struct dcpk_error *err)
{
    const struct dcpk_model_tensor *right = &model->tensors[from];
    struct dcpk_model_tensor *made = &model->tensors[to];

    if (!dcpk_model_same_shape(right, made))
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s': its master has another shape",
                         model->params[made->param].name);
    dcpk_account_pieces(replaced, made->pieces, made->n_pieces);
    made->pieces = right->pieces;
    made->n_pieces = right->n_pieces;
    return DCPK_OK;
}

static dcpk_status replace_all(struct dcpk_model *model, struct dcpk_account *replaced,
                               struct dcpk_error *err)
{
    const bool weights_are_right = (model->ckpt->given.decisions & DCPK_TRUST_WEIGHTS) != 0;
    const enum dcpk_role right = weights_are_right ? DCPK_WEIGHT : DCPK_MASTER;
    const enum dcpk_role wrong = weights_are_right ? DCPK_MASTER : DCPK_WEIGHT;

    for (size_t p = 0; p < model->n_params; p++) {
        const uint32_t from = model->params[p].tensor[right], to = model->params[p].tensor[wrong];

        if (from != DCPK_NO_TENSOR && to != DCPK_NO_TENSOR &&
            replace(model, from, to, replaced, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_model_trust(struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_account replaced = {0};
    dcpk_status st;

    if ((model->ckpt->given.decisions & (DCPK_TRUST_WEIGHTS | DCPK_TRUST_MASTERS)) == 0)
        return DCPK_OK;
    if (model->needs_proof)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_WEIGHTS_ONLY,
                             "the place of the optimizer's state was inferred, and only masters "
                             "that are equal to their weights prove it: neither can be trusted "
                             "without the other");
    st = dcpk_account_init(&replaced, model->ckpt, err);
    if (st == DCPK_OK)
        st = replace_all(model, &replaced, err);
    for (size_t t = 0; st == DCPK_OK && t < model->ckpt->n_tensors; t++)
        if (replaced.tensors[t])
            dcpk_model_carry(model, model->ckpt->tensors[t].key);
    dcpk_account_release(&replaced);
    return st;
}
