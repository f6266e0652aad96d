/* SPDX-License-Identifier: Apache-2.0 */
/* memory_checkpoint.c - copies the shards of all ranks together, and shows them as tensors, chunks
 * and a canonical view. */
#include "lib/train/memory_checkpoint.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

/* ---- the index of all ranks' shards ---- */

/*
 * A box that several ranks hold (data-parallel copies, norms of tensor-parallel ranks) is a part of
 * the first of them.
 */

#define PLACE_BYTES UINT64_C(64) /* shards begin at multiples of it */

/* An index under construction. */
struct indexing {
    struct dcpk_memory_index *index;
    struct dcpk_arena *arena;
    struct dcpk_map tensors; /* name -> number */
    struct dcpk_map parts;   /* number of the tensor, span -> nothing */
};

static uint64_t place_bytes(const struct dcpk_shard *shard)
{
    return (dcpk_shard_bytes(shard) + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

uint64_t dcpk_memory_bytes(const struct dcpk_shard *shards, size_t n)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < n; i++)
        n_bytes += place_bytes(&shards[i]);
    return n_bytes;
}

bool dcpk_memory_name(const char *name, enum dcpk_role *role, const char **param)
{
    for (int r = 0; r < DCPK_N_ROLES; r++) {
        const char *role_name = dcpk_role_name((enum dcpk_role)r);
        const size_t n = strlen(role_name);

        if (strncmp(name, role_name, n) == 0 && name[n] == '.') {
            *role = (enum dcpk_role)r;
            *param = name + n + 1;
            return true;
        }
    }
    return false;
}

static dcpk_status index_find_tensor(struct indexing *in, const struct dcpk_shard *shard,
                                     uint32_t *number, struct dcpk_error *err)
{
    struct dcpk_memory_index *index = in->index;
    struct dcpk_memory_tensor *tensor = &index->tensors[index->n_tensors];
    const struct dcpk_shard *first;
    uint64_t found = index->n_tensors;
    bool existed;

    if (dcpk_map_put(&in->tensors, shard->name, strlen(shard->name), found, &existed, &found, err))
        return err->status;
    *number = (uint32_t)found;
    if (!existed) {
        index->n_tensors++;
        tensor->shard = shard;
        if (!dcpk_memory_name(shard->name, &tensor->role, &tensor->param))
            return dcpk_shards_fail(shard->holder, err);
        return DCPK_OK;
    }
    tensor = &index->tensors[found];
    first = tensor->shard;
    if (first->dtype != shard->dtype ||
        !dcpk_shape_equal(first->shape, first->rank, shard->shape, shard->rank))
        return dcpk_fail(err, DCPK_EMISMATCH, "ranks differ in the shape or dtype of '%s' (%s)",
                         tensor->param, dcpk_role_name(tensor->role));
    return DCPK_OK;
}

/* Makes it a part unless another rank's, or an earlier one, is the same. */
static dcpk_status index_add_part(struct indexing *in, const struct dcpk_shard *shard,
                                  struct dcpk_error *err)
{
    struct dcpk_memory_index *index = in->index;
    const size_t n = 1 + 2 * (size_t)shard->rank;
    int64_t *key = dcpk_arena_array(in->arena, n, sizeof *key, err);
    struct dcpk_memory_part part = {.shard = shard};
    uint64_t found;
    bool existed;

    if (key == NULL || index_find_tensor(in, shard, &part.tensor, err))
        return err->status;
    key[0] = part.tensor;
    memcpy(key + 1, shard->span, (n - 1) * sizeof *key);
    if (dcpk_map_put(&in->parts, (const char *)key, n * sizeof *key, 0, &existed, &found, err))
        return err->status;
    if (existed)
        return DCPK_OK;
    part.offset_bytes = index->owned_bytes[shard->holder];
    index->owned_bytes[shard->holder] += place_bytes(shard);
    index->tensors[part.tensor].n_parts++;
    index->parts[index->n_parts++] = part;
    return DCPK_OK;
}

/* Takes the shards of all ranks out of the text, which has been counted or not. */
static dcpk_status index_take(const struct dcpk_memory_index *index, struct dcpk_shard *shards,
                              size_t *n, struct dcpk_error *err)
{
    struct dcpk_cursor from;
    size_t n_here;

    *n = 0;
    dcpk_cursor_init(&from, index->text.data, index->text.n_bytes, 0);
    for (int r = 0; r < index->n_ranks; r++, *n += n_here)
        if (dcpk_shards_take(&from, r, shards != NULL ? shards + *n : NULL, &n_here, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status index_make(struct indexing *in, struct dcpk_error *err)
{
    struct dcpk_memory_index *index = in->index;
    struct dcpk_shard *shards;
    size_t n;

    if (index_take(index, NULL, &n, err))
        return err->status;
    shards = dcpk_arena_array(in->arena, n, sizeof *shards, err);
    index->tensors = dcpk_arena_array(in->arena, n, sizeof *index->tensors, err);
    index->parts = dcpk_arena_array(in->arena, n, sizeof *index->parts, err);
    index->owned_bytes =
        dcpk_arena_array(in->arena, (size_t)index->n_ranks, sizeof *index->owned_bytes, err);
    if (err->status != DCPK_OK || index_take(index, shards, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (index_add_part(in, &shards[i], err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_memory_index_gather(struct dcpk_ranks *ranks, const struct dcpk_shard *shards,
                                     size_t n, struct dcpk_arena *arena,
                                     struct dcpk_memory_index *index, struct dcpk_error *err)
{
    struct indexing in = {.index = index, .arena = arena};
    struct dcpk_bytes mine = {0};
    dcpk_status st = dcpk_shards_put(&mine, shards, n, err);

    index->n_ranks = dcpk_ranks_count(ranks);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&mine, err);
    st = dcpk_ranks_share(ranks, mine.data, mine.n_bytes, &index->text, st, err);
    dcpk_bytes_release(&mine);
    if (st == DCPK_OK)
        st = index_make(&in, err);
    dcpk_map_release(&in.tensors);
    dcpk_map_release(&in.parts);
    return st;
}

void dcpk_memory_index_release(struct dcpk_memory_index *index)
{
    dcpk_bytes_release(&index->text);
}

#define MADE_NAME                                                                                  \
    "made" /* a source next to "rank 0", "rank 1", ...: when each rank made its copy */

struct dcpk_memory_checkpoint {
    struct dcpk_format format; /* of this checkpoint alone, and first: ckpt->format is the rest */
    struct dcpk_checkpoint *ckpt;
    struct dcpk_arena *arena; /* of the index */
    struct dcpk_memory_index index;
    const struct dcpk_memory_state *state;
    struct dcpk_reserve *own; /* shards that this rank saves; NULL: they are in the caller's */
};

/* Data that a rank adds to its shards. The time keeps a save from the journal of another one
 * (lib/write/journal.h), whose shards may look the same. */
struct memory_made {
    struct dcpk_memory_id id;
    uint64_t time_ns;
};

static const struct dcpk_memory_checkpoint *memory_of(const struct dcpk_checkpoint *ckpt)
{
    return (const void *)ckpt->format;
}

struct dcpk_checkpoint *dcpk_memory_checkpoint(const struct dcpk_memory_checkpoint *memory)
{
    return memory->ckpt;
}

/* ---- the format ---- */

static dcpk_status memory_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    (void)store;
    (void)err;
    *score = 100;
    return DCPK_OK;
}

static dcpk_status memory_add_files(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    for (int r = 0; r < memory_of(ckpt)->index.n_ranks; r++) {
        struct dcpk_source *source;
        char name[32];
        uint32_t file;

        snprintf(name, sizeof name, "rank %d", r);
        if (dcpk_store_find(ckpt->store, name, &source, err) ||
            dcpk_checkpoint_add_file(ckpt, source, &file, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status memory_add_tensors(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_memory_index *index = &memory_of(ckpt)->index;
    size_t first = 0;

    for (size_t t = 0; t < index->n_tensors; t++) {
        const struct dcpk_memory_tensor *held = &index->tensors[t];
        const struct dcpk_tensor tensor = {.key = held->shard->name,
                                           .dtype = held->shard->dtype,
                                           .rank = held->shard->rank,
                                           .shape = held->shard->shape,
                                           .first_chunk = first,
                                           .n_chunks = held->n_parts};

        if (dcpk_checkpoint_add_tensor(ckpt, &tensor, err) != DCPK_OK)
            return err->status;
        first += held->n_parts;
    }
    return DCPK_OK;
}

/* Chunks of a tensor lie together. */
static dcpk_status memory_add_chunks(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_memory_index *index = &memory_of(ckpt)->index;
    size_t *next = dcpk_arena_array(ckpt->arena, index->n_tensors, sizeof *next, err);

    if (next == NULL)
        return err->status;
    ckpt->chunks = dcpk_alloc_array(index->n_parts, sizeof *ckpt->chunks, err);
    if (ckpt->chunks == NULL)
        return err->status;
    ckpt->n_chunks = index->n_parts;
    for (size_t i = 0; i < index->n_parts; i++) {
        const struct dcpk_memory_part *part = &index->parts[i];
        const size_t at = ckpt->tensors[part->tensor].first_chunk + next[part->tensor]++;

        ckpt->chunks[at] =
            (struct dcpk_chunk){.span = part->shard->span,
                                .place = {(uint32_t)part->shard->holder, part->offset_bytes,
                                          dcpk_shard_bytes(part->shard)},
                                .tensor = part->tensor};
    }
    return DCPK_OK;
}

static dcpk_status memory_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    if (memory_add_files(ckpt, err) || memory_add_tensors(ckpt, err) ||
        memory_add_chunks(ckpt, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status memory_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                 const struct dcpk_reader *reader, struct dcpk_extent *where,
                                 struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    int64_t stride_bytes = (int64_t)dcpk_dtype_bytes(tensor->dtype);

    (void)reader;
    (void)err;
    *where = (struct dcpk_extent){.source = ckpt->files[chunk->place.file],
                                  .first_bytes = chunk->place.offset_bytes,
                                  .is_row_major = true};
    for (int a = tensor->rank; a-- > 0; stride_bytes *= chunk->span[tensor->rank + a])
        where->stride_bytes[a] = stride_bytes;
    return DCPK_OK;
}

/* No file of a store without a disk is anybody else's. */
static bool memory_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    (void)ckpt;
    (void)name;
    return true;
}

/* True for names in values that this loop has made (run_values.h, run_rng.h). */
static bool memory_is_known(const char *module, const char *name)
{
    (void)module;
    (void)name;
    return true;
}

/* ---- its view ---- */

static dcpk_status memory_add_view(struct dcpk_model *model, uint32_t source,
                                   const struct dcpk_memory_tensor *held, struct dcpk_error *err)
{
    const struct dcpk_shard *shard = held->shard;
    struct dcpk_model_tensor tensor = {
        .role = held->role, .dtype = shard->dtype, .rank = shard->rank, .shape = shard->shape};
    struct dcpk_piece *piece = dcpk_arena_array(model->arena, 1, sizeof *piece, err);
    struct dcpk_box whole;

    if (piece == NULL)
        return err->status;
    if (held->role == DCPK_STATE)
        tensor.state = DCPK_MEMORY_STATE;
    dcpk_box_whole(shard->shape, shard->rank, &whole);
    if (dcpk_piece_make(model->arena, source, &whole, &whole, piece, err) ||
        dcpk_model_param(model, held->param, &tensor.param, err))
        return err->status;
    tensor.pieces = piece;
    tensor.n_pieces = 1;
    model->has_optimizer |= held->role != DCPK_WEIGHT && held->role != DCPK_MASTER;
    return dcpk_model_add(model, &tensor, err);
}

/* True if the tensor is asked for. Where only weights are, the best value is still the master. */
static bool memory_is_wanted(const struct dcpk_model *model, enum dcpk_role role)
{
    return (model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0 || role == DCPK_WEIGHT ||
           role == DCPK_MASTER;
}

static dcpk_status memory_put_state(struct dcpk_model *model, const struct dcpk_memory_state *state,
                                    struct dcpk_error *err)
{
    bool existed;

    model->args = state->args;
    model->scheduler = state->scheduler;
    model->scaler = state->scaler;
    model->flops = state->flops;
    model->common_step = state->step;
    model->is_fp32 = state->is_fp32;
    model->iteration = dcpk_value_int(model->arena, state->iteration, err);
    model->version = dcpk_value_float(model->arena, 3.0, err);
    if (model->iteration == NULL || model->version == NULL)
        return err->status;
    dcpk_model_read_layout(model);
    for (size_t i = 0; i < state->n_rng; i++)
        if (dcpk_model_add_rng(model, &state->rng[i], &existed, err) != DCPK_OK)
            return err->status;
    for (size_t g = 0; model->has_optimizer && g < state->n_groups; g++)
        if (dcpk_model_add_group(model, state->groups[g], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static dcpk_status memory_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                   struct dcpk_error *err)
{
    const struct dcpk_memory_checkpoint *memory = memory_of(ckpt);

    for (uint32_t t = 0; t < memory->index.n_tensors; t++) {
        const struct dcpk_memory_tensor *held = &memory->index.tensors[t];

        if (!memory_is_wanted(model, held->role))
            dcpk_model_omit(model, ckpt->tensors[t].key, dcpk_reason_weights_only);
        else if (memory_add_view(model, t, held, err) != DCPK_OK)
            return err->status;
    }
    return memory_put_state(model, memory->state, err);
}

static const char *memory_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_value *common)
{
    (void)ckpt;
    (void)common;
    return "model-shaped";
}

static const struct dcpk_format_reader memory_reader = {.locate = memory_locate,
                                                        .is_own = memory_is_own};
static const struct dcpk_format_mapping memory_mapping = {
    .to_model = memory_to_model, .optimizer_layout = memory_optimizer_layout};
static const struct dcpk_mark memory_marks[1]; /* the row that ends a table */

static const struct dcpk_format memory_format = {.name = "memory",
                                                 .summary = "the shards of a run that trains",
                                                 .marks = memory_marks,
                                                 .probe = memory_probe,
                                                 .open = memory_open,
                                                 .is_known = memory_is_known,
                                                 .reader = &memory_reader,
                                                 .mapping = &memory_mapping};

/* ---- making one ---- */

#define MAX_THREADS 8 /* that make memory ready */

dcpk_status dcpk_memory_reserve(const struct dcpk_memory_run *run, uint64_t n_bytes,
                                bool is_for_several, struct dcpk_reserve **reserve,
                                struct dcpk_error *err)
{
    struct dcpk_reserve_options options = {.host = run->host,
                                           .n_bytes = (size_t)dcpk_max_u64(n_bytes, 1),
                                           .n_threads =
                                               dcpk_ranks_threads(run->ranks, run->n_threads)};

    if (is_for_several && run->math != NULL)
        options.device = run->math->device;
    options.n_threads = (int)dcpk_min_i64(options.n_threads, MAX_THREADS);
    return dcpk_reserve_new(&options, reserve, err);
}

/* Copies this rank's tensors one after another, for all ranks to map. */
static dcpk_status memory_copy(struct dcpk_memory_checkpoint *made,
                               const struct dcpk_memory_run *run, struct dcpk_memory_id *id,
                               struct dcpk_error *err)
{
    const struct dcpk_memory_index *index = &made->index;
    const int self = dcpk_ranks_self(run->ranks);
    struct dcpk_reserve *reserve = run->reserve;

    if (reserve == NULL) {
        if (dcpk_memory_reserve(run, index->owned_bytes[self], false, &made->own, err) != DCPK_OK)
            return err->status;
        reserve = made->own;
    }
    assert(dcpk_reserve_bytes(reserve) >= index->owned_bytes[self]);
    if (dcpk_reserve_wait(reserve, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < index->n_parts; i++) {
        const struct dcpk_memory_part *part = &index->parts[i];

        if (part->shard->holder == self)
            run->math->ops->copy(run->math, dcpk_reserve_at(reserve) + part->offset_bytes,
                                 (const void *)(uintptr_t)part->shard->at,
                                 (size_t)dcpk_shard_bytes(part->shard));
    }
    if (run->math != NULL && run->math->ops->wait(run->math, err) != DCPK_OK)
        return err->status;
    return run->host->ops->export_memory(run->host, dcpk_reserve_at(reserve),
                                         dcpk_reserve_bytes(reserve), id, err);
}

/* Maps the memory of every rank as a file of the store. */
static dcpk_status memory_map_ranks(const struct dcpk_memory_run *run,
                                    const struct dcpk_memory_index *index,
                                    const struct dcpk_bytes *all, struct dcpk_store *store,
                                    struct dcpk_error *err)
{
    for (int r = 0; r < index->n_ranks; r++) {
        struct memory_made its;
        char name[32];
        void *at;

        memcpy(&its, all->data + (size_t)r * sizeof its, sizeof its);
        if (!dcpk_memory_id_is_near(&its.id))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "rank %d is on another host, or does not see the processes of this "
                             "one: the ranks of a run that saves share the memory of one host",
                             r);
        snprintf(name, sizeof name, "rank %d", r);
        if (run->host->ops->import_memory(run->host, &its.id, &at, err) ||
            dcpk_store_add_borrowed(store, name, at, (size_t)index->owned_bytes[r], err))
            return err->status;
    }
    return dcpk_store_add_memory(store, MADE_NAME, all->data, all->n_bytes, err);
}

static dcpk_status memory_open_store(struct dcpk_memory_checkpoint *made,
                                     const struct dcpk_memory_run *run,
                                     const struct dcpk_bytes *all, struct dcpk_error *err)
{
    const struct dcpk_format *const formats[] = {&made->format, NULL};
    struct dcpk_store *store;

    if (dcpk_store_new_memory("the run's memory", &store, err) != DCPK_OK)
        return err->status;
    if (memory_map_ranks(run, &made->index, all, store, err)) {
        dcpk_store_close(store);
        return err->status;
    }
    if (dcpk_checkpoint_open(store, formats, NULL, &made->ckpt, err) != DCPK_OK)
        return err->status;
    made->ckpt->iteration = run->state->iteration;
    return DCPK_OK;
}

/* Collective inside the work. */
static dcpk_status memory_make(struct dcpk_memory_checkpoint *made,
                               const struct dcpk_memory_run *run, struct dcpk_error *err)
{
    struct memory_made mine = {.time_ns = 0};
    struct dcpk_bytes all = {0};
    struct timespec now = {0};
    dcpk_status st = dcpk_memory_index_gather(run->ranks, run->shards, run->n_shards, made->arena,
                                              &made->index, err);

    if (st == DCPK_OK)
        st = memory_copy(made, run, &mine.id, err);
    clock_gettime(CLOCK_REALTIME, &now);
    mine.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    st = dcpk_ranks_share_each(run->ranks, &mine, sizeof mine, &all, st, err);
    if (st == DCPK_OK)
        st = memory_open_store(made, run, &all, err);
    dcpk_bytes_release(&all);
    return st;
}

dcpk_status dcpk_memory_open(const struct dcpk_memory_run *run,
                             struct dcpk_memory_checkpoint **memory, struct dcpk_error *err)
{
    struct dcpk_memory_checkpoint *made = dcpk_alloc(sizeof *made, err);
    dcpk_status st = err->status;

    if (made != NULL) {
        made->format = memory_format;
        made->state = run->state;
        made->arena = dcpk_arena_new();
        st = memory_make(made, run, err);
    }
    st = dcpk_ranks_agree(run->ranks, st, err);
    if (st != DCPK_OK) {
        dcpk_memory_close(made);
        return st;
    }
    *memory = made;
    return DCPK_OK;
}

void dcpk_memory_close(struct dcpk_memory_checkpoint *memory)
{
    if (memory == NULL)
        return;
    dcpk_checkpoint_close(memory->ckpt);
    dcpk_memory_index_release(&memory->index);
    dcpk_arena_free(memory->arena);
    dcpk_reserve_free(memory->own);
    dcpk_free(memory);
}
