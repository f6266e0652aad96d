/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - which rows of a projection are which part, and the order in which ranks hold them. */
#include "lib/ckpt/parts.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/text.h"

#define INNER DCPK_PART_INNER
#define STATE DCPK_PART_STATE
#define HEADS DCPK_PART_HEADS

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
    int64_t size[3]; /* by enum dcpk_part_size */
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
static void size_parts(const struct module *m, const struct dcpk_part_kind *layout, int64_t n_rows,
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
    for (size_t i = 0; i < DCPK_N_PART_LAYOUTS && *n == 0 && st == DCPK_OK; i++) {
        int64_t mark;

        st = read_axis(model, name, dcpk_part_layouts[i].mark, 0, &mark, err);
        if (st != DCPK_OK || mark < 0)
            continue;
        size_parts(&m, dcpk_part_layouts[i].proj, m.proj_rows, parts, n);
        if (*n > 0 && is_conv)
            size_parts(&m, dcpk_part_layouts[i].conv, m.conv_rows, parts, n);
    }
    return st;
}

dcpk_status dcpk_parts_of(const struct dcpk_model *model, const struct dcpk_param *param,
                          struct dcpk_part parts[DCPK_MAX_PARTS], size_t *n, struct dcpk_error *err)
{
    bool is_conv = false;
    const size_t n_bytes = find_module(param->name, &is_conv);
    const char *module;
    dcpk_status st;

    *n = 0;
    if (n_bytes == 0)
        return DCPK_OK;
    module = dcpk_arena_strndup(model->arena, param->name, n_bytes, err);
    st = module == NULL ? err->status : size_module(model, module, is_conv, parts, n, err);
    if (st == DCPK_OK && *n == 0)
        st = dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "'%s': its rows are not those of Mamba or Gated DeltaNet, whose parts are known",
            param->name);
    return st;
}

/*
 * Rows by part, then by rank, or by rank, then by part:
 *
 *     of one    z z z z x x x x        by rank    z z x x z z x x
 *     rank      0 0 1 1 0 0 1 1        rank       0 0 0 0 1 1 1 1
 *
 * Each order as blocks of rows of the other.
 */
static void list_blocks(const struct dcpk_parts_held *held, enum dcpk_parts_order order,
                        int64_t n_rows, struct dcpk_rows *blocks)
{
    int64_t first = 0; /* row of the part, in the order of one */

    for (size_t p = 0; p < held->n; p++) {
        const int64_t n_held = held->parts[p].n_rows / held->tp;

        for (int64_t r = 0; r < held->tp; r++) {
            const int64_t of_one = first + r * n_held;
            const int64_t by_rank = (r * n_rows + first) / held->tp;

            if (order == DCPK_PARTS_OF_ONE)
                blocks[(int64_t)p * held->tp + r] = (struct dcpk_rows){by_rank, n_held};
            else
                blocks[r * (int64_t)held->n + (int64_t)p] = (struct dcpk_rows){of_one, n_held};
        }
        first += held->parts[p].n_rows;
    }
}

dcpk_status dcpk_parts_reorder(struct dcpk_arena *arena, const struct dcpk_parts_held *held,
                               enum dcpk_parts_order order, const struct dcpk_model_tensor *tensor,
                               struct dcpk_model_tensor *reordered, struct dcpk_error *err)
{
    struct dcpk_rows *blocks;
    int64_t n_rows = 0;

    for (size_t p = 0; p < held->n; p++) {
        if (held->parts[p].n_rows % held->tp != 0)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "the %" PRId64 " rows of its part '%s' do not divide by %" PRId64
                             " tensor-parallel ranks",
                             held->parts[p].n_rows, held->parts[p].name, held->tp);
        n_rows += held->parts[p].n_rows;
    }
    if (tensor->rank == 0 || tensor->shape[0] != n_rows)
        return dcpk_fail(err, DCPK_EMISMATCH, "its %s has not the %" PRId64 " rows of its parts",
                         dcpk_role_name(tensor->role), n_rows);
    blocks = dcpk_arena_array(arena, held->n * (size_t)held->tp, sizeof *blocks, err);
    if (blocks == NULL)
        return err->status;
    list_blocks(held, order, n_rows, blocks);
    return dcpk_model_take_rows(arena, tensor, blocks, held->n * (size_t)held->tp, reordered, err);
}

dcpk_status dcpk_parts_unite(struct dcpk_model *model, int64_t tp, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (uint32_t t = 0; t < model->n_tensors && st == DCPK_OK; t++) {
        struct dcpk_model_tensor *tensor = &model->tensors[t];
        const struct dcpk_param *param = &model->params[tensor->param];
        struct dcpk_part parts[DCPK_MAX_PARTS];
        struct dcpk_parts_held held = {.parts = parts, .tp = tp};

        if (tensor->rank == 0) /* torch AdamW's step */
            continue;
        st = dcpk_parts_of(model, param, parts, &held.n, err);
        if (st == DCPK_OK && held.n > 0) {
            st = dcpk_parts_reorder(model->arena, &held, DCPK_PARTS_OF_ONE, tensor, tensor, err);
            if (st != DCPK_OK)
                dcpk_context(err, "'%s', held by %" PRId64 " tensor-parallel ranks", param->name,
                             tp);
        }
    }
    return st;
}
