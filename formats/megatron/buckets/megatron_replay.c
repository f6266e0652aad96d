/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_replay.c - the layout of DDP's buffers, replayed from the order of registration. */
#include "formats/megatron/buckets/megatron_replay.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"

/* ---- rules of releases ---- */

/*
 * MC/distributed/param_and_grad_buffer.py of 0.6.0 to 0.16.1 (from 0.19 on
 * MC/optimizer/distrib_optimizer.py _compute_per_buffer_param_layout), the number of experts'
 * groups in MC/optimizer/__init__.py. The option is one that the release was first to have
 * (MT/arguments.py): args hold every option, given or not.
 */
const struct dcpk_replay_rules dcpk_replay_rules[DCPK_N_REPLAY_RULES] = {
    {"core 0.13 and later", "pipeline_model_parallel_layout", 64, 128, false, false},
    {"core 0.10 to 0.12", "expert_tensor_parallel_size", 64, 128, true, false},
    {"core 0.8 and 0.9", "dist_ckpt_strictness", 64, 128, true, true},
    {"core 0.7", "ddp_bucket_size", 1, 128, true, true},
    {"core 0.6", NULL, 1, 1, true, true},
};

const struct dcpk_replay_rules *dcpk_replay_rules_find(const struct dcpk_value *args)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);
    const struct dcpk_replay_rules *rules = dcpk_replay_rules;

    while (rules->since_option != NULL && dcpk_value_get(attrs, rules->since_option) == NULL)
        rules++;
    return rules;
}

int64_t dcpk_replay_round_up(int64_t at, int64_t multiple)
{
    const int64_t over = at % multiple;

    return over == 0 ? at : at + (multiple - over);
}

int64_t dcpk_replay_end_multiple(const struct dcpk_replay_rules *rules, int64_t n_slices)
{
    int64_t a = rules->end_alignment, b = n_slices;

    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return rules->end_alignment / a * n_slices;
}

#define NO_BUCKET SIZE_MAX

static const char shared_weight[] = "embedding.word_embeddings.weight";

/* --- the parameters --- */

/* The blocks of a parameter, whose parts may be stored tensors of their own. */
static dcpk_status find_blocks(const struct dcpk_checkpoint *ckpt,
                               const struct dcpk_model_tensor *weight, int64_t tp,
                               struct dcpk_blocks *blocks, struct dcpk_error *err)
{
    for (size_t i = 0; i < weight->n_pieces; i++) {
        const struct dcpk_piece *piece = &weight->pieces[i];
        struct dcpk_blocks part;

        if (piece->src >= ckpt->n_tensors || piece->src_rank < weight->rank)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a slice of a stored tensor");
        if (dcpk_blocks_find(ckpt, &ckpt->tensors[piece->src], piece->src_rank - weight->rank, tp,
                             &part, err))
            return err->status;
        if (i > 0) {
            if (dcpk_blocks_append(blocks, &part, err))
                return err->status;
        } else {
            *blocks = part;
        }
    }
    return DCPK_OK;
}

/* The same, found once for all layers and experts of a stored tensor. */
static dcpk_status find_stored_blocks(struct dcpk_model *model, struct dcpk_blocks **of_tensor,
                                      const struct dcpk_model_tensor *weight, int64_t tp,
                                      struct dcpk_replay_slot *slot, struct dcpk_error *err)
{
    struct dcpk_blocks **stored = &of_tensor[weight->pieces->src];

    if (*stored == NULL) {
        *stored = dcpk_arena_alloc(model->arena, sizeof **stored, err);
        if (*stored == NULL || find_blocks(model->ckpt, weight, tp, *stored, err))
            return err->status;
    }
    slot->blocks = *stored;
    return DCPK_OK;
}

/* The chunk that holds a parameter, and how much of it one rank has. */
static dcpk_status fill_slot(struct dcpk_model *model, const struct dcpk_cut *cut,
                             struct dcpk_blocks **of_tensor, struct dcpk_replay_slot *slot,
                             struct dcpk_error *err)
{
    const struct dcpk_param *param = &model->params[slot->param];
    const struct dcpk_model_tensor *weight = &model->tensors[param->tensor[DCPK_WEIGHT]];
    const int64_t tp = dcpk_cut_tp(cut, slot->reg.expert >= 0);

    if (dcpk_cut_find(cut, &slot->reg, &slot->chunk, err))
        return err->status;
    slot->dtype = weight->dtype;
    if (find_stored_blocks(model, of_tensor, weight, tp, slot, err) ||
        dcpk_shape_count(weight->shape, weight->rank, &slot->n_elems, err))
        return err->status;
    slot->n_elems /= slot->blocks->n_ranks;
    slot->has_own_bucket = dcpk_replay_has_own_bucket(cut, param->name);
    return DCPK_OK;
}

bool dcpk_replay_has_own_bucket(const struct dcpk_cut *cut, const char *param)
{
    return (cut->is_tied || cut->has_mtp) && cut->pp > 1 && strcmp(param, shared_weight) == 0;
}

/*
 * Adds the parameters that later chunks hold once more: multi-token prediction the embeddings, the
 * last chunk a tied output layer (MC/models/gpt/gpt_model.py@0.19.0,
 * MC/models/common/language_module/ language_module.py setup_embeddings_and_output_layer). Megatron
 * does not save both in one chunk.
 */
void dcpk_replay_add_copies(struct dcpk_replay *replay)
{
    const struct dcpk_cut *cut = &replay->cut;
    const int64_t last = cut->pp * cut->vpp - 1;
    const size_t n = replay->n_slots;

    for (size_t i = 0; i < n; i++) {
        struct dcpk_replay_slot copy = replay->slots[i];

        copy.is_copy = true;
        if (copy.reg.section == DCPK_EMBEDDING && cut->has_mtp && cut->mtp_chunk > 0) {
            copy.chunk = cut->mtp_chunk;
            replay->slots[replay->n_slots++] = copy;
        }
        if (copy.has_own_bucket && cut->is_tied && copy.chunk != last) {
            copy.chunk = last;
            copy.is_output = true;
            replay->slots[replay->n_slots++] = copy;
        }
    }
}

/* The next slot: of a parameter with a weight, unless it is a buffer. */
static dcpk_status collect_slot(struct dcpk_model *model, struct dcpk_replay *replay, uint32_t p,
                                struct dcpk_blocks **of_tensor, struct dcpk_error *err)
{
    struct dcpk_replay_slot *slot = &replay->slots[replay->n_slots];

    *slot = (struct dcpk_replay_slot){.param = p};
    if (!dcpk_registered_find(model->params[p].name, replay->cut.spec, &slot->reg))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "the place of this parameter in the order of registration is not known");
    if (slot->reg.is_buffer)
        return DCPK_OK;
    if (fill_slot(model, &replay->cut, of_tensor, slot, err))
        return err->status;
    replay->n_slots++;
    return DCPK_OK;
}

dcpk_status dcpk_replay_collect(struct dcpk_model *model, struct dcpk_replay *replay,
                                struct dcpk_error *err)
{
    struct dcpk_blocks **of_tensor =
        dcpk_alloc_array(model->ckpt->n_tensors, sizeof(struct dcpk_blocks *), err);

    replay->slots = dcpk_arena_array(model->arena, model->n_params + DCPK_REPLAY_COPIES,
                                     sizeof *replay->slots, err);
    for (uint32_t p = 0; p < model->n_params && err->status == DCPK_OK; p++)
        if (model->params[p].tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR &&
            collect_slot(model, replay, p, of_tensor, err))
            dcpk_context(err, "parameter '%s'", model->params[p].name);
    if (err->status == DCPK_OK)
        dcpk_replay_add_copies(replay);
    dcpk_free(of_tensor);
    return err->status;
}

/* --- one buffer --- */

/* A rank's buffer being filled: which slots it has, and its buckets. */
struct buffer {
    const struct dcpk_model *model;
    const struct dcpk_bucket_list *list;
    struct dcpk_replay *replay;
    int64_t stage, expert_rank, tp_rank;
    int64_t chunk; /* of all of them */
    bool is_expert;
    enum dcpk_dtype dtype;
    size_t bucket, end_bucket; /* the next to be filled */
    int64_t base;              /* where it begins: not at 0 in coalesced ones */
    int64_t at;                /* the first free element in it; 0: it is empty */
    int64_t full_elems; /* a coalesced one is closed when it has so many; 0: when all are in it */
    int64_t *marks;     /* starts and ends of parameters in it, ascending; room for all */
    size_t n_marks;
};

/* True if the buffer holds a part of this parameter. */
static bool replay_holds(const struct buffer *b, const struct dcpk_replay_slot *slot)
{
    const bool is_expert = slot->reg.expert >= 0 && b->list->has_expert_optimizer;
    const struct dcpk_cut *cut = &b->replay->cut;

    return slot->chunk == b->chunk && slot->dtype == b->dtype && is_expert == b->is_expert &&
           (slot->reg.expert < 0 ||
            slot->reg.expert / (cut->n_experts / cut->ep) == b->expert_rank);
}

static bool has_any(const struct buffer *b)
{
    for (size_t i = 0; i < b->replay->n_slots; i++)
        if (replay_holds(b, &b->replay->slots[i]))
            return true;
    return false;
}

/* Data-parallel ranks that share its buckets. */
static int64_t replay_slices_of(const struct buffer *b)
{
    return b->is_expert ? b->replay->cut.n_expert_slices : b->replay->cut.n_slices;
}

/* The chunk boundaries of a bucket must be those that parameters and data-parallel slices make,
 * none missing, none more; zarr has those of slices alone. */
static dcpk_status replay_check_cuts(const struct buffer *b, const struct dcpk_bucket *bucket,
                                     struct dcpk_error *err)
{
    const int64_t n_slices = replay_slices_of(b);
    const int64_t slice = bucket->n_padded_elems / n_slices;
    size_t m = 0, c = 0;
    int64_t next_slice = 0;

    if (slice < 1 || bucket->n_padded_elems % n_slices != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s': %" PRId64 " padded elements on %" PRId64 " data-parallel ranks",
                         bucket->key, bucket->n_padded_elems, n_slices);
    if (b->replay->has_slices_only)
        return DCPK_OK;
    for (;;) {
        int64_t want = dcpk_min_i64(next_slice, bucket->n_stored_elems);

        while (m < b->n_marks && b->marks[m] < want)
            want = b->marks[m];
        if (want == bucket->n_stored_elems && c == bucket->n_cuts)
            return DCPK_OK;
        if (c == bucket->n_cuts || bucket->cuts[c] != want)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s': the replayed layout cuts it at element %" PRId64
                             ", the next stored chunk begins at %" PRId64,
                             bucket->key, want,
                             c < bucket->n_cuts ? bucket->cuts[c] : bucket->n_stored_elems);
        c++;
        while (m < b->n_marks && b->marks[m] <= want)
            m++;
        while (next_slice <= want)
            next_slice += slice;
    }
}

static dcpk_status close_bucket(struct buffer *b, struct dcpk_error *err)
{
    const struct dcpk_bucket *bucket = &b->list->buckets[b->bucket];

    if (bucket->form == DCPK_COALESCED) {
        b->base += b->at;
        b->at = 0;
        return DCPK_OK;
    }
    if (b->at != bucket->n_elems)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' has %" PRId64
                         " elements, the parameters laid into it end at %" PRId64,
                         bucket->key, bucket->n_elems, b->at);
    if (bucket->form == DCPK_SLICED && replay_check_cuts(b, bucket, err))
        return err->status;
    b->bucket++;
    b->at = 0;
    b->n_marks = 0;
    return DCPK_OK;
}

/*
 * Close the bucket before a word embedding that has its own. Up to core 0.12 the end of the
 * padding counted as the end of the parameters; runs where it could not stopped
 * (MC/distributed/param_and_grad_buffer.py and MC/optimizer/distrib_optimizer.py
 * _build_model_param_gbuf_map @0.6.0 to 0.12.3).
 */
static dcpk_status close_before_shared(struct buffer *b, struct dcpk_error *err)
{
    const struct dcpk_replay_rules *rules = b->replay->rules;

    if (rules->shared_counts_padding)
        b->at = dcpk_replay_round_up(b->at, dcpk_replay_end_multiple(rules, replay_slices_of(b)));
    return close_bucket(b, err);
}

/* True if the bucket is as large as it was, its last parameter ending at b->at. */
static bool is_full(const struct buffer *b, const struct dcpk_bucket *bucket)
{
    if (bucket->form == DCPK_COALESCED)
        return b->full_elems > 0 && b->at >= b->full_elems;
    return b->at == bucket->n_elems;
}

/* Lay one parameter after the others. */
static dcpk_status replay_place(struct buffer *b, size_t s, struct dcpk_error *err)
{
    const struct dcpk_replay_slot *slot = &b->replay->slots[s];
    const char *name = b->model->params[slot->param].name;
    const struct dcpk_bucket *bucket;
    int64_t end;

    b->at = dcpk_replay_round_up(b->at, b->replay->rules->start_alignment);
    if (slot->has_own_bucket && b->at > 0 && close_before_shared(b, err))
        return err->status;
    if (b->bucket == b->end_bucket)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s': no bucket is left for parameter '%s'",
                         b->list->buckets[b->bucket - 1].key, name);
    bucket = &b->list->buckets[b->bucket];
    if (!dcpk_add_i64(b->at, slot->n_elems, &end) || end > bucket->n_elems - b->base)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' has %" PRId64 " elements, parameter '%s' of %" PRId64
                         " begins at %" PRId64 " and does not fit",
                         bucket->key, bucket->n_elems, name, slot->n_elems, b->base + b->at);
    b->replay->places[s * (size_t)b->replay->n_ranks + (size_t)b->tp_rank] =
        (struct dcpk_replay_place){b->bucket, b->base + b->at};
    if (bucket->form == DCPK_SLICED) {
        b->marks[b->n_marks++] = b->at;
        b->marks[b->n_marks++] = end;
    }
    b->at = end;
    if (is_full(b, bucket) || slot->has_own_bucket)
        return close_bucket(b, err);
    return DCPK_OK;
}

/* The buckets of the buffer hold what was laid into them, and no more. */
static dcpk_status finish_buffer(struct buffer *b, struct dcpk_error *err)
{
    const struct dcpk_bucket *bucket;

    if (b->at > 0 && close_bucket(b, err))
        return err->status;
    if (b->bucket == b->end_bucket)
        return DCPK_OK;
    bucket = &b->list->buckets[b->bucket];
    if (bucket->form != DCPK_COALESCED)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s': no parameter is left for this bucket",
                         bucket->key);
    if (b->base != bucket->n_elems)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' has %" PRId64
                         " elements, the parameters laid into it end at %" PRId64,
                         bucket->key, bucket->n_elems, b->base);
    return DCPK_OK;
}

/* Fill the buffer with its parameters, the last registered first. */
static dcpk_status fill_buffer(struct buffer *b, struct dcpk_error *err)
{
    for (size_t s = b->replay->n_slots; s-- > 0;)
        if (replay_holds(b, &b->replay->slots[s]) && replay_place(b, s, err))
            return err->status;
    return finish_buffer(b, err);
}

/* --- one rank's buffers --- */

/* The first bucket after `from` that is of another buffer. */
static size_t buffer_end(const struct dcpk_bucket_list *list, size_t from)
{
    size_t i = from + 1;

    while (i < list->n && list->buckets[i].number != 0)
        i++;
    return i;
}

/*
 * The rank in a group by its number, tensor parallel fastest, then expert, then pipeline
 * (MC/parallel_state.py, order "tp-cp-ep-dp-pp"); experts of old releases have the pipeline's stage
 * before the expert parallel rank (MC/optimizer/__init__.py@0.6.0 to 0.9.0 get_megatron_optimizer).
 */
static dcpk_status find_rank(const struct dcpk_bucket *bucket, const struct dcpk_cut *cut,
                             struct buffer *b, struct dcpk_error *err)
{
    const int64_t tp = dcpk_cut_tp(cut, bucket->is_expert),
                  ep = dcpk_cut_ep(cut, bucket->is_expert);

    if (bucket->group >= tp * ep * cut->pp)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s': group %" PRId64 " of %" PRId64 " (args: %" PRId64
                         " tensor, %" PRId64 " expert, %" PRId64 " pipeline parallel ranks)",
                         bucket->key, bucket->group, tp * ep * cut->pp, tp, ep, cut->pp);
    b->is_expert = bucket->is_expert;
    b->tp_rank = bucket->group % tp;
    b->expert_rank = bucket->group / tp % ep;
    b->stage = bucket->group / tp / ep;
    if (b->replay->rules->stage_before_expert) {
        b->stage = bucket->group / tp % cut->pp;
        b->expert_rank = bucket->group / tp / cut->pp;
    }
    return DCPK_OK;
}

/*
 * Buffers of one dtype are those of the stage's model chunks that have such parameters, in order.
 * *chunk: where to look for the next.
 */
static dcpk_status next_chunk(struct buffer *b, const struct dcpk_bucket *bucket, int64_t *chunk,
                              struct dcpk_error *err)
{
    const struct dcpk_cut *cut = &b->replay->cut;

    b->dtype = bucket->param_dtype;
    while (*chunk < cut->vpp) {
        b->chunk = (*chunk)++ * cut->pp + b->stage;
        if (has_any(b))
            return DCPK_OK;
    }
    return dcpk_fail(err, DCPK_EMISMATCH, "'%s': no %s parameters are expected there", bucket->key,
                     dcpk_dtype_name(bucket->param_dtype));
}

int64_t dcpk_replay_full_elems(const struct dcpk_replay *replay, int64_t chunk)
{
    const struct dcpk_cut *cut = &replay->cut;
    int64_t n_elems = 0;

    if (chunk > 0)
        return 0;
    if (cut->bucketing.n_buckets == 0)
        return cut->bucketing.n_elems;
    for (size_t s = 0; s < replay->n_slots; s++) {
        const struct dcpk_replay_slot *slot = &replay->slots[s];

        if (slot->chunk % cut->pp == 0) /* on the first stage; each rank has as many experts */
            n_elems += slot->n_elems * (slot->reg.expert < 0 ? cut->ep : 1);
    }
    return n_elems / cut->ep / cut->bucketing.n_buckets;
}

static dcpk_status fill_group(struct buffer *b, size_t first, size_t end, struct dcpk_error *err)
{
    int64_t chunks[DCPK_N_DTYPES] = {0};

    if (find_rank(&b->list->buckets[first], &b->replay->cut, b, err))
        return err->status;
    for (size_t i = first; i < end; i = b->end_bucket) {
        const struct dcpk_bucket *bucket = &b->list->buckets[i];

        b->bucket = i;
        b->end_bucket = buffer_end(b->list, i);
        b->at = b->base = 0;
        b->n_marks = 0;
        if (next_chunk(b, bucket, &chunks[bucket->param_dtype], err))
            return err->status;
        b->full_elems = dcpk_replay_full_elems(b->replay, b->chunk);
        if (fill_buffer(b, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Every rank's part of every parameter must have its place. */
static dcpk_status replay_check_places(const struct dcpk_model *model,
                                       const struct dcpk_replay *replay, struct dcpk_error *err)
{
    for (size_t s = 0; s < replay->n_slots; s++)
        for (int64_t r = 0; r < replay->slots[s].blocks->n_ranks; r++)
            if (replay->places[s * (size_t)replay->n_ranks + (size_t)r].bucket == NO_BUCKET)
                return dcpk_fail(err, DCPK_EMISMATCH,
                                 "no bucket holds parameter '%s' of tensor-parallel rank %" PRId64,
                                 model->params[replay->slots[s].param].name, r);
    return DCPK_OK;
}

dcpk_status dcpk_replay_fill(const struct dcpk_model *model, const struct dcpk_bucket_list *list,
                             struct dcpk_replay *replay, struct dcpk_error *err)
{
    const size_t n_places = replay->n_slots * (size_t)replay->n_ranks;
    int64_t *marks = dcpk_alloc_array(2 * replay->n_slots + 1, sizeof *marks, err);
    size_t end;

    if (marks == NULL)
        return err->status;
    for (size_t i = 0; i < n_places; i++)
        replay->places[i] = (struct dcpk_replay_place){NO_BUCKET, 0};
    for (size_t first = 0; first < list->n && err->status == DCPK_OK; first = end) {
        const struct dcpk_bucket *head = &list->buckets[first];
        struct buffer b = {.model = model, .list = list, .replay = replay, .marks = marks};

        for (end = first + 1; end < list->n; end++)
            if (list->buckets[end].group != head->group ||
                list->buckets[end].is_expert != head->is_expert)
                break;
        (void)fill_group(&b, first, end, err);
    }
    dcpk_free(marks);
    if (err->status != DCPK_OK)
        return err->status;
    return replay_check_places(model, replay, err);
}
