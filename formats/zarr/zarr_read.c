/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_read.c - the folders of a zarr checkpoint -> tensors, chunks and objects. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/zarr/zarr_array.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define ARRAY_JSON     ".zarray"
#define MAX_JSON_BYTES (1u << 20)
#define MAX_KEY_BYTES  (DCPK_ZARR_MAX_KEY_BYTES + 2)
#define MAX_NAME_BYTES (MAX_KEY_BYTES + 24 * DCPK_MAX_RANK) /* "<key>/<i>.<j>.<k>" */
/*
 * Chunks of all arrays together that may be left out: each costs memory without a byte on disk.
 * Megatron writes every chunk; another writer may leave out both moments of a fresh optimizer,
 * next to weights and perhaps masters, so that as many again are allowed for each file that is
 * there.
 */
#define MAX_MISSING        65536
#define MISSING_FOR_A_FILE 2

void dcpk_zarr_close(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_zarr_state *state = ckpt->state;

    dcpk_free(state->layouts);
}

/* An array while its chunks are listed. */
struct listing {
    const char *key;
    const struct dcpk_zarr_array *array;
    int64_t index[DCPK_MAX_RANK];
    struct dcpk_source *json; /* its .zarray: the place of chunks that have no file */
    uint32_t json_file;       /* once there is such a chunk */
    int64_t n_missing;
};

static bool next_index(struct listing *l)
{
    for (int a = l->array->rank; a-- > 0;) {
        if (++l->index[a] < l->array->grid[a])
            return true;
        l->index[a] = 0;
    }
    return false;
}

/* "<key>/0.1.0"; a scalar's one chunk is "0" (FORMAT.md 1). */
static void listing_chunk_name(const struct listing *l, char name[MAX_NAME_BYTES])
{
    size_t n =
        (size_t)snprintf(name, MAX_NAME_BYTES, "%s/%s", l->key, l->array->rank > 0 ? "" : "0");

    for (int a = 0; a < l->array->rank; a++) {
        const char separator[2] = {a > 0 ? l->array->separator : '\0', '\0'};

        n += (size_t)snprintf(name + n, MAX_NAME_BYTES - n, "%s%" PRId64, separator, l->index[a]);
    }
    assert(n < MAX_NAME_BYTES);
}

/* The files of one folder. A folder in an archive is nothing of its own. */
static dcpk_status count_files(struct dcpk_checkpoint *ckpt, const char *folder, size_t *n_files,
                               struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    char **names;
    size_t n;

    if (dcpk_store_look(ckpt->store, folder, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_FILE || kind == DCPK_PATH_OTHER)
        return DCPK_OK;
    if (dcpk_store_list_in(ckpt->store, folder, &names, &n, err))
        return err->status;
    *n_files += n;
    dcpk_free(names);
    return DCPK_OK;
}

/* Chunks that may be left out, by the number of files in the folders of all arrays. */
static dcpk_status count_missable(struct dcpk_checkpoint *ckpt, uint64_t *may_miss,
                                  struct dcpk_error *err)
{
    char **folders = NULL;
    size_t n_folders = 0, n_files = 0;

    (void)dcpk_store_list(ckpt->store, &folders, &n_folders, err);
    for (size_t i = 0; i < n_folders && err->status == DCPK_OK; i++)
        (void)count_files(ckpt, folders[i], &n_files, err);
    *may_miss = MAX_MISSING + MISSING_FOR_A_FILE * (uint64_t)n_files;
    dcpk_free(folders);
    return err->status;
}

/* One more chunk is missing. The files are counted only where it matters. */
static dcpk_status check_missing(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_zarr_state *state = ckpt->state;

    if (state->n_missing++ < MAX_MISSING)
        return DCPK_OK;
    if (state->may_miss == 0 && count_missable(ckpt, &state->may_miss, err) != DCPK_OK)
        return err->status;
    if (state->n_missing <= state->may_miss)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "more than %" PRIu64
                     " chunks are missing in all arrays together, the limit for what is there",
                     state->may_miss);
}

/* A chunk without a file: zero where fill_value is 0; without one its content is lost. */
static dcpk_status missing_chunk(struct dcpk_checkpoint *ckpt, struct listing *l, const char *name,
                                 struct dcpk_place *place, struct dcpk_error *err)
{
    if (l->array->fill == DCPK_ZARR_FILL_NONE)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "chunk '%s' is missing and fill_value is null: its elements are lost",
                         name);
    if (l->array->fill == DCPK_ZARR_FILL_OTHER)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "chunk '%s' is missing and fill_value is not 0: left-out chunks are "
                         "read as zero only",
                         name);
    if (check_missing(ckpt, err) ||
        (l->n_missing++ == 0 && dcpk_checkpoint_add_file(ckpt, l->json, &l->json_file, err)))
        return err->status;
    *place = (struct dcpk_place){.file = l->json_file};
    return DCPK_OK;
}

/* A chunk file has the length it must have. */
static dcpk_status check_length(const struct dcpk_zarr_array *array, struct dcpk_source *source,
                                struct dcpk_error *err)
{
    const uint64_t n_bytes = dcpk_source_bytes(source), whole = array->chunk_bytes;

    if (array->codec == NULL && n_bytes != whole)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s' has %" PRIu64 " bytes, a chunk has %" PRIu64
                         " (at the edge too): it is damaged or of another array",
                         dcpk_source_name(source), n_bytes, whole);
    /* no compressor makes it larger by more; bounds the memory that decoding takes */
    if (array->codec != NULL && (n_bytes == 0 || n_bytes / 2 > whole + 4096))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%s' has %" PRIu64
                         " bytes, which cannot be a compressed chunk of %" PRIu64,
                         dcpk_source_name(source), n_bytes, whole);
    return DCPK_OK;
}

static dcpk_status zarr_find_chunk(struct dcpk_checkpoint *ckpt, struct listing *l,
                                   struct dcpk_place *place, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    struct dcpk_source *source;
    char name[MAX_NAME_BYTES];

    listing_chunk_name(l, name);
    if (dcpk_store_look(ckpt->store, name, &kind, err) != DCPK_OK)
        return err->status;
    if (kind == DCPK_PATH_NOTHING)
        return missing_chunk(ckpt, l, name, place, err);
    if (dcpk_store_find(ckpt->store, name, &source, err) != DCPK_OK)
        return err->status;
    if (check_length(l->array, source, err) ||
        dcpk_checkpoint_add_file(ckpt, source, &place->file, err))
        return err->status;
    place->offset_bytes = 0;
    place->n_bytes = dcpk_source_bytes(source);
    return DCPK_OK;
}

static dcpk_status listing_add_chunk(struct dcpk_checkpoint *ckpt, struct listing *l,
                                     uint32_t tensor, struct dcpk_error *err)
{
    struct dcpk_zarr_state *state = ckpt->state;
    const struct dcpk_zarr_array *array = l->array;
    const size_t rank = (size_t)array->rank;
    int64_t *span = dcpk_arena_array(ckpt->arena, 2 * rank, sizeof *span, err);
    struct dcpk_chunk chunk = {.tensor = tensor, .span = span};

    if (span == NULL)
        return err->status;
    for (size_t a = 0; a < rank; a++) {
        const int64_t left = array->shape[a] - l->index[a] * array->chunk[a];

        span[a] = l->index[a] * array->chunk[a];
        span[rank + a] = dcpk_min_i64(left, array->chunk[a]);
    }
    if (zarr_find_chunk(ckpt, l, &chunk.place, err) ||
        dcpk_grow(&ckpt->chunks, &state->chunks_capacity, ckpt->n_chunks, sizeof chunk, err))
        return err->status;
    ckpt->chunks[ckpt->n_chunks++] = chunk;
    return DCPK_OK;
}

static dcpk_status array_add_tensor(struct dcpk_checkpoint *ckpt, const char *key,
                                    const struct dcpk_zarr_array *array, struct dcpk_error *err)
{
    struct dcpk_zarr_state *state = ckpt->state;
    const int64_t *shape =
        dcpk_arena_copy(ckpt->arena, array->shape, (size_t)array->rank, sizeof *shape, err);
    struct dcpk_tensor tensor = {.key = dcpk_arena_strdup(ckpt->arena, key, err),
                                 .dtype = array->dtype,
                                 .rank = array->rank,
                                 .shape = shape,
                                 .first_chunk = ckpt->n_chunks,
                                 .n_chunks = (size_t)array->n_chunks};

    if (shape == NULL || tensor.key == NULL ||
        dcpk_grow(&state->layouts, &state->layouts_capacity, ckpt->n_tensors,
                  sizeof *state->layouts, err) ||
        dcpk_checkpoint_add_tensor(ckpt, &tensor, err))
        return err->status;
    state->layouts[ckpt->n_tensors - 1] =
        (struct dcpk_zarr_layout){.chunk_bytes = array->chunk_bytes, .codec = array->codec};
    memcpy(state->layouts[ckpt->n_tensors - 1].chunk, array->chunk, sizeof array->chunk);
    return DCPK_OK;
}

static dcpk_status read_json(struct dcpk_source *source, struct dcpk_zarr_array *array,
                             struct dcpk_error *err)
{
    char *text = NULL;
    size_t n;

    if (dcpk_source_slurp(source, MAX_JSON_BYTES, &text, &n, err) ||
        dcpk_zarr_parse(text, n, array, err))
        dcpk_context(err, "reading '%s'", dcpk_source_name(source));
    dcpk_free(text);
    return err->status;
}

static void note_array(struct dcpk_checkpoint *ckpt, const struct listing *l)
{
    struct dcpk_zarr_state *state = ckpt->state;

    if (l->array->unknown[0] != '\0')
        dcpk_checkpoint_note(ckpt, "'%s/%s': the field \"%s\" is unknown and ignored", l->key,
                             ARRAY_JSON, l->array->unknown);
    if (l->n_missing > 0)
        dcpk_checkpoint_note(ckpt, "'%s': %" PRId64 " chunks are left out and read as zero", l->key,
                             l->n_missing);
    if (l->array->is_void && !state->has_void) {
        state->has_void = true;
        dcpk_checkpoint_note(ckpt,
                             "'%s' and perhaps others: dtype of two bytes without a type, read as "
                             "bfloat16 (a save that was cut short leaves it so)",
                             l->key);
    }
}

/* Files next to the chunks are not read; they may be of a larger array that was here before. */
static dcpk_status note_strays(struct dcpk_checkpoint *ckpt, const struct listing *l,
                               struct dcpk_error *err)
{
    const size_t n_chunks = (size_t)(l->array->n_chunks - l->n_missing);
    char **names = NULL;
    size_t n = 0, n_files = 0;

    if (l->array->separator != '.')
        return DCPK_OK;
    if (dcpk_store_list_in(ckpt->store, l->key, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        n_files += names[i][0] != '.';
    dcpk_free(names);
    if (n_files > n_chunks)
        dcpk_checkpoint_note(ckpt, "'%s': %zu files are not chunks of its grid and are not read",
                             l->key, n_files - n_chunks);
    return DCPK_OK;
}

static dcpk_status add_array(struct dcpk_checkpoint *ckpt, const char *key,
                             struct dcpk_source *json, struct dcpk_error *err)
{
    struct dcpk_zarr_array array;
    struct listing l = {.key = key, .array = &array, .json = json};
    bool is_left;

    if (read_json(json, &array, err) || array_add_tensor(ckpt, key, &array, err))
        return err->status;
    for (is_left = array.n_chunks > 0; is_left; is_left = next_index(&l))
        if (listing_add_chunk(ckpt, &l, (uint32_t)(ckpt->n_tensors - 1), err))
            return err->status;
    note_array(ckpt, &l);
    return note_strays(ckpt, &l, err);
}

bool dcpk_zarr_is_shard(const char *name, size_t n, bool *is_short)
{
    const char *offsets = name + strlen("shard_"), *shape;
    int n_dots[2] = {0, 0};

    if (!dcpk_starts_with(name, "shard_"))
        return false;
    shape = memchr(offsets, '_', n - strlen("shard_"));
    if (shape == NULL)
        return false;
    for (const char *p = offsets; p < name + n; p++)
        n_dots[p > shape] += *p == '.';
    *is_short = n_dots[0] > n_dots[1];
    return true;
}

static dcpk_status add_object(struct dcpk_checkpoint *ckpt, const char *folder, const char *name,
                              struct dcpk_error *err)
{
    struct dcpk_object object = {0};
    struct dcpk_source *source;
    char path[MAX_NAME_BYTES];

    if (strlen(name) > MAX_NAME_BYTES - MAX_KEY_BYTES - 2)
        return dcpk_fail(err, DCPK_ERANGE, "'%.100s...' in '%s': the name is too long", name,
                         folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (dcpk_store_find(ckpt->store, path, &source, err) ||
        dcpk_checkpoint_add_file(ckpt, source, &object.place.file, err))
        return err->status;
    object.place.n_bytes = dcpk_source_bytes(source);
    object.key = dcpk_arena_strndup(ckpt->arena, path, strlen(path) - strlen(".pt"), err);
    if (object.key == NULL)
        return err->status;
    return dcpk_checkpoint_add_object(ckpt, &object, err);
}

/* "3.0.1": the indices of a chunk. */
static bool is_chunk_name(const char *name)
{
    return name[0] != '\0' && strspn(name, "0123456789.") == strlen(name);
}

/* A folder without .zarray: the shards of an object, or nothing of ours. */
static dcpk_status add_objects(struct dcpk_checkpoint *ckpt, const char *folder, char **names,
                               size_t n, struct dcpk_error *err)
{
    struct dcpk_zarr_state *state = ckpt->state;
    bool is_short = false;
    size_t n_others = 0, n_chunks = 0;

    for (size_t i = 0; i < n; i++) {
        if (!dcpk_ends_with(names[i], ".pt") ||
            !dcpk_zarr_is_shard(names[i], strlen(names[i]) - strlen(".pt"), &is_short)) {
            n_others++;
            n_chunks += is_chunk_name(names[i]);
            continue;
        }
        if (add_object(ckpt, folder, names[i], err))
            return err->status;
        if (is_short && !state->has_short_name) {
            state->has_short_name = true;
            dcpk_checkpoint_note(ckpt,
                                 "'%s/%s' and perhaps others: the name lacks the last number of "
                                 "the shape, as core 0.4 to 0.7 wrote it",
                                 folder, names[i]);
        }
    }
    if (n_others > n_chunks)
        dcpk_checkpoint_note(ckpt, "'%s' holds %zu names that are not part of a checkpoint", folder,
                             n_others - n_chunks);
    if (n_chunks == 0)
        return DCPK_OK;
    dcpk_checkpoint_note(ckpt, "'%s' holds %zu chunks without a '%s'", folder, n_chunks,
                         ARRAY_JSON);
    if (state->headless == NULL)
        state->headless = dcpk_arena_strdup(ckpt->arena, folder, err);
    return dcpk_made(state->headless, err);
}

static dcpk_status zarr_add_entry(struct dcpk_checkpoint *ckpt, const char *name,
                                  struct dcpk_error *err)
{
    enum dcpk_path_kind array, entry;
    struct dcpk_source *json;
    char path[MAX_NAME_BYTES];
    char **names = NULL;
    size_t n = 0;

    if (strlen(name) > DCPK_ZARR_MAX_KEY_BYTES)
        return dcpk_fail(err, DCPK_ERANGE, "'%.100s...': the name has %zu bytes, the limit is %d",
                         name, strlen(name), DCPK_ZARR_MAX_KEY_BYTES);
    /* Locks of zarr's ProcessSynchronizer (FORMAT.md 1): some hold an empty .zarray. */
    if (dcpk_ends_with(name, ".sync"))
        return DCPK_OK;
    snprintf(path, sizeof path, "%s/%s", name, ARRAY_JSON);
    if (dcpk_store_look(ckpt->store, path, &array, err) ||
        dcpk_store_look(ckpt->store, name, &entry, err))
        return err->status;
    if (array != DCPK_PATH_NOTHING) {
        if (dcpk_store_find(ckpt->store, path, &json, err))
            return err->status;
        return add_array(ckpt, name, json, err);
    }
    if (entry == DCPK_PATH_FILE) {
        if (name[0] != '.' && strcmp(name, DCPK_MEGATRON_METADATA_JSON) != 0 &&
            strcmp(name, DCPK_ZARR_COMMON_PT) != 0)
            dcpk_checkpoint_note(ckpt, "'%s' is not part of a zarr checkpoint", name);
        return DCPK_OK;
    }
    if (dcpk_store_list_in(ckpt->store, name, &names, &n, err))
        return err->status;
    (void)add_objects(ckpt, name, names, n, err);
    dcpk_free(names);
    return err->status;
}

dcpk_status dcpk_zarr_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;

    if (dcpk_megatron_check_backend(ckpt->store, DCPK_MEGATRON_METADATA_JSON, "zarr", err) ||
        dcpk_store_list(ckpt->store, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n && err->status == DCPK_OK; i++)
        (void)zarr_add_entry(ckpt, names[i], err);
    if (err->status == DCPK_OK && ckpt->n_tensors == 0)
        (void)dcpk_fail(err, DCPK_EFORMAT,
                        "'%s' says zarr, but no folder here holds a '%s' (no arrays)",
                        DCPK_MEGATRON_METADATA_JSON, ARRAY_JSON);
    dcpk_free(names);
    return err->status;
}

/*
 * A chunk file holds the whole chunk, at the edge too, so strides are those of the whole chunk; the
 * part inside the tensor is one run when only axes before all longer ones are cut.
 */
dcpk_status dcpk_zarr_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                             const struct dcpk_reader *reader, struct dcpk_extent *where,
                             struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const struct dcpk_zarr_layout *layout =
        &((const struct dcpk_zarr_state *)ckpt->state)->layouts[chunk->tensor];
    const int64_t *extent = chunk->span + tensor->rank;
    int64_t stride = (int64_t)dcpk_dtype_bytes(tensor->dtype);
    bool is_longer = false; /* an axis before this one has more than one index */

    (void)reader; /* a file is a chunk */
    (void)err;
    *where = (struct dcpk_extent){.source = ckpt->files[chunk->place.file], .is_row_major = true};
    for (int a = tensor->rank; a-- > 0;) {
        where->stride_bytes[a] = stride;
        stride *= layout->chunk[a];
    }
    for (int a = 0; a < tensor->rank; a++) {
        if (is_longer && extent[a] != layout->chunk[a])
            where->is_row_major = false;
        is_longer = is_longer || extent[a] > 1;
    }
    if (chunk->place.n_bytes == 0) {
        where->is_zero = true;
    } else if (layout->codec != NULL) {
        where->decoded_bytes = layout->chunk_bytes;
        where->record_bytes = chunk->place.n_bytes;
    }
    return DCPK_OK;
}

dcpk_status dcpk_zarr_decode(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                             void *out, struct dcpk_error *err)
{
    const struct dcpk_zarr_layout *layout =
        &((const struct dcpk_zarr_state *)ckpt->state)->layouts[chunk->tensor];
    struct dcpk_source *source = ckpt->files[chunk->place.file];
    const size_t n_bytes = (size_t)chunk->place.n_bytes;
    uint8_t *in = dcpk_alloc(n_bytes, err);

    if (in == NULL)
        return err->status;
    if (dcpk_source_read(source, 0, in, n_bytes, err) ||
        layout->codec->decode(in, n_bytes, out, (size_t)layout->chunk_bytes, err))
        dcpk_context(err, "decoding '%s' (%s)", dcpk_source_name(source), layout->codec->id);
    dcpk_free(in);
    return err->status;
}
