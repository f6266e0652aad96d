/* SPDX-License-Identifier: Apache-2.0 */
/* listed.h - a small checkpoint as text, for fuzz targets of what looks at keys, shapes and values.
 */
/*
 * A line "<key> TAB <size>,<size>,... TAB <start>,<start>,..." for each tensor, with the starts of
 * its chunks along the first axis (none: one chunk), and perhaps TAB and a dtype (none: float32); a
 * line "@<key>" for each object; an empty line, and a pickle: the common state, and what every
 * object holds of whose key it has no member.
 */
#ifndef DCPK_TESTS_FUZZ_LISTED_H
#define DCPK_TESTS_FUZZ_LISTED_H

#include <stdlib.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"

#define LISTED_CHUNKS 4096
#define LISTED_ELEMS  ((int64_t)1 << 40)
#define LISTED_SLICES 256 /* of a stacked tensor */

struct listed_state {
    const char *pickle;
    size_t n_bytes;
};

static inline dcpk_status listed_object(struct dcpk_checkpoint *ckpt, char *key,
                                        struct dcpk_error *err)
{
    const struct dcpk_object object = {.key = key};

    return dcpk_checkpoint_add_object(ckpt, &object, err);
}

/* One more chunk, from `at` to the end of the first axis, where the one before it now stops. */
static inline dcpk_status listed_chunk(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *t,
                                       int64_t at, struct dcpk_error *err)
{
    const size_t rank = (size_t)t->rank;
    int64_t *span = dcpk_arena_array(ckpt->arena, 2 * rank + 1, sizeof *span, err);

    if (span == NULL)
        return err->status;
    memcpy(span + rank, t->shape, rank * sizeof *span);
    if (rank > 0) {
        span[0] = at;
        span[rank] = t->shape[0] - at;
    }
    if (t->n_chunks > 0) {
        const int64_t *before = ckpt->chunks[ckpt->n_chunks - 1].span;
        int64_t *copy = dcpk_arena_array(ckpt->arena, 2 * rank, sizeof *copy, err);

        if (copy == NULL)
            return err->status;
        memcpy(copy, before, 2 * rank * sizeof *copy);
        copy[rank] = at - before[0];
        ckpt->chunks[ckpt->n_chunks - 1].span = copy;
    }
    ckpt->chunks[ckpt->n_chunks++] =
        (struct dcpk_chunk){.tensor = (uint32_t)ckpt->n_tensors, .span = span};
    t->n_chunks++;
    return DCPK_OK;
}

static inline dcpk_status listed_chunks(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *t,
                                        const char *starts, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    char *end;

    for (; ckpt->n_chunks < LISTED_CHUNKS && st == DCPK_OK; starts = end + 1) {
        const long long at = strtoll(starts, &end, 10);

        if (end == starts && t->n_chunks == 0)
            return listed_chunk(ckpt, t, 0, err);
        if (end == starts || t->rank == 0 || at < 0 || at > t->shape[0] ||
            (t->n_chunks > 0 && at < ckpt->chunks[ckpt->n_chunks - 1].span[0]))
            break;
        st = listed_chunk(ckpt, t, at, err);
        if (*end != ',')
            break;
    }
    return st;
}

static inline dcpk_status listed_shape(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *t,
                                       const char *sizes, struct dcpk_error *err)
{
    int64_t *shape = dcpk_arena_array(ckpt->arena, DCPK_MAX_RANK, sizeof *shape, err), left;
    char *end;

    if (shape == NULL)
        return err->status;
    left = LISTED_ELEMS;
    for (; *sizes != '\0' && t->rank < DCPK_MAX_RANK; sizes = *end == ',' ? end + 1 : end) {
        shape[t->rank] = strtoll(sizes, &end, 10);
        if (end == sizes || shape[t->rank] < 0 || shape[t->rank] > left)
            return dcpk_fail(err, DCPK_EFORMAT, "a size out of range");
        left /= shape[t->rank] > 0 ? shape[t->rank] : 1;
        t->rank++;
    }
    t->shape = shape;
    return DCPK_OK;
}

/* Would it become so many parameters that one input takes seconds? A file of that many slices would
 * be large; more than a million are refused by what is tested here. */
static inline bool listed_is_slow(const struct dcpk_tensor *t)
{
    int64_t n_slices = 1;
    bool is_slow = false;

    for (int a = 0; a + 1 < t->rank && a < 2; a++) {
        n_slices *= t->shape[a];
        is_slow = is_slow || (n_slices > LISTED_SLICES && n_slices <= 1 << 20);
    }
    return is_slow;
}

static inline dcpk_status listed_tensor(struct dcpk_checkpoint *ckpt, char *line,
                                        struct dcpk_error *err)
{
    const char *key = strsep(&line, "\t"), *sizes = strsep(&line, "\t");
    const char *starts = strsep(&line, "\t"), *dtype = strsep(&line, "\t");
    struct dcpk_tensor t = {
        .key = key,
        .dtype = dtype == NULL ? DCPK_F32 : dcpk_dtype_from_name(dtype),
        .first_chunk = ckpt->n_chunks,
    };
    dcpk_status st;

    if (starts == NULL || t.dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EFORMAT, "a line without two tabs, or of no dtype");
    st = listed_shape(ckpt, &t, sizes, err);
    if (st == DCPK_OK && listed_is_slow(&t))
        st = dcpk_fail(err, DCPK_EFORMAT, "a stack too high for this program");
    if (st == DCPK_OK)
        st = listed_chunks(ckpt, &t, starts, err);
    return st == DCPK_OK ? dcpk_checkpoint_add_tensor(ckpt, &t, err) : st;
}

/* What a line becomes; it may be changed. */
typedef dcpk_status listed_line(struct dcpk_checkpoint *ckpt, char *line, struct dcpk_error *err);

/* Read the lines, and where the pickle lies. */
static inline dcpk_status listed_read(struct dcpk_checkpoint *ckpt, listed_line *add_object,
                                      listed_line *add_tensor, struct dcpk_error *err)
{
    struct listed_state *state = ckpt->state;
    struct dcpk_source *source;
    char *copy = NULL, *text, *next;
    size_t n;
    dcpk_status st = dcpk_store_find(ckpt->store, "input", &source, err);

    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, 1 << 20, &copy, &n, err);
    if (st != DCPK_OK)
        return st;
    text = dcpk_arena_strndup(ckpt->arena, copy, n, err);
    dcpk_free(copy);
    ckpt->files = dcpk_alloc_array(1, sizeof(struct dcpk_source *), err);
    ckpt->chunks = dcpk_alloc_array(LISTED_CHUNKS + 1, sizeof *ckpt->chunks, err);
    if (text == NULL || ckpt->files == NULL || ckpt->chunks == NULL)
        return err->status;
    ckpt->files[ckpt->n_files++] = source;
    for (char *line = text; st == DCPK_OK && line < text + n; line = next) {
        char *end = memchr(line, '\n', (size_t)(text + n - line));

        if (end == NULL || end == line || ckpt->n_chunks >= LISTED_CHUNKS) {
            state->pickle = end == NULL ? line : end + 1;
            state->n_bytes = (size_t)(text + n - state->pickle);
            break;
        }
        *end = '\0';
        next = end + 1;
        st = *line == '@' ? add_object(ckpt, line + 1, err) : add_tensor(ckpt, line, err);
    }
    return st;
}

static inline dcpk_status listed_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return listed_read(ckpt, listed_object, listed_tensor, err);
}

static inline dcpk_status listed_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_pickle_options options = {.persistent = NULL};
    const struct listed_state *state = ckpt->state;

    return dcpk_pickle_read(state->pickle, state->n_bytes, &options, arena, value, err);
}

static inline dcpk_status listed_load(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_object *object, struct dcpk_arena *arena,
                                      const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value *member;
    const dcpk_status st = listed_common(ckpt, arena, value, err);

    member = st == DCPK_OK ? dcpk_value_get(*value, object->key) : NULL;
    if (member != NULL)
        *value = member;
    return st;
}

static inline dcpk_status listed_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    (void)store;
    (void)err;
    *score = 1;
    return DCPK_OK;
}

static const struct dcpk_format_reader listed_reader = {.load_object = listed_load};

/* The checkpoint of such a text, NULL where there is none, of a format whose fields are these. */
#define LISTED_FORMAT                                                                              \
    .name = "listed", .summary = "the input of a fuzz target",                                     \
    .state_bytes = sizeof(struct listed_state), .probe = listed_probe, .open = listed_open,        \
    .reader = &listed_reader

static inline struct dcpk_checkpoint *listed_checkpoint(const struct dcpk_format *format,
                                                        const uint8_t *data, size_t n_bytes)
{
    const struct dcpk_format *const formats[] = {format, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;

    if (dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK ||
        dcpk_store_add_memory(store, "input", data, n_bytes, &err) != DCPK_OK)
        abort();
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err) != DCPK_OK)
        return NULL; /* which has closed the store */
    /* A conversion checks the cover before it looks at anything. */
    if (dcpk_checkpoint_check_cover(ckpt, &err) == DCPK_OK)
        return ckpt;
    dcpk_checkpoint_close(ckpt);
    return NULL;
}

#endif
