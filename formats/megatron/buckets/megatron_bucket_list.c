/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_bucket_list.c - the stored DDP buckets: keys taken apart, sizes checked against what
 * Megatron recorded. */
#include "formats/megatron/buckets/megatron_bucket_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"

/*
 * "[chained_<i>.]optimizer.distributed.dp_group_idx_<g>.gbuf_idx_<b>.dtype_(torch.bfloat16,
 * torch.float32).bucket_idx_<k>.exp_avg" (MC/optimizer/distrib_optimizer.py@0.19.0
 * sharded_param_state_dp_reshardable).
 */
struct bucket_key {
    int64_t chained; /* 0 too where there is no prefix: a rank with one optimizer has none */
    int64_t group, buffer, number;
    size_t group_bytes; /* of the key up to the group's number */
    const char *dtype;  /* "bfloat16", dtype_bytes of it: the parameters' */
    size_t dtype_bytes;
    const char *state;
};

/* A stored tensor and its key's parts. */
struct entry {
    struct bucket_key key;
    uint32_t tensor;
};

static bool take_text(const char **p, const char *text)
{
    if (!dcpk_starts_with(*p, text))
        return false;
    *p += strlen(text);
    return true;
}

static bool bucket_take_number(const char **p, int64_t *out)
{
    const int64_t n = dcpk_take_number(p);

    if (n >= 0)
        *out = n;
    return n >= 0;
}

/* Read the part up to the group's number. */
static bool take_group(const char **p, struct bucket_key *key)
{
    const char *start = *p;

    key->chained = 0;
    if (take_text(p, "chained_") && (!bucket_take_number(p, &key->chained) || !take_text(p, ".")))
        return false;
    if (!take_text(p, "optimizer.distributed.dp_group_idx_") || !bucket_take_number(p, &key->group))
        return false;
    key->group_bytes = (size_t)(*p - start);
    return true;
}

static bool parse_key(const char *text, struct bucket_key *key)
{
    const char *p = text;

    if (!take_group(&p, key) || !take_text(&p, ".gbuf_idx_") ||
        !bucket_take_number(&p, &key->buffer) || !take_text(&p, ".dtype_(torch."))
        return false;
    key->dtype = p;
    key->dtype_bytes = strcspn(p, ",)");
    p = strchr(p, ')');
    if (p == NULL || !take_text(&p, ").bucket_idx_") || !bucket_take_number(&p, &key->number) ||
        !take_text(&p, "."))
        return false;
    key->state = p;
    return *p != '\0';
}

size_t dcpk_bucket_take_group(const char *key, int64_t *chained, int64_t *group)
{
    struct bucket_key parts;
    const char *p = key;

    if (!take_group(&p, &parts) || *p != '.')
        return 0;
    *chained = parts.chained;
    *group = parts.group;
    return parts.group_bytes;
}

bool dcpk_bucket_is_key(const char *key)
{
    int64_t unused;

    return dcpk_bucket_take_group(key, &unused, &unused) > 0;
}

static int compare_buckets(const struct bucket_key *a, const struct bucket_key *b)
{
    return DCPK_ORDER_BY_4(a, b, chained, group, buffer, number);
}

static int compare_bucket_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    const int order = compare_buckets(&a->key, &b->key);

    return order != 0 ? order : DCPK_THREE_WAY(a->tensor, b->tensor);
}

/* The entries of all buckets, sorted; owned by the caller. */
static dcpk_status find_bucket_entries(const struct dcpk_checkpoint *ckpt, struct entry **entries,
                                       size_t *n, struct dcpk_error *err)
{
    size_t capacity = 0;

    for (uint32_t t = 0; t < ckpt->n_tensors; t++) {
        const char *key = ckpt->tensors[t].key;

        if (!dcpk_bucket_is_key(key) || dcpk_checkpoint_tensor_left_out(ckpt, t) != NULL)
            continue;
        if (dcpk_grow(entries, &capacity, *n, sizeof **entries, err))
            return err->status;
        (*entries)[*n].tensor = t;
        if (!parse_key(key, &(*entries)[*n].key))
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not a key of a bucket that is known",
                             key);
        if ((*entries)[*n].key.chained > 1)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s': more than two optimizers (dense and expert parameters)", key);
        (*n)++;
    }
    if (*n > 0)
        qsort(*entries, *n, sizeof **entries, compare_bucket_entries);
    return DCPK_OK;
}

/* A chunk by its place in the bucket. */
struct cut {
    int64_t first;
    size_t chunk;
};

static int compare_cuts(const void *left, const void *right)
{
    const struct cut *a = left, *b = right;

    return DCPK_THREE_WAY(a->first, b->first);
}

/*
 * Finds the start of a chunk. With two axes it is a part of one data-parallel rank's slice: the
 * bucket was flattened by core 0.11 to 0.14
 * (MC/dist_checkpointing/strategies/resharding.py@0.11.0).
 */
static dcpk_status find_cut(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                            size_t chunk, struct cut *cut, struct dcpk_error *err)
{
    const int64_t *offset = ckpt->chunks[chunk].span, *extent = offset + tensor->rank;
    const int last = tensor->rank - 1;

    if (extent[last] == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has an empty chunk at element %" PRId64,
                         tensor->key, offset[last]);
    if (last > 0 && extent[0] != 1)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has a chunk of %" PRId64 " ranks' slices at once",
                         tensor->key, extent[0]);
    cut->first = offset[last];
    if (last > 0)
        cut->first += offset[0] * tensor->shape[last];
    cut->chunk = chunk;
    return DCPK_OK;
}

/* Sort a tensor's chunks into arrays of the arena. An empty one would start where another does. */
static dcpk_status sort_chunks(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                               int64_t *firsts, size_t *chunks, struct dcpk_error *err)
{
    struct cut *cuts = dcpk_alloc_array(tensor->n_chunks, sizeof *cuts, err);

    if (cuts == NULL)
        return err->status;
    for (size_t i = 0; i < tensor->n_chunks && err->status == DCPK_OK; i++)
        (void)find_cut(ckpt, tensor, tensor->first_chunk + i, &cuts[i], err);
    if (tensor->n_chunks > 0)
        qsort(cuts, tensor->n_chunks, sizeof *cuts, compare_cuts);
    for (size_t i = 0; i < tensor->n_chunks; i++) {
        firsts[i] = cuts[i].first;
        chunks[i] = cuts[i].chunk;
    }
    dcpk_free(cuts);
    return err->status;
}

dcpk_status dcpk_bucket_find_state(struct dcpk_bucket_list *list, const char *state, size_t *number,
                                   struct dcpk_error *err)
{
    for (*number = 0; *number < list->n_states; (*number)++)
        if (strcmp(list->states[*number], state) == 0)
            return DCPK_OK;
    if (list->n_states == DCPK_MAX_BUCKET_STATES)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "more than %d optimizer states, '%s' is one too many",
                         DCPK_MAX_BUCKET_STATES, state);
    list->states[list->n_states++] = state;
    return DCPK_OK;
}

/*
 * A precision-aware optimizer gives its states unscaled, in fp32 or bf16
 * (transformer_engine/pytorch/optimizers/fused_adam.py get_unscaled_state), except masters kept as
 * the 16 bits that a bf16 weight lacks: with the weight they always make a number that rounds to
 * it, wherever they were taken from, and so nothing could prove their place.
 */
static dcpk_status bucket_check_tensor(const struct dcpk_tensor *t, const struct bucket_key *key,
                                       unsigned flags, struct dcpk_error *err)
{
    const bool is_master = strcmp(key->state, "param") == 0;

    if (t->rank != 1 && (t->rank != 2 || (flags & DCPK_BUCKETS_PADDED) == 0))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has %d axes, a bucket has one", t->key, t->rank);
    if (is_master && t->dtype == DCPK_I16)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                             "'%s' holds remainders of masters (precision-aware optimizer); "
                             "nothing proves their place (fully_reshardable stores remainders as "
                             "numbers)",
                             t->key);
    if ((is_master && t->dtype != DCPK_F32) ||
        (t->dtype != DCPK_F32 && t->dtype != DCPK_BF16 && t->dtype != DCPK_F16))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is %s: a precision-aware optimizer's own encoding is not decoded",
                         t->key, dcpk_dtype_name(t->dtype));
    return DCPK_OK;
}

/* Add one state's tensor to its bucket; all states of a bucket have the same cuts. */
static dcpk_status add_tensor(const struct dcpk_checkpoint *ckpt, struct dcpk_bucket_list *list,
                              struct dcpk_bucket *bucket, const struct entry *entry,
                              struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[entry->tensor];
    int64_t *cuts = dcpk_arena_array(ckpt->arena, tensor->n_chunks, sizeof *cuts, err), n_elems;
    size_t *chunks = dcpk_arena_array(ckpt->arena, tensor->n_chunks, sizeof *chunks, err), state;

    if (cuts == NULL || chunks == NULL ||
        dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err) ||
        dcpk_bucket_find_state(list, entry->key.state, &state, err) ||
        sort_chunks(ckpt, tensor, cuts, chunks, err))
        return err->status;
    if (bucket->key == NULL) {
        bucket->key = tensor->key;
        bucket->n_stored_elems = n_elems;
        bucket->cuts = cuts;
        bucket->n_cuts = tensor->n_chunks;
    }
    if (bucket->chunks[state] != NULL || n_elems != bucket->n_stored_elems ||
        tensor->n_chunks != bucket->n_cuts ||
        memcmp(cuts, bucket->cuts, bucket->n_cuts * sizeof *cuts) != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s' has %" PRId64 " elements in %zu chunks, '%s' %" PRId64
                         " in %zu: states of one bucket must be cut alike",
                         tensor->key, n_elems, tensor->n_chunks, bucket->key,
                         bucket->n_stored_elems, bucket->n_cuts);
    bucket->tensor[state] = entry->tensor;
    bucket->chunks[state] = chunks;
    return DCPK_OK;
}

dcpk_status dcpk_bucket_check_dtype(const char *name, size_t n_bytes, enum dcpk_dtype *dtype,
                                    struct dcpk_error *err)
{
    char text[32];

    *dtype = DCPK_DTYPE_NONE;
    if (n_bytes < sizeof text) {
        memcpy(text, name, n_bytes);
        text[n_bytes] = '\0';
        *dtype = dcpk_dtype_from_name(text);
    }
    if (*dtype != DCPK_BF16 && *dtype != DCPK_F16 && *dtype != DCPK_F32)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "buckets of %.*s parameters are not decoded (FP8 weights: their rounded masters "
            "prove nothing)",
            (int)dcpk_min_size(n_bytes, 64), name);
    return DCPK_OK;
}

static dcpk_status bucket_list_build(const struct dcpk_checkpoint *ckpt,
                                     const struct entry *entries, size_t n, unsigned flags,
                                     struct dcpk_bucket_list *list, struct dcpk_error *err)
{
    const struct bucket_key *last = NULL;

    list->buckets = dcpk_arena_array(ckpt->arena, n, sizeof *list->buckets, err);
    if (list->buckets == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        const struct bucket_key *key = &entries[i].key;
        const bool same_buffer = last != NULL && last->chained == key->chained &&
                                 last->group == key->group && last->buffer == key->buffer;
        struct dcpk_bucket *bucket;

        if (last == NULL || compare_buckets(last, key) != 0) {
            if (key->number != (same_buffer ? last->number + 1 : 0))
                return dcpk_fail(err, DCPK_EFORMAT,
                                 "'%s': the bucket before number %" PRId64 " is missing",
                                 ckpt->tensors[entries[i].tensor].key, key->number);
            bucket = &list->buckets[list->n++];
            *bucket = (struct dcpk_bucket){.is_expert = key->chained == 1,
                                           .group = key->group,
                                           .buffer = key->buffer,
                                           .number = key->number};
            if (dcpk_bucket_check_dtype(key->dtype, key->dtype_bytes, &bucket->param_dtype, err))
                return err->status;
        } else {
            bucket = &list->buckets[list->n - 1];
        }
        list->has_expert_optimizer = list->has_expert_optimizer || bucket->is_expert;
        if (bucket_check_tensor(&ckpt->tensors[entries[i].tensor], key, flags, err) ||
            add_tensor(ckpt, list, bucket, &entries[i], err))
            return err->status;
        last = key;
    }
    return DCPK_OK;
}

/* The list of one group's record: [[{(dtype, dtype): [numel, ...]}, ...]], over buffers. */
static dcpk_status load_record(struct dcpk_checkpoint *ckpt, const char *bucket_key,
                               const char *name, const struct dcpk_value **record,
                               struct dcpk_error *err)
{
    struct bucket_key parts;
    const char *p = bucket_key, *key;
    const struct dcpk_object *object;

    if (!take_group(&p, &parts))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is not a key of a bucket", bucket_key);
    key = dcpk_arena_printf(ckpt->arena, err, "%.*s.%s/shard_0_1", (int)parts.group_bytes,
                            bucket_key, name);
    if (key == NULL)
        return err->status;
    object = dcpk_checkpoint_object(ckpt, key);
    if (object == NULL)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "there is no item '%s': sizes of buckets are not recorded", key);
    if (dcpk_checkpoint_load_object(ckpt, object, ckpt->arena, record, err))
        return err->status;
    *record = dcpk_value_at(*record, 0);
    return DCPK_OK;
}

/* The recorded number of a bucket, -1 when there is none. */
static int64_t recorded_elems(const struct dcpk_value *record, const struct dcpk_bucket *bucket)
{
    const struct dcpk_value *buffer = dcpk_value_at(record, (size_t)bucket->buffer);
    int64_t n = -1;

    if (buffer == NULL || buffer->kind != DCPK_V_DICT || buffer->n != 1)
        return -1;
    dcpk_value_as_int(dcpk_value_at(buffer->as.pairs[0].value, (size_t)bucket->number), &n);
    return n;
}

/* True if the record lists exactly one more bucket than the last one's number. */
static bool is_last_recorded(const struct dcpk_value *record, const struct dcpk_bucket *bucket)
{
    struct dcpk_bucket next = *bucket;

    next.number++;
    return recorded_elems(record, &next) < 0;
}

/* Take over the recorded sizes of a bucket; one of them must be what is stored. */
static dcpk_status bucket_check_sizes(const struct dcpk_value *padded,
                                      const struct dcpk_value *unpadded, unsigned flags,
                                      struct dcpk_bucket *b, struct dcpk_error *err)
{
    const bool has_padding = (flags & DCPK_BUCKETS_PADDED) != 0;

    b->n_elems = recorded_elems(unpadded, b);
    b->n_padded_elems = recorded_elems(padded, b);
    if (b->n_elems < 0 || b->n_padded_elems < b->n_elems ||
        b->n_stored_elems != (has_padding ? b->n_padded_elems : b->n_elems))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s' has %" PRId64 " elements, recorded are %" PRId64 ", padded %" PRId64,
                         b->key, b->n_stored_elems, b->n_elems, b->n_padded_elems);
    if (b->n_padded_elems > DCPK_MAX_BUCKET_ELEMS)
        return dcpk_fail(err, DCPK_ERANGE, "'%s' has %" PRId64 " elements, more than %" PRId64,
                         b->key, b->n_padded_elems, DCPK_MAX_BUCKET_ELEMS);
    return DCPK_OK;
}

static dcpk_status check_records(struct dcpk_checkpoint *ckpt, unsigned flags,
                                 struct dcpk_bucket_list *list, struct dcpk_error *err)
{
    const struct dcpk_value *padded = NULL, *unpadded = NULL;

    for (size_t i = 0; i < list->n; i++) {
        struct dcpk_bucket *b = &list->buckets[i];
        const bool is_last = i + 1 == list->n;

        if (i == 0 || b[-1].is_expert != b->is_expert || b[-1].group != b->group) {
            if (load_record(ckpt, b->key, "per_bucket_numel", &padded, err) ||
                load_record(ckpt, b->key, "per_bucket_numel_unpadded", &unpadded, err))
                return err->status;
        }
        if (bucket_check_sizes(padded, unpadded, flags, b, err))
            return err->status;
        if ((is_last || b[1].number == 0) && !is_last_recorded(unpadded, b))
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%s': bucket %" PRId64 " is recorded, but not stored", b->key,
                             b->number + 1);
    }
    return DCPK_OK;
}

dcpk_status dcpk_bucket_check_states(const struct dcpk_bucket_list *list, struct dcpk_error *err)
{
    for (size_t i = 0; i < list->n; i++)
        for (size_t s = 0; s < list->n_states; s++)
            if (list->buckets[i].chunks[s] == NULL)
                return dcpk_fail(err, DCPK_EFORMAT, "'%s': the bucket has no '%s'",
                                 list->buckets[i].key, list->states[s]);
    return DCPK_OK;
}

dcpk_status dcpk_bucket_list_read(struct dcpk_checkpoint *ckpt, unsigned flags,
                                  struct dcpk_bucket_list *list, struct dcpk_error *err)
{
    struct entry *entries = NULL;
    size_t n = 0;

    *list = (struct dcpk_bucket_list){0};
    if (find_bucket_entries(ckpt, &entries, &n, err) == DCPK_OK && n > 0 &&
        bucket_list_build(ckpt, entries, n, flags, list, err) == DCPK_OK &&
        dcpk_bucket_check_states(list, err) == DCPK_OK)
        (void)check_records(ckpt, flags, list, err);
    dcpk_free(entries);
    return err->status;
}
