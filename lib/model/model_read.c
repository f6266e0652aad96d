/* SPDX-License-Identifier: Apache-2.0 */
/* model_read.c - reads the view of a model: every stored tensor is in it, left out with a reason,
 * or unknown. */
#include "lib/base/alloc.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/text.h"
#include "lib/ckpt/foreign.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/unknown.h"
#include "lib/model/account.h"

/* ---- tensors that are kept out ---- */

#define SCHEDULER "opt_param_scheduler"

/* Drop `path` when the value is, or holds, what the format does not know. */
static dcpk_status judge_value(struct dcpk_model *model, const char *path,
                               const struct dcpk_value *v, bool *is_strange, struct dcpk_error *err)
{
    const char *module, *name, *reason;
    dcpk_status st =
        dcpk_value_find_unknown(v, model->ckpt->format->is_known, is_strange, &module, &name, err);

    if (st != DCPK_OK || !*is_strange)
        return st;
    reason = dcpk_arena_printf(model->arena, err,
                               "holds '%s.%s', which Python would import or call on loading",
                               module, name);
    if (reason == NULL)
        return err->status;
    dcpk_model_drop(model, path, reason);
    return DCPK_OK;
}

static dcpk_status clean_value(struct dcpk_model *model, const char *path,
                               const struct dcpk_value **v, struct dcpk_error *err)
{
    bool is_strange = false;

    if (*v == NULL)
        return DCPK_OK;
    if (judge_value(model, path, *v, &is_strange, err) != DCPK_OK)
        return err->status;
    if (is_strange)
        *v = NULL;
    return DCPK_OK;
}

/* Entries of a dict are judged one by one; anything else as a whole. */
static dcpk_status clean_dict(struct dcpk_model *model, const char *path,
                              const struct dcpk_value **v, struct dcpk_error *err)
{
    const struct dcpk_value *dict = *v;
    struct dcpk_dict kept = {.arena = model->arena, .err = err};

    if (dict == NULL || dict->kind != DCPK_V_DICT)
        return clean_value(model, path, v, err);
    for (size_t i = 0; i < dict->n; i++) {
        const struct dcpk_value_pair *pair = &dict->as.pairs[i];
        const char *name = dcpk_value_as_str(pair->key);
        const struct dcpk_value *both[] = {pair->key, pair->value};
        const struct dcpk_value whole = {.kind = DCPK_V_TUPLE, .n = 2, .as.items = both};
        const char *entry =
            dcpk_arena_printf(model->arena, err, "%s.%s", path, dcpk_text_or(name, "?"));
        bool is_strange;

        if (entry == NULL || judge_value(model, entry, &whole, &is_strange, err) != DCPK_OK)
            return err->status;
        if (!is_strange)
            dcpk_dict_add(&kept, pair->key, pair->value);
    }
    if (kept.n < dict->n)
        *v = dcpk_dict_end(&kept);
    return dcpk_made(*v, err);
}

/* A run cannot resume from the states of only some ranks. */
static dcpk_status clean_rng(struct dcpk_model *model, struct dcpk_error *err)
{
    bool is_strange = false;

    for (size_t i = 0; i < model->n_rng && !is_strange; i++)
        if (judge_value(model, "rng_state", model->rng[i].states, &is_strange, err) != DCPK_OK)
            return err->status;
    if (is_strange)
        dcpk_model_clear_rng(model);
    return DCPK_OK;
}

/* True if every format would keep the pair under its name alone. Formats that flatten take dicts,
 * lists of values that nest and names with dots apart, and find no tensor again. */
static bool is_setting(const struct dcpk_value_pair *pair)
{
    const char *name = dcpk_value_as_str(pair->key);
    const struct dcpk_value *v = pair->value;

    if (name == NULL || *name == '\0' || strchr(name, '.') != NULL || v->kind == DCPK_V_DICT ||
        v->kind == DCPK_V_TENSOR)
        return false;
    for (size_t i = 0; v->kind == DCPK_V_LIST && i < v->n; i++) {
        const enum dcpk_value_kind item = v->as.items[i]->kind;

        if (item == DCPK_V_DICT || item == DCPK_V_LIST || item == DCPK_V_TENSOR)
            return false;
    }
    return true;
}

/* The scheduler is a dict of settings, and nothing else. */
static dcpk_status keep_settings(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_value *dict = model->scheduler;
    struct dcpk_dict kept = {.arena = model->arena, .err = err};

    if (dict == NULL)
        return DCPK_OK;
    model->scheduler = NULL;
    if (dict->kind != DCPK_V_DICT || dict->n == 0) {
        dcpk_model_drop(model, SCHEDULER, "is not a dict of settings by their names");
        return DCPK_OK;
    }
    for (size_t i = 0; i < dict->n; i++) {
        const char *name = dcpk_value_as_str(dict->as.pairs[i].key), *entry;

        if (is_setting(&dict->as.pairs[i])) {
            dcpk_dict_add(&kept, dict->as.pairs[i].key, dict->as.pairs[i].value);
            continue;
        }
        entry = dcpk_arena_printf(model->arena, err, SCHEDULER ".%s", dcpk_text_or(name, "?"));
        if (entry == NULL)
            return err->status;
        dcpk_model_drop(model, entry, "is not a single value with a plain name");
    }
    if (kept.n > 0)
        model->scheduler = dcpk_dict_end(&kept);
    return err->status;
}

dcpk_status dcpk_model_drop_unknown(struct dcpk_model *model, struct dcpk_error *err)
{
    int64_t iteration;

    if (clean_value(model, "iteration", &model->iteration, err) ||
        clean_value(model, "checkpoint_version", &model->version, err) ||
        clean_value(model, "num_floating_point_operations_so_far", &model->flops, err) ||
        clean_dict(model, SCHEDULER, &model->scheduler, err) || keep_settings(model, err) ||
        clean_dict(model, "optimizer.grad_scaler", &model->scaler, err) ||
        clean_value(model, "optimizer.common_step", &model->common_step, err) ||
        clean_dict(model, "common state", &model->further, err) || clean_rng(model, err))
        return err->status;
    for (size_t i = 0; i < model->n_groups; i++)
        if (clean_dict(model, "optimizer.param_groups", &model->groups[i], err) != DCPK_OK)
            return err->status;
    if (model->iteration != NULL && !dcpk_value_as_int(model->iteration, &iteration)) {
        dcpk_model_drop(model, "iteration", "is not an integer");
        model->iteration = NULL;
    }
    return DCPK_OK;
}

/* ---- the view ---- */

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

    if (ckpt->format->mapping == NULL && dcpk_foreign_check_keys(ckpt, err) != DCPK_OK)
        return err->status;
    if (ckpt->format->mapping == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "this is a plain %s folder, not a checkpoint of a Megatron model "
                         "(expected keys such as "
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

/* True if any parameter has a value. Optimizer state alone may be of names that are not
 * recognised. */
static bool model_has_values(const struct dcpk_model *model)
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
        if (model_has_values(model)) {
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

dcpk_status dcpk_model_check_optimizer(const struct dcpk_model *model, struct dcpk_error *err)
{
    if (model->other_optimizer == NULL)
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                         "the optimizer is %s, by '%s': Megatron would load its state as Adam's",
                         model->other_optimizer, model->other_optimizer_key);
}
