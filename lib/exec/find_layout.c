/* SPDX-License-Identifier: Apache-2.0 */
/* find_layout.c - sizes of the saver's grid: tensor parallelism by columns, pipeline stages by RNG
 * states, ranks by file names, FSDP by the chunks of flat buffers. */
#include "lib/exec/find_layout.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/model/laid_out.h"
#include "lib/model/registered.h"
#include "lib/rules/rules.h"

#define LAYERS "decoder.layers."

/*
 * Weights whose columns tensor parallelism cuts, and nothing else does
 * (formats/torch_dist/FORMAT.md 4.3 to 4.6): stacked axes and data parallelism cut the others.
 */
static bool is_row_parallel(const char *key)
{
    static const char *const parts[] = {".linear_fc2.weight", ".self_attention.linear_proj.weight",
                                        ".mixer.out_proj.weight"};

    for (size_t i = 0; i < DCPK_COUNT(parts); i++)
        if (strstr(key, parts[i]) != NULL)
            return true;
    return false;
}

/* Optimizer state has its weight's chunks, or is flattened. */
static bool is_state(const char *key)
{
    return dcpk_starts_with(key, "optimizer.") || dcpk_starts_with(key, "chained_");
}

/* Blocks of the last axis, all chunks being cut the same there; 0: they are not. */
static int64_t count_columns(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor)
{
    const int last = tensor->rank - 1;
    int64_t n;

    if (tensor->n_chunks == 0)
        return 0;
    n = ckpt->chunks[tensor->first_chunk].span[tensor->rank + last];
    if (n == 0 || tensor->shape[last] % n != 0)
        return 0;
    for (size_t i = 1; i < tensor->n_chunks; i++)
        if (ckpt->chunks[tensor->first_chunk + i].span[tensor->rank + last] != n)
            return 0;
    return tensor->shape[last] / n;
}

/*
 * True if 3D-parallel training stores the tensor in such chunks, and a conversion without a mesh
 * does not: layers stacked in one tensor, each a chunk of its own; a gated fc1 in halves.
 */
static bool is_cut_by_ranks(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor)
{
    const char *rest = tensor->key;
    const int64_t *extent;

    if (!dcpk_starts_with(rest, LAYERS) || tensor->rank < 2 || tensor->n_chunks < 2)
        return false;
    extent = ckpt->chunks[tensor->first_chunk].span + tensor->rank;
    rest += strlen(LAYERS);
    if (dcpk_take_number(&rest) < 0)
        return tensor->shape[0] > 1 && extent[0] == 1;
    return dcpk_ends_with(rest, ".linear_fc1.weight") &&
           extent[tensor->rank - 2] * 2 == tensor->shape[tensor->rank - 2];
}

/* Two sizes that contradict each other show nothing. */
static void size_agree(int64_t *size, bool *is_clear, int64_t n)
{
    *is_clear = *is_clear && (*size == 0 || *size == n);
    *size = n;
}

static void read_columns(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    bool is_clear = true, is_clear_of_experts = true, is_cut = false;

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];
        int64_t n = 0;

        if (tensor->rank < 2 || is_state(tensor->key))
            continue;
        is_cut = is_cut || is_cut_by_ranks(ckpt, tensor);
        if (is_row_parallel(tensor->key))
            n = count_columns(ckpt, tensor);
        if (n == 0)
            continue;
        if (strstr(tensor->key, ".experts.") != NULL)
            size_agree(&saved->etp, &is_clear_of_experts, n);
        else
            size_agree(&saved->tp, &is_clear, n);
    }
    is_cut = is_cut || saved->tp > 1 || saved->etp > 1;
    if (!is_clear || !is_cut)
        saved->tp = 0;
    if (!is_clear_of_experts || !is_cut)
        saved->etp = 0;
}

/* "rng_state/shard_<p>.<t>_<P>.<T>", since 0.16 with further sizes after T. */
static void read_rng(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    static const char start[] = "rng_state/shard_";

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = ckpt->objects[i].key;
        const char *sizes = strrchr(key, '_');
        int64_t pp;

        if (!dcpk_starts_with(key, start) || sizes < key + strlen(start))
            continue;
        sizes++;
        pp = dcpk_take_number(&sizes);
        if (pp > 0 && *sizes == '.')
            saved->pp = pp;
        return;
    }
}

int64_t dcpk_rank_of_file(const char *name)
{
    int64_t rank = -1;

    if (dcpk_starts_with(name, "__")) {
        name += 2;
        rank = dcpk_take_number(&name);
    }
    return *name == '_' ? rank : -1;
}

/* Ranks 0 to n_ranks - 1: each that has a file is in there. */
static void count_file_ranks(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    for (size_t i = 0; i < ckpt->n_files; i++)
        saved->n_ranks =
            dcpk_max_i64(saved->n_ranks, dcpk_rank_of_file(dcpk_source_name(ckpt->files[i])) + 1);
    if (saved->n_ranks == 1)
        saved->n_ranks = 0;
}

/* ---- by flat buffers ---- */

#define MAX_DP 4096 /* numbers of ranks that are tried */

/* A model whose chunks are held against those of grids. */
struct matching {
    const struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    int64_t tp, n_ranks;
    struct dcpk_arena *scratch;
    struct dcpk_error err; /* of memory alone: what cannot be laid out does not match */
};

static bool matching_succeeds(struct matching *m, dcpk_status st, const struct dcpk_error *err)
{
    if (st == DCPK_ENOMEM)
        m->err = *err;
    return st == DCPK_OK;
}

/* Rows of a parameter and the stored tensor that they are. */
struct part {
    struct dcpk_rows rows;
    const struct dcpk_tensor *stored;
};

/* Each part of a gated one, other tensors whole; tensors put together in other ways show
 * nothing. */
static size_t find_parts(const struct matching *m, const struct dcpk_param *param,
                         struct part parts[DCPK_MAX_PARTS])
{
    const struct dcpk_model_tensor *value = dcpk_model_value(m->model, param);
    const size_t n = value->n_pieces;

    if (n != 1 && (int64_t)n != dcpk_parts_count(param))
        return 0;
    for (size_t i = 0; i < n; i++) {
        struct dcpk_box to;

        if (value->pieces[i].src >= m->ckpt->n_tensors)
            return 0;
        dcpk_piece_to(&value->pieces[i], &to);
        parts[i] = (struct part){.stored = &m->ckpt->tensors[value->pieces[i].src]};
        if (to.rank > 0)
            parts[i].rows = (struct dcpk_rows){to.offset[0], to.extent[0]};
    }
    return n;
}

static const struct dcpk_chunk *find_chunk(const struct matching *m,
                                           const struct dcpk_tensor *tensor, const int64_t *span)
{
    for (size_t i = 0; i < tensor->n_chunks; i++)
        if (memcmp(m->ckpt->chunks[tensor->first_chunk + i].span, span,
                   2 * (size_t)tensor->rank * sizeof *span) == 0)
            return &m->ckpt->chunks[tensor->first_chunk + i];
    return NULL;
}

/* True if the rank in whose file a chunk of a part is holds these rows of the parameter. */
static bool owner_holds(struct matching *m, const struct dcpk_placing *placing,
                        const struct dcpk_spread *spread, const struct part *part,
                        const struct dcpk_chunk *chunk)
{
    const int64_t rank = dcpk_rank_of_file(dcpk_source_name(m->ckpt->files[chunk->place.file]));
    struct dcpk_error err = DCPK_ERROR_INIT;
    const size_t n = (size_t)spread->rank;
    struct dcpk_local local;

    if (rank < 0 ||
        !matching_succeeds(m, dcpk_held_of(placing, spread, rank, m->scratch, &local, &err), &err))
        return false;
    for (size_t i = 0; i < local.n; i++) {
        const int64_t *span = local.spans[i];
        const int64_t low = dcpk_max_i64(span[0] - part->rows.row, 0);
        const int64_t high = dcpk_min_i64(span[0] + span[n] - part->rows.row, part->rows.n_rows);

        if (chunk->span[0] == low && chunk->span[n] == high - low &&
            memcmp(chunk->span + 1, span + 1, (n - 1) * sizeof *span) == 0 &&
            memcmp(chunk->span + n + 1, span + n + 1, (n - 1) * sizeof *span) == 0)
            return true;
    }
    return false;
}

/* True if the stored chunks of a part are those of the spread; with a placing, also each in a file
 * of a rank that holds it. */
static bool part_fits(struct matching *m, const struct dcpk_placing *placing,
                      const struct dcpk_spread *spread, const struct part *part)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_span_list list;

    dcpk_arena_clear(m->scratch, SIZE_MAX);
    if (part->stored->rank != spread->rank ||
        !matching_succeeds(m, dcpk_held_chunks(spread, &part->rows, m->scratch, &list, &err),
                           &err) ||
        list.n != part->stored->n_chunks)
        return false;
    for (size_t i = 0; i < list.n; i++) {
        const struct dcpk_chunk *chunk = find_chunk(m, part->stored, list.spans[i]);

        if (chunk == NULL || (placing != NULL && !owner_holds(m, placing, spread, part, chunk)))
            return false;
    }
    return true;
}

/*
 * True if the layers' parameters, experts or the others, fit dp ranks, of which each ep hold all
 * experts. laid: with one shard for each of their buffers; more shards only pad the buffers.
 * by_owner: as files have them, too.
 */
static bool grid_fits(struct matching *m, const struct dcpk_laid_out *laid, int64_t dp,
                      bool of_experts, bool by_owner)
{
    const struct dcpk_placing placing = {
        .grid = {.tp = m->tp, .dp = dp, .ep = laid->placing.grid.ep}, .is_fsdp = true};

    for (size_t i = 0; i < m->model->n_params; i++) {
        const struct dcpk_param *p = &m->model->params[i];
        struct dcpk_spread spread = laid->spreads[i];
        struct part parts[DCPK_MAX_PARTS];
        struct dcpk_fsdp_param flat;
        struct dcpk_fsdp_place place;
        int64_t unit;
        size_t n;

        if (p->unit == DCPK_NO_UNIT || spread.flat == NULL || (p->expert >= 0) != of_experts)
            continue; /* parameters outside units are in buffers of other sizes */
        flat = *spread.flat;
        place = *spread.place;
        flat.n_shards = of_experts ? dp / placing.grid.ep : dp;
        unit = place.factor * flat.n_shards;
        place.bucket_elems = (place.bucket_elems + unit - 1) / unit * unit;
        spread.flat = &flat;
        spread.place = &place;
        n = find_parts(m, p, parts);
        for (size_t k = 0; k < n; k++)
            if (!part_fits(m, by_owner ? &placing : NULL, &spread, &parts[k]))
                return false;
    }
    return m->err.status == DCPK_OK;
}

/* Lays the buffers out for ep expert-parallel ranks, one shard for each of experts; dense ones have
 * one where ep is 1. */
static bool matching_lay_out(struct matching *m, int64_t ep, struct dcpk_laid_out *laid)
{
    const struct dcpk_placing placing = {.grid = {.tp = m->tp, .dp = ep, .ep = ep},
                                         .is_fsdp = true};
    struct dcpk_error err = DCPK_ERROR_INIT;

    return matching_succeeds(m, dcpk_lay_out(m->model, &placing, laid, &err), &err);
}

/* Sizes that fit: by chunks, and those by the files of ranks, too. */
struct fits {
    int64_t size[2];
    size_t n[2];
};

/* Tries dp ranks; `size` is what is looked for. */
static void fits_try(struct fits *fits, struct matching *m, const struct dcpk_laid_out *laid,
                     int64_t dp, bool of_experts, int64_t size)
{
    for (int by_owner = 0; by_owner < 2; by_owner++) {
        if ((by_owner && m->n_ranks != m->tp * dp) ||
            !grid_fits(m, laid, dp, of_experts, by_owner != 0))
            return;
        fits->size[by_owner] = size;
        fits->n[by_owner]++;
    }
}

/* The only size that fits; by the files' ranks where chunks alone allow several. 0: none, or
 * several still. */
static int64_t fits_size(const struct fits *fits)
{
    for (int by_owner = 0; by_owner < 2; by_owner++)
        if (fits->n[by_owner] == 1)
            return fits->size[by_owner];
    return 0;
}

static int64_t find_dp(struct matching *m)
{
    struct dcpk_laid_out laid = {0};
    struct fits fits = {{0}, {0}};

    if (matching_lay_out(m, 1, &laid))
        for (int64_t dp = 1; dp <= MAX_DP; dp++)
            fits_try(&fits, m, &laid, dp, false, dp);
    dcpk_laid_out_release(&laid);
    return fits_size(&fits);
}

static int64_t find_ep(struct matching *m, int64_t dp)
{
    struct fits fits = {{0}, {0}};
    int64_t n_experts = 0;

    for (size_t i = 0; i < m->model->n_params; i++)
        n_experts = dcpk_max_i64(n_experts, m->model->params[i].expert + 1);
    for (int64_t ep = 1; ep <= n_experts && ep <= dp; ep++) {
        struct dcpk_laid_out laid = {0};

        if (dp % ep == 0 && matching_lay_out(m, ep, &laid))
            fits_try(&fits, m, &laid, dp, true, ep);
        dcpk_laid_out_release(&laid);
    }
    return fits_size(&fits);
}

/* Sets the sizes that chunks show, and what the number of ranks adds: instances of dp ranks, or
 * weights that each holds whole. Whole ones are left by a conversion, too. */
static void find_sizes(struct matching *m, struct dcpk_saved_layout *saved)
{
    const int64_t dp = find_dp(m), tp = m->tp, n_ranks = m->n_ranks;

    if (dp == 0)
        return;
    saved->tp = saved->ep = 0;
    if (tp > 1 || dp > 1)
        saved->tp = tp;
    if (dp > 1) {
        saved->ep = find_ep(m, dp);
        saved->dp = dp;
        saved->sharding = DCPK_SHARDING_ROWS;
        if (n_ranks % (dp * tp) == 0)
            saved->hsdp = n_ranks / (dp * tp);
    } else if (n_ranks > tp && n_ranks % tp == 0) {
        saved->dp = n_ranks / tp;
        saved->sharding = DCPK_SHARDING_NONE;
    }
}

/* The canonical view of the weights, gated and in the order of registration. */
static dcpk_status read_weights(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                struct dcpk_error *err)
{
    const struct dcpk_rule_options options = {0};

    model->flags = DCPK_MODEL_WEIGHTS_ONLY;
    if (ckpt->format->mapping->to_model(ckpt, model, err) || dcpk_rules_canonical(model, err) ||
        dcpk_rules_gate(model, &options, err) || dcpk_rules_parallel(model, options.impl, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_find_layout(struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved,
                             struct dcpk_error *err)
{
    struct matching m = {.ckpt = ckpt, .err = DCPK_ERROR_INIT};
    struct dcpk_error why = DCPK_ERROR_INIT;

    *saved = (struct dcpk_saved_layout){0};
    read_columns(ckpt, saved);
    read_rng(ckpt, saved);
    count_file_ranks(ckpt, saved);
    if (ckpt->format->mapping == NULL || !ckpt->format->mapping->has_flat_buffers)
        return DCPK_OK;
    m.tp = dcpk_max_i64(saved->tp, 1);
    m.n_ranks = saved->n_ranks;
    m.scratch = dcpk_arena_new();
    if (m.scratch != NULL && dcpk_model_new(ckpt, &m.model, &why) == DCPK_OK &&
        read_weights(ckpt, m.model, &why) == DCPK_OK)
        find_sizes(&m, saved);
    dcpk_model_free(m.model);
    dcpk_arena_free(m.scratch);
    if (why.status == DCPK_ENOMEM)
        m.err = why;
    if (m.err.status != DCPK_OK)
        *err = m.err;
    return m.err.status;
}
