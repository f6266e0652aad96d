/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c - rows of embedding and output layer for another padding of the vocabulary. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/model/sizes.h"
#include "lib/rules/mesh.h"

/* The only parameters that have a row for each token of the vocabulary. */
static const char *const names[] = {"embedding.word_embeddings.weight", "output_layer.weight",
                                    "output_layer.bias"};
#define N_NAMES DCPK_COUNT(names)

static bool has_vocab_rows(const char *name)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static dcpk_status padded_size(const struct dcpk_vocab *vocab, int64_t *padded,
                               struct dcpk_error *err)
{
    int64_t multiple, most;

    if (!dcpk_mul_i64(vocab->divisible_by, dcpk_max_i64(vocab->tp, 1), &multiple) ||
        !dcpk_add_i64(vocab->size, multiple, &most))
        return dcpk_fail(err, DCPK_ERANGE,
                         "a vocabulary of %" PRId64 ", padded to %" PRId64
                         " times tp, passes 2^63 rows",
                         vocab->size, vocab->divisible_by);
    *padded = (most - 1) / multiple * multiple;
    return DCPK_OK;
}

/* The tensor's first rows, and zeros where it has fewer than n_rows. */
static dcpk_status resize(struct dcpk_model *model, struct dcpk_model_tensor *tensor,
                          int64_t n_rows, struct dcpk_error *err)
{
    const int64_t old_rows = tensor->shape[0];
    struct dcpk_box kept, from, to;
    struct dcpk_piece *pieces;
    int64_t *shape;
    size_t n = 0;

    pieces = dcpk_arena_array(model->arena, tensor->n_pieces + 1, sizeof *pieces, err);
    shape = dcpk_arena_copy(model->arena, tensor->shape, (size_t)tensor->rank, sizeof *shape, err);
    if (pieces == NULL || shape == NULL)
        return err->status;
    shape[0] = n_rows;
    dcpk_box_whole(shape, tensor->rank, &kept);
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const struct dcpk_piece *piece = &tensor->pieces[i];

        if (dcpk_piece_clip(piece, &kept, &from, &to) &&
            dcpk_piece_like(model->arena, piece, &from, &to, &pieces[n++], err) != DCPK_OK)
            return err->status;
    }
    if (n_rows > old_rows) {
        kept.offset[0] = old_rows;
        kept.extent[0] = n_rows - old_rows;
        if (dcpk_piece_make(model->arena, DCPK_PIECE_FILL, NULL, &kept, &pieces[n++], err) !=
            DCPK_OK)
            return err->status;
    }
    tensor->shape = shape;
    tensor->pieces = pieces;
    tensor->n_pieces = n;
    return DCPK_OK;
}

static dcpk_status resize_param(struct dcpk_model *model, struct dcpk_model_tensor *tensor,
                                int64_t size, int64_t padded, struct dcpk_error *err)
{
    const struct dcpk_param *param = &model->params[tensor->param];
    const char *name = param->name;
    const int64_t old_rows = tensor->rank > 0 ? tensor->shape[0] : 0;

    if (tensor->rank == 0 || old_rows == padded) /* a step; or nothing to do */
        return DCPK_OK;
    if (old_rows < size)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' has %" PRId64 " rows, a vocabulary of %" PRId64 " was given", name,
                         old_rows, size);
    if (old_rows > padded && tensor == dcpk_model_value(model, param)) {
        const char *rows = dcpk_arena_printf(model->arena, err, "%s[%" PRId64 ":%" PRId64 "]", name,
                                             padded, old_rows);

        if (rows == NULL)
            return err->status;
        dcpk_model_omit(model, rows, "padding of the vocabulary that the target's does not have");
    }
    return resize(model, tensor, padded, err);
}

int64_t dcpk_rules_vocab_rows(const struct dcpk_model *model)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct dcpk_model_tensor *value;
        uint64_t param;

        if (!dcpk_map_get(&model->param_by_name, names[i], strlen(names[i]), &param))
            continue;
        value = dcpk_model_value(model, &model->params[param]);
        if (value != NULL && value->rank > 0)
            return value->shape[0];
    }
    return 0;
}

dcpk_status dcpk_rules_vocab_size(const struct dcpk_model *model, int64_t said, int64_t *size,
                                  struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    if (said > 0 && dcpk_tokens_fit(attrs, said, err))
        return err->status;
    *size = said > 0 ? said : dcpk_value_int_or(attrs, "vocab_size", 0);
    return DCPK_OK;
}

dcpk_status dcpk_rules_vocab_resize(struct dcpk_model *model, int64_t n_rows, int64_t size,
                                    struct dcpk_error *err)
{
    for (size_t t = 0; t < model->n_tensors; t++)
        if (has_vocab_rows(model->params[model->tensors[t].param].name) &&
            resize_param(model, &model->tensors[t], size, n_rows, err) != DCPK_OK)
            return err->status;
    if (model->args == NULL)
        return DCPK_OK;
    return dcpk_model_set_arg(model, "padded_vocab_size", n_rows, err);
}

dcpk_status dcpk_rules_vocab(struct dcpk_model *model, const struct dcpk_vocab *vocab,
                             struct dcpk_error *err)
{
    struct dcpk_vocab v = *vocab;
    int64_t padded;

    if (v.divisible_by == 0)
        return DCPK_OK;
    if (dcpk_rules_vocab_size(model, vocab->size, &v.size, err) != DCPK_OK)
        return err->status;
    if (v.size == 0)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_VOCAB_SIZE,
                             "the checkpoint's args have no vocab_size");
    if (padded_size(&v, &padded, err) || dcpk_rules_vocab_resize(model, padded, v.size, err))
        return err->status;
    if (model->args == NULL)
        return DCPK_OK;
    return dcpk_model_set_arg(model, "make_vocab_size_divisible_by", v.divisible_by, err);
}
