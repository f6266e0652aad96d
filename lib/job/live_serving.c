/* SPDX-License-Identifier: Apache-2.0 */
/* live_serving.c - makes the tensors of a rank of vLLM or SGLang from those of Hugging Face's
 * files. */
/*
 * With more ranks than key heads each of these is on several ranks. Experts: vLLM spreads them over
 * all ranks, SGLang over those of tensor parallelism, of which several may share one.
 *
 * Sources: those of serving_names.c; vllm/model_executor/layers/vocab_parallel_embedding.py
 * (DEFAULT_VOCAB_PADDING_SIZE), layers/fused_moe/layer.py (later releases have the experts in a
 * module routed_experts); initialize_model_parallel of sglang/srt/distributed/parallel_state.py.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/output.h"
#include "lib/job/live_priv.h"
#include "lib/model/sizes.h"
#include "lib/place/held.h"

#define VOCAB_PADDING 64

/* A tensor of Hugging Face's, or rows of one, that become a part of a rank's tensor. */
struct part {
    struct dcpk_served as;
    const struct dcpk_remap_view *view;
    struct dcpk_rows rows;
    bool takes_turns; /* rows in pairs have an axis of 2 after them */
};

struct serving {
    struct dcpk_live_tensor made;
    struct dcpk_arena *arena;
    struct dcpk_served_model model;
    const struct dcpk_value *attrs;
    int64_t tp, r; /* ranks of tensor parallelism, and the number of this one */
    int64_t ep, ep_rank;
    int64_t etp, et_rank; /* ranks that cut an expert */
    int64_t heads, kv_heads, n_experts;
    struct part *parts; /* owned */
    size_t n_parts, capacity;
};

static int compare_parts(const void *a, const void *b)
{
    const struct dcpk_served *x = &((const struct part *)a)->as, *y = &((const struct part *)b)->as;
    const int by_name = strcmp(x->name, y->name);

    return by_name != 0 ? by_name : DCPK_ORDER_BY_2(x, y, expert, number);
}

/* --- parts by name --- */

static dcpk_status add_part(struct serving *s, const struct part *part, struct dcpk_error *err)
{
    if (dcpk_grow(&s->parts, &s->capacity, s->n_parts, sizeof *part, err) == DCPK_OK)
        s->parts[s->n_parts++] = *part;
    return err->status;
}

/* Parts of rows, one after the other: how much of all each has. Returns how many. */
static int find_counts(const struct serving *s, enum dcpk_cut_kind cut, int64_t counts[3])
{
    counts[0] = counts[1] = counts[2] = 1;
    if (cut == DCPK_CUT_HALVES)
        return 2;
    if (cut == DCPK_CUT_QKV) {
        counts[0] = s->heads;
        counts[1] = counts[2] = s->kv_heads;
        return 3;
    }
    counts[0] = counts[1] = dcpk_value_int_or(s->attrs, "linear_num_key_heads", 0) *
                            dcpk_value_int_or(s->attrs, "linear_key_head_dim", 0);
    counts[2] = dcpk_value_int_or(s->attrs, "linear_num_value_heads", 0) *
                dcpk_value_int_or(s->attrs, "linear_value_head_dim", 0);
    return 3;
}

/* Rows that are several projections one after the other become a part each. */
static dcpk_status add_fused(struct serving *s, struct part *part, struct dcpk_error *err)
{
    const enum dcpk_cut_kind cut = part->as.cut;
    const int64_t n_rows = part->rows.n_rows;
    int64_t counts[3], row = 0, n = 0;

    part->as.n_parts = find_counts(s, cut, counts);
    for (int i = 0; i < part->as.n_parts; i++)
        n += counts[i];
    if (n == 0 || n_rows % n != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the %" PRId64 " rows of '%.200s' are not those of %" PRId64 " parts",
                         n_rows, part->view->name, n);
    for (part->as.number = 0; part->as.number < part->as.n_parts; part->as.number++) {
        part->rows = (struct dcpk_rows){row, counts[part->as.number] * (n_rows / n)};
        part->as.cut = DCPK_CUT_ROWS;
        if (cut == DCPK_CUT_QKV && part->as.number > 0)
            part->as.cut = DCPK_CUT_KV;
        row += part->rows.n_rows;
        if (add_part(s, part, err))
            return err->status;
    }
    return DCPK_OK;
}

/* A piece whose output has its axes in another order. */
static dcpk_status turn_piece(struct dcpk_arena *arena, const struct dcpk_piece *from,
                              const char *order, struct dcpk_piece *piece, struct dcpk_error *err)
{
    struct dcpk_piece_turn turn = {.src = from->src};
    uint8_t axis[DCPK_MAX_RANK];
    struct dcpk_box to;

    dcpk_piece_to(from, &to);
    turn.to.rank = to.rank;
    dcpk_piece_from(from, &turn.from);
    dcpk_piece_axes(from, axis);
    for (int a = 0; a < to.rank; a++) {
        const int old = order[a] - '0';

        turn.to.offset[a] = to.offset[old];
        turn.to.extent[a] = to.extent[old];
        turn.axis[a] = axis[old];
    }
    return dcpk_piece_make_turned(arena, &turn, piece, err);
}

/* The view with its axes in the server's order; a bias has one only. */
static dcpk_status turn_view(const struct serving *s, struct part *part, struct dcpk_error *err)
{
    const struct dcpk_view *from = &part->view->view;
    const size_t rank = (size_t)from->rank;
    struct dcpk_remap_view *to = dcpk_arena_array(s->arena, 1, sizeof *to, err);
    struct dcpk_piece *pieces = dcpk_arena_array(s->arena, from->n_pieces, sizeof *pieces, err);
    int64_t *shape = dcpk_arena_array(s->arena, rank, sizeof *shape, err);

    if (to == NULL || pieces == NULL || shape == NULL)
        return err->status;
    *to = *part->view;
    to->view.pieces = pieces;
    to->view.shape = shape;
    for (size_t a = 0; a < rank; a++)
        shape[a] = from->shape[part->as.order[a] - '0'];
    for (size_t i = 0; i < from->n_pieces; i++) {
        if (from->pieces[i].src == DCPK_PIECE_FILL || dcpk_piece_is_flat(&from->pieces[i]))
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%.200s' is not made of stored boxes",
                             part->view->name);
        if (turn_piece(s->arena, &from->pieces[i], part->as.order, &pieces[i], err))
            return err->status;
    }
    part->view = to;
    return DCPK_OK;
}

/* The draft of a model with "mtp." has its own names of the embedding and the output layer. */
static dcpk_status add_shared(struct serving *s, struct part *part, struct dcpk_error *err)
{
    if (part->as.cut != DCPK_CUT_VOCAB || strcmp(s->model.family, "qwen3_next") != 0 ||
        dcpk_value_int_or(s->attrs, "mtp_num_layers", 0) == 0)
        return DCPK_OK;
    part->as.name = dcpk_arena_printf(s->arena, err, "draft.%s", part->as.name);
    if (part->as.name == NULL)
        return err->status;
    return add_part(s, part, err);
}

static dcpk_status add_view(struct serving *s, const struct dcpk_remap_view *view,
                            const struct dcpk_out_tensor *of, struct dcpk_error *err)
{
    struct part part = {.view = view, .takes_turns = of->written_shape != NULL};

    if (dcpk_served_find(&s->model, view->name, s->arena, &part.as, err))
        return err->status;
    if (part.as.name == NULL || view->view.rank == 0)
        return DCPK_OK;
    if (part.as.order != NULL && strlen(part.as.order) == (size_t)view->view.rank &&
        turn_view(s, &part, err))
        return err->status;
    part.rows.n_rows = part.view->view.shape[0];
    s->n_experts = dcpk_max_i64(s->n_experts, part.as.expert + 1);
    if (part.as.cut >= DCPK_CUT_STACKED_ROWS)
        s->n_experts = part.rows.n_rows;
    if (part.as.cut >= DCPK_CUT_QKV && part.as.cut < DCPK_CUT_STACKED_ROWS)
        return add_fused(s, &part, err);
    if (add_part(s, &part, err))
        return err->status;
    return add_shared(s, &part, err);
}

/* --- what a rank has --- */

/* Rows of all ranks for n tokens. */
static int64_t pad_tokens(int64_t n)
{
    return (n + VOCAB_PADDING - 1) / VOCAB_PADDING * VOCAB_PADDING;
}

/* Rows of a part, and of all columns, that the rank has. */
static dcpk_status cut_part(const struct serving *s, const struct part *part, struct dcpk_box *box,
                            struct dcpk_error *err)
{
    const struct dcpk_view *view = &part->view->view;
    const bool is_expert = part->as.expert >= 0;
    const int64_t tp = is_expert ? s->etp : s->tp, r = is_expert ? s->et_rank : s->r;
    const int axis = part->as.cut == DCPK_CUT_COLUMNS;
    int64_t n = tp;

    dcpk_box_whole(view->shape, view->rank, box);
    box->offset[0] = part->rows.row;
    box->extent[0] = part->rows.n_rows;
    if (part->as.cut == DCPK_CUT_NONE || axis >= view->rank)
        return DCPK_OK;
    if (part->as.cut == DCPK_CUT_VOCAB) {
        const int64_t padded = pad_tokens(box->extent[0]);
        const int64_t first = dcpk_min_i64(r * (padded / tp), box->extent[0]);

        box->offset[0] = first;
        box->extent[0] = dcpk_min_i64(padded / tp, box->extent[0] - first);
        if (padded % tp == 0)
            return DCPK_OK;
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "tp=%" PRId64 " does not divide the %" PRId64 " rows of '%.200s'", tp,
                         padded, part->view->name);
    }
    if (part->as.cut == DCPK_CUT_KV)
        n = dcpk_min_i64(tp, s->kv_heads);
    if (dcpk_check_blocks(box->extent, box->rank, axis, 1, n, err))
        return dcpk_context(err, "'%.200s'", part->view->name);
    box->extent[axis] /= n;
    box->offset[axis] += r / (tp / n) * box->extent[axis];
    return DCPK_OK;
}

/* The experts that the rank has: [first, first + n) of all. */
static struct dcpk_rows find_experts(const struct serving *s)
{
    return dcpk_rows_of_rank((struct dcpk_rows){0, s->n_experts}, s->ep, s->ep_rank);
}

/* Adds the tensor under its name; one of experts also under that of later releases. */
static dcpk_status put_tensor(struct serving *s, const struct part *part,
                              const struct dcpk_box *shape, struct dcpk_error *err)
{
    static const char experts[] = ".experts.";
    const char *name = part->as.name, *at = strstr(name, experts);
    const enum dcpk_dtype dtype = part->view->view.dtype;

    if (dcpk_live_put(&s->made, name, dtype, shape, err) || at == NULL)
        return err->status;
    at += strlen(experts);
    name = dcpk_arena_printf(s->arena, err, "%.*srouted_experts.%s", (int)(at - name), name, at);
    if (name == NULL)
        return err->status;
    return dcpk_live_put(&s->made, name, dtype, shape, err);
}

/* Adds the tensor of parts [first, end), which have one name. */
static dcpk_status put_fused(struct serving *s, size_t first, size_t end, struct dcpk_error *err)
{
    const struct part *begin = &s->parts[first];
    const bool is_expert = begin->as.expert >= 0;
    const struct dcpk_rows held = find_experts(s);
    struct dcpk_box box, shape = {.rank = 0};

    s->made.n = 0;
    for (size_t i = first; i < end; i++) {
        const struct part *part = &s->parts[i];
        int64_t to[DCPK_MAX_RANK] = {0};

        if (is_expert && (part->as.expert < held.row || part->as.expert >= held.row + held.n_rows))
            continue;
        if (cut_part(s, part, &box, err))
            return err->status;
        if (shape.rank == 0 || part->as.number == 0)
            shape.extent[is_expert] = 0;
        to[0] = part->as.expert - held.row;
        to[is_expert] = shape.extent[is_expert];
        if (dcpk_live_take(&s->made, &part->view->view, &box, to, is_expert, err))
            return err->status;
        shape.rank = box.rank + is_expert;
        shape.extent[0] = held.n_rows;
        shape.extent[is_expert] = to[is_expert] + box.extent[0];
        for (int a = 1; a < box.rank; a++)
            shape.extent[a + is_expert] = box.extent[a];
    }
    if (begin->as.cut == DCPK_CUT_VOCAB)
        shape.extent[0] = pad_tokens(begin->rows.n_rows) / s->tp;
    return put_tensor(s, begin, &shape, err);
}

/* Adds a tensor of all experts. */
static dcpk_status put_stacked(struct serving *s, const struct part *part, struct dcpk_error *err)
{
    static const int64_t to[DCPK_MAX_RANK];
    const struct dcpk_view *view = &part->view->view;
    const struct dcpk_rows held = find_experts(s);
    const int axis = 1 + (part->as.cut == DCPK_CUT_STACKED_COLUMNS);
    struct dcpk_box box;

    dcpk_box_whole(view->shape, view->rank, &box);
    box.offset[0] = held.row;
    box.extent[0] = held.n_rows;
    s->made.n = 0;
    s->made.has_pairs = part->takes_turns;
    if (part->as.cut == DCPK_CUT_STACKED_FIRST && s->et_rank > 0) {
        box.offset[0] = 0;
        if (dcpk_live_zeros(&s->made, &box, err))
            return err->status;
    } else {
        if (part->as.cut != DCPK_CUT_STACKED_FIRST) {
            if (dcpk_check_blocks(box.extent, box.rank, axis, 1, s->etp, err))
                return dcpk_context(err, "'%.200s'", part->view->name);
            box.extent[axis] /= s->etp;
            box.offset[axis] = s->et_rank * box.extent[axis];
        }
        if (dcpk_live_take(&s->made, view, &box, to, 0, err))
            return err->status;
    }
    if (put_tensor(s, part, &box, err))
        return err->status;
    s->made.has_pairs = false;
    return DCPK_OK;
}

/* A part without its others is a tensor by itself: a query of MLA, an MLP without a gate. */
static dcpk_status put_parts(struct serving *s, struct dcpk_error *err)
{
    if (s->n_parts > 0)
        qsort(s->parts, s->n_parts, sizeof *s->parts, compare_parts);
    for (size_t i = 0, end; i < s->n_parts; i = end) {
        const struct part *part = &s->parts[i];
        dcpk_status st = DCPK_OK;

        for (end = i + 1; end < s->n_parts && strcmp(s->parts[end].as.name, part->as.name) == 0;
             end++)
            continue;
        if (part->as.cut >= DCPK_CUT_STACKED_ROWS) {
            st = put_stacked(s, part, err);
        } else if (part->as.expert < 0 && end - i < (size_t)part->as.n_parts) {
            for (size_t k = i; k < end && st == DCPK_OK; k++) {
                s->parts[k].as.name = s->parts[k].as.alone;
                st = put_fused(s, k, k + 1, err);
            }
        } else {
            st = put_fused(s, i, end, err);
        }
        if (st != DCPK_OK)
            return st;
    }
    return DCPK_OK;
}

static dcpk_status check_divides(const char *by, int64_t size, int64_t n, const char *what,
                                 struct dcpk_error *err)
{
    if (n % size != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "%s=%" PRId64 " does not divide the %" PRId64 " %s",
                         by, size, n, what);
    return DCPK_OK;
}

static dcpk_status check_sizes(const struct serving *s, struct dcpk_error *err)
{
    if (s->heads == 0 || s->kv_heads == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "args do not have the number of heads");
    if (check_divides("tp", s->tp, s->heads, "heads", err) ||
        check_divides("tp", s->tp, dcpk_value_int_or(s->attrs, "linear_num_key_heads", 0),
                      "key heads of linear attention", err))
        return err->status;
    if (s->kv_heads % s->tp != 0 && s->tp % s->kv_heads != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "tp=%" PRId64 " neither divides the %" PRId64
                         " key heads, nor do they divide it",
                         s->tp, s->kv_heads);
    if (s->ep > 1 && s->n_experts == 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "ep=%" PRId64 " is given, but there are no experts",
                         s->ep);
    return check_divides("ep", s->ep, s->n_experts, "experts", err);
}

static dcpk_status list_serving(struct serving *s, const struct dcpk_feed_views *from,
                                struct dcpk_error *err)
{
    const struct dcpk_remap_view *list;
    size_t n;

    if (from->model->foreign != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "models of family %s are not known there",
                         from->model->family);
    for (size_t i = 0; i < from->model->n_params; i++)
        if (strstr(from->model->params[i].name, ".mixer.in_proj.") != NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s': the names of layers with Mamba are not known there",
                             from->model->params[i].name);
    s->attrs = dcpk_value_attrs(from->model->args);
    s->model.family = from->output->family;
    s->model.n_layers = dcpk_value_int_or(s->attrs, "num_layers", 0);
    s->heads = dcpk_value_int_or(s->attrs, "num_attention_heads", 0);
    dcpk_value_as_int(dcpk_query_groups(s->attrs), &s->kv_heads);
    list = dcpk_feed_views(from, &n);
    for (size_t i = 0; i < n; i++)
        if (add_view(s, &list[i], from->of[i], err))
            return err->status;
    if (check_sizes(s, err) || dcpk_live_expect(&s->made, 2 * s->n_parts, err))
        return err->status;
    return put_parts(s, err);
}

/* The ranks that have an expert, and cut it. */
static dcpk_status find_expert_ranks(struct serving *s, int64_t rank, struct dcpk_error *err)
{
    s->etp = s->tp;
    s->et_rank = s->r;
    if (s->ep == 1)
        return DCPK_OK;
    if (s->model.server == DCPK_SERVER_VLLM) {
        s->etp = 1;
        s->et_rank = 0;
        s->ep_rank = rank % s->ep;
        if (s->ep % s->tp != 0)
            return dcpk_fail(
                err, DCPK_EMISMATCH,
                "vLLM spreads experts over all ranks of tensor parallelism: ep=%" PRId64
                " is no multiple of tp=%" PRId64,
                s->ep, s->tp);
        return DCPK_OK;
    }
    if (s->tp % s->ep != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "SGLang spreads experts over ranks of tensor parallelism: ep=%" PRId64
                         " does not divide tp=%" PRId64,
                         s->ep, s->tp);
    s->etp = s->tp / s->ep;
    s->et_rank = s->r % s->etp;
    s->ep_rank = s->r / s->etp;
    return DCPK_OK;
}

dcpk_status dcpk_live_serving(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                              const struct dcpk_live *live, struct dcpk_error *err)
{
    const struct dcpk_grid grid = dcpk_grid_full(&live->placing.grid);
    struct serving s = {.made = {.views = views},
                        .arena = views->arena,
                        .model = {.server = live->server},
                        .tp = grid.tp,
                        .r = live->rank % grid.tp,
                        .ep = grid.ep};
    dcpk_status st;

    if (live->placing.is_fsdp || grid.pp > 1 || grid.cp > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%.200s': only tp, ep and dp are known of such a run",
                         live->options->text);
    st = find_expert_ranks(&s, live->rank, err);
    if (live->rank >= 0 && st == DCPK_OK)
        st = dcpk_feed_views_new(ckpt, live->options->hf, live->family, DCPK_FEED_WEIGHTS,
                                 &views->inner, err);
    if (live->rank >= 0 && st == DCPK_OK)
        st = list_serving(&s, views->inner, err);
    dcpk_free(s.parts);
    dcpk_free(s.made.pieces);
    if (st != DCPK_OK)
        dcpk_context(err, "'%.200s'", live->options->text);
    return st;
}
