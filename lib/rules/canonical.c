/* SPDX-License-Identifier: Apache-2.0 */
/* canonical.c - canonical names, layer order, aliases merged; live spellings. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/alias.h"
#include "lib/rules/rules.h"

/* The flags of all layers, by the bytes that name the layer. */
struct layers {
    struct dcpk_map by_name;
    unsigned *flags;
    size_t capacity;
};

static void layers_release(struct layers *layers)
{
    dcpk_map_release(&layers->by_name);
    dcpk_free(layers->flags);
}

static dcpk_status layers_collect(const struct dcpk_model *model, struct layers *layers,
                                  struct dcpk_error *err)
{
    for (size_t i = 0; i < model->n_params; i++) {
        const char *name = model->params[i].name;
        const size_t n = dcpk_name_layer(name);
        uint64_t found = layers->by_name.n_items;
        bool existed;
        dcpk_status st;

        if (n == 0)
            continue;
        st = dcpk_grow(&layers->flags, &layers->capacity, layers->by_name.n_items,
                       sizeof *layers->flags, err);
        if (st == DCPK_OK)
            st = dcpk_map_put(&layers->by_name, name, n, layers->by_name.n_items, &existed, &found,
                              err);
        if (st != DCPK_OK)
            return st;
        if (!existed) {
            found = layers->by_name.n_items - 1;
            layers->flags[found] = 0;
        }
        layers->flags[found] |= dcpk_name_layer_flags(name);
    }
    return DCPK_OK;
}

static unsigned layers_flags(const struct layers *layers, const char *name)
{
    uint64_t i;

    return dcpk_map_get(&layers->by_name, name, dcpk_name_layer(name), &i) ? layers->flags[i] : 0;
}

/* A tensor's place in the new order: by its parameter's, then role, then as it was. */
struct rank {
    int kind; /* 0 embedding, 1 layers, 2 the rest, 3 multi-token prediction */
    long layer;
    uint32_t param;
    enum dcpk_role role;
    uint32_t tensor;
};

static struct rank rank_of(const struct dcpk_model *model, uint32_t tensor)
{
    const struct dcpk_model_tensor *t = &model->tensors[tensor];
    const char *name = model->params[t->param].name;
    const char *number = name + dcpk_name_layer(name);
    struct rank r = {.kind = 2, .param = t->param, .role = t->role, .tensor = tensor};

    if (strncmp(name, "embedding.", strlen("embedding.")) == 0)
        r.kind = 0;
    if (number == name)
        return r;
    while (number > name && !isdigit((unsigned char)number[-1]))
        number--;
    while (number > name && isdigit((unsigned char)number[-1]))
        number--;
    r.kind = strncmp(name, "mtp.", strlen("mtp.")) == 0 ? 3 : 1;
    r.layer = strtol(number, NULL, 10);
    return r;
}

static int compare_ranks(const void *left, const void *right)
{
    const struct rank *a = left, *b = right;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    if (a->param != b->param)
        return a->param < b->param ? -1 : 1;
    if (a->role != b->role)
        return a->role < b->role ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

/* What the formats already know of a parameter goes over to its canonical one. */
static dcpk_status carry_over(struct dcpk_param *to, const struct dcpk_param *from,
                              struct dcpk_error *err)
{
    to->is_gated = to->is_gated || from->is_gated;
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

/* Move one tensor of `old` into `model` under its canonical name. */
static dcpk_status move_tensor(struct dcpk_model *model, const struct dcpk_model *old,
                               uint32_t tensor, const struct layers *layers, struct dcpk_error *err)
{
    struct dcpk_model_tensor moved = old->tensors[tensor];
    const struct dcpk_param *from = &old->params[moved.param];
    uint32_t other;
    const char *name =
        dcpk_name_canonical(model->arena, from->name, layers_flags(layers, from->name), err);
    dcpk_status st;

    if (name == NULL)
        return err->status;
    st = dcpk_model_param(model, name, &moved.param, err);
    if (st == DCPK_OK)
        st = carry_over(&model->params[moved.param], from, err);
    if (st != DCPK_OK)
        return st;
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
    struct layers layers = {0};
    struct rank *ranks = dcpk_alloc_array(old.n_tensors, sizeof *ranks, err);
    dcpk_status st = ranks == NULL ? err->status : layers_collect(model, &layers, err);

    if (st != DCPK_OK)
        goto out;
    for (uint32_t i = 0; i < old.n_tensors; i++)
        ranks[i] = rank_of(&old, i);
    qsort(ranks, old.n_tensors, sizeof *ranks, compare_ranks);
    model->params = NULL;
    model->tensors = NULL;
    model->n_params = model->n_tensors = model->params_capacity = model->tensors_capacity = 0;
    memset(&model->param_by_name, 0, sizeof model->param_by_name);
    for (size_t i = 0; i < old.n_tensors && st == DCPK_OK; i++)
        st = move_tensor(model, &old, ranks[i].tensor, &layers, err);
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
    struct layers layers = {0};
    dcpk_status st = layers_collect(model, &layers, err);

    for (size_t i = 0; i < model->n_params && st == DCPK_OK; i++) {
        struct dcpk_param *p = &model->params[i];

        st = dcpk_name_spellings(model->arena, p->name, layers_flags(&layers, p->name), impl,
                                 &p->spellings, &p->n_spellings, err);
    }
    layers_release(&layers);
    return st;
}
