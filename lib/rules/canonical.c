/* SPDX-License-Identifier: Apache-2.0 */
/* canonical.c - canonical names, layer order, aliases merged; live spellings. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/overlaps.h"
#include "lib/rules/rules.h"

/* The flags of all layers, by the bytes that name the layer. */
struct layer_table {
    struct dcpk_map by_name;
    unsigned *flags;
    unsigned common; /* of all layers: those that share an indexer have none themselves */
    size_t capacity;
};

static void layers_release(struct layer_table *layers)
{
    dcpk_map_release(&layers->by_name);
    dcpk_free(layers->flags);
}

static dcpk_status layers_collect(const struct dcpk_model *model, struct layer_table *layers,
                                  struct dcpk_error *err)
{
    for (size_t i = 0; i < model->n_params; i++) {
        const char *name = model->params[i].name;
        const size_t n = dcpk_name_layer(name);
        uint64_t found = layers->by_name.n_items;
        bool existed;

        if (n == 0)
            continue;
        if (dcpk_grow(&layers->flags, &layers->capacity, layers->by_name.n_items,
                      sizeof *layers->flags, err) ||
            dcpk_map_put(&layers->by_name, name, n, layers->by_name.n_items, &existed, &found, err))
            return err->status;
        if (!existed) {
            found = layers->by_name.n_items - 1;
            layers->flags[found] = 0;
        }
        layers->flags[found] |= dcpk_name_layer_flags(name);
        layers->common |= layers->flags[found] & DCPK_LAYER_SPARSE;
    }
    return DCPK_OK;
}

static unsigned layers_flags(const struct layer_table *layers, const char *name)
{
    uint64_t i;

    if (!dcpk_map_get(&layers->by_name, name, dcpk_name_layer(name), &i))
        return 0;
    return layers->flags[i] | layers->common;
}

/* A parameter's place in the new order. */
struct place {
    int kind; /* 0 embedding, 1 layers, 2 the rest, 3 multi-token prediction */
    long layer;
};

static struct place param_place(const char *name)
{
    const char *number = name + dcpk_name_layer(name);
    struct place place = {.kind = strncmp(name, "embedding.", strlen("embedding.")) == 0 ? 0 : 2};

    if (number == name)
        return place;
    while (number > name && !isdigit((unsigned char)number[-1]))
        number--;
    while (number > name && isdigit((unsigned char)number[-1]))
        number--;
    place.kind = strncmp(name, "mtp.", strlen("mtp.")) == 0 ? 3 : 1;
    place.layer = strtol(number, NULL, 10);
    return place;
}

/* A tensor's: by its parameter's, then role, then as it was. */
struct rank {
    struct place place;
    uint32_t param;
    enum dcpk_role role;
    uint32_t tensor;
};

static int compare_ranks(const void *left, const void *right)
{
    const struct rank *a = left, *b = right;

    if (a->place.kind != b->place.kind)
        return DCPK_ORDER_BY(a, b, place.kind);
    return DCPK_ORDER_BY_4(a, b, place.layer, param, role, tensor);
}

/* All tensors in their new order: those of a parameter one after the other. Owned; NULL and err on
 * failure. */
static struct rank *rank_tensors(const struct dcpk_model *model, struct dcpk_error *err)
{
    struct place *places = dcpk_alloc_array(model->n_params, sizeof *places, err);
    struct rank *ranks = NULL;

    if (places == NULL || (ranks = dcpk_alloc_array(model->n_tensors, sizeof *ranks, err)) == NULL)
        goto out;
    for (size_t i = 0; i < model->n_params; i++)
        places[i] = param_place(model->params[i].name);
    for (uint32_t i = 0; i < model->n_tensors; i++) {
        const struct dcpk_model_tensor *t = &model->tensors[i];

        ranks[i] = (struct rank){places[t->param], t->param, t->role, i};
    }
    qsort(ranks, model->n_tensors, sizeof *ranks, compare_ranks);
out:
    dcpk_free(places);
    return ranks;
}

/* Carries the formats' knowledge of a parameter over to its canonical one. */
static dcpk_status carry_over(struct dcpk_param *to, const struct dcpk_param *from,
                              struct dcpk_error *err)
{
    if (to->parts == NULL)
        to->parts = from->parts;
    to->is_buffer = to->is_buffer || from->is_buffer;
    if (from->group == DCPK_NO_GROUP)
        return DCPK_OK;
    if (to->group != DCPK_NO_GROUP && to->group != from->group)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s' and another spelling of it are in different parameter groups",
                         from->name);
    to->group = from->group;
    return DCPK_OK;
}

static bool same_bytes(const struct dcpk_model *model, const struct dcpk_model_tensor *a,
                       const struct dcpk_model_tensor *b)
{
    return dcpk_pieces_are_aliases(model->ckpt, a->pieces, a->n_pieces, b->pieces, b->n_pieces);
}

/* The canonical parameter of one of `old`. */
static dcpk_status move_param(struct dcpk_model *model, const struct dcpk_param *from,
                              const struct layer_table *layers, uint32_t *param,
                              struct dcpk_error *err)
{
    const char *name =
        dcpk_name_canonical(model->arena, from->name, layers_flags(layers, from->name), err);

    if (name == NULL || dcpk_model_param(model, name, param, err))
        return err->status;
    return carry_over(&model->params[*param], from, err);
}

/* Move one tensor into `model` under its canonical parameter. */
static dcpk_status move_tensor(struct dcpk_model *model, struct dcpk_model_tensor moved,
                               uint32_t param, struct dcpk_error *err)
{
    uint32_t other;

    moved.param = param;
    other = dcpk_model_find(model, moved.param, moved.role, moved.state);
    if (other != DCPK_NO_TENSOR && same_bytes(model, &model->tensors[other], &moved)) {
        for (size_t i = 0; i < moved.n_pieces; i++)
            dcpk_model_carry(model, model->ckpt->tensors[moved.pieces[i].src].key);
        return DCPK_OK;
    }
    return dcpk_model_add(model, &moved, err);
}

dcpk_status dcpk_rules_canonical(struct dcpk_model *model, struct dcpk_error *err)
{
    struct dcpk_model old = *model; /* its tables; the arena is shared and stays */
    struct layer_table layers = {0};
    struct rank *ranks = rank_tensors(&old, err);
    uint32_t param = 0;
    dcpk_status st;

    if (ranks == NULL)
        return err->status;
    st = layers_collect(model, &layers, err);
    if (st != DCPK_OK)
        goto out;
    model->params = NULL;
    model->tensors = NULL;
    model->n_params = model->n_tensors = model->params_capacity = model->tensors_capacity = 0;
    memset(&model->param_by_name, 0, sizeof model->param_by_name);
    for (size_t i = 0; i < old.n_tensors && st == DCPK_OK; i++) {
        if (i == 0 || ranks[i].param != ranks[i - 1].param)
            st = move_param(model, &old.params[ranks[i].param], &layers, &param, err);
        if (st == DCPK_OK)
            st = move_tensor(model, old.tensors[ranks[i].tensor], param, err);
    }
    dcpk_map_release(&old.param_by_name);
    dcpk_free(old.params);
    dcpk_free(old.tensors);
out:
    layers_release(&layers);
    dcpk_free(ranks);
    return st;
}

dcpk_status dcpk_rules_spell(struct dcpk_model *model, enum dcpk_impl impl, struct dcpk_error *err)
{
    struct layer_table layers = {0};
    dcpk_status st = layers_collect(model, &layers, err);

    for (size_t i = 0; i < model->n_params && st == DCPK_OK; i++) {
        struct dcpk_param *p = &model->params[i];
        struct dcpk_spellings found;

        st = dcpk_name_spellings(model->arena, p->name, layers_flags(&layers, p->name), impl,
                                 &found, err);
        if (st != DCPK_OK)
            break;
        p->spellings = found.names;
        p->n_spellings = found.n;
    }
    layers_release(&layers);
    return st;
}
