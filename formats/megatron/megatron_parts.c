/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_parts.c - the parts of Mamba's and Gated DeltaNet's projections, by their names. */
#include "formats/megatron/megatron_parts.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/text.h"

/* What stands before the part's name. */
static const char *const projections[] = {".in_proj.weight.", ".in_proj.bias.", ".conv1d.weight.",
                                          ".conv1d.bias."};
#define N_PROJECTIONS (sizeof projections / sizeof projections[0])

/* How many rows a part has. */
enum part_size {
    INNER, /* all heads of the values: the columns of out_proj */
    STATE, /* all groups of the keys, or of B and C: half of what the convolution has besides */
    HEADS, /* one a head: as dt_bias, where the parts have it */
};

struct part {
    const char *name; /* NULL behind the last */
    enum part_size size;
};

/*
 * The order and the sizes of the parts. Sources: ssm/mamba_mixer.py@0.12.0 to main;
 * ssm/gated_delta_net.py@0.16.1 to 0.18.2, gated_delta_net/gdn.py@0.19.0 and main;
 * gated_delta_net/gdn2.py@main. Gated DeltaProduct (gated_delta_product.py@main) numbers its parts
 * and is not known here. The first row whose sum is that of in_proj is right: where `dt_bias` has
 * one element a key, as in the second form of Gated DeltaNet, the first form never adds up.
 */
static const struct layout {
    const char *mark; /* a parameter that only this module has */
    struct part proj[DCPK_MAX_PARTS + 1], conv[DCPK_MAX_PARTS + 1];
} layouts[] = {
    {"D",
     {{"z", INNER}, {"x", INNER}, {"B", STATE}, {"C", STATE}, {"dt", HEADS}},
     {{"x", INNER}, {"B", STATE}, {"C", STATE}}},
    {"out_norm.weight",
     {{"query", STATE},
      {"key", STATE},
      {"value", INNER},
      {"z", INNER},
      {"beta", HEADS},
      {"alpha", HEADS}},
     {{"query", STATE}, {"key", STATE}, {"value", INNER}}},
    {"out_norm.weight",
     {{"query", STATE},
      {"key", STATE},
      {"value", INNER},
      {"z", INNER},
      {"f", STATE},
      {"b", STATE},
      {"w", INNER}},
     {{"query", STATE}, {"key", STATE}, {"value", INNER}}},
};
#define N_LAYOUTS (sizeof layouts / sizeof layouts[0])

/* Where the part's name begins in `key`, NULL when it names none. */
static const char *part_of(const char *key, bool *is_conv)
{
    for (size_t i = 0; i < N_PROJECTIONS; i++) {
        const char *p = strstr(key, projections[i]);

        if (p == NULL)
            continue;
        *is_conv = i >= 2;
        return p + strlen(projections[i]);
    }
    return NULL;
}

/* All parts of one layout, when the key is one of them and each is there; else *n is 0. */
static dcpk_status find_layout(const struct dcpk_checkpoint *ckpt, const char *key,
                               const char *part, const struct part *layout, uint32_t *tensors,
                               size_t *n, struct dcpk_error *err)
{
    bool is_part = false;
    size_t found = 0;

    *n = 0;
    for (; layout[found].name != NULL; found++) {
        const struct dcpk_tensor *tensor;
        char *name = dcpk_arena_printf(ckpt->arena, err, "%.*s%s", (int)(part - key), key,
                                       layout[found].name);

        if (name == NULL)
            return err->status;
        tensor = dcpk_checkpoint_tensor(ckpt, name);
        if (tensor == NULL)
            return DCPK_OK;
        tensors[found] = (uint32_t)(tensor - ckpt->tensors);
        is_part |= strcmp(part, layout[found].name) == 0;
    }
    *n = is_part ? found : 0;
    return DCPK_OK;
}

dcpk_status dcpk_megatron_parts_find(const struct dcpk_checkpoint *ckpt, uint32_t tensor,
                                     struct dcpk_parts *parts, struct dcpk_error *err)
{
    const char *key = ckpt->tensors[tensor].key;
    bool is_conv = false;
    const char *part = part_of(key, &is_conv);
    size_t n = 0;
    dcpk_status st = DCPK_OK;

    *parts = (struct dcpk_parts){.n = 1, .tensor = {tensor}, .whole_bytes = strlen(key)};
    if (part == NULL)
        return DCPK_OK;
    parts->whole_bytes = (size_t)(part - key) - 1;
    for (size_t i = 0; i < N_LAYOUTS && n == 0 && st == DCPK_OK; i++)
        st = find_layout(ckpt, key, part, is_conv ? layouts[i].conv : layouts[i].proj,
                         parts->tensor, &n, err);
    if (st == DCPK_OK && n == 0)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "a part of a projection whose parts are not those of Mamba or Gated "
                       "DeltaNet, or not all there");
    parts->n = parts->tensor[0] == tensor ? n : 0;
    parts->tensor[0] = tensor;
    return st;
}

dcpk_status dcpk_megatron_parts_join(const struct dcpk_checkpoint *ckpt,
                                     const struct dcpk_parts *parts, int n_lead,
                                     const int64_t **shape, struct dcpk_error *err)
{
    const struct dcpk_tensor *first = &ckpt->tensors[parts->tensor[0]];
    int64_t *joined = dcpk_arena_array(ckpt->arena, (size_t)first->rank + 1, sizeof *joined, err);

    if (joined == NULL)
        return err->status;
    *shape = joined;
    memcpy(joined, first->shape + n_lead, (size_t)(first->rank - n_lead) * sizeof *joined);
    for (size_t i = 1; i < parts->n; i++) {
        const struct dcpk_tensor *t = &ckpt->tensors[parts->tensor[i]];
        bool same = first->rank > n_lead && t->rank == first->rank && t->dtype == first->dtype;

        for (int a = 0; a < first->rank && same; a++)
            same = a == n_lead || t->shape[a] == first->shape[a];
        if (!same || t->shape[n_lead] > INT64_MAX - joined[0])
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s' and '%s' are rows of one parameter and differ in dtype or shape",
                             first->key, t->key);
        joined[0] += t->shape[n_lead];
    }
    return DCPK_OK;
}

/*
 * Bytes of a canonical name that lead to the module whose projection it is; 0: it is none. Mamba's
 * convolution lost its module in core 0.19: conv1d_weight, conv1d_bias.
 */
static size_t find_module(const char *name, bool *is_conv)
{
    static const char *const ends[] = {".in_proj.weight", ".conv1d.weight", ".conv1d.bias",
                                       ".conv1d_weight", ".conv1d_bias"};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (dcpk_ends_with(name, ends[i])) {
            *is_conv = i > 0;
            return strlen(name) - strlen(ends[i]) + 1;
        }
    return 0;
}

/* What the shapes of a module say; -1: it lacks the parameter that would. */
struct module {
    int64_t proj_rows, conv_rows;
    int64_t size[3]; /* by enum part_size */
};

/* The length of an axis of the module's parameter `rest`; -1: there is none. */
static dcpk_status read_axis(const struct dcpk_model *model, const char *module, const char *rest,
                             int axis, int64_t *length, struct dcpk_error *err)
{
    const char *name = dcpk_arena_printf(model->arena, err, "%s%s", module, rest);
    const struct dcpk_model_tensor *value = NULL;
    uint64_t found;

    if (name == NULL)
        return err->status;
    if (dcpk_map_get(&model->param_by_name, name, strlen(name), &found))
        value = dcpk_model_value(model, &model->params[found]);
    *length = value == NULL || value->rank <= axis ? -1 : value->shape[axis];
    return DCPK_OK;
}

static dcpk_status read_module(const struct dcpk_model *model, const char *name, struct module *m,
                               struct dcpk_error *err)
{
    int64_t old_conv_rows = -1;
    dcpk_status st = read_axis(model, name, "in_proj.weight", 0, &m->proj_rows, err);

    if (st == DCPK_OK)
        st = read_axis(model, name, "conv1d_weight", 0, &m->conv_rows, err);
    if (st == DCPK_OK)
        st = read_axis(model, name, "conv1d.weight", 0, &old_conv_rows, err);
    if (st == DCPK_OK)
        st = read_axis(model, name, "out_proj.weight", 1, &m->size[INNER], err);
    if (st == DCPK_OK)
        st = read_axis(model, name, "dt_bias", 0, &m->size[HEADS], err);
    if (st != DCPK_OK)
        return st;
    if (m->conv_rows < 0)
        m->conv_rows = old_conv_rows;
    m->size[STATE] = (m->conv_rows - m->size[INNER]) / 2;
    return DCPK_OK;
}

/* The parts of one projection; *n is 0 when their sizes do not add up to its rows. */
static void size_parts(const struct module *m, const struct part *layout, int64_t n_rows,
                       struct dcpk_part *parts, size_t *n)
{
    for (*n = 0; layout[*n].name != NULL; ++*n) {
        const int64_t rows = m->size[layout[*n].size];

        if (rows < 0 || rows > n_rows)
            break;
        parts[*n] = (struct dcpk_part){layout[*n].name, rows};
        n_rows -= rows;
    }
    if (layout[*n].name != NULL || n_rows != 0)
        *n = 0;
}

/* The layout of a module that has the parameter which marks it and whose rows add up. */
static dcpk_status size_module(const struct dcpk_model *model, const char *name, bool is_conv,
                               struct dcpk_part *parts, size_t *n, struct dcpk_error *err)
{
    struct module m;
    dcpk_status st = read_module(model, name, &m, err);

    *n = 0;
    for (size_t i = 0; i < N_LAYOUTS && *n == 0 && st == DCPK_OK; i++) {
        int64_t mark;

        st = read_axis(model, name, layouts[i].mark, 0, &mark, err);
        if (st != DCPK_OK || mark < 0)
            continue;
        size_parts(&m, layouts[i].proj, m.proj_rows, parts, n);
        if (*n > 0 && is_conv)
            size_parts(&m, layouts[i].conv, m.conv_rows, parts, n);
    }
    return st;
}

dcpk_status dcpk_megatron_parts_of(const struct dcpk_model *model, const struct dcpk_param *param,
                                   struct dcpk_part parts[DCPK_MAX_PARTS], size_t *n,
                                   struct dcpk_error *err)
{
    bool is_conv = false;
    const size_t n_bytes = find_module(param->name, &is_conv);
    const char *module;
    dcpk_status st;

    *n = 0;
    if (n_bytes == 0)
        return DCPK_OK;
    if (model->rows_tp > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s': its rows lie in the order of %" PRId64
                         " tensor-parallel ranks, in which they are not told apart: load and save "
                         "it once without tensor parallelism",
                         param->name, model->rows_tp);
    module = dcpk_arena_strndup(model->arena, param->name, n_bytes, err);
    st = module == NULL ? err->status : size_module(model, module, is_conv, parts, n, err);
    if (st == DCPK_OK && *n == 0)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "'%s': its rows are not those of Mamba or Gated DeltaNet, whose projections "
                       "torch_dist and zarr keep in parts",
                       param->name);
    return st;
}
