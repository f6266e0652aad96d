/* SPDX-License-Identifier: Apache-2.0 */
/* live_serving.c - what vLLM and SGLang have on a rank, made of the tensors of Hugging Face's
 * files. */
/*
 *   q_proj, k_proj, v_proj    qkv_proj: the rank's query heads, key heads, value heads
 *   gate_proj, up_proj        gate_up_proj: the rank's gate rows, up rows
 *   experts.{e}.gate_proj     experts.w13_weight: [experts, gate and up rows, hidden]
 *   experts.{e}.down_proj     experts.w2_weight: [experts, hidden, columns]
 *   embed_tokens, lm_head     rows of tokens, padded to 64 and then cut
 *
 * With more ranks than key heads each of these is on several ranks.
 *
 * Sources: vllm/model_executor/layers/linear.py (MergedColumnParallelLinear, QKVParallelLinear,
 * RowParallelLinear: their weight loaders), layers/vocab_parallel_embedding.py
 * (DEFAULT_VOCAB_PADDING_SIZE), layers/fused_moe/layer.py (_load_w13, _load_w2; later releases have
 * the experts in a module routed_experts), models/{llama,qwen3_moe,deepseek_v2,phi3}.py
 * (stacked_params_mapping); SGLang has the same in python/sglang/srt/layers and models, except for
 * fused_qkv_a_proj_with_mqa (models/deepseek_v2.py). Both as of 2025 and 2026.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/live_priv.h"
#include "lib/model/sizes.h"
#include "lib/place/held.h"

#define VOCAB_PADDING 64

/* How tensor parallelism cuts a tensor, or a part of its rows. */
enum cut {
    CUT_NONE,
    CUT_ROWS,
    CUT_KV,      /* rows of key or value heads, which may be fewer than ranks */
    CUT_COLUMNS, /* of a matrix; its bias stays whole */
    CUT_VOCAB,
    CUT_QKV,    /* rows of q, k and v one after the other, each cut by itself */
    CUT_HALVES, /* the same of gate and up */
};

/* A module, by the last part of its name: its cut, the module that it is a part of where all parts
 * are there, and which. */
static const struct module {
    const char *name;
    enum cut cut;
    const char *fused;
    int part, n_parts;
    const char *fused_sglang; /* NULL: the same */
} modules[] =
    {
        {"q_proj", CUT_ROWS, "qkv_proj", 0, 3, NULL},
        {"k_proj", CUT_KV, "qkv_proj", 1, 3, NULL},
        {"v_proj", CUT_KV, "qkv_proj", 2, 3, NULL},
        {"qkv_proj", CUT_QKV, NULL, 0, 1, NULL},
        {"o_proj", CUT_COLUMNS, NULL, 0, 1, NULL},
        {"gate_proj", CUT_ROWS, "gate_up_proj", 0, 2, NULL},
        {"up_proj", CUT_ROWS, "gate_up_proj", 1, 2, NULL},
        {"gate_up_proj", CUT_HALVES, NULL, 0, 1, NULL},
        {"down_proj", CUT_COLUMNS, NULL, 0, 1, NULL},
        {"q_a_proj", CUT_NONE, "fused_qkv_a_proj", 0, 2, "fused_qkv_a_proj_with_mqa"},
        {"kv_a_proj_with_mqa", CUT_NONE, "fused_qkv_a_proj", 1, 2, "fused_qkv_a_proj_with_mqa"},
        {"q_b_proj", CUT_ROWS, NULL, 0, 1, NULL},
        {"kv_b_proj", CUT_ROWS, NULL, 0, 1, NULL},
        {"embed_tokens", CUT_VOCAB, NULL, 0, 1, NULL},
        {"lm_head", CUT_VOCAB, NULL, 0, 1, NULL},
        {"gate", CUT_NONE, NULL, 0, 1, NULL}, /* of a router */
        {"shared_expert_gate", CUT_NONE, NULL, 0, 1, NULL},
        {"input_layernorm", CUT_NONE, NULL, 0, 1, NULL},
        {"post_attention_layernorm", CUT_NONE, NULL, 0, 1, NULL},
        {"pre_feedforward_layernorm", CUT_NONE, NULL, 0, 1, NULL},
        {"post_feedforward_layernorm", CUT_NONE, NULL, 0, 1, NULL},
        {"q_norm", CUT_NONE, NULL, 0, 1, NULL},
        {"k_norm", CUT_NONE, NULL, 0, 1, NULL},
        {"q_a_layernorm", CUT_NONE, NULL, 0, 1, NULL},
        {"kv_a_layernorm", CUT_NONE, NULL, 0, 1, NULL},
        {"norm", CUT_NONE, NULL, 0, 1, NULL},
},
  expert_modules[] = {
      {"gate_proj", CUT_ROWS, "w13", 0, 2, NULL},   {"w1", CUT_ROWS, "w13", 0, 2, NULL},
      {"up_proj", CUT_ROWS, "w13", 1, 2, NULL},     {"w3", CUT_ROWS, "w13", 1, 2, NULL},
      {"down_proj", CUT_COLUMNS, "w2", 0, 1, NULL}, {"w2", CUT_COLUMNS, "w2", 0, 1, NULL},
};

/* A tensor of Hugging Face's, or rows of one, that become a part of a rank's tensor. */
struct part {
    const char *name; /* of the rank's tensor */
    int64_t expert;   /* of all; -1: none */
    int number;
    int n_parts;
    enum cut cut;
    const struct dcpk_remap_view *view;
    struct dcpk_rows rows;
};

struct serving {
    struct dcpk_live_tensor made;
    struct dcpk_arena *arena;
    bool is_sglang;
    int64_t tp, r; /* ranks of tensor parallelism, and the number of this one */
    int64_t ep, ep_rank;
    int64_t heads, kv_heads, n_experts;
    struct part *parts; /* owned */
    size_t n_parts, capacity;
};

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    const int by_name = strcmp(x->name, y->name);

    if (by_name != 0)
        return by_name;
    if (x->expert != y->expert)
        return x->expert < y->expert ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* --- parts by name --- */

/* "model.layers.0.mlp.experts.7.up_proj.weight" in three. */
struct name_parts {
    const char *module; /* of n_module bytes: "up_proj" */
    size_t n_module;
    int64_t expert;     /* -1: none */
    size_t n_before;    /* bytes before the module, or before the expert's number */
    const char *ending; /* ".weight" */
};

static struct name_parts split_name(const char *name)
{
    static const char experts[] = ".experts.";
    struct name_parts parts = {.expert = -1, .ending = strrchr(name, '.')};
    const char *found = strstr(name, experts), *begin;

    if (parts.ending == NULL)
        parts.ending = name + strlen(name);
    for (begin = parts.ending; begin > name && begin[-1] != '.'; begin--)
        continue;
    parts.module = begin;
    parts.n_module = (size_t)(parts.ending - begin);
    parts.n_before = (size_t)(begin - name);
    if (found != NULL) {
        found += strlen(experts);
        parts.n_before = (size_t)(found - name);
        parts.expert = dcpk_take_number(&found);
    }
    return parts;
}

static const struct module *find_module(const struct name_parts *name)
{
    const bool is_expert = name->expert >= 0;
    const struct module *list = is_expert ? expert_modules : modules;
    const size_t n = is_expert ? DCPK_COUNT(expert_modules) : DCPK_COUNT(modules);

    for (size_t i = 0; i < n; i++)
        if (strlen(list[i].name) == name->n_module &&
            strncmp(list[i].name, name->module, name->n_module) == 0)
            return &list[i];
    return NULL;
}

static dcpk_status add_part(struct serving *s, const struct part *part, struct dcpk_error *err)
{
    if (part->name != NULL &&
        dcpk_grow(&s->parts, &s->capacity, s->n_parts, sizeof *part, err) == DCPK_OK)
        s->parts[s->n_parts++] = *part;
    return err->status;
}

/* Rows that are several projections one after the other become a part each. */
static dcpk_status add_fused(struct serving *s, struct part *part, struct dcpk_error *err)
{
    const bool is_qkv = part->cut == CUT_QKV;
    const int64_t n_rows = part->rows.n_rows, heads = is_qkv ? s->heads + 2 * s->kv_heads : 2;
    const int64_t counts[] = {is_qkv ? s->heads : 1, is_qkv ? s->kv_heads : 1, s->kv_heads};
    int64_t row = 0;

    if (n_rows % heads != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the %" PRId64 " rows of '%.200s' are not those of %" PRId64 " parts",
                         n_rows, part->view->name, heads);
    part->n_parts = 2 + is_qkv;
    for (part->number = 0; part->number < part->n_parts; part->number++) {
        part->rows = (struct dcpk_rows){row, counts[part->number] * (n_rows / heads)};
        part->cut = is_qkv && part->number > 0 ? CUT_KV : CUT_ROWS;
        row += part->rows.n_rows;
        if (add_part(s, part, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status add_view(struct serving *s, const struct dcpk_remap_view *view,
                            struct dcpk_error *err)
{
    const struct name_parts name = split_name(view->name);
    const struct module *module = find_module(&name);
    struct part part = {.name = view->name, .expert = name.expert, .n_parts = 1, .view = view};
    const char *fused;

    if (module == NULL || view->view.rank == 0) /* a target that no rule knows is not found */
        return DCPK_OK;
    part.cut = module->cut;
    part.rows.n_rows = view->view.shape[0];
    if (part.cut == CUT_QKV || part.cut == CUT_HALVES)
        return add_fused(s, &part, err);
    if (module->fused == NULL)
        return add_part(s, &part, err);
    fused = s->is_sglang && module->fused_sglang != NULL ? module->fused_sglang : module->fused;
    part.number = module->part;
    part.n_parts = module->n_parts;
    part.name =
        dcpk_arena_printf(s->arena, err, "%.*s%s%s%s", (int)name.n_before, view->name, fused,
                          name.expert < 0 ? "" : "_", name.ending + (name.expert >= 0));
    s->n_experts = dcpk_max_i64(s->n_experts, name.expert + 1);
    return add_part(s, &part, err);
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
    const int64_t tp = part->expert >= 0 && s->ep > 1 ? 1 : s->tp, r = s->r % tp;
    const int axis = part->cut == CUT_COLUMNS;
    int64_t n = tp;

    dcpk_box_whole(view->shape, view->rank, box);
    box->offset[0] = part->rows.row;
    box->extent[0] = part->rows.n_rows;
    if (part->cut == CUT_NONE || axis >= view->rank)
        return DCPK_OK;
    if (part->cut == CUT_VOCAB) {
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
    if (part->cut == CUT_KV)
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

/* Adds the tensor of parts [first, end), which have one name. */
static dcpk_status put_fused(struct serving *s, size_t first, size_t end, struct dcpk_error *err)
{
    static const char experts[] = ".experts.";
    const struct part *begin = &s->parts[first];
    const bool is_expert = begin->expert >= 0;
    const struct dcpk_rows held = find_experts(s);
    struct dcpk_box box, shape = {.rank = 0};
    const char *at = strstr(begin->name, experts), *later;

    s->made.n = 0;
    for (size_t i = first; i < end; i++) {
        const struct part *part = &s->parts[i];
        int64_t to[DCPK_MAX_RANK] = {0};

        if (is_expert && (part->expert < held.row || part->expert >= held.row + held.n_rows))
            continue;
        if (cut_part(s, part, &box, err))
            return err->status;
        if (shape.rank == 0 || part->number == 0)
            shape.extent[is_expert] = 0;
        to[0] = part->expert - held.row;
        to[is_expert] = shape.extent[is_expert];
        if (dcpk_live_take(&s->made, &part->view->view, &box, to, is_expert, err))
            return err->status;
        shape.rank = box.rank + is_expert;
        shape.extent[0] = held.n_rows;
        shape.extent[is_expert] = to[is_expert] + box.extent[0];
        for (int a = 1; a < box.rank; a++)
            shape.extent[a + is_expert] = box.extent[a];
    }
    if (begin->cut == CUT_VOCAB)
        shape.extent[0] = pad_tokens(begin->rows.n_rows) / s->tp;
    if (dcpk_live_put(&s->made, begin->name, begin->view->view.dtype, &shape, err) || !is_expert)
        return err->status;
    at += strlen(experts);
    later = dcpk_arena_printf(s->arena, err, "%.*srouted_experts.%s", (int)(at - begin->name),
                              begin->name, at);
    if (later == NULL)
        return err->status;
    return dcpk_live_put(&s->made, later, begin->view->view.dtype, &shape, err);
}

/* A part without its others is a tensor by itself: a query of MLA, an MLP without a gate. */
static dcpk_status put_parts(struct serving *s, struct dcpk_error *err)
{
    qsort(s->parts, s->n_parts, sizeof *s->parts, compare_parts);
    for (size_t i = 0, end; i < s->n_parts; i = end) {
        const struct part *part = &s->parts[i];

        for (end = i + 1; end < s->n_parts && strcmp(s->parts[end].name, part->name) == 0; end++)
            continue;
        if (part->expert < 0 && end - i < (size_t)part->n_parts) {
            for (size_t k = i; k < end; k++) {
                s->parts[k].name = s->parts[k].view->name;
                if (put_fused(s, k, k + 1, err))
                    return err->status;
            }
        } else if (put_fused(s, i, end, err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

static dcpk_status check_sizes(const struct serving *s, struct dcpk_error *err)
{
    if (s->heads == 0 || s->kv_heads == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "args do not have the number of heads");
    if (s->heads % s->tp != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "tp=%" PRId64 " does not divide the %" PRId64 " heads", s->tp, s->heads);
    if (s->kv_heads % s->tp != 0 && s->tp % s->kv_heads != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "tp=%" PRId64 " neither divides the %" PRId64
                         " key heads, nor do they divide it",
                         s->tp, s->kv_heads);
    if (s->n_experts % s->ep != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "ep=%" PRId64 " does not divide the %" PRId64 " experts", s->ep,
                         s->n_experts);
    return DCPK_OK;
}

static dcpk_status list_serving(struct serving *s, const struct dcpk_feed_views *from,
                                struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(from->model->args);
    const struct dcpk_remap_view *list;
    size_t n;

    if (from->model->foreign != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "models of family %s are not known there",
                         from->model->family);
    for (size_t i = 0; i < from->model->n_params; i++)
        if (strstr(from->model->params[i].name, ".in_proj.") != NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s': the names of layers with Mamba or linear attention are not "
                             "known there",
                             from->model->params[i].name);
    dcpk_value_as_int(dcpk_value_get(attrs, "num_attention_heads"), &s->heads);
    dcpk_value_as_int(dcpk_query_groups(attrs), &s->kv_heads);
    list = dcpk_feed_views(from, &n);
    for (size_t i = 0; i < n; i++)
        if (add_view(s, &list[i], err))
            return err->status;
    if (check_sizes(s, err))
        return err->status;
    return put_parts(s, err);
}

static dcpk_status live_serving(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                                const struct dcpk_live *live, bool is_sglang,
                                struct dcpk_error *err)
{
    const struct dcpk_grid grid = dcpk_grid_full(&live->placing.grid);
    struct serving s = {.made = {.views = views},
                        .arena = views->arena,
                        .is_sglang = is_sglang,
                        .tp = grid.tp,
                        .r = live->rank % grid.tp,
                        .ep = grid.ep,
                        .ep_rank = live->rank % grid.ep};
    dcpk_status st = DCPK_OK;

    if (live->placing.is_fsdp || grid.pp > 1 || grid.cp > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%.200s': only tp, ep and dp are known of such a run",
                         live->options->text);
    if (live->rank >= 0)
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

dcpk_status dcpk_live_vllm(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                           const struct dcpk_live *live, struct dcpk_error *err)
{
    return live_serving(views, ckpt, live, false, err);
}

dcpk_status dcpk_live_sglang(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                             const struct dcpk_live *live, struct dcpk_error *err)
{
    return live_serving(views, ckpt, live, true, err);
}
