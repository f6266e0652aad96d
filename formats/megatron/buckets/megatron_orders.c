/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_orders.c - orders of registration, releases and sizes of buckets, tried until one
 * explains the stored buckets. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_replay.h"
#include "lib/base/order.h"
#include "lib/tensor/elem.h"

/* ---- a replayed layout against the stored weights: the first elements of each parameter ---- */

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

/*
 * Compares the first elements of parameters with their masters by the replay, of some parameters
 * where there are many. DCPK_EMISMATCH names the first that differs by more than rounding can. Does
 * not detect layouts that only move constants about: the proof of all elements is
 * lib/job/compare.h.
 */
static dcpk_status replay_sample(const struct dcpk_model *model,
                                 const struct dcpk_bucket_list *list,
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

/* ---- orders of registration, releases and bucket sizes ---- */

#define MAX_BUCKETINGS 3

static int compare_slots(const void *left, const void *right)
{
    const struct dcpk_replay_slot *a = left, *b = right;
    const int order = dcpk_registered_compare(&a->reg, &b->reg);

    if (order != 0)
        return order;
    return DCPK_THREE_WAY(a->param, b->param);
}

dcpk_status dcpk_replay_order(const struct dcpk_model *model, unsigned spec,
                              struct dcpk_replay *replay, struct dcpk_error *err)
{
    for (size_t s = 0; s < replay->n_slots; s++) {
        struct dcpk_replay_slot *slot = &replay->slots[s];
        const char *name = model->params[slot->param].name;

        if (slot->is_output)
            name = "output_layer.weight";
        if (!dcpk_registered_find(name, spec, &slot->reg))
            return dcpk_fail(
                err, DCPK_EUNSUPPORTED,
                "the place of parameter '%s' in the order of registration is not known", name);
    }
    if (replay->n_slots > 0)
        qsort(replay->slots, replay->n_slots, sizeof *replay->slots, compare_slots);
    return DCPK_OK;
}

/*
 * Sizes of buckets that a run may have had: the user's or its args', Megatron's default, none at
 * all. Only coalesced buckets do not show theirs.
 */
static size_t list_bucketings(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                              const struct dcpk_cut *cut,
                              struct dcpk_bucketing bucketings[MAX_BUCKETINGS])
{
    size_t n = 0;

    if (model->ckpt->given.bucket_elems > 0) {
        bucketings[n++] = (struct dcpk_bucketing){.n_elems = model->ckpt->given.bucket_elems};
        return n;
    }
    bucketings[n++] = cut->bucketing;
    if (list->is_gathered && cut->bucketing.n_buckets != 0)
        bucketings[n++] = (struct dcpk_bucketing){.n_elems = cut->bucketing.n_elems};
    if (list->is_gathered && cut->bucketing.n_elems != 0)
        bucketings[n++] = (struct dcpk_bucketing){.n_elems = 0};
    return n;
}

/* One bucketing on the slots as they are ordered. */
static dcpk_status try_bucketing(const struct dcpk_model *model,
                                 const struct dcpk_bucket_list *list, struct dcpk_replay *replay,
                                 struct dcpk_error *err)
{
    if (dcpk_replay_fill(model, list, replay, err) ||
        (list->is_gathered && replay_sample(model, list, replay, err)))
        return err->status;
    return DCPK_OK;
}

/* Tries one order of registration: sorts the slots and places them. The fault of the first size of
 * buckets is reported when none fits. */
static dcpk_status try_order(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                             unsigned spec, struct dcpk_replay *replay, struct dcpk_error *err)
{
    const struct dcpk_bucketing given = replay->cut.bucketing;
    struct dcpk_bucketing bucketings[MAX_BUCKETINGS];
    const size_t n = list_bucketings(model, list, &replay->cut, bucketings);
    dcpk_status st;

    if (dcpk_replay_order(model, spec, replay, err))
        return err->status;
    st = DCPK_EMISMATCH;
    for (size_t i = 0; i < n && st == DCPK_EMISMATCH; i++) {
        struct dcpk_error tried = DCPK_ERROR_INIT;

        replay->cut.bucketing = bucketings[i];
        st = try_bucketing(model, list, replay, &tried);
        if (i == 0 || st != DCPK_EMISMATCH)
            *err = tried;
    }
    replay->cut.bucketing = given;
    return st;
}

/* True if another value of that bit of enum dcpk_spec gives another order of this model. */
static bool makes_a_difference(const struct dcpk_model *model, const struct dcpk_replay *replay,
                               unsigned bit)
{
    if (bit == DCPK_SPEC_GROUPED)
        return replay->cut.n_experts > 0;
    for (size_t p = 0; p < model->n_params && bit == DCPK_SPEC_CONV_MODULE; p++)
        if (strstr(model->params[p].name, "mixer.conv1d") != NULL)
            return true;
    return bit == DCPK_SPEC_TE;
}

/* The order that args name, then the others; what is wrong with the first is reported when none
 * fits. */
static dcpk_status try_orders(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                              struct dcpk_replay *replay, struct dcpk_error *err)
{
    const unsigned given = replay->cut.spec;
    dcpk_status st = try_order(model, list, given, replay, err);
    unsigned bits = 0;

    for (unsigned bit = DCPK_SPEC_TE; bit <= DCPK_SPEC_CONV_MODULE; bit *= 2)
        if (makes_a_difference(model, replay, bit))
            bits |= bit;
    for (unsigned other = 1; other <= bits && st == DCPK_EMISMATCH; other++) {
        struct dcpk_error ignored = DCPK_ERROR_INIT;
        const unsigned spec = given ^ other;

        if ((other & ~bits) != 0 || try_order(model, list, spec, replay, &ignored) != DCPK_OK)
            continue;
        if ((other & (DCPK_SPEC_TE | DCPK_SPEC_GROUPED)) != 0)
            dcpk_checkpoint_note(model->ckpt,
                                 "the buckets follow the order of registration of %s layers%s, "
                                 "which contradicts args.transformer_impl",
                                 (spec & DCPK_SPEC_TE) != 0 ? "Transformer Engine" : "local",
                                 (spec & DCPK_SPEC_GROUPED) != 0 ? " with grouped experts" : "");
        dcpk_error_clear(err);
        return DCPK_OK;
    }
    if (st != DCPK_EMISMATCH)
        return st;
    dcpk_context(err, "no known order of registration fits the buckets%s",
                 list->is_gathered ? " (where they end is not recorded)" : "");
    if (list->is_gathered)
        err->fixes |= DCPK_FIX_BUCKET_SIZE;
    return st;
}

/* The release that args look like, then later and earlier ones. */
static dcpk_status try_releases(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                                struct dcpk_replay *replay, struct dcpk_error *err)
{
    const struct dcpk_replay_rules *given = dcpk_replay_rules_find(model->args);
    const size_t n = DCPK_N_REPLAY_RULES, first = (size_t)(given - dcpk_replay_rules);
    dcpk_status st;

    replay->rules = given;
    st = try_orders(model, list, replay, err);
    for (size_t i = 1; i < n && st == DCPK_EMISMATCH; i++) {
        struct dcpk_error ignored = DCPK_ERROR_INIT;

        replay->rules = &dcpk_replay_rules[(first + n - i) % n];
        if (try_orders(model, list, replay, &ignored) != DCPK_OK)
            continue;
        dcpk_checkpoint_note(model->ckpt, "the buckets are laid out as by %s, args look like %s",
                             replay->rules->releases, given->releases);
        dcpk_error_clear(err);
        return DCPK_OK;
    }
    return st;
}

/* True if every bucket is cut into its data-parallel slices and nowhere else. Then the cuts do not
 * show where parameters begin: chunks of zarr are of one size. */
static bool has_slices_only(const struct dcpk_bucket_list *list, const struct dcpk_cut *cut)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_bucket *b = &list->buckets[i];
        const int64_t n_slices = b->is_expert ? cut->n_expert_slices : cut->n_slices;

        if (b->n_cuts != (size_t)n_slices)
            return false;
        for (size_t c = 0; c < b->n_cuts; c++)
            if (b->cuts[c] != b->n_padded_elems / n_slices * (int64_t)c)
                return false;
    }
    return true;
}

dcpk_status dcpk_replay_run(struct dcpk_model *model, const struct dcpk_bucket_list *list,
                            const struct dcpk_replay_rules *rules, struct dcpk_replay *replay,
                            struct dcpk_error *err)
{
    *replay = (struct dcpk_replay){0};
    if (dcpk_cut_read(model->args, model->arena, &replay->cut, err) ||
        dcpk_replay_collect(model, replay, err))
        return err->status;
    replay->n_ranks = dcpk_max_i64(replay->cut.tp, replay->cut.etp);
    replay->places = dcpk_arena_array(model->arena, replay->n_slots * (size_t)replay->n_ranks,
                                      sizeof *replay->places, err);
    if (replay->places == NULL)
        return err->status;
    replay->has_slices_only = has_slices_only(list, &replay->cut);
    replay->rules = rules;
    if (rules != NULL)
        return try_orders(model, list, replay, err);
    return try_releases(model, list, replay, err);
}
