/* SPDX-License-Identifier: Apache-2.0 */
/* account.c - counts which stored tensors and objects a view of the model accounts for. */
#include "lib/model/account.h"

#include <string.h>

#include "lib/base/alloc.h"

dcpk_status dcpk_account_init(struct dcpk_account *account, const struct dcpk_checkpoint *ckpt,
                              struct dcpk_error *err)
{
    account->ckpt = ckpt;
    account->tensors = dcpk_alloc(ckpt->n_tensors, err);
    if (account->tensors == NULL)
        return err->status;
    return DCPK_OK;
}

void dcpk_account_release(struct dcpk_account *account)
{
    dcpk_free(account->tensors);
    account->tensors = NULL;
}

void dcpk_account_key(struct dcpk_account *account, const char *key, size_t key_bytes)
{
    uint64_t i;

    if (dcpk_map_get(&account->ckpt->tensor_by_key, key, key_bytes, &i))
        account->tensors[i] = true;
}

/* A view accounts for the stored tensors that it is seen through (tensors inside objects are not
 * listed). */
static void account_source(struct dcpk_account *account, uint32_t source)
{
    const struct dcpk_checkpoint *ckpt = account->ckpt;
    const struct dcpk_tensor *tensor = &ckpt->tensors[source];

    if (source < ckpt->n_tensors) {
        account->tensors[source] = true;
        return;
    }
    if (tensor->computed != NULL) {
        if (tensor->computed->values != DCPK_NO_VALUES)
            account_source(account, tensor->computed->values);
        if (tensor->computed->scales != DCPK_NO_SCALES)
            account_source(account, tensor->computed->scales);
        if (tensor->computed->product.rank > 0) {
            account_source(account, tensor->computed->product.left);
            account_source(account, tensor->computed->product.right);
        }
    }
    for (size_t i = tensor->first_chunk; i < tensor->first_chunk + tensor->n_chunks; i++) {
        const size_t of = ckpt->runs[i - ckpt->n_chunks].of;

        if (of < ckpt->n_chunks)
            account->tensors[ckpt->chunks[of].tensor] = true;
    }
}

void dcpk_account_pieces(struct dcpk_account *account, const struct dcpk_piece *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pieces[i].src != DCPK_PIECE_FILL)
            account_source(account, pieces[i].src);
}

/* The keys of "key\treason" notes. */
static void account_notes(struct dcpk_account *account, const struct dcpk_note *notes)
{
    size_t key_bytes;

    for (const struct dcpk_note *note = notes; note != NULL; note = note->next) {
        (void)dcpk_model_drop_reason(note, &key_bytes);
        dcpk_account_key(account, note->text, key_bytes);
    }
}

void dcpk_account_left(struct dcpk_account *account, const struct dcpk_model *model)
{
    for (const struct dcpk_note *note = model->carried; note != NULL; note = note->next)
        dcpk_account_key(account, note->text, strlen(note->text));
    account_notes(account, model->dropped);
    account_notes(account, model->omitted);
}

/* Objects that the view names as left out. */
static uint64_t count_objects_left(const struct dcpk_model *model, const struct dcpk_note *notes)
{
    uint64_t n = 0, unused;
    size_t key_bytes;

    for (const struct dcpk_note *note = notes; note != NULL; note = note->next) {
        (void)dcpk_model_drop_reason(note, &key_bytes);
        n += dcpk_map_get(&model->ckpt->object_by_key, note->text, key_bytes, &unused);
    }
    return n;
}

dcpk_status dcpk_model_count_left(const struct dcpk_model *model, struct dcpk_left *left,
                                  struct dcpk_error *err)
{
    struct dcpk_account account = {0};
    dcpk_status st = dcpk_account_init(&account, model->ckpt, err);

    if (st != DCPK_OK)
        return st;
    *left = (struct dcpk_left){.n_tensors = model->ckpt->n_tensors,
                               .n_objects = model->ckpt->n_objects};
    for (size_t i = 0; i < model->n_tensors; i++)
        dcpk_account_pieces(&account, model->tensors[i].pieces, model->tensors[i].n_pieces);
    for (const struct dcpk_note *note = model->carried; note != NULL; note = note->next)
        dcpk_account_key(&account, note->text, strlen(note->text));
    for (size_t t = 0; t < model->ckpt->n_tensors; t++)
        left->n_tensors_left += !account.tensors[t];
    left->n_objects_left =
        count_objects_left(model, model->dropped) + count_objects_left(model, model->omitted);
    dcpk_account_release(&account);
    return DCPK_OK;
}
