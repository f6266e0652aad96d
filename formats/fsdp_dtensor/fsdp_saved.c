/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_saved.c - which sizes of Megatron-FSDP's mesh lay the flat buffers out as the chunks are. */
/*
 * The cuts of one layer name the few numbers of ranks that can have made them. Each of those is
 * then held against all layers; one that all chunks agree with, and no other, is the saver's.
 * Experts have buffers of their own for each expert-parallel rank and show their number the same
 * way.
 */
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/fsdp_shards.h"
#include "lib/model/saved_layout.h"

#define MAX_DP   4096 /* numbers of ranks that are tried */
#define MAX_FITS 16   /* of them against all layers */

struct matching {
    const struct dcpk_model *model;
    struct dcpk_output *out; /* for the target's mesh; nothing is written */
    int64_t tp, n_ranks;
    int64_t fits[MAX_FITS]; /* numbers of ranks that the first layer allows */
    size_t n_fits;
};

/* Which parameters are held against their chunks, and how. */
struct selection {
    uint32_t unit;   /* DCPK_NO_UNIT: all of them; what is in none is in buffers of other sizes */
    bool of_experts; /* else dense ones */
    const struct dcpk_grid *owners; /* not NULL: also whose file each chunk is in */
};

/* Rows of a parameter and the stored tensor that they are. */
struct part {
    uint32_t param;
    struct dcpk_rows rows;
    uint32_t stored;
};

static bool has_chunk(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                      const int64_t *span)
{
    for (size_t i = 0; i < tensor->n_chunks; i++)
        if (memcmp(ckpt->chunks[tensor->first_chunk + i].span, span,
                   2 * (size_t)tensor->rank * sizeof *span) == 0)
            return true;
    return false;
}

/* The rank whose file "__<rank>_<n>.distcp" it is; -1: it has another name. */
static int64_t rank_of(const struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk)
{
    const char *name = dcpk_source_name(ckpt->files[chunk->place.file]);

    if (dcpk_starts_with(name, "__"))
        name += 2;
    return dcpk_take_number(&name);
}

/* Whether a chunk is in the file of the rank that holds it. shards->cut: the parameter's rows by
 * shard. */
static bool owner_fits(const struct dcpk_fsdp_shards *shards, const struct part *part,
                       const struct dcpk_grid *grid, const struct dcpk_chunk *chunk)
{
    const struct dcpk_checkpoint *ckpt = shards->model->ckpt;
    const struct dcpk_tensor *tensor = &ckpt->tensors[part->stored];
    const struct dcpk_param *p = &shards->model->params[part->param];
    const int64_t rank = rank_of(ckpt, chunk), tp = shards->tp;
    const int64_t n_blocks = p->tp_axis == 0 ? tp : 1; /* of rows */
    const int64_t n_rows = tensor->shape[0] / n_blocks;
    const int64_t row = chunk->span[0] % n_rows + part->rows.row / n_blocks;
    const int64_t ep_rank = dcpk_fsdp_ep_rank(&shards->params[shards->at[part->param]]);
    struct dcpk_coords at;
    int64_t shard = 0;

    if (rank < 0 || rank >= dcpk_grid_ranks(grid) ||
        (p->tp_axis >= 0 && tensor->shape[p->tp_axis] < tp))
        return false;
    while (shards->cut[shard + 1] <= row)
        shard++;
    at = dcpk_grid_coords(grid, rank);
    if (p->expert < 0 && at.shard != shard)
        return false;
    if (p->expert >= 0 && (at.edp != shard || at.ep != ep_rank))
        return false;
    return p->tp_axis < 0 || at.tp == chunk->span[p->tp_axis] / (tensor->shape[p->tp_axis] / tp);
}

static bool owners_fit(struct dcpk_fsdp_shards *shards, const struct part *part,
                       const struct dcpk_grid *grid)
{
    const struct dcpk_checkpoint *ckpt = shards->model->ckpt;
    const struct dcpk_tensor *tensor = &ckpt->tensors[part->stored];
    const size_t at = shards->at[part->param];
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dcpk_fsdp_rows(&shards->params[at], &shards->places[at], shards->cut, &err) != DCPK_OK)
        return false;
    for (size_t i = 0; i < tensor->n_chunks; i++)
        if (!owner_fits(shards, part, grid, &ckpt->chunks[tensor->first_chunk + i]))
            return false;
    return true;
}

/* Are the stored chunks of a part of the parameter those of the shards? */
static bool part_fits(struct dcpk_fsdp_shards *shards, const struct part *part)
{
    const struct dcpk_checkpoint *ckpt = shards->model->ckpt;
    const struct dcpk_tensor *tensor = &ckpt->tensors[part->stored];
    struct dcpk_out_tensor made = {.rank = tensor->rank, .shape = tensor->shape};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    bool fits =
        arena != NULL &&
        dcpk_fsdp_shards_cut(shards, part->param, &part->rows, arena, &made, &err) == DCPK_OK &&
        made.n_spans == tensor->n_chunks;

    for (size_t i = 0; i < made.n_spans && fits; i++)
        fits = has_chunk(ckpt, tensor, made.spans[i]);
    dcpk_arena_free(arena);
    return fits;
}

/* Each part of a gated one, another one whole; what is put together otherwise shows nothing. */
static size_t find_parts(const struct dcpk_model *model, uint32_t param,
                         struct part parts[DCPK_MAX_PARTS])
{
    const struct dcpk_param *p = &model->params[param];
    const struct dcpk_model_tensor *value = dcpk_model_value(model, p);
    const size_t n = value->n_pieces;

    if (n != 1 && (int64_t)n != dcpk_parts_count(p))
        return 0;
    for (size_t i = 0; i < n; i++) {
        struct dcpk_box to;

        if (value->pieces[i].src >= model->ckpt->n_tensors)
            return 0;
        dcpk_piece_to(&value->pieces[i], &to);
        parts[i] = (struct part){.param = param, .stored = value->pieces[i].src};
        if (to.rank > 0)
            parts[i].rows = (struct dcpk_rows){to.offset[0], to.extent[0]};
    }
    return n;
}

static bool all_fit(struct dcpk_fsdp_shards *shards, const struct selection *which)
{
    for (uint32_t i = 0; i < shards->model->n_params; i++) {
        const struct dcpk_param *p = &shards->model->params[i];
        struct part parts[DCPK_MAX_PARTS];
        size_t n;

        if (p->unit == DCPK_NO_UNIT || p->place == DCPK_NO_PLACE ||
            (p->expert >= 0) != which->of_experts ||
            (which->unit != DCPK_NO_UNIT && p->unit != which->unit))
            continue;
        n = find_parts(shards->model, i, parts);
        for (size_t k = 0; k < n; k++)
            if (!part_fits(shards, &parts[k]) ||
                (which->owners != NULL && !owners_fit(shards, &parts[k], which->owners)))
                return false;
    }
    return true;
}

/* As many ranks as `n`: slices are multiples of the bucket's factor. */
static void share_out(struct dcpk_fsdp_shards *shards, const int64_t *used_elems, int64_t n)
{
    for (size_t i = 0; i < shards->n; i++) {
        const int64_t unit = shards->places[i].factor * n;

        shards->params[i].n_shards = n;
        shards->places[i].bucket_elems = (used_elems[i] + unit - 1) / unit * unit;
    }
}

/* Try every number of ranks on the first layer, which is laid out once. */
static dcpk_status try_layer(struct matching *m, struct dcpk_error *err)
{
    const struct selection first = {.unit = 0};
    struct dcpk_fsdp_shards shards;
    int64_t *used_elems = NULL, *cut;
    dcpk_status st;

    m->out->target.mesh = (struct dcpk_grid){.tp = m->tp, .dp = 1, .ep = 1};
    st = dcpk_fsdp_shards_find(m->model, &m->out->target, m->out->arena, &shards, err);
    if (st != DCPK_OK)
        goto out;
    used_elems = dcpk_alloc_array(shards.n, sizeof *used_elems, err);
    cut = dcpk_alloc_array(MAX_DP + 1, sizeof *cut, err);
    if (used_elems == NULL || cut == NULL) {
        dcpk_free(cut);
        st = err->status;
        goto out;
    }
    dcpk_free(shards.cut);
    shards.cut = cut;
    for (size_t i = 0; i < shards.n; i++)
        used_elems[i] = shards.places[i].bucket_elems;
    for (int64_t n = 1; n <= MAX_DP && m->n_fits < MAX_FITS; n++) {
        share_out(&shards, used_elems, n);
        if (all_fit(&shards, &first))
            m->fits[m->n_fits++] = n;
    }
out:
    dcpk_free(used_elems);
    dcpk_fsdp_shards_release(&shards);
    return st;
}

/* Do all layers agree with dp ranks, ep of them expert-parallel? */
static bool mesh_fits(struct matching *m, int64_t dp, int64_t ep, const struct selection *which)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_fsdp_shards shards;
    bool fits;

    m->out->target.mesh = (struct dcpk_grid){.tp = m->tp, .dp = dp, .ep = ep};
    fits =
        dcpk_fsdp_shards_find(m->model, &m->out->target, m->out->arena, &shards, &err) == DCPK_OK &&
        all_fit(&shards, which);
    dcpk_fsdp_shards_release(&shards);
    return fits;
}

/* The only number that fits; by the files' ranks where chunks alone allow several. 0: none, or
 * several still. */
static int64_t find_dp(struct matching *m)
{
    const struct dcpk_grid *const owners[2] = {NULL, &m->out->target.mesh};
    int64_t dp[2] = {0};
    size_t n[2] = {0};

    for (size_t i = 0; i < m->n_fits; i++) {
        for (int by_owner = 0; by_owner < 2; by_owner++) {
            const struct selection all = {DCPK_NO_UNIT, false, owners[by_owner]};

            if ((by_owner && m->n_ranks != m->tp * m->fits[i]) ||
                !mesh_fits(m, m->fits[i], 1, &all))
                break;
            dp[by_owner] = m->fits[i];
            n[by_owner]++;
        }
    }
    if (n[0] == 1 && m->n_fits < MAX_FITS)
        return dp[0];
    return n[1] == 1 ? dp[1] : 0;
}

static int64_t find_ep(struct matching *m, int64_t dp)
{
    const struct dcpk_grid *const owners[2] = {NULL, &m->out->target.mesh};
    int64_t n_experts = 0, ep[2] = {0};
    size_t n[2] = {0};

    for (size_t i = 0; i < m->model->n_params; i++)
        if (m->model->params[i].expert >= n_experts)
            n_experts = m->model->params[i].expert + 1;
    for (int64_t k = 1; k <= n_experts && k <= dp; k++) {
        if (n_experts % k != 0 || dp % k != 0)
            continue;
        for (int by_owner = 0; by_owner < 2; by_owner++) {
            const struct selection all = {DCPK_NO_UNIT, true, owners[by_owner]};

            if ((by_owner && m->n_ranks != m->tp * dp) || !mesh_fits(m, dp, k, &all))
                break;
            ep[by_owner] = k;
            n[by_owner]++;
        }
    }
    if (n[0] == 1)
        return ep[0];
    return n[1] == 1 ? ep[1] : 0;
}

/* What the number of ranks adds: instances of dp ranks, or weights that each of them holds whole.
 */
static void use_ranks(struct dcpk_saved_layout *saved, int64_t tp)
{
    if (saved->dp > 1) {
        saved->sharding = DCPK_SHARDING_ROWS;
        if (saved->n_ranks > 0 && saved->n_ranks % (saved->dp * tp) == 0)
            saved->hsdp = saved->n_ranks / (saved->dp * tp);
        return;
    }
    saved->dp = 0; /* chunks that no rank cut: a conversion leaves them, too */
    if (saved->n_ranks > tp && saved->n_ranks % tp == 0) {
        saved->sharding = DCPK_SHARDING_NONE;
        saved->dp = saved->n_ranks / tp;
    }
}

dcpk_status dcpk_fsdp_match_layout(const struct dcpk_model *model, struct dcpk_saved_layout *saved,
                                   struct dcpk_error *err)
{
    struct matching m = {
        .model = model, .tp = dcpk_max_i64(saved->tp, 1), .n_ranks = saved->n_ranks};
    dcpk_status st = DCPK_OK;
    int64_t dp;

    if (dcpk_output_new(model->ckpt, model->ckpt->format, &m.out, err) || try_layer(&m, err)) {
        st = err->status;
        goto out;
    }
    dp = find_dp(&m);
    if (dp == 0)
        goto out;
    saved->tp = 0;
    saved->ep = 0;
    if (m.tp > 1 || dp > 1)
        saved->tp = m.tp;
    if (dp > 1)
        saved->ep = find_ep(&m, dp);
    saved->dp = dp;
    use_ranks(saved, m.tp);
out:
    dcpk_output_free(m.out);
    return st;
}
