/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - which rows of a parameter are which part. */
#include "lib/model/parts.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

#define INNER DCPK_PART_INNER
#define STATE DCPK_PART_STATE
#define HEADS DCPK_PART_HEADS

const struct dcpk_part_kind dcpk_gate_up[] = {
    {"gate", DCPK_PART_HALF}, {"up", DCPK_PART_HALF}, {NULL, DCPK_PART_HALF}};

/*
 * The order and the sizes of the parts. Sources: ssm/mamba_mixer.py@0.12.0 to main;
 * ssm/gated_delta_net.py@0.16.1 to 0.18.2, gated_delta_net/gdn.py@0.19.0 and main;
 * gated_delta_net/gdn2.py@main. Gated DeltaProduct (gated_delta_product.py@main) numbers its parts
 * and is not known here. The first row whose sum is that of in_proj is right: where `dt_bias` has
 * one element a key, as in the second form of Gated DeltaNet, the first form never adds up.
 */
const struct dcpk_part_layout dcpk_part_layouts[DCPK_N_PART_LAYOUTS] = {
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

/*
 * Bytes of a canonical name that lead to the module whose projection it is; 0: it is none. Mamba's
 * convolution lost its module in core 0.19: conv1d_weight, conv1d_bias.
 */
static size_t find_parts_module(const char *name, bool *is_conv)
{
    static const char *const ends[] = {".in_proj.weight", ".conv1d.weight", ".conv1d.bias",
                                       ".conv1d_weight", ".conv1d_bias"};

    for (size_t i = 0; i < DCPK_COUNT(ends); i++)
        if (dcpk_ends_with(name, ends[i])) {
            *is_conv = i > 0;
            return strlen(name) - strlen(ends[i]) + 1;
        }
    return 0;
}

/* Sizes read off the shapes of a module; -1: it lacks the parameter that shows it. */
struct module {
    int64_t proj_rows, conv_rows;
    int64_t size[DCPK_N_PART_SIZES];
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
    *length = -1;
    if (value != NULL && value->rank > axis)
        *length = value->shape[axis];
    return DCPK_OK;
}

static dcpk_status read_module(const struct dcpk_model *model, const char *name, struct module *m,
                               struct dcpk_error *err)
{
    int64_t old_conv_rows = -1;

    if (read_axis(model, name, "in_proj.weight", 0, &m->proj_rows, err) ||
        read_axis(model, name, "conv1d_weight", 0, &m->conv_rows, err) ||
        read_axis(model, name, "conv1d.weight", 0, &old_conv_rows, err) ||
        read_axis(model, name, "out_proj.weight", 1, &m->size[INNER], err) ||
        read_axis(model, name, "dt_bias", 0, &m->size[HEADS], err))
        return err->status;
    if (m->conv_rows < 0)
        m->conv_rows = old_conv_rows;
    m->size[STATE] = (m->conv_rows - m->size[INNER]) / 2;
    return DCPK_OK;
}

dcpk_status dcpk_parts_size(struct dcpk_arena *arena, const struct dcpk_part_kind *kinds,
                            const int64_t size[DCPK_N_PART_SIZES], struct dcpk_split *parts,
                            struct dcpk_error *err)
{
    const char *names[DCPK_MAX_PARTS];
    int64_t n_rows[DCPK_MAX_PARTS];
    size_t n = 0;

    for (; kinds[n].name != NULL; n++) {
        names[n] = kinds[n].name;
        n_rows[n] = size[kinds[n].size];
    }
    return dcpk_rows_behind(arena, names, n_rows, n, parts, err);
}

/* True if the sizes of the parts add up to n_rows. */
static bool adds_up(const struct module *m, const struct dcpk_part_kind *kinds, int64_t n_rows)
{
    for (; kinds->name != NULL; kinds++) {
        const int64_t rows = m->size[kinds->size];

        if (rows < 0 || rows > n_rows)
            return false;
        n_rows -= rows;
    }
    return n_rows == 0;
}

/* The layout of a module that has the parameter which marks it and whose rows add up. */
static dcpk_status size_module(const struct dcpk_model *model, const char *name, bool is_conv,
                               struct dcpk_arena *arena, struct dcpk_split *parts,
                               struct dcpk_error *err)
{
    struct module m;

    if (read_module(model, name, &m, err))
        return err->status;
    for (size_t i = 0; i < DCPK_N_PART_LAYOUTS; i++) {
        const struct dcpk_part_layout *layout = &dcpk_part_layouts[i];
        int64_t mark;

        if (read_axis(model, name, layout->mark, 0, &mark, err))
            return err->status;
        if (mark < 0 || !adds_up(&m, layout->proj, m.proj_rows))
            continue;
        if (!is_conv)
            return dcpk_parts_size(arena, layout->proj, m.size, parts, err);
        if (adds_up(&m, layout->conv, m.conv_rows))
            return dcpk_parts_size(arena, layout->conv, m.size, parts, err);
    }
    return DCPK_OK;
}

int64_t dcpk_parts_count(const struct dcpk_param *param)
{
    int64_t n = 0;

    while (param->parts != NULL && param->parts[n].name != NULL)
        n++;
    return dcpk_max_i64(n, 1);
}

/* The parts that the parameter itself is known to have. */
static dcpk_status size_known(const struct dcpk_model *model, const struct dcpk_param *param,
                              struct dcpk_arena *arena, struct dcpk_split *parts,
                              struct dcpk_error *err)
{
    const struct dcpk_model_tensor *value = dcpk_model_value(model, param);
    int64_t size[DCPK_N_PART_SIZES] = {0};

    if (value == NULL || value->rank == 0 || value->shape[0] % 2 != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s' has no two equal halves of rows", param->name);
    size[DCPK_PART_HALF] = value->shape[0] / 2;
    return dcpk_parts_size(arena, param->parts, size, parts, err);
}

dcpk_status dcpk_parts_of(const struct dcpk_model *model, const struct dcpk_param *param,
                          struct dcpk_arena *arena, struct dcpk_split *parts,
                          struct dcpk_error *err)
{
    bool is_conv = false;
    const size_t n_bytes = find_parts_module(param->name, &is_conv);
    const char *module;

    *parts = (struct dcpk_split){.n = 0};
    if (param->parts != NULL)
        return size_known(model, param, arena, parts, err);
    if (n_bytes == 0)
        return DCPK_OK;
    module = dcpk_arena_strndup(arena, param->name, n_bytes, err);
    if (module == NULL || size_module(model, module, is_conv, arena, parts, err))
        return err->status;
    if (parts->n > 0)
        return DCPK_OK;
    return dcpk_fail(
        err, DCPK_EUNSUPPORTED,
        "'%s': its rows are not those of Mamba or Gated DeltaNet, the only models with known parts",
        param->name);
}

/* One tensor of a projection, from the order of tp ranks into that of one. */
static dcpk_status unite(struct dcpk_model *model, const struct dcpk_split *parts, int64_t tp,
                         struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_stored ranked;
    const struct dcpk_split by_rank = {&ranked, 1};

    if (dcpk_rows_fit(parts, tensor, err) ||
        dcpk_rows_by_rank(model->arena, parts, tp, &ranked, err))
        return err->status;
    return dcpk_rows_join(model->arena, &by_rank, tensor, tensor, err);
}

dcpk_status dcpk_parts_unite(struct dcpk_model *model, int64_t tp, struct dcpk_error *err)
{
    for (uint32_t t = 0; t < model->n_tensors; t++) {
        struct dcpk_model_tensor *tensor = &model->tensors[t];
        const struct dcpk_param *param = &model->params[tensor->param];
        struct dcpk_split parts;

        if (tensor->rank == 0 || param->parts != NULL) /* torch AdamW's step; gate and up */
            continue;
        if (dcpk_parts_of(model, param, model->arena, &parts, err))
            return err->status;
        if (parts.n > 0 && unite(model, &parts, tp, tensor, err))
            return dcpk_context(err, "'%s', held by %" PRId64 " tensor-parallel ranks", param->name,
                                tp);
    }
    return DCPK_OK;
}

/* ---- parts by the names of stored tensors ---- */

/* The names before the part's name. */
static const struct projection {
    const char *name;
    bool is_conv;
} projections[] = {{".in_proj.weight.", false},
                   {".in_proj.bias.", false},
                   {".conv1d.weight.", true},
                   {".conv1d.bias.", true}};

/* The projection that `name` is a part of, and its bytes with the dot after it; NULL: of none. */
static const struct projection *projection_of(const char *name, size_t *head_bytes)
{
    for (size_t i = 0; i < DCPK_COUNT(projections); i++) {
        const char *at = strstr(name, projections[i].name);

        if (at == NULL)
            continue;
        *head_bytes = (size_t)(at - name) + strlen(projections[i].name);
        return &projections[i];
    }
    return NULL;
}

dcpk_status dcpk_parts_look_up(const struct dcpk_model *model, const struct dcpk_part_key *key,
                               size_t head_bytes, const struct dcpk_part_kind *kinds,
                               struct dcpk_found_parts *found, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;

    for (found->n = 0; kinds[found->n].name != NULL; found->n++) {
        const char *text =
            dcpk_arena_printf(model->arena, err, "%s%.*s%s%s", key->prefix, (int)head_bytes,
                              key->name, kinds[found->n].name, key->tail);
        const struct dcpk_tensor *tensor;

        if (text == NULL)
            return err->status;
        tensor = dcpk_checkpoint_tensor(ckpt, text);
        if (tensor == NULL) {
            found->missing = text;
            found->n = 0;
            return DCPK_OK;
        }
        found->tensor[found->n] = (uint32_t)(tensor - ckpt->tensors);
    }
    return DCPK_OK;
}

static bool names_one_of(const struct dcpk_part_kind *kinds, const char *name)
{
    for (; kinds->name != NULL; kinds++)
        if (strcmp(kinds->name, name) == 0)
            return true;
    return false;
}

dcpk_status dcpk_parts_find(const struct dcpk_model *model, uint32_t source,
                            const struct dcpk_part_key *key, struct dcpk_found_parts *found,
                            struct dcpk_error *err)
{
    size_t head_bytes = 0;
    const struct projection *projection = projection_of(key->name, &head_bytes);

    *found = (struct dcpk_found_parts){.tensor = {source}, .n = 1};
    found->whole_bytes = projection == NULL ? strlen(key->name) : head_bytes - 1;
    if (projection == NULL)
        return DCPK_OK;
    found->n = 0;
    for (size_t i = 0; i < DCPK_N_PART_LAYOUTS && found->n == 0; i++) {
        const struct dcpk_part_layout *layout = &dcpk_part_layouts[i];
        const struct dcpk_part_kind *kinds = projection->is_conv ? layout->conv : layout->proj;

        if (names_one_of(kinds, key->name + head_bytes) &&
            dcpk_parts_look_up(model, key, head_bytes, kinds, found, err))
            return err->status;
    }
    return DCPK_OK;
}
