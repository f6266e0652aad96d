/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_sample.c - a replayed layout against the stored weights: the first elements of each
 * parameter. */
#include "formats/megatron/buckets/megatron_replay.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/tensor/elem.h"

#define SAMPLE_ELEMS 16   /* of a parameter */
#define MAX_SAMPLES  4096 /* parameters and ranks: each is read in two places */

/* A run of elements being read. */
struct run {
    enum dcpk_dtype dtype;
    int64_t n; /* as many as lie one after the other; 0: they cannot be read in their place */
    uint8_t bytes[SAMPLE_ELEMS * 8];
};

/* Read the elements of `chunk` from index `at` (of its tensor) on, along its last axis. */
static dcpk_status read_run(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                            const int64_t *at, struct run *run, struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const size_t elem = dcpk_dtype_bytes(tensor->dtype);
    const int last = tensor->rank - 1;
    struct dcpk_extent where = {0};
    uint64_t from;

    if (dcpk_checkpoint_locate(ckpt, chunk, NULL, &where, err))
        return err->status;
    run->dtype = tensor->dtype;
    if (elem > 8 || where.is_zero || where.decoded_bytes > 0)
        run->n = 0;
    from = where.first_bytes;
    for (int a = 0; a <= last; a++)
        from += (uint64_t)((at[a] - chunk->span[a]) * where.stride_bytes[a]);
    if (last >= 0) {
        const int64_t left = chunk->span[last] + chunk->span[tensor->rank + last] - at[last];

        run->n = dcpk_min_i64(run->n, left);
        if (run->n > 1 && where.stride_bytes[last] != (int64_t)elem)
            run->n = 1;
    }
    if (run->n == 0)
        return DCPK_OK;
    return dcpk_source_read(where.source, from, run->bytes, (size_t)run->n * elem, err);
}

static bool holds_index(const struct dcpk_chunk *chunk, int rank, const int64_t *at)
{
    for (int a = 0; a < rank; a++)
        if (at[a] < chunk->span[a] || at[a] - chunk->span[a] >= chunk->span[rank + a])
            return false;
    return true;
}

/* The first elements of what rank r holds of a weight. */
static dcpk_status read_weight(const struct dcpk_model *model, const struct dcpk_replay_slot *slot,
                               int64_t r, struct run *run, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = model->ckpt;
    const struct dcpk_model_tensor *weight =
        &model->tensors[model->params[slot->param].tensor[DCPK_WEIGHT]];
    struct dcpk_box region, from, to;
    const struct dcpk_tensor *source;

    run->n = 0;
    dcpk_blocks_box(slot->blocks, weight->shape, weight->rank, r, 0, &region);
    for (int a = 0; a < weight->rank; a++) {
        const int64_t most = a < weight->rank - 1 ? 1 : SAMPLE_ELEMS;

        region.extent[a] = dcpk_max_i64(dcpk_min_i64(region.extent[a], most), 1);
    }
    for (size_t i = 0; i < weight->n_pieces; i++) {
        const struct dcpk_piece *piece = &weight->pieces[i];

        if (piece->src == DCPK_PIECE_FILL || !dcpk_piece_clip(piece, &region, &from, &to))
            continue;
        source = &ckpt->tensors[piece->src];
        for (size_t c = source->first_chunk; c < source->first_chunk + source->n_chunks; c++)
            if (holds_index(&ckpt->chunks[c], source->rank, from.offset)) {
                run->n = weight->rank == 0 ? 1 : from.extent[source->rank - 1];
                return read_run(ckpt, &ckpt->chunks[c], from.offset, run, err);
            }
    }
    return DCPK_OK;
}

/* bfloat16 has 8 bits, float16 a fixed smallest step. */
bool dcpk_replay_is_near(double weight, double master)
{
    const double reach = fabs(master) / 128 + 0x1p-24;

    return weight == master || (isnan(weight) && isnan(master)) ||
           (isinf(weight) && fabs(master) > 60000) || fabs(weight - master) <= reach;
}

static dcpk_status sample_compare(const struct dcpk_model *model,
                                  const struct dcpk_replay_slot *slot, int64_t r,
                                  const struct run *weight, const struct run *master,
                                  struct dcpk_error *err)
{
    const int64_t n = dcpk_min_i64(weight->n, master->n);

    for (int64_t i = 0; i < n; i++) {
        const struct dcpk_elem w = dcpk_elem_load(weight->dtype,
                                                  weight->bytes +
                                                      (size_t)i * dcpk_dtype_bytes(weight->dtype)),
                               m = dcpk_elem_load(master->dtype,
                                                  master->bytes +
                                                      (size_t)i * dcpk_dtype_bytes(master->dtype));
        const double a = dcpk_elem_double(&w), b = dcpk_elem_double(&m);

        if (!dcpk_replay_is_near(a, b))
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "element %" PRId64 " of '%s' on tensor-parallel rank %" PRId64
                             " is %g as a weight, %g where the replayed layout has its master",
                             i, model->params[slot->param].name, r, a, b);
    }
    return DCPK_OK;
}

/* One parameter of one rank, its master in that chunk of the checkpoint, from `first` on. */
static dcpk_status sample(const struct dcpk_model *model, const struct dcpk_replay_slot *slot,
                          int64_t r, size_t chunk, int64_t first, struct dcpk_error *err)
{
    struct run weight = {.n = 0}, master = {.n = dcpk_min_i64(slot->n_elems, SAMPLE_ELEMS)};

    if (read_weight(model, slot, r, &weight, err) ||
        (weight.n > 0 && read_run(model->ckpt, &model->ckpt->chunks[chunk], &first, &master, err)))
        return err->status;
    return sample_compare(model, slot, r, &weight, &master, err);
}

dcpk_status dcpk_replay_sample(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                               const struct dcpk_replay *replay, struct dcpk_error *err)
{
    const size_t n_ranks = (size_t)replay->n_ranks;
    const size_t step = replay->n_slots * n_ranks / MAX_SAMPLES + 1;
    size_t master = 0;

    while (master < list->n_states && strcmp(list->states[master], "param") != 0)
        master++;
    if (master == list->n_states)
        return dcpk_fail(err, DCPK_EFORMAT, "the buckets have no 'param', the fp32 masters");
    for (size_t i = 0; i < replay->n_slots * n_ranks; i += step) {
        const struct dcpk_replay_slot *slot = &replay->slots[i / n_ranks];
        const struct dcpk_replay_place *place = &replay->places[i];
        const int64_t r = (int64_t)(i % n_ranks);

        if (r < slot->blocks->n_ranks &&
            sample(model, slot, r, list->buckets[place->bucket].chunks[master][0], place->first,
                   err))
            return err->status;
    }
    return DCPK_OK;
}
