/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.c - a model's parameters in their order of registration, and in FSDP units. */
#include "lib/model/parallel.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/model/registered.h"

/* A parameter to be put into order; `param` breaks ties, so that the order is total. */
struct entry {
    struct dcpk_registered found;
    uint32_t param;
};

static int compare_registered(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = dcpk_registered_compare(&x->found, &y->found);

    if (order != 0)
        return order;
    return DCPK_THREE_WAY(x->param, y->param);
}

static bool is_te(const struct dcpk_model *model, enum dcpk_impl impl)
{
    const char *name =
        dcpk_value_as_str(dcpk_value_get(dcpk_value_attrs(model->args), "transformer_impl"));

    if (impl != DCPK_IMPL_ANY)
        return impl == DCPK_IMPL_TE;
    return name == NULL || strcmp(name, "local") != 0;
}

/*
 * MTP's wrapper is not a unit, the transformer layer in it is one (formats/fsdp_dtensor/FORMAT.md
 * 8.2), and so is each layer of a hybrid's stack (fsdp_unit_modules,
 * fsdp/mcore_fsdp_adapter.py@0.19.0 and main).
 */
static bool is_in_unit(const struct entry *e, const char *name)
{
    return e->found.section == DCPK_DECODER_LAYERS ||
           (e->found.section == DCPK_MTP_LAYERS &&
            (strstr(name, ".transformer_layer.") != NULL ||
             strstr(name, ".mtp_model_layer.layers.") != NULL));
}

/* order[1]: of the layers inside one of MTP. */
static bool is_same_layer(const struct entry *a, const struct entry *b)
{
    return a->found.section == b->found.section && a->found.layer == b->found.layer &&
           a->found.order[1] == b->found.order[1];
}

dcpk_status dcpk_rules_parallel(struct dcpk_model *model, enum dcpk_impl impl,
                                struct dcpk_error *err)
{
    const unsigned spec = is_te(model, impl) ? DCPK_SPEC_TE | DCPK_SPEC_GROUPED : 0;
    struct entry *entries = dcpk_alloc_array(model->n_params, sizeof *entries, err);
    uint32_t unit = DCPK_NO_UNIT; /* the first one wraps to 0 */

    if (entries == NULL)
        return err->status;
    for (uint32_t i = 0; i < model->n_params; i++) {
        dcpk_registered_find(model->params[i].name, spec, &entries[i].found);
        entries[i].param = i;
    }
    qsort(entries, model->n_params, sizeof *entries, compare_registered);
    for (uint32_t i = 0; i < model->n_params; i++) {
        const struct entry *e = &entries[i];
        struct dcpk_param *p = &model->params[e->param];
        const bool starts_unit = i == 0 || !is_same_layer(e, &e[-1]) ||
                                 !is_in_unit(&e[-1], model->params[e[-1].param].name);

        p->tp_axis = e->found.tp_axis;
        p->expert = e->found.expert;
        p->place = e->found.is_buffer ? DCPK_NO_PLACE : i;
        p->unit = DCPK_NO_UNIT;
        if (is_in_unit(e, p->name))
            p->unit = starts_unit ? ++unit : unit;
    }
    dcpk_free(entries);
    return DCPK_OK;
}
