/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_moe.c - which layers are MoE layers: a period, or a list as Python writes it. */
/*
 *   list  = group { "+" group }
 *   group = ( items | "(" items { "+" items } ")" [ "*" n ] )
 *   items = "[" { 0 | 1 | "," } "]" [ "*" n ]          "([0]*1+[1]*3)*2": 0 1 1 1 0 1 1 1
 *
 * Source: moe_freq_type (megatron/training/arguments.py @core_v0.19.0), which evaluates it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/train/knobs_priv.h"

struct moe_list {
    const char *at; /* what is left of the text */
    uint8_t *layers;
    int64_t n, capacity;
};

static char moe_next(struct moe_list *list)
{
    list->at += strspn(list->at, " ");
    return *list->at;
}

static bool moe_take(struct moe_list *list, char c)
{
    if (moe_next(list) != c)
        return false;
    list->at++;
    return true;
}

/* Repeats what was read since `first`, where "*" and a number follow. false: not a number, or more
 * layers than the model has. */
static bool moe_repeat(struct moe_list *list, int64_t first)
{
    const int64_t n = list->n - first;
    int64_t times;

    if (!moe_take(list, '*'))
        return true;
    (void)moe_next(list);
    times = dcpk_take_number(&list->at);
    if (times < 0 || (n > 0 && times > (list->capacity - first) / n))
        return false;
    if (times == 0)
        list->n = first;
    for (int64_t i = 1; i < times; i++, list->n += n)
        memcpy(list->layers + list->n, list->layers + first, (size_t)n);
    return true;
}

static bool moe_items(struct moe_list *list)
{
    const int64_t first = list->n;

    if (!moe_take(list, '['))
        return false;
    while (moe_next(list) == '0' || *list->at == '1') {
        if (list->n == list->capacity)
            return false;
        list->layers[list->n++] = *list->at++ == '1';
        if (!moe_take(list, ','))
            break;
    }
    return moe_take(list, ']') && moe_repeat(list, first);
}

static bool moe_group(struct moe_list *list)
{
    const int64_t first = list->n;

    if (!moe_take(list, '('))
        return moe_items(list);
    do {
        if (!moe_items(list))
            return false;
    } while (moe_take(list, '+'));
    return moe_take(list, ')') && moe_repeat(list, first);
}

static bool moe_read(struct moe_list *list)
{
    do {
        if (!moe_group(list))
            return false;
    } while (moe_take(list, '+'));
    return moe_next(list) == '\0' && list->n == list->capacity;
}

/* Every period-th layer from the first on. */
static bool moe_read_period(const char *text, struct moe_list *list, int64_t *period)
{
    *period = dcpk_take_number(&text);
    if (*period < 1 || *text != '\0')
        return false;
    for (int64_t i = 0; i < list->capacity; i++)
        list->layers[i] = i % *period == 0;
    return true;
}

dcpk_status dcpk_knobs_read_moe_layers(struct dcpk_train_knobs *knobs, struct dcpk_error *err)
{
    struct dcpk_train_model *m = &knobs->config.model;
    struct moe_list list = {.at = knobs->moe_layer_freq, .capacity = m->layers};
    int64_t period = 0;

    m->moe_layers = NULL;
    m->is_moe_list = false;
    if (m->experts == 0 || strcmp(list.at, "1") == 0)
        return DCPK_OK;
    list.layers = dcpk_arena_alloc(knobs->arena, (size_t)m->layers, err);
    if (list.layers == NULL)
        return err->status;
    if (!moe_read_period(list.at, &list, &period) && !moe_read(&list))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "Invalid pattern: moe_layer_freq is '%s'; give a period, or a list of a 1 "
                         "or 0 for each of %" PRId64 " layers",
                         knobs->moe_layer_freq, m->layers);
    m->moe_layers = list.layers;
    m->is_moe_list = true;
    return DCPK_OK;
}
