/* SPDX-License-Identifier: Apache-2.0 */
/* hf_ops.c - qkv and cat are blocks of rows; transpose and deinterleave put axes in order. */
#include "formats/safetensors/hf_ops.h"

#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/model/norms.h"
#include "lib/tensor/box.h"

/* ---- lines that take turns ---- */

dcpk_status dcpk_hf_pair_view(struct dcpk_checkpoint *ckpt, uint32_t tensor, int axis,
                              uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor paired = ckpt->tensors[tensor];
    struct dcpk_computed how;

    if (paired.computed == NULL)
        return dcpk_checkpoint_pair_view(ckpt, tensor, axis, view, err);
    how = *paired.computed;
    if (how.product.rank > 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "an adapter is merged into it: merge to huggingface, and convert that");
    /* A pair of rows would share a scale, or a block be cut. */
    if (axis != paired.rank - 2 || how.block_rows != 1)
        return dcpk_fail(err, DCPK_EMISMATCH, "its blocks are not those of a row");
    if (dcpk_checkpoint_pair_shape(ckpt, &paired, axis, err) ||
        dcpk_checkpoint_pair_view(ckpt, how.values, axis, &how.values, err) ||
        dcpk_checkpoint_pair_view(ckpt, how.scales, axis, &how.scales, err))
        return err->status;
    return dcpk_checkpoint_add_computed(ckpt, &paired, &how, view, err);
}

#define N_ROTATED 2 /* of q, k and v */

/* The sum of a rule's ops: at most one of the two joins, the others before it. */
struct op_sum {
    bool transposes, deinterleaves, halves, is_qkv, has_groups, is_cat, is_delta_net;
};

/* part: of rope_halves, which deinterleaves q and k, the first two. */
static struct op_sum sum_ops(const struct dcpk_hf_rule *rule, size_t part)
{
    struct op_sum sum = {.transposes = false};

    for (size_t i = 0; i < rule->n_ops; i++) {
        sum.transposes ^= rule->ops[i] == DCPK_HF_TRANSPOSE;
        sum.halves |= rule->ops[i] == DCPK_HF_ROPE_HALVES;
        sum.deinterleaves |=
            rule->ops[i] == DCPK_HF_DEINTERLEAVE || (sum.halves && part < N_ROTATED);
        sum.is_qkv |= rule->ops[i] == DCPK_HF_QKV;
        sum.has_groups |= rule->ops[i] == DCPK_HF_GROUPS;
        sum.is_cat |= rule->ops[i] == DCPK_HF_CAT;
        sum.is_delta_net |= rule->ops[i] == DCPK_HF_DELTA_NET;
    }
    return sum;
}

int dcpk_hf_ops_pair_axis(const struct dcpk_hf_rule *rule, size_t part)
{
    const struct op_sum sum = sum_ops(rule, part);

    return sum.deinterleaves ? sum.transposes : -1;
}

float dcpk_hf_ops_addend(const struct dcpk_hf_map *map, const struct dcpk_hf_binding *binding,
                         const struct dcpk_value *attrs)
{
    const bool megatron = dcpk_norms_are_centered(attrs);
    bool hugging_face = dcpk_norms_are_centered(map->args), is_one = false;

    for (size_t i = 0; i < binding->rule->n_ops; i++)
        is_one |= binding->rule->ops[i] == DCPK_HF_ADD_ONE;
    hugging_face ^= is_one;
    if (hugging_face == megatron || (!is_one && !dcpk_name_is_norm_weight(binding->mg)))
        return 0;
    return megatron ? -1.0F : 1.0F;
}

/* --- axes --- */

/*
 * Axes in another order. Hugging Face's tensor: rows, columns, or columns, rows where they are
 * transposed; where two kinds of rows take turns, an axis of 2 stands after the rows (pair), and
 * half as many rows are left. Megatron's: rows, columns.
 */
struct turning {
    struct dcpk_arena *arena;
    bool is_back;   /* from Megatron's to Hugging Face's */
    int pair;       /* of Hugging Face's tensor; -1: none */
    int n_axes;     /* of the tensor that is made */
    int axis[3];    /* of each of its axes that of the other tensor; -1: the pair */
    int64_t n_half; /* rows of a kind */
    struct dcpk_piece *pieces;
    size_t n_pieces;
};

static void turning_init(struct turning *m, const struct op_sum *sum, int rank)
{
    const int rows = sum->transposes, n = 2 - (rank == 1); /* of Hugging Face's, without the pair */

    m->pair = sum->deinterleaves ? rows + 1 : -1;
    m->n_axes = n + (m->is_back && sum->deinterleaves);
    for (int a = 0, k = 0; a < n; a++) {
        int other = sum->transposes ? 1 - a : a;

        if (!m->is_back && sum->deinterleaves && other > rows)
            other++;
        m->axis[k++] = other;
        if (m->is_back && sum->deinterleaves && a == rows)
            m->axis[k++] = -1;
    }
}

/* The part of a piece that holds rows of a kind: 0, the even ones, or 1. */
static dcpk_status piece_turn_kind(struct turning *m, const struct dcpk_piece *piece,
                                   const struct dcpk_model_tensor *tensor, int kind,
                                   struct dcpk_error *err)
{
    struct dcpk_piece_turn turn = {.src = piece->src, .to = {.rank = m->n_axes}};
    struct dcpk_box region, to;
    uint8_t old[DCPK_MAX_RANK];

    dcpk_box_whole(tensor->shape, tensor->rank, &region);
    if (m->pair >= 0) {
        const int at = m->is_back ? 0 : m->pair;

        region.extent[at] = m->is_back ? m->n_half : 1;
        region.offset[at] = kind * region.extent[at];
    }
    if (!dcpk_piece_clip(piece, &region, &turn.from, &to))
        return DCPK_OK;
    dcpk_piece_axes(piece, old);
    for (int k = 0; k < m->n_axes; k++) {
        const int a = m->axis[k];

        turn.to.offset[k] = kind;
        turn.to.extent[k] = 1;
        turn.axis[k] = DCPK_PIECE_NO_AXIS;
        if (a < 0)
            continue;
        turn.to.offset[k] = to.offset[a];
        if (m->is_back)
            turn.to.offset[k] -= region.offset[a];
        turn.to.extent[k] = to.extent[a];
        turn.axis[k] = old[a];
    }
    if (m->pair >= 0 && !m->is_back)
        turn.to.offset[0] += kind * m->n_half;
    if (piece->src == DCPK_PIECE_FILL)
        return dcpk_piece_make(m->arena, piece->src, NULL, &turn.to, &m->pieces[m->n_pieces++],
                               err);
    return dcpk_piece_make_turned(m->arena, &turn, &m->pieces[m->n_pieces++], err);
}

static dcpk_status turning_run(struct turning *m, struct dcpk_model_tensor *tensor,
                               struct dcpk_error *err)
{
    int64_t *shape = dcpk_arena_array(m->arena, (size_t)m->n_axes, sizeof *shape, err);

    m->pieces = dcpk_arena_array(m->arena, 2 * tensor->n_pieces, sizeof *m->pieces, err);
    if (shape == NULL || m->pieces == NULL)
        return err->status;
    for (int k = 0; k < m->n_axes; k++)
        shape[k] = m->axis[k] < 0 ? 2 : tensor->shape[m->axis[k]];
    if (m->pair >= 0 && m->is_back)
        shape[m->pair - 1] = m->n_half;
    if (m->pair >= 0 && !m->is_back)
        shape[0] = 2 * m->n_half;
    for (size_t i = 0; i < tensor->n_pieces; i++)
        for (int kind = 0; kind < 1 + (m->pair >= 0); kind++)
            if (piece_turn_kind(m, &tensor->pieces[i], tensor, kind, err))
                return err->status;
    tensor->rank = m->n_axes;
    tensor->shape = shape;
    tensor->pieces = m->pieces;
    tensor->n_pieces = m->n_pieces;
    return DCPK_OK;
}

/* Transpose and deinterleave of Hugging Face's tensor, or back, in one step. */
static dcpk_status tensor_turn(const struct op_sum *sum, bool is_back, struct dcpk_arena *arena,
                               struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    struct turning m = {.arena = arena, .is_back = is_back};
    const int rank = tensor->rank - (sum->deinterleaves && !is_back);

    if (!sum->transposes && !sum->deinterleaves)
        return DCPK_OK;
    if (rank < 1 + sum->transposes || rank > 2)
        return dcpk_fail(err, DCPK_EMISMATCH, "a tensor of %d axes has no lines to be moved", rank);
    turning_init(&m, sum, rank);
    if (sum->deinterleaves)
        m.n_half = is_back ? tensor->shape[0] / 2 : tensor->shape[m.pair - 1];
    if (sum->deinterleaves && is_back && tensor->shape[0] % 2 != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "its %" PRId64 " rows are not pairs",
                         tensor->shape[0]);
    return turning_run(&m, tensor, err);
}

/* --- blocks of rows --- */

/* The first halves of all heads of q or k, then the second ones, as deinterleave leaves them.
 * block: of a group, with all its heads of the kind. */
static dcpk_status split_heads(const struct dcpk_hf_sizes *sizes, struct dcpk_arena *arena,
                               struct dcpk_stored *part, struct dcpk_error *err)
{
    const int64_t half = sizes->head_size / 2, n_heads = part->rows[0].n_rows / sizes->head_size;
    struct dcpk_rows *rows =
        dcpk_arena_array(arena, 2 * part->n_rows * (size_t)n_heads, sizeof *rows, err);
    size_t n = 0;

    if (rows == NULL)
        return err->status;
    for (int64_t kind = 0; kind < 2; kind++)
        for (size_t g = 0; g < part->n_rows; g++)
            for (int64_t h = 0; h < n_heads; h++)
                rows[n++] = (struct dcpk_rows){
                    part->rows[g].row + h * sizes->head_size + kind * half, half};
    part->rows = rows;
    part->n_rows = n;
    return DCPK_OK;
}

static dcpk_status fail_heads(const struct dcpk_hf_sizes *sizes, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "%" PRId64 " heads of %" PRId64 " rows in %" PRId64 " groups", sizes->n_heads,
                     sizes->head_size, sizes->n_groups);
}

/*
 * The rows of q where each head of its tensor has a gate after it: linear_qkv has all gates of a
 * group after all its heads (MC/transformer/attention.py get_query_key_value_tensors). q: of every
 * group, its heads and its gates.
 */
static dcpk_status split_gates(const struct dcpk_hf_sizes *sizes, struct dcpk_arena *arena,
                               struct dcpk_stored *q, struct dcpk_error *err)
{
    const int64_t d = sizes->head_size, half = q->rows[0].n_rows / 2;
    struct dcpk_rows *rows = dcpk_arena_array(arena, 2 * (size_t)sizes->n_heads, sizeof *rows, err);
    size_t n = 0;

    if (rows == NULL)
        return err->status;
    for (size_t g = 0; g < q->n_rows; g++)
        for (int64_t at = q->rows[g].row; at < q->rows[g].row + half; at += d) {
            rows[n++] = (struct dcpk_rows){at, d};
            rows[n++] = (struct dcpk_rows){at + half, d};
        }
    q->rows = rows;
    q->n_rows = n;
    return DCPK_OK;
}

/* q, k and v of every group; in one list, or in three. */
static dcpk_status split_qkv(const struct dcpk_hf_rule *rule, const struct dcpk_hf_sizes *sizes,
                             struct dcpk_arena *arena, struct dcpk_split *split,
                             struct dcpk_error *err)
{
    const struct op_sum sum = sum_ops(rule, 0);
    static const char *const names[] = {"q", "k", "v"};
    const int64_t n_groups = sizes->n_groups, d = sizes->head_size;
    const int64_t per_group = n_groups > 0 ? sizes->n_heads / n_groups : 0;
    const int64_t q = (1 + sizes->has_gate) * per_group * d;
    const int64_t first[] = {0, q, q + d}, n_rows[] = {q, d, d};
    struct dcpk_stored *list;
    struct dcpk_rows *rows;

    if (per_group < 1 || d < 1 || sizes->n_heads % n_groups != 0 || (sum.halves && d % 2 != 0))
        return fail_heads(sizes, err);
    list = dcpk_arena_array(arena, DCPK_COUNT(names), sizeof *list, err);
    rows = dcpk_arena_array(arena, DCPK_COUNT(names) * (size_t)n_groups, sizeof *rows, err);
    if (list == NULL || rows == NULL)
        return err->status;
    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        list[i] = (struct dcpk_stored){names[i], &rows[i * (size_t)n_groups], (size_t)n_groups};
        for (int64_t g = 0; g < n_groups; g++)
            rows[i * (size_t)n_groups + (size_t)g] =
                (struct dcpk_rows){g * (q + 2 * d) + first[i], n_rows[i]};
    }
    if (rule->n_hf == 1)
        list[0].n_rows = DCPK_COUNT(names) * (size_t)n_groups;
    for (size_t i = 0; sum.halves && i < N_ROTATED; i++)
        if (split_heads(sizes, arena, &list[i], err))
            return err->status;
    if (sizes->has_gate && split_gates(sizes, arena, &list[0], err))
        return err->status;
    *split = (struct dcpk_split){list, rule->n_hf};
    return DCPK_OK;
}

/*
 * All groups in one tensor whose q and k have lines that take turns: of its even rows, then of its
 * odd ones, those of each group. Rows of v stay in their places.
 */
static dcpk_status split_groups(const struct dcpk_hf_sizes *sizes, struct dcpk_arena *arena,
                                struct dcpk_split *split, struct dcpk_error *err)
{
    const int64_t d = sizes->head_size, n_groups = sizes->n_groups;
    const int64_t n_rotated = n_groups > 0 ? sizes->n_heads / n_groups + 1 : 0;
    struct dcpk_stored *list = dcpk_arena_alloc(arena, sizeof *list, err);
    struct dcpk_rows *rows;
    size_t n = 0;

    if (n_rotated < 2 || d < 2 || d % 2 != 0 || sizes->n_heads % n_groups != 0)
        return fail_heads(sizes, err);
    rows = dcpk_arena_array(arena, (size_t)(n_groups * (2 * n_rotated + d)), sizeof *rows, err);
    if (list == NULL || rows == NULL)
        return err->status;
    for (int64_t kind = 0; kind < 2; kind++)
        for (int64_t g = 0; g < n_groups; g++) {
            int64_t row = g * (n_rotated + 1) * d;

            for (int64_t h = 0; h < n_rotated; h++, row += d)
                rows[n++] = (struct dcpk_rows){row + kind * (d / 2), d / 2};
            for (int64_t i = 0; i < d / 2; i++)
                rows[n++] = (struct dcpk_rows){row + 2 * i + kind, 1};
        }
    *list = (struct dcpk_stored){"", rows, n};
    *split = (struct dcpk_split){list, 1};
    return DCPK_OK;
}

/* in_proj of Gated DeltaNet from q, k, v in one, z, beta and alpha (TF modeling_qwen3_5.py): they
 * stand one after the other. */
static dcpk_status split_delta_net_behind(const struct dcpk_hf_sizes *sizes,
                                          struct dcpk_arena *arena, struct dcpk_split *split,
                                          struct dcpk_error *err)
{
    static const char *const names[] = {"qkv", "z", "b", "a"};
    const int64_t values = sizes->n_value_heads * sizes->value_size;
    const int64_t rows[] = {2 * sizes->n_key_heads * sizes->key_size + values, values,
                            sizes->n_value_heads, sizes->n_value_heads};

    return dcpk_rows_behind(arena, names, rows, DCPK_COUNT(rows), split, err);
}

/*
 * in_proj of Gated DeltaNet: q, k, v, z, beta and alpha of all heads
 * (MC/ssm/gated_delta_net/gdn.py _setup_variant_attrs). One tensor has q, k, v and z of each key
 * head, the other beta and alpha (TF modeling_qwen3_next.py fix_query_key_value_ordering).
 */
static dcpk_status split_delta_net(const struct dcpk_hf_sizes *sizes, struct dcpk_arena *arena,
                                   struct dcpk_split *split, struct dcpk_error *err)
{
    enum { N_SECTIONS = 6, N_OF_FIRST = 4 };
    const int64_t n_heads = sizes->n_key_heads;
    const int64_t each = n_heads > 0 ? sizes->n_value_heads / n_heads : 0;
    const int64_t n_rows[N_SECTIONS] = {sizes->key_size,
                                        sizes->key_size,
                                        each * sizes->value_size,
                                        each * sizes->value_size,
                                        each,
                                        each};
    int64_t at[N_SECTIONS] = {0};
    struct dcpk_stored *list;
    struct dcpk_rows *rows;

    if (each < 1 || sizes->n_value_heads % n_heads != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "%" PRId64 " value heads of %" PRId64 " key heads",
                         sizes->n_value_heads, n_heads);
    list = dcpk_arena_array(arena, 2, sizeof *list, err);
    rows = dcpk_arena_array(arena, N_SECTIONS * (size_t)n_heads, sizeof *rows, err);
    if (list == NULL || rows == NULL)
        return err->status;
    for (size_t s = 1; s < N_SECTIONS; s++)
        at[s] = at[s - 1] + n_heads * n_rows[s - 1];
    list[0] = (struct dcpk_stored){"qkvz", rows, N_OF_FIRST * (size_t)n_heads};
    list[1] = (struct dcpk_stored){"ba", rows + list[0].n_rows,
                                   (N_SECTIONS - N_OF_FIRST) * (size_t)n_heads};
    for (int64_t h = 0; h < n_heads; h++)
        for (size_t s = 0; s < N_OF_FIRST; s++)
            *rows++ = (struct dcpk_rows){at[s] + h * n_rows[s], n_rows[s]};
    for (int64_t h = 0; h < n_heads; h++)
        for (size_t s = N_OF_FIRST; s < N_SECTIONS; s++)
            *rows++ = (struct dcpk_rows){at[s] + h * n_rows[s], n_rows[s]};
    *split = (struct dcpk_split){list, 2};
    return DCPK_OK;
}

/* The rows of the parts in the whole, of n_rows; split->n is 0 where there is one part, as it
 * is. */
static dcpk_status split_rows(const struct dcpk_hf_rule *rule, const struct dcpk_hf_sizes *sizes,
                              int64_t n_rows, struct dcpk_arena *arena, struct dcpk_split *split,
                              struct dcpk_error *err)
{
    static const char *const names[DCPK_HF_MAX_PARTS] = {"", "", "", ""};
    const struct op_sum sum = sum_ops(rule, 0);
    int64_t rows[DCPK_HF_MAX_PARTS];

    *split = (struct dcpk_split){NULL, 0};
    if (sum.is_qkv)
        return split_qkv(rule, sizes, arena, split, err);
    if (sum.has_groups && sum.halves)
        return split_groups(sizes, arena, split, err);
    if (sum.is_delta_net && rule->n_hf == 4)
        return split_delta_net_behind(sizes, arena, split, err);
    if (sum.is_delta_net)
        return split_delta_net(sizes, arena, split, err);
    if (!sum.is_cat)
        return DCPK_OK;
    if (n_rows % (int64_t)rule->n_hf != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "its %" PRId64 " rows are not %zu equal parts",
                         n_rows, rule->n_hf);
    for (size_t i = 0; i < rule->n_hf; i++)
        rows[i] = n_rows / (int64_t)rule->n_hf;
    return dcpk_rows_behind(arena, names, rows, rule->n_hf, split, err);
}

/* As many rows as the split has for the part, and otherwise like the first one. */
static dcpk_status hf_check_part(const struct dcpk_hf_rule *rule, const struct dcpk_split *split,
                                 size_t i, const struct dcpk_model_tensor *parts,
                                 struct dcpk_error *err)
{
    const struct dcpk_model_tensor *part = &parts[i];
    char text[2][128];
    int64_t n_rows = 0;
    bool same = part->rank == parts[0].rank && part->rank > 0;

    for (size_t b = 0; b < split->list[i].n_rows; b++)
        n_rows += split->list[i].rows[b].n_rows;
    for (int a = 1; same && a < part->rank; a++)
        same = part->shape[a] == parts[0].shape[a];
    if (part->dtype != parts[0].dtype)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "its part '%s' is %s, and '%s' %s: Megatron has one tensor for both, "
                         "save them with one dtype",
                         rule->hf[i], dcpk_dtype_name(part->dtype), rule->hf[0],
                         dcpk_dtype_name(parts[0].dtype));
    if (!same)
        return dcpk_fail(
            err, DCPK_EMISMATCH, "its part '%s' has the shape %s, which does not fit %s of '%s'",
            rule->hf[i], dcpk_shape_format(part->shape, part->rank, text[0], sizeof text[0]),
            dcpk_shape_format(parts[0].shape, parts[0].rank, text[1], sizeof text[1]), rule->hf[0]);
    if (part->shape[0] != n_rows)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "part %zu has %" PRId64 " rows, %" PRId64 " are asked for", i + 1,
                         part->shape[0], n_rows);
    return DCPK_OK;
}

dcpk_status dcpk_hf_ops_join(const struct dcpk_hf_rule *rule, const struct dcpk_hf_sizes *sizes,
                             const struct dcpk_model_tensor *parts, struct dcpk_arena *arena,
                             struct dcpk_model_tensor *whole, struct dcpk_error *err)
{
    struct dcpk_model_tensor turned[DCPK_HF_MAX_PARTS];
    struct dcpk_split split;
    int64_t n_rows = 0;

    for (size_t i = 0; i < rule->n_hf; i++) {
        const struct op_sum sum = sum_ops(rule, i);

        turned[i] = parts[i];
        if (tensor_turn(&sum, false, arena, &turned[i], err))
            return err->status;
        if (turned[i].rank > 0)
            n_rows += turned[i].shape[0];
    }
    if (split_rows(rule, sizes, n_rows, arena, &split, err))
        return err->status;
    if (split.n == 0) {
        *whole = turned[0];
        return DCPK_OK;
    }
    for (size_t i = 0; i < split.n; i++)
        if (hf_check_part(rule, &split, i, turned, err))
            return err->status;
    return dcpk_rows_join(arena, &split, turned, whole, err);
}

dcpk_status dcpk_hf_ops_split(const struct dcpk_hf_rule *rule, const struct dcpk_hf_sizes *sizes,
                              const struct dcpk_model_tensor *whole, struct dcpk_arena *arena,
                              struct dcpk_model_tensor *parts, struct dcpk_error *err)
{
    const int64_t n_rows = whole->rank > 0 ? whole->shape[0] : 0;
    struct dcpk_split split;

    if (split_rows(rule, sizes, n_rows, arena, &split, err) ||
        (split.n > 0 && dcpk_rows_fit(&split, whole, err)))
        return err->status;
    for (size_t i = 0; i < rule->n_hf; i++) {
        const struct op_sum sum = sum_ops(rule, i);

        parts[i] = *whole;
        if ((split.n > 0 && dcpk_rows_take(arena, whole, &split.list[i], &parts[i], err)) ||
            tensor_turn(&sum, true, arena, &parts[i], err))
            return err->status;
    }
    return DCPK_OK;
}
