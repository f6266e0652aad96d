/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_buckets.c - any bucket keys, sizes and records: a list whose numbers fit together, or an
 * error. */
/*
 * The input is a small checkpoint: a line "<key> TAB <elements> TAB <start>,<start>,..." for each
 * tensor with the starts of its chunks ("<elements>/<slices>": it has two axes), a line "@<key>"
 * for each object, an empty line, and the pickle that every object holds. In the outline of an
 * object a text "T<n>" is a tensor of n elements at the start of the input.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_bucket_list.h"
#include "tests/fuzz/listed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static dcpk_status add_object(struct dcpk_checkpoint *ckpt, char *key, struct dcpk_error *err)
{
    const struct dcpk_object object = {key, {0, 0, dcpk_source_bytes(ckpt->files[0])}};

    return dcpk_checkpoint_add_object(ckpt, &object, err);
}

/* The starts become chunks that reach to the next start. */
static dcpk_status add_chunks(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *t,
                              const char *starts, struct dcpk_error *err)
{
    int64_t *last = NULL;
    char *end;

    for (; ckpt->n_chunks < LISTED_CHUNKS; starts = end + 1) {
        const long long at = strtoll(starts, &end, 10);
        int64_t *span = dcpk_arena_array(ckpt->arena, 2, sizeof *span, err);

        if (span == NULL)
            return err->status;
        if (end == starts || at < 0 || at > t->shape[0] || (last != NULL && at < last[0]))
            break;
        span[0] = at;
        span[1] = t->shape[0] - at;
        if (last != NULL)
            last[1] = at - last[0];
        last = span;
        ckpt->chunks[ckpt->n_chunks++] =
            (struct dcpk_chunk){.tensor = (uint32_t)ckpt->n_tensors, .span = span};
        t->n_chunks++;
        if (*end != ',')
            break;
    }
    return DCPK_OK;
}

/* Give a tensor that many slices as its first axis, and its chunks their place on the two axes. */
static dcpk_status add_axis(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *t, long long n_slices,
                            struct dcpk_error *err)
{
    int64_t *shape = dcpk_arena_array(ckpt->arena, 2, sizeof *shape, err), slice;

    if (shape == NULL)
        return err->status;
    if (n_slices < 1 || n_slices > t->shape[0])
        return dcpk_fail(err, DCPK_EFORMAT, "a number of slices out of range");
    shape[0] = n_slices;
    shape[1] = slice = t->shape[0] / n_slices;
    t->shape = shape;
    t->rank = 2;
    for (size_t i = 0; i < t->n_chunks; i++) {
        struct dcpk_chunk *chunk = &ckpt->chunks[t->first_chunk + i];
        int64_t *span = dcpk_arena_array(ckpt->arena, 4, sizeof *span, err);

        if (span == NULL)
            return err->status;
        span[0] = chunk->span[0] / slice;
        span[1] = chunk->span[0] % slice;
        span[2] = 1 + chunk->span[1] / slice; /* more than a slice at once: another form of chunk */
        span[3] = span[2] == 1 ? chunk->span[1] : slice;
        chunk->span = span;
    }
    return DCPK_OK;
}

static dcpk_status add_tensor(struct dcpk_checkpoint *ckpt, char *line, struct dcpk_error *err)
{
    char *elems = strchr(line, '\t'), *starts = elems == NULL ? NULL : strchr(elems + 1, '\t');
    struct dcpk_tensor t = {
        .key = line, .dtype = DCPK_F32, .rank = 1, .first_chunk = ckpt->n_chunks};
    int64_t *shape = dcpk_arena_array(ckpt->arena, 1, sizeof *shape, err);
    dcpk_status st;
    char *end;

    if (shape == NULL)
        return err->status;
    if (starts == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "a line without two tabs");
    *elems = *starts = '\0';
    shape[0] = strtoll(elems + 1, &end, 10);
    if (shape[0] < 0 || shape[0] > LISTED_ELEMS)
        return dcpk_fail(err, DCPK_EFORMAT, "a size out of range");
    t.shape = shape;
    st = add_chunks(ckpt, &t, starts + 1, err);
    if (st == DCPK_OK && *end == '/')
        st = add_axis(ckpt, &t, strtoll(end + 1, NULL, 10), err);
    return st == DCPK_OK ? dcpk_checkpoint_add_tensor(ckpt, &t, err) : st;
}

static dcpk_status fuzz_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return listed_read(ckpt, add_object, add_tensor, err);
}

/* Every object holds the pickle. */
static dcpk_status fuzz_load(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                             struct dcpk_arena *arena, const struct dcpk_value **value,
                             struct dcpk_error *err)
{
    (void)object;
    return listed_common(ckpt, arena, value, err);
}

/* A tensor for a text "T<n>"; other values stay. */
static const struct dcpk_value *as_tensor(struct dcpk_arena *arena, const struct dcpk_value *v,
                                          struct dcpk_error *err)
{
    const char *text = dcpk_value_as_str(v);
    struct dcpk_value_tensor *t;
    struct dcpk_value *made;
    int64_t *shape;

    if (text == NULL || *text != 'T')
        return v;
    t = dcpk_arena_alloc(arena, sizeof *t, err);
    made = dcpk_arena_alloc(arena, sizeof *made, err);
    shape = dcpk_arena_alloc(arena, sizeof *shape, err);
    if (t == NULL || made == NULL || shape == NULL)
        return NULL;
    *shape = strtoll(text + 1, NULL, 10) & INT64_MAX;
    *t = (struct dcpk_value_tensor){.dtype = DCPK_F32,
                                    .rank = 1,
                                    .shape = shape,
                                    .n_bytes = (uint64_t)*shape * 4,
                                    .is_row_major = true};
    made->kind = DCPK_V_TENSOR;
    made->as.tensor = t;
    return made;
}

/* Copy a value of lists and dicts that are nested so deeply, with tensors for their texts. */
static const struct dcpk_value *with_tensors(struct dcpk_arena *arena, const struct dcpk_value *v,
                                             int depth, struct dcpk_error *err)
{
    const struct dcpk_value **items;
    struct dcpk_value_pair *pairs;

    if (v == NULL || depth == 0 || (v->kind != DCPK_V_LIST && v->kind != DCPK_V_DICT) || v->n > 64)
        return as_tensor(arena, v, err);
    if (v->kind == DCPK_V_LIST) {
        items = dcpk_arena_array(arena, v->n, sizeof *items, err);
        for (size_t i = 0; items != NULL && i < v->n; i++)
            items[i] = with_tensors(arena, v->as.items[i], depth - 1, err);
        return items == NULL ? NULL : dcpk_value_seq(arena, DCPK_V_LIST, items, v->n, err);
    }
    pairs = dcpk_arena_array(arena, v->n, sizeof *pairs, err);
    for (size_t i = 0; pairs != NULL && i < v->n; i++) {
        pairs[i].key = v->as.pairs[i].key;
        pairs[i].value = with_tensors(arena, v->as.pairs[i].value, depth - 1, err);
    }
    return pairs == NULL ? NULL : dcpk_value_dict(arena, pairs, v->n, err);
}

static dcpk_status fuzz_outline(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    const struct dcpk_value *made, *read = NULL;
    dcpk_status st = fuzz_load(ckpt, object, arena, &read, err);

    if (st != DCPK_OK)
        return st;
    made = with_tensors(arena, read, 6, err);
    if (made == NULL)
        return err->status;
    *value = made;
    return DCPK_OK;
}

static const struct dcpk_format_reader reader = {.load_object = fuzz_load,
                                                 .outline_object = fuzz_outline};
static const struct dcpk_format format = {.name = "fuzz",
                                          .summary = "the input of this program",
                                          .state_bytes = sizeof(struct listed_state),
                                          .probe = listed_probe,
                                          .open = fuzz_open,
                                          .reader = &reader};

static void check_bucket(const struct dcpk_checkpoint *ckpt, const struct dcpk_bucket_list *list,
                         const struct dcpk_bucket *b)
{
    if (b->n_elems < 0 || b->n_padded_elems < b->n_elems ||
        (b->n_stored_elems != b->n_elems && b->n_stored_elems != b->n_padded_elems) ||
        b->group < 0 || b->buffer < 0 || b->number < 0)
        abort();
    for (size_t i = 0; i < b->n_cuts; i++)
        if (b->cuts[i] < 0 || b->cuts[i] >= b->n_stored_elems ||
            (i > 0 && b->cuts[i] <= b->cuts[i - 1]) || (i == 0 && b->cuts[i] != 0))
            abort();
    for (size_t s = 0; s < list->n_states; s++) {
        if (b->tensor[s] >= ckpt->n_tensors + ckpt->n_views)
            abort();
        for (size_t i = 0; i < b->n_cuts; i++)
            if (b->chunks[s][i] >= ckpt->n_chunks + ckpt->n_view_chunks ||
                ckpt->chunks[b->chunks[s][i]].tensor != b->tensor[s])
                abort();
    }
}

/* Read as buckets with and without their padding. */
static void read_list(struct dcpk_checkpoint *ckpt, unsigned flags)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bucket_list list;

    if (dcpk_bucket_list_read(ckpt, flags, &list, &err) == DCPK_OK) {
        for (size_t i = 0; i < list.n; i++)
            check_bucket(ckpt, &list, &list.buckets[i]);
    } else if (err.text[0] == '\0') {
        abort();
    }
}

/* The same of objects with gathered state. */
static void read_gathered(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bucket_list list;

    if (dcpk_gathered_list_read(ckpt, &list, &err) == DCPK_OK) {
        for (size_t i = 0; i < list.n; i++)
            check_bucket(ckpt, &list, &list.buckets[i]);
    } else if (err.text[0] == '\0') {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const struct dcpk_format *const formats[] = {&format, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;

    if (dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        return 0;
    if (dcpk_store_add_memory(store, "input", data, n_bytes, &err) != DCPK_OK) {
        dcpk_store_close(store);
        return 0;
    }
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err) != DCPK_OK)
        return 0;
    /* A conversion checks the cover before it looks at buckets. */
    if (dcpk_checkpoint_check_cover(ckpt, &err) == DCPK_OK) {
        read_list(ckpt, 0);
        read_list(ckpt, DCPK_BUCKETS_PADDED);
        read_gathered(ckpt);
    }
    dcpk_checkpoint_close(ckpt);
    return 0;
}
