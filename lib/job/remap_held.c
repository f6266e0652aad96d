/* SPDX-License-Identifier: Apache-2.0 */
/* remap_held.c - one layout in the memory of a rank: laid out, loaded, wiped, held against the
 * files. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/exec/slab.h"
#include "lib/job/remap_checkpoint_priv.h"
#include "lib/plan/remap_tiles.h"
#include "lib/tensor/strided.h"

#define PLACE_ALIGN 256 /* of local tensors, as torch's allocator has them; FSDP packs them */
#define READ_TILE   (4 * (size_t)DCPK_TILE_BYTES)
#define WIPE_BYTE   0xa5
#define WIPE_BYTES  ((size_t)16 << 20) /* at once */
#define MIN_RING    (UINT64_C(1) << 20)

/* ---- made ---- */

static dcpk_status held_add_shard(struct dcpk_remap_held *held, uint32_t tensor,
                                  const struct dcpk_local *local, const int64_t *span,
                                  uint64_t place, struct dcpk_error *err)
{
    const struct dcpk_remap_job *job = held->rank->job;
    const struct dcpk_view *view = &job->views[tensor].view;
    int64_t *stride = dcpk_arena_array(held->arena, (size_t)view->rank + 1, sizeof *stride, err);

    if (stride == NULL ||
        dcpk_grow(&held->shards, &held->capacity, held->n_shards, sizeof *held->shards, err) ||
        dcpk_grow(&held->tensor, &held->n_places, held->n_shards, sizeof *held->tensor, err))
        return err->status;
    dcpk_row_major_strides(dcpk_dtype_bytes(view->dtype), local->shape, view->rank, stride);
    for (int a = 0; a < view->rank; a++)
        place += (uint64_t)(span[2 * view->rank + a] * stride[a]);
    held->shards[held->n_shards] = (struct dcpk_shard){.name = job->views[tensor].name,
                                                       .dtype = view->dtype,
                                                       .rank = view->rank,
                                                       .holder = dcpk_ranks_self(held->rank->ranks),
                                                       .shape = view->shape,
                                                       .span = span,
                                                       .stride_bytes = stride,
                                                       .at = place};
    held->tensor[held->n_shards++] = tensor;
    return DCPK_OK;
}

/* The place of a local tensor after those that are there already. */
static dcpk_status held_take_place(struct dcpk_remap_held *held, const struct dcpk_view *view,
                                   const struct dcpk_local *local, bool packs, uint64_t *place,
                                   struct dcpk_error *err)
{
    const uint64_t elem_bytes = dcpk_dtype_bytes(view->dtype);
    const uint64_t align = packs ? elem_bytes : PLACE_ALIGN;
    int64_t n_elems = 0;
    uint64_t n_bytes;

    *place = (held->n_bytes + align - 1) / align * align;
    if (dcpk_shape_count(local->shape, view->rank, &n_elems, err))
        return err->status;
    if (!dcpk_mul_u64((uint64_t)n_elems, elem_bytes, &n_bytes) ||
        !dcpk_add_u64(*place, n_bytes, &held->n_bytes))
        return dcpk_fail(err, DCPK_ERANGE, "a rank would hold more than 2^64 bytes");
    return DCPK_OK;
}

/* Lays out the tensors that the rank holds, at places from 0 on. */
static dcpk_status held_lay_out(struct dcpk_remap_held *held, const struct dcpk_laid_out *laid,
                                struct dcpk_error *err)
{
    const struct dcpk_remap_job *job = held->rank->job;
    const int64_t self = dcpk_ranks_self(held->rank->ranks);

    held->copy = dcpk_arena_array(held->arena, job->n, sizeof *held->copy, err);
    if (held->copy == NULL)
        return err->status;
    for (size_t i = 0; i < job->n; i++) {
        struct dcpk_local local;
        uint64_t place;

        if (dcpk_laid_out_find(laid, &job->model->tensors[i], self, held->arena, &local, err))
            return err->status;
        held->copy[i] = local.copy;
        if (local.n == 0)
            continue;
        if (held_take_place(held, &job->views[i].view, &local, laid->placing.is_fsdp, &place, err))
            return err->status;
        for (size_t b = 0; b < local.n; b++)
            if (held_add_shard(held, (uint32_t)i, &local, local.spans[b], place, err))
                return err->status;
    }
    return DCPK_OK;
}

static dcpk_status held_add_tiles(const struct dcpk_remap_held *held, struct dcpk_tile_list *list,
                                  struct dcpk_error *err)
{
    for (size_t i = 0; i < held->n_shards; i++) {
        const struct dcpk_shard *s = &held->shards[i];
        struct dcpk_tile_box box = {.src = {s->at, s->stride_bytes, s->dtype},
                                    .dst = {0, s->stride_bytes, s->dtype},
                                    .shape = s->shape,
                                    .sum = held->tensor[i],
                                    .has_words = true};

        dcpk_box_unpack(s->span, s->rank, &box.box);
        if (dcpk_box_elems(&box.box) > 0 && dcpk_tile_list_add(list, &box, READ_TILE, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status held_load_table(struct dcpk_remap_held *held, struct dcpk_error *err)
{
    struct dcpk_device *device = held->rank->device;
    struct dcpk_tile_list list = {0};
    dcpk_status st = held_add_tiles(held, &list, err);
    const struct dcpk_tiles tiles = {.tiles = list.tiles, .words = list.words, .n = list.n};

    if (st == DCPK_OK && list.n > 0)
        st = device->ops->load(device, &tiles, &held->reading, err);
    dcpk_tile_list_release(&list);
    return st;
}

static dcpk_status held_take_memory(struct dcpk_remap_held *held, struct dcpk_error *err)
{
    struct dcpk_device *device = held->rank->device;
    const size_t n = held->rank->job->n;
    void *at = NULL, *sums = NULL;

    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, n * sizeof *held->sums, &sums, err))
        return err->status;
    held->sums = sums;
    if (device->ops->alloc(device, DCPK_MEMORY_HOST, n * sizeof *held->host_sums, &sums, err))
        return err->status;
    held->host_sums = sums;
    if (held->n_bytes == 0)
        return DCPK_OK;
    if (held->n_bytes > SIZE_MAX)
        return dcpk_fail(err, DCPK_ENOMEM, "a rank would hold more than it can address");
    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, (size_t)held->n_bytes, &at, err))
        return err->status;
    held->at = at;
    for (size_t i = 0; i < held->n_shards; i++)
        held->shards[i].at += (uint64_t)(uintptr_t)at;
    return DCPK_OK;
}

dcpk_status dcpk_remap_held_make(struct dcpk_remap_rank *rank, const struct dcpk_laid_out *laid,
                                 struct dcpk_remap_held *held, struct dcpk_error *err)
{
    *held = (struct dcpk_remap_held){.rank = rank};
    held->arena = dcpk_arena_new();
    if (held_lay_out(held, laid, err) || held_take_memory(held, err) || held_load_table(held, err))
        return err->status;
    return DCPK_OK;
}

void dcpk_remap_held_release(struct dcpk_remap_held *held)
{
    if (held->rank == NULL)
        return;
    held->rank->device->ops->unload(held->rank->device, held->reading);
    held->rank->device->ops->free(held->rank->device, held->host_sums);
    held->rank->device->ops->free(held->rank->device, held->sums);
    held->rank->device->ops->free(held->rank->device, held->at);
    dcpk_free(held->tensor);
    dcpk_free(held->shards);
    dcpk_arena_free(held->arena);
    *held = (struct dcpk_remap_held){0};
}

/* ---- filled ---- */

/* The environment that reads for a rank: the ranks of this process share its processors and its
 * memory. */
static void held_share_env(const struct dcpk_remap_held *held, struct dcpk_env *env)
{
    const struct dcpk_remap_rank *rank = held->rank;
    int n_here = 1;

    *env = rank->job->options->env;
    if (env->ranks == NULL)
        n_here = dcpk_ranks_count(rank->ranks);
    if (env->n_threads == 0)
        env->n_threads = dcpk_pool_default_threads();
    if (env->memory_bytes == 0)
        env->memory_bytes = DCPK_REMAP_RING_BYTES;
    env->n_threads = (int)dcpk_max_i64(env->n_threads / n_here, 1);
    env->memory_bytes /= (uint64_t)n_here;
    env->ranks = rank->ranks;
    if (rank->result == NULL) /* one rank of a process shows how far it is */
        env->progress = (struct dcpk_progress){.update = NULL};
}

/* Host memory of a rank is half for the buffers of its threads, half for the ring, or where that is
 * memory of a device, for the slots before it (a sixteenth of the ring each). */
static uint64_t held_split_memory(const struct dcpk_remap_held *held, struct dcpk_env *env,
                                  uint64_t max_bytes)
{
    uint64_t ring_bytes = env->memory_bytes;

    env->memory_bytes /= 2;
    if (held->rank->device->ops->is_host)
        ring_bytes /= 2;
    return dcpk_min_u64(dcpk_min_u64(ring_bytes, DCPK_REMAP_RING_BYTES),
                        dcpk_max_u64(max_bytes, MIN_RING));
}

dcpk_status dcpk_remap_held_load(struct dcpk_remap_held *held, uint64_t max_bytes,
                                 struct dcpk_remap_files_stats *stats, struct dcpk_error *err)
{
    const struct dcpk_remap_rank *rank = held->rank;
    const struct dcpk_remap_job *job = rank->job;
    struct dcpk_env env;
    struct dcpk_remap_files_options options = {.env = &env,
                                               .ckpt = job->ckpt,
                                               .views = job->views,
                                               .n_views = job->n,
                                               .device = rank->device,
                                               .path = job->options->path,
                                               .link_bytes_a_second = rank->link_bytes_a_second,
                                               .timeout_ms = job->options->timeout_ms,
                                               .checks = job->options->checks};
    struct dcpk_remap_files *files = NULL;
    dcpk_status st;

    held_share_env(held, &env);
    options.ring_bytes = held_split_memory(held, &env, max_bytes);
    dcpk_progress_begin(&env.progress, "loading");
    st = dcpk_remap_files_new(&options, held->shards, held->n_shards, &files, err);
    if (st == DCPK_OK)
        st = dcpk_remap_files_run(files, err);
    if (st == DCPK_OK)
        *stats = *dcpk_remap_files_stats(files);
    st = dcpk_ranks_agree(rank->ranks, st, err); /* none writes into another any more */
    dcpk_remap_files_free(files);
    return st;
}

dcpk_status dcpk_remap_held_wipe(struct dcpk_remap_held *held, struct dcpk_error *err)
{
    struct dcpk_device *device = held->rank->device;
    void *buffer = NULL;
    dcpk_status st = device->ops->alloc(device, DCPK_MEMORY_HOST, WIPE_BYTES, &buffer, err);

    if (st == DCPK_OK)
        memset(buffer, WIPE_BYTE, WIPE_BYTES);
    for (uint64_t at = 0; at < held->n_bytes && st == DCPK_OK; at += WIPE_BYTES)
        st = device->ops->copy(device, 0, held->at + at, buffer,
                               (size_t)dcpk_min_u64(WIPE_BYTES, held->n_bytes - at), err);
    if (st == DCPK_OK)
        st = dcpk_remap_rank_wait(held->rank, err);
    device->ops->free(device, buffer);
    return st;
}

/* ---- proven ---- */

/* A rank's part of the sum of a tensor. */
struct partial_sum {
    int64_t copy; /* -1: it has nothing */
    uint64_t sum, n_elems;
};

/* The sum of a copy of a tensor over all ranks. Zeros add nothing to a sum: the elements count,
 * too. */
struct copy_total {
    bool is_there;
    uint64_t sum, n_elems;
};

static dcpk_status held_sum_up(struct dcpk_remap_held *held, struct partial_sum *mine,
                               struct dcpk_error *err)
{
    struct dcpk_device *device = held->rank->device;
    const size_t n = held->rank->job->n, n_bytes = n * sizeof *held->sums;

    memset(held->host_sums, 0, n_bytes);
    if (device->ops->copy(device, 0, held->sums, held->host_sums, n_bytes, err))
        return err->status;
    if (held->reading != NULL && device->ops->run(device, 0, held->reading, held->sums, err))
        return err->status;
    if (device->ops->copy(device, 0, held->host_sums, held->sums, n_bytes, err) ||
        dcpk_remap_rank_wait(held->rank, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        mine[i] = (struct partial_sum){held->copy[i], held->host_sums[i], 0};
    for (size_t i = 0; i < held->n_shards; i++) {
        struct dcpk_box box;

        dcpk_box_unpack(held->shards[i].span, held->shards[i].rank, &box);
        mine[held->tensor[i]].n_elems += dcpk_box_elems(&box);
    }
    return DCPK_OK;
}

/* Hold the copies of tensor i against the files. all: by rank, then by tensor; totals: n_ranks of
 * them, of which a copy's number is one. */
static void compare_copies(const struct dcpk_remap_job *job, const struct partial_sum *all,
                           struct copy_total *totals, size_t n_ranks, size_t i,
                           struct dcpk_remap_step *step)
{
    const struct dcpk_view *view = &job->views[i].view;
    struct dcpk_box whole;
    uint64_t n_elems;

    memset(totals, 0, n_ranks * sizeof *totals);
    totals[0].is_there = true; /* one at least must be */
    for (size_t r = 0; r < n_ranks; r++) {
        const struct partial_sum *its = &all[r * job->n + i];

        if (its->copy < 0)
            continue;
        totals[its->copy].is_there = true;
        totals[its->copy].sum += its->sum;
        totals[its->copy].n_elems += its->n_elems;
    }
    dcpk_box_whole(view->shape, view->rank, &whole);
    n_elems = dcpk_box_elems(&whole);
    for (size_t c = 0; c < n_ranks; c++) {
        const struct copy_total *t = &totals[c];

        if (!t->is_there || (t->sum == job->sums[i] && t->n_elems == n_elems))
            continue;
        if (step->n_different++ == 0)
            step->first = (struct dcpk_remap_difference){
                job->views[i].name, (int64_t)c, job->sums[i], t->sum, n_elems, t->n_elems};
    }
}

dcpk_status dcpk_remap_held_prove(struct dcpk_remap_held *held, struct dcpk_remap_step *step,
                                  struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = held->rank->ranks;
    const struct dcpk_remap_job *job = held->rank->job;
    struct partial_sum *mine = dcpk_alloc_array(job->n, sizeof *mine, err);
    const size_t n_ranks = (size_t)dcpk_ranks_count(ranks);
    struct copy_total *totals = dcpk_alloc_array(n_ranks, sizeof *totals, err);
    struct dcpk_bytes all = {0};
    dcpk_status st = err->status;

    if (st == DCPK_OK)
        st = held_sum_up(held, mine, err);
    st = dcpk_ranks_share_each(ranks, mine, job->n * sizeof *mine, &all, st, err);
    st = dcpk_ranks_agree(ranks, st, err);
    for (size_t i = 0; i < job->n && st == DCPK_OK; i++)
        compare_copies(job, (const void *)all.data, totals, n_ranks, i, step);
    dcpk_bytes_release(&all);
    dcpk_free(totals);
    dcpk_free(mine);
    return st;
}
