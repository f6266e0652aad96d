/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_gathered.c - optimizer state gathered into one object for each group of ranks
 * (dp_zero_gather_scatter): the tensors in it as buckets. */
#include "formats/megatron/buckets/megatron_bucket_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"

/*
 * core 0.7 and later:
 *   [{"buckets_coalesced": True,
 *     0: {(torch.bfloat16, torch.float32): {"param": tensor, "exp_avg": tensor, "exp_avg_sq":
 *         tensor, "numel_unpadded": 4800}}, 1: ...}]
 * core 0.6, whose tensors have the padding at the ends of buckets:
 *   [{"per_bucket_numel": [{(torch.bfloat16, torch.float32): [4864]}], "per_bucket_numel_unpadded":
 *     the same, 0: {(torch.bfloat16, torch.float32): {"param": [tensor, ...], ...}}, 1: ...}]
 * MC/optimizer/distrib_optimizer.py@0.6.0 to main get_parameter_state_dp_zero.
 */
#define ENDING     ".param_state/shard_0_1"
#define COALESCED  "buckets_coalesced"
#define PADDED     "per_bucket_numel"
#define UNPADDED   "per_bucket_numel_unpadded"
#define N_UNPADDED "numel_unpadded"

#define MAX_BUCKETS ((size_t)1 << 16)

/* The object of one group. */
struct entry {
    int64_t chained, group;
    const struct dcpk_object *object;
};

/* Reading one buffer of a group. */
struct reading {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_bucket_list *list;
    size_t capacity;         /* of list->buckets while it grows */
    size_t first;            /* the buffer's first one in it */
    uint64_t left_bytes;     /* of the object, that no tensor has taken */
    struct dcpk_bucket base; /* common to all buckets of the buffer */
    const struct dcpk_object *object;
    const struct dcpk_value *padded, *unpadded; /* of all buffers; NULL: coalesced */
};

static int compare_object_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    return DCPK_ORDER_BY_2(a, b, chained, group);
}

static bool is_gathered(const struct dcpk_object *object, int64_t *chained, int64_t *group)
{
    const size_t n_head = dcpk_bucket_take_group(object->key, chained, group);

    return n_head > 0 && strcmp(object->key + n_head, ENDING) == 0;
}

/* The objects, sorted; owned by the caller. */
static dcpk_status find_object_entries(const struct dcpk_checkpoint *ckpt, struct entry **entries,
                                       size_t *n, struct dcpk_error *err)
{
    size_t capacity = 0;

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        struct entry e = {.object = &ckpt->objects[i]};

        if (!is_gathered(e.object, &e.chained, &e.group) ||
            dcpk_checkpoint_object_left_out(ckpt, i) != NULL)
            continue;
        if (e.chained > 1)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s': more than two optimizers (dense and expert parameters)",
                             e.object->key);
        if (dcpk_grow(entries, &capacity, *n, sizeof **entries, err))
            return err->status;
        (*entries)[(*n)++] = e;
    }
    if (*n > 0)
        qsort(*entries, *n, sizeof **entries, compare_object_entries);
    return DCPK_OK;
}

/* The bucket of that number of the buffer, made when it is new: they come in order. */
static dcpk_status take_bucket(struct reading *r, size_t number, struct dcpk_bucket **bucket,
                               struct dcpk_error *err)
{
    struct dcpk_bucket_list *list = r->list;
    static const int64_t start[] = {0};

    if (number < list->n - r->first) {
        *bucket = &list->buckets[r->first + number];
        return DCPK_OK;
    }
    if (list->n >= MAX_BUCKETS)
        return dcpk_fail(err, DCPK_ERANGE, "more than %zu buckets", MAX_BUCKETS);
    if (dcpk_grow(&list->buckets, &r->capacity, list->n, sizeof *list->buckets, err))
        return err->status;
    *bucket = &list->buckets[list->n++];
    **bucket = r->base;
    (*bucket)->number = (int64_t)number;
    (*bucket)->n_cuts = 1;
    (*bucket)->cuts = start;
    return DCPK_OK;
}

/* Make a tensor of the object the state of a bucket. */
static dcpk_status gathered_add_tensor(struct reading *r, size_t number, const char *state,
                                       const struct dcpk_value *v, struct dcpk_error *err)
{
    struct dcpk_arena *arena = r->ckpt->arena;
    const struct dcpk_value_tensor *t = NULL;
    struct dcpk_tensor inner = {.rank = 1};
    struct dcpk_place place = r->object->place;
    struct dcpk_bucket *bucket;
    size_t s, *chunk;

    if (v != NULL && v->kind == DCPK_V_TENSOR)
        t = v->as.tensor;
    if (t == NULL || t->rank != 1 || t->shape[0] < 1 || t->dtype != DCPK_F32 || !t->is_row_major)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' of bucket %zu is not a float32 tensor in one run",
                         state, number);
    if (t->n_bytes > r->left_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "its tensors have more bytes than the %" PRIu64 " of the item",
                         r->object->place.n_bytes);
    r->left_bytes -= t->n_bytes;
    chunk = dcpk_arena_alloc(arena, sizeof *chunk, err);
    inner.key = dcpk_arena_printf(arena, err, "%s[%" PRId64 "][%zu].%s", r->object->key,
                                  r->base.buffer, number, state);
    if (chunk == NULL || inner.key == NULL)
        return err->status;
    inner.dtype = t->dtype;
    inner.shape = t->shape;
    place.offset_bytes = t->first_bytes;
    place.n_bytes = t->n_bytes;
    if (dcpk_bucket_find_state(r->list, state, &s, err) || take_bucket(r, number, &bucket, err) ||
        dcpk_checkpoint_add_inner(r->ckpt, &inner, &place, &bucket->tensor[s], chunk, err))
        return err->status;
    if (bucket->key == NULL)
        bucket->key = inner.key;
    bucket->chunks[s] = chunk;
    return DCPK_OK;
}

/* All buckets in one tensor, or a list of one for each. */
static dcpk_status gathered_add_state(struct reading *r, const char *state,
                                      const struct dcpk_value *v, struct dcpk_error *err)
{
    if (r->base.form == DCPK_COALESCED)
        return gathered_add_tensor(r, 0, state, v, err);
    if (v->kind != DCPK_V_LIST)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is not a list of tensors", state);
    for (size_t i = 0; i < v->n; i++)
        if (gathered_add_tensor(r, i, state, dcpk_value_at(v, i), err))
            return err->status;
    return DCPK_OK;
}

/* The number that is recorded for a bucket of the buffer; -1: none. */
static int64_t buffers_recorded_elems(const struct dcpk_value *record,
                                      const struct dcpk_bucket *bucket)
{
    const struct dcpk_value *buffer = dcpk_value_at(record, (size_t)bucket->buffer);
    int64_t n = -1;

    if (buffer != NULL && buffer->kind == DCPK_V_DICT && buffer->n == 1)
        dcpk_value_as_int(dcpk_value_at(buffer->as.pairs[0].value, (size_t)bucket->number), &n);
    return n;
}

/* Every state of the buffer's buckets is as long as recorded. */
static dcpk_status check_buffer(const struct reading *r, const struct dcpk_value *states,
                                struct dcpk_error *err)
{
    if (r->first == r->list->n)
        return dcpk_fail(err, DCPK_EFORMAT, "there are no tensors in it");
    for (size_t i = r->first; i < r->list->n; i++) {
        struct dcpk_bucket *b = &r->list->buckets[i];
        int64_t n_stored = -1;

        b->n_elems = -1;
        if (b->form == DCPK_GATHERED) {
            n_stored = buffers_recorded_elems(r->padded, b);
            b->n_elems = buffers_recorded_elems(r->unpadded, b);
        } else if (dcpk_value_as_int(dcpk_value_get(states, N_UNPADDED), &b->n_elems)) {
            n_stored = b->n_elems;
        }
        b->n_stored_elems = b->n_padded_elems = n_stored;
        if (b->n_elems < 1 || b->n_elems > n_stored || n_stored > DCPK_MAX_BUCKET_ELEMS)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s': %" PRId64 " elements are recorded, %" PRId64 " without padding",
                             b->key, n_stored, b->n_elems);
        for (size_t s = 0; s < r->list->n_states; s++)
            if (b->chunks[s] != NULL && r->ckpt->tensors[b->tensor[s]].shape[0] != n_stored)
                return dcpk_fail(err, DCPK_EFORMAT,
                                 "'%s' has %" PRId64 " elements, %" PRId64 " are recorded",
                                 r->ckpt->tensors[b->tensor[s]].key,
                                 r->ckpt->tensors[b->tensor[s]].shape[0], n_stored);
    }
    return DCPK_OK;
}

/* The dtype of parameters in (torch.bfloat16, torch.float32). */
static dcpk_status buffer_read_dtype(const struct dcpk_value *key, enum dcpk_dtype *dtype,
                                     struct dcpk_error *err)
{
    const struct dcpk_value *v = key->kind == DCPK_V_TUPLE ? dcpk_value_at(key, 0) : NULL;

    if (v == NULL || v->kind != DCPK_V_GLOBAL || strcmp(v->as.global.module, "torch") != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "its key is not a pair of dtypes");
    return dcpk_bucket_check_dtype(v->as.global.name, strlen(v->as.global.name), dtype, err);
}

/* {(dtype, dtype): {state: tensor or tensors, ...}} */
static dcpk_status read_buffer(struct reading *r, const struct dcpk_value *v,
                               struct dcpk_error *err)
{
    const struct dcpk_value *states =
        v->kind == DCPK_V_DICT && v->n == 1 ? v->as.pairs[0].value : NULL;

    if (states == NULL || states->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT, "it is not a dict of one dict");
    r->first = r->list->n;
    if (buffer_read_dtype(v->as.pairs[0].key, &r->base.param_dtype, err))
        return err->status;
    for (size_t i = 0; i < states->n; i++) {
        const char *name = dcpk_value_as_str(states->as.pairs[i].key);

        if (name == NULL) {
            return dcpk_fail(err, DCPK_EFORMAT, "a key in it is not text");
        } else if (strcmp(name, N_UNPADDED) != 0)
            if (gathered_add_state(r, name, states->as.pairs[i].value, err))
                return err->status;
    }
    return check_buffer(r, states, err);
}

/* How the state is stored; DCPK_EUNSUPPORTED: in no way that a release is known to have. */
static dcpk_status read_form(struct reading *r, const struct dcpk_value *state,
                             struct dcpk_error *err)
{
    r->padded = dcpk_value_get(state, PADDED);
    r->unpadded = dcpk_value_get(state, UNPADDED);
    if (dcpk_value_is_true(state, COALESCED)) {
        r->base.form = DCPK_COALESCED;
    } else if (r->padded != NULL && r->unpadded != NULL) {
        r->base.form = DCPK_GATHERED;
    } else {
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "it has neither '" COALESCED "' nor '" PADDED "': a form of gathered "
                         "optimizer state that is not known");
    }
    return DCPK_OK;
}

static dcpk_status gathered_read_group(struct reading *r, struct dcpk_error *err)
{
    const struct dcpk_value *item = NULL, *state;
    int64_t n_buffers = 0, n_others = 0;

    if (dcpk_checkpoint_outline_item(r->ckpt, r->object, r->ckpt->arena, &item, err))
        return err->status;
    state = dcpk_value_at(item, 0);
    if (state == NULL || state->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT, "it is not a list of one dict");
    if (read_form(r, state, err))
        return err->status;
    for (const struct dcpk_value *v; (v = dcpk_value_get_int(state, n_buffers)) != NULL;
         n_buffers++) {
        r->base.buffer = n_buffers;
        if (read_buffer(r, v, err))
            return dcpk_context(err, "buffer %" PRId64, n_buffers);
    }
    for (size_t i = 0; i < state->n; i++)
        n_others += dcpk_value_as_str(state->as.pairs[i].key) != NULL;
    /* A rank without experts still has their optimizer: no buffer then. */
    if ((size_t)(n_buffers + n_others) != state->n)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "%zu keys, of them %" PRId64 " texts and %" PRId64
                         " numbers of buffers, from 0 on",
                         state->n, n_others, n_buffers);
    return DCPK_OK;
}

/* The buckets of all entries, in the list's own memory until they are kept. */
static dcpk_status gathered_read_entries(struct reading *r, const struct entry *entries, size_t n,
                                         struct dcpk_error *err)
{
    struct dcpk_bucket_list *list = r->list;

    for (size_t i = 0; i < n; i++) {
        r->base =
            (struct dcpk_bucket){.is_expert = entries[i].chained == 1, .group = entries[i].group};
        r->object = entries[i].object;
        r->left_bytes = r->object->place.n_bytes;
        list->has_expert_optimizer = list->has_expert_optimizer || r->base.is_expert;
        if (gathered_read_group(r, err))
            return dcpk_context(err, "'%s'", r->object->key);
    }
    if (n > 0 && list->n == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s': neither it nor its like has a buffer",
                         entries[0].object->key);
    return dcpk_bucket_check_states(list, err);
}

dcpk_status dcpk_gathered_list_read(struct dcpk_checkpoint *ckpt, struct dcpk_bucket_list *list,
                                    struct dcpk_error *err)
{
    struct reading r = {.ckpt = ckpt, .list = list};
    struct dcpk_bucket *kept = NULL;
    struct entry *entries = NULL;
    size_t n = 0;

    *list = (struct dcpk_bucket_list){.is_gathered = true};
    if (find_object_entries(ckpt, &entries, &n, err) == DCPK_OK &&
        gathered_read_entries(&r, entries, n, err) == DCPK_OK && list->n > 0)
        kept = dcpk_arena_copy(ckpt->arena, list->buckets, list->n, sizeof *kept, err);
    dcpk_free(list->buckets);
    list->buckets = kept;
    dcpk_free(entries);
    return err->status;
}
