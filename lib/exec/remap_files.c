/* SPDX-License-Identifier: Apache-2.0 */
/* remap_files.c - the way from a checkpoint and targets to something that can be run, agreed on by
 * all ranks; runs, and what they prove. */
#include "lib/exec/remap_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/exec/remap_files_inside.h"
#include "lib/exec/slab.h"

/* A file system slower than this is not waited for. */
#define SLOWEST_BYTES_A_MS 10000

/*
 * Sets the time that ranks wait for one that reads: the time of its device, and that of all files.
 * Returns the limit before.
 */
static int limit_waits(const struct dcpk_remap_files_options *options)
{
    const int timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : DCPK_REMAP_TIMEOUT_MS;
    int64_t limit_ms = REMAP_RANKS_FACTOR * (int64_t)timeout_ms;

    for (size_t i = 0; i < options->ckpt->n_files; i++)
        limit_ms += (int64_t)(dcpk_source_bytes(options->ckpt->files[i]) / SLOWEST_BYTES_A_MS);
    return dcpk_ranks_set_timeout(options->env->ranks, (int)dcpk_min_i64(limit_ms, INT32_MAX));
}

/* True if rank r can map the memory of all lower ranks of a team. */
static bool fits_team(const struct dcpk_remap_files *files, int team, int r)
{
    for (int s = 0; s < r; s++)
        if (files->team[s] == team && !files->base.reaches[r * files->base.n_ranks + s])
            return false;
    return true;
}

/* Ranks that all reach each other are a team: each joins the first that it fits. */
static dcpk_status make_teams(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const int n = files->base.n_ranks;

    files->team = dcpk_arena_array(files->base.arena, (size_t)n, sizeof *files->team, err);
    if (files->team == NULL)
        return err->status;
    for (int r = 0; r < n; r++) {
        int team = 0;

        while (team < r && !(files->team[team] == team && fits_team(files, team, r)))
            team++;
        files->team[r] = team;
        files->stats.n_teams += team == r;
    }
    return DCPK_OK;
}

/* More teams than one are an error where one is wanted, else a note. */
static dcpk_status note_teams(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const struct dcpk_remap *base = &files->base;
    const char *why = base->note;

    if (files->stats.n_teams == 1)
        return DCPK_OK;
    if (base->options.path == DCPK_REMAP_STAGED)
        why = "as requested";
    else if (why[0] == '\0')
        why = "others cannot map each other's memory";
    if (base->options.path == DCPK_REMAP_DIRECT)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "not all ranks can map each other's memory: %s",
                         why);
    snprintf(files->note, sizeof files->note,
             "ranks read the files in %zu teams, each for itself: %s", files->stats.n_teams, why);
    return DCPK_OK;
}

/* Keep the targets of this rank's team. */
static void keep_targets(struct dcpk_remap_files *files)
{
    struct dcpk_remap *base = &files->base;
    size_t n = 0;

    for (size_t i = 0; i < base->n_targets; i++) {
        if (files->team[base->targets[i].holder] != files->team[base->self])
            continue;
        base->targets[n++] = base->targets[i];
    }
    base->n_targets = n;
}

/* Stages as large as the ring allows, slices as large as stages do. */
static void choose_sizes(struct dcpk_remap_files *files)
{
    const uint64_t wanted = files->options.ring_bytes;
    uint64_t stage_bytes = wanted == 0 ? DCPK_REMAP_RING_BYTES : wanted;

    stage_bytes = dcpk_max_u64(stage_bytes, DCPK_REMAP_MIN_RING_BYTES) / FEED_N_STAGES;
    files->slice_bytes = dcpk_min_u64(FEED_SLICE_BYTES, stage_bytes / FEED_STAGE_SLICES);
    files->slice_bytes = files->slice_bytes / 256 * 256;
    files->stage_bytes = stage_bytes / files->slice_bytes * files->slice_bytes;
}

static dcpk_status files_make_plan(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct dcpk_remap *base = &files->base;
    const struct dcpk_remap_input input = {.sources = base->sources,
                                           .targets = base->targets,
                                           .n_sources = base->n_sources,
                                           .n_targets = base->n_targets,
                                           .n_ranks = base->n_ranks};

    if (dcpk_remap_plan_new(&input, &base->plan, err) ||
        dcpk_remap_check_memory(base->plan, base->self, err))
        return err->status;
    return DCPK_OK;
}

/* The plan, and what its sources are: a plan knows of boxes alone. */
static uint64_t digest_parts(const struct dcpk_remap_files *files)
{
    struct dcpk_hasher hasher;
    struct dcpk_hash hash;

    dcpk_hasher_begin(&hasher);
    dcpk_hasher_update(&hasher, &files->base.plan->digest, sizeof files->base.plan->digest);
    for (size_t i = 0; i < files->n_parts; i++) {
        const struct feed_part *part = &files->parts[i];
        const uint64_t numbers[] = {part->view, part->piece, part->file, part->order,
                                    part->n_bytes};
        const size_t rank = (size_t)files->base.sources[i].rank;

        dcpk_hasher_update(&hasher, numbers, sizeof numbers);
        dcpk_hasher_update(&hasher, part->span, 2 * rank * sizeof *part->span);
    }
    dcpk_hasher_digest(&hasher, &hash);
    return dcpk_load_u64le(hash.digest);
}

/* Collective: the ranks of a team must have the same plan of the same parts. */
static dcpk_status check_digests(const struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const struct dcpk_remap *base = &files->base;
    struct dcpk_bytes all = {0};
    const uint64_t mine = digest_parts(files);
    dcpk_status st =
        dcpk_ranks_share_each(base->options.ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    for (int r = 0; r < base->n_ranks && st == DCPK_OK; r++)
        if (files->team[r] == files->team[base->self] &&
            memcmp(all.data + (size_t)r * sizeof mine, &mine, sizeof mine) != 0)
            st = dcpk_fail(err, DCPK_EIO, "ranks %d and %d do not see the same tensors", base->self,
                           r);
    dcpk_bytes_release(&all);
    return st;
}

/* Predicts the time that each rank of the team needs to read and to move. */
static dcpk_status predict(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const struct dcpk_remap *base = &files->base;
    const struct dcpk_remap_plan *plan = base->plan;
    const double read = files->options.read_bytes_a_second;
    const double link = files->options.link_bytes_a_second;
    struct work {
        uint64_t read, in, out;
    } *work = dcpk_arena_array(base->arena, (size_t)base->n_ranks, sizeof *work, err);

    if (work == NULL)
        return err->status;
    for (size_t i = 0; i < files->n_parts; i++)
        if (files->parts[i].file != FEED_NONE)
            work[base->sources[i].holder].read += files->parts[i].n_bytes;
    for (size_t i = 0; i < plan->n_moves; i++) {
        const struct dcpk_shard *target = &base->targets[plan->moves[i].target];
        const int from = base->sources[plan->moves[i].source].holder;
        uint64_t n_bytes = dcpk_dtype_bytes(target->dtype);
        struct dcpk_box box;

        dcpk_move_box(plan, &plan->moves[i], &box);
        n_bytes *= dcpk_box_elems(&box);
        if (from == target->holder)
            continue;
        work[from].out += n_bytes;
        work[target->holder].in += n_bytes;
    }
    files->stats.in_bytes = work[base->self].in;
    for (int r = 0; r < base->n_ranks; r++) {
        const uint64_t moved = dcpk_max_u64(work[r].in, work[r].out);
        double *most = &files->stats.predicted_seconds;

        if (read > 0 && (double)work[r].read / read > *most)
            *most = (double)work[r].read / read;
        if (link > 0 && (double)moved / link > *most)
            *most = (double)moved / link;
    }
    return DCPK_OK;
}

/* Makes the sums of the targets, for use once they are filled. */
static dcpk_status make_checks(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct dcpk_remap *base = &files->base;

    if (!base->options.checks || base->plan->n_units == 0)
        return DCPK_OK;
    base->units = dcpk_arena_array(base->arena, base->plan->n_units, sizeof *base->units, err);
    if (base->units == NULL || dcpk_remap_make_sums(base, err))
        return err->status;
    return dcpk_remap_load_landed(base, 0, err);
}

static dcpk_status files_fill(struct dcpk_remap_files *files, const struct dcpk_remap_shards *mine,
                              struct dcpk_error *err)
{
    struct dcpk_remap *base = &files->base;

    base->arena = dcpk_arena_new();
    if (dcpk_exec_new(files->options.ckpt, files->options.env, &files->exec, err) ||
        dcpk_ranks_check_checkpoint(base->options.ranks, files->options.ckpt, err) ||
        dcpk_remap_gather(base, mine, err) || dcpk_remap_reach(base, err) ||
        make_teams(files, err) || note_teams(files, err))
        return err->status;
    keep_targets(files);
    choose_sizes(files);
    if (dcpk_feed_make_parts(files, err) || files_make_plan(files, err) ||
        check_digests(files, err) || predict(files, err) || dcpk_feed_make_ring(files, err) ||
        make_checks(files, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_remap_files_new(const struct dcpk_remap_files_options *options,
                                 const struct dcpk_shard *targets, size_t n_targets,
                                 struct dcpk_remap_files **files, struct dcpk_error *err)
{
    const struct dcpk_remap_shards mine = {.targets = targets, .n_targets = n_targets};
    struct dcpk_ranks *ranks = options->env->ranks;
    const int timeout_ms = limit_waits(options);
    struct dcpk_remap_files *made = dcpk_alloc(sizeof *made, err);
    dcpk_status st = err->status;

    if (made != NULL) {
        made->options = *options;
        made->base.options = (struct dcpk_remap_options){.ranks = ranks,
                                                         .device = options->device,
                                                         .path = options->path,
                                                         .timeout_ms = options->timeout_ms,
                                                         .checks = options->checks};
        made->base.self = dcpk_ranks_self(ranks);
        made->base.n_ranks = dcpk_ranks_count(ranks);
        made->stats.note = made->note;
        st = files_fill(made, &mine, err);
    }
    st = dcpk_ranks_agree(ranks, st, err);
    (void)dcpk_ranks_set_timeout(ranks, timeout_ms);
    if (st == DCPK_OK)
        *files = made;
    else
        dcpk_remap_files_free(made);
    return st;
}

void dcpk_remap_files_free(struct dcpk_remap_files *files)
{
    if (files == NULL)
        return;
    dcpk_feed_free_ring(files);
    dcpk_remap_free_tables(&files->base);
    dcpk_remap_plan_free(files->base.plan);
    dcpk_bytes_release(&files->base.gathered);
    dcpk_arena_free(files->base.arena);
    dcpk_exec_free(files->exec);
    dcpk_free(files->parts);
    dcpk_free(files);
}

const struct dcpk_remap_files_stats *dcpk_remap_files_stats(const struct dcpk_remap_files *files)
{
    return &files->stats;
}

const struct dcpk_remap_plan *dcpk_remap_files_plan(const struct dcpk_remap_files *files)
{
    return files->base.plan;
}

const uint64_t *dcpk_remap_files_sums(const struct dcpk_remap_files *files)
{
    return files->base.host_sums;
}

/* Set all sums to 0. */
static dcpk_status clear_sums(struct dcpk_remap *base, struct dcpk_error *err)
{
    const size_t n_bytes = 2 * base->n_sums * sizeof *base->sums;
    struct dcpk_device *device = base->options.device;

    if (base->sums == NULL)
        return DCPK_OK;
    memset(base->host_sums, 0, n_bytes);
    if (device->ops->copy(device, QUEUE_MOVE, base->sums, base->host_sums, n_bytes, err))
        return err->status;
    return dcpk_device_wait(device, QUEUE_MOVE, dcpk_remap_timeout(base), err);
}

/* Add up what has landed here, and bring both sums to the host. */
static dcpk_status sum_landed(struct dcpk_remap *base, struct dcpk_error *err)
{
    const size_t n_bytes = 2 * base->n_sums * sizeof *base->sums;
    struct dcpk_device *device = base->options.device;

    if (base->sums == NULL)
        return DCPK_OK;
    if (dcpk_remap_run_table(base, QUEUE_MOVE, base->units[0].landed, base->sums + base->n_sums,
                             err) ||
        device->ops->copy(device, QUEUE_MOVE, base->host_sums, base->sums, n_bytes, err))
        return err->status;
    return dcpk_device_wait(device, QUEUE_MOVE, dcpk_remap_timeout(base), err);
}

/* Checks that every rank has given the number of its sums, and two sums for each: in a team as
 * many. */
static dcpk_status feed_check_sizes(const struct dcpk_remap_files *files,
                                    const struct dcpk_bytes *all, struct dcpk_error *err)
{
    const struct dcpk_remap *base = &files->base;
    size_t at = 0;

    for (int r = 0; r < base->n_ranks; r++) {
        uint64_t n = 0;
        const bool has_number = all->n_bytes - at >= sizeof n;

        if (has_number)
            memcpy(&n, all->data + at, sizeof n);
        if (!has_number || n > (all->n_bytes - at - sizeof n) / (2 * sizeof n) ||
            (files->team[r] == files->team[base->self] && n != base->n_sums))
            return dcpk_fail(err, DCPK_EIO, "rank %d has sums of other tensors", r);
        at += sizeof n + 2 * (size_t)n * sizeof n;
    }
    return DCPK_OK;
}

/* The sums of the ranks of the team, into host_sums. `all`: of every rank, the number of its sums
 * and the two of each tensor. */
static void total_sums(const struct dcpk_remap_files *files, const struct dcpk_bytes *all)
{
    const struct dcpk_remap *base = &files->base;
    size_t at = 0;

    for (size_t i = 0; i < 2 * base->n_sums; i++)
        base->host_sums[i] = 0;
    for (int r = 0; r < base->n_ranks; r++) {
        uint64_t n, sum;

        memcpy(&n, all->data + at, sizeof n);
        at += sizeof n;
        for (size_t i = 0; i < 2 * n && files->team[r] == files->team[base->self]; i++) {
            memcpy(&sum, all->data + at + i * sizeof sum, sizeof sum);
            base->host_sums[i] += sum;
        }
        at += 2 * n * sizeof sum;
    }
}

/* Compares what was stored with what has landed. */
static dcpk_status compare_sums(const struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const struct dcpk_remap *base = &files->base;
    const uint64_t *stored = base->host_sums, *landed = base->host_sums + base->n_sums;

    for (size_t t = 0; t < base->n_sums; t++)
        if (stored[t] != landed[t])
            return dcpk_fail(err, DCPK_EIO,
                             "'%.200s': what was read has the fingerprint %016" PRIx64
                             ", what has arrived %016" PRIx64,
                             base->plan->tensors[t].name, stored[t], landed[t]);
    return DCPK_OK;
}

/* Collective: compare all fingerprints. */
static dcpk_status check_sums(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct dcpk_remap *base = &files->base;
    const uint64_t n = base->n_sums;
    struct dcpk_bytes mine = {0}, all = {0};
    dcpk_status st = sum_landed(base, err);

    dcpk_bytes_put(&mine, &n, sizeof n);
    dcpk_bytes_put(&mine, base->host_sums, 2 * base->n_sums * sizeof *base->host_sums);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&mine, err);
    st = dcpk_ranks_share(base->options.ranks, mine.data, mine.n_bytes, &all, st, err);
    if (st == DCPK_OK)
        st = feed_check_sizes(files, &all, err);
    if (st == DCPK_OK)
        total_sums(files, &all);
    if (st == DCPK_OK && !files->options.only_compares)
        st = compare_sums(files, err);
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status run_agreed(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = files->base.options.ranks;

    if (dcpk_ranks_agree(ranks, clear_sums(&files->base, err), err)) /* targets may be written */
        return err->status;
    if (dcpk_ranks_agree(ranks, dcpk_feed_push(files, err), err))
        return err->status;
    if (!files->base.options.checks)
        return DCPK_OK;
    return dcpk_ranks_agree(ranks, check_sums(files, err), err);
}

dcpk_status dcpk_remap_files_run(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const int timeout_ms = limit_waits(&files->options);
    const double begun = dcpk_now_seconds();
    dcpk_status st;

    st = run_agreed(files, err);
    (void)dcpk_ranks_set_timeout(files->base.options.ranks, timeout_ms);
    files->stats.seconds = dcpk_now_seconds() - begun;
    return st;
}
