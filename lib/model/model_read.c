/* SPDX-License-Identifier: Apache-2.0 */
/* model_read.c - reads the view of a model: every stored tensor is in it, left out with a reason,
 * or unknown. */
#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/ckpt/foreign.h"
#include "lib/ckpt/format.h"
#include "lib/model/account.h"
#include "lib/model/drop_unknown.h"

#define MAX_NAMED              3 /* unknown keys in a message */
#define MAX_COMMAND_LINE_BYTES 65536

/* Adds what the caller left out to the view's list of dropped tensors, with its reason. */
static void drop_left_out(struct dcpk_model *model)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;

    for (size_t t = 0; ckpt->left_out != NULL && t < ckpt->n_tensors; t++)
        if (dcpk_checkpoint_tensor_left_out(ckpt, t) != NULL)
            dcpk_model_drop(model, ckpt->tensors[t].key, dcpk_checkpoint_tensor_left_out(ckpt, t));
    for (size_t i = 0; ckpt->left_out != NULL && i < ckpt->n_objects; i++)
        if (dcpk_checkpoint_object_left_out(ckpt, i) != NULL)
            dcpk_model_drop(model, ckpt->objects[i].key, dcpk_checkpoint_object_left_out(ckpt, i));
}

static dcpk_status list_unknown(struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_account account = {0};
    size_t n = 0;
    dcpk_status st = dcpk_account_init(&account, model->ckpt, err);

    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < model->n_tensors; i++)
        dcpk_account_pieces(&account, model->tensors[i].pieces, model->tensors[i].n_pieces);
    dcpk_account_left(&account, model);
    for (size_t t = 0; t < model->ckpt->n_tensors; t++)
        n += !account.tensors[t];
    model->unknown = NULL;
    if (n == 0)
        goto out;
    model->unknown = dcpk_arena_array(model->arena, n, sizeof(uint32_t), err);
    if (model->unknown == NULL) {
        st = err->status;
        goto out;
    }
    for (uint32_t t = 0; t < model->ckpt->n_tensors; t++)
        if (!account.tensors[t])
            model->unknown[model->n_unknown++] = t;
out:
    dcpk_account_release(&account);
    return st;
}

/* It is shown to a user, who types it: a line of plain text. */
static bool is_command_line(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        if ((text[i] < ' ' || text[i] > '~') && !(text[i] == '\n' && i + 1 == n_bytes))
            return false;
    return n_bytes > 0;
}

/* An earlier conversion put it next to what Megatron loads. */
static dcpk_status read_command_line(struct dcpk_model *model, struct dcpk_error *err)
{
    static const char name[] = DCPK_COMMAND_LINE_NAME;
    struct dcpk_store *store = model->ckpt->store;
    struct dcpk_source *source;
    enum dcpk_path_kind kind;
    char *text = NULL;
    size_t n_bytes;

    if (model->command_line != NULL)
        return DCPK_OK;
    if (dcpk_store_look(store, name, &kind, err))
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return DCPK_OK;
    if (dcpk_store_find(store, name, &source, err) ||
        dcpk_source_slurp(source, MAX_COMMAND_LINE_BYTES, &text, &n_bytes, err))
        return err->status;
    if (is_command_line(text, n_bytes))
        model->command_line = dcpk_arena_strndup(model->arena, text, n_bytes, err);
    else
        dcpk_model_drop(model, name, "is not a line of plain text");
    dcpk_free(text);
    return err->status;
}

/* Only the format that has the fault repairs it. */
static dcpk_status check_repaired(const struct dcpk_model *model, struct dcpk_error *err)
{
    if ((model->ckpt->given.decisions & DCPK_REPAIR_PADDING) == 0 || model->repaired != NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "no optimizer state of %s was moved over the padding of DDP buckets",
                     model->ckpt->format->name);
}

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

/*
 * Make each master of its weight, or each weight of its master, where the checkpoint's decisions
 * have it (enum dcpk_decision): the elements of one side become those of the other, cast. Moments
 * stay. Nothing happens without such a decision. Errors: DCPK_EUSAGE where masters were found by
 * inference, which only equal weights prove; DCPK_EMISMATCH for a master of another shape.
 */
static dcpk_status apply_trust(struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_account replaced = {0};
    dcpk_status st;

    if ((model->ckpt->given.decisions & (DCPK_TRUST_WEIGHTS | DCPK_TRUST_MASTERS)) == 0)
        return DCPK_OK;
    if (model->needs_proof)
        return dcpk_fail_fix(
            err, DCPK_EUSAGE, DCPK_FIX_WEIGHTS_ONLY,
            "the place of the optimizer's state was inferred, and only masters that equal their "
            "weights prove it: neither can be trusted without the other");
    st = dcpk_account_init(&replaced, model->ckpt, err);
    if (st == DCPK_OK)
        st = replace_all(model, &replaced, err);
    for (size_t t = 0; st == DCPK_OK && t < model->ckpt->n_tensors; t++)
        if (replaced.tensors[t])
            dcpk_model_carry(model, model->ckpt->tensors[t].key);
    dcpk_account_release(&replaced);
    return st;
}

dcpk_status dcpk_model_read(struct dcpk_checkpoint *ckpt, unsigned flags, struct dcpk_model **model,
                            struct dcpk_error *err)
{
    dcpk_status st;

    if (ckpt->format->mapping == NULL && dcpk_foreign_of_keys(ckpt) != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "this is %s", dcpk_foreign_of_keys(ckpt));
    if (ckpt->format->mapping == NULL)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "this is a plain %s folder, no checkpoint of a Megatron model (expected keys such as "
            "'model.module.…' or a metadata.json)",
            ckpt->format->name);
    st = dcpk_model_new(ckpt, model, err);
    if (st != DCPK_OK)
        return st;
    (*model)->flags = flags;
    if (ckpt->format->mapping->to_model(ckpt, *model, err) || check_repaired(*model, err) ||
        dcpk_model_drop_unknown(*model, err) || read_command_line(*model, err))
        return err->status;
    drop_left_out(*model);
    if (list_unknown(*model, err))
        return err->status;
    return apply_trust(*model, err);
}

bool dcpk_model_has_values(const struct dcpk_model *model)
{
    for (size_t i = 0; i < model->n_params; i++)
        if (dcpk_model_value(model, &model->params[i]) != NULL)
            return true;
    return false;
}

dcpk_status dcpk_model_check_known(const struct dcpk_model *model, struct dcpk_error *err)
{
    unsigned fixes = DCPK_FIX_DROP;
    struct dcpk_bytes text = {0};
    dcpk_status st;

    if (model->n_unknown == 0)
        return DCPK_OK;
    for (size_t i = 0; i < model->n_unknown && i < MAX_NAMED; i++) {
        if (i > 0)
            dcpk_bytes_text(&text, ", ");
        dcpk_bytes_text(&text, "'");
        dcpk_bytes_text(&text, model->ckpt->tensors[model->unknown[i]].key);
        dcpk_bytes_text(&text, "'");
    }
    if (model->n_unknown > MAX_NAMED)
        dcpk_bytes_text(&text, ", ...");
    if (model->unknown_prefix != NULL) {
        dcpk_bytes_printf(&text, "; their names have the prefix '%s'", model->unknown_prefix);
        if (dcpk_model_has_values(model)) {
            dcpk_bytes_text(&text, ", other weights do not");
            fixes |= DCPK_FIX_RENAME;
        } else {
            fixes |= DCPK_FIX_PREFIX;
        }
    }
    if (model->unknown_hint != NULL) {
        dcpk_bytes_text(&text, "; ");
        dcpk_bytes_text(&text, model->unknown_hint);
    }
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = dcpk_fail_fix(err, DCPK_EUNSUPPORTED, fixes,
                           "%zu of %zu tensors are not recognised: %.*s", model->n_unknown,
                           model->ckpt->n_tensors, (int)text.n_bytes, (const char *)text.data);
    dcpk_bytes_release(&text);
    return st;
}
