/* SPDX-License-Identifier: Apache-2.0 */
/* remap_match.c - finds the sources that fill a target: chooses replicas, finds gaps. */
/*
 * The sources that meet a target are clipped to it. Mostly the distinct clips are apart and fill
 * the target; those that are equal are replicas, of which one is taken:
 *
 *     target [0:4]     sources  [0:2] on ranks 0, 2   [2:8] on ranks 1, 3
 *     clips            [0:2] [0:2]   [2:4] [2:4]  ->  one of the first two, one of the others
 *
 * Where clips overlap in part, or leave a gap, boxes that are still open are filled one by one:
 * take the best clip for it, cut what it fills out, continue with what is left around it.
 */
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/plan/box_tree.h"
#include "lib/plan/remap_priv.h"

/* Up to so many clips are compared pair by pair. */
#define FEW_CLIPS 16

/* The cost of a source for a target: the smaller, the better. */
enum nearness { NEAR_KEPT, NEAR_SELF, NEAR_REACHED, NEAR_ANY };

/* A source that meets the target, and where. */
struct clip {
    uint32_t source;
    enum nearness nearness;
    struct dcpk_box box;
};

/* The sources of one tensor, and what fills one target after the other. */
struct matcher {
    struct remap_planner *planner;
    struct dcpk_box_tree tree;
    uint32_t target;
    const struct dcpk_shard *shard; /* of the target */
    struct dcpk_box box;
    struct clip *clips; /* owned */
    size_t n_clips, clips_capacity;
    struct dcpk_box *open; /* owned: parts of the target that are not filled yet */
    size_t n_open, open_capacity;
};

static const int64_t *source_span(const void *items, size_t i)
{
    const struct remap_planner *p = items;
    const uint32_t first = p->sources.first[p->tensor];

    return p->sources.shards[p->sources.items[first + i]].span;
}

static enum nearness find_nearness(const struct matcher *m, const struct dcpk_move *move)
{
    const struct dcpk_remap_plan *plan = m->planner->plan;
    const int from = plan->input.sources[move->source].holder, to = m->shard->holder;
    const size_t n_ranks = (size_t)plan->input.n_ranks;

    if (from == to)
        return dcpk_move_is_kept(plan, move) ? NEAR_KEPT : NEAR_SELF;
    if (plan->input.reaches == NULL || plan->input.reaches[(size_t)from * n_ranks + (size_t)to])
        return NEAR_REACHED;
    return NEAR_ANY;
}

/* Find the sources that meet the target. */
static dcpk_status find_clips(struct matcher *m, struct dcpk_error *err)
{
    const struct remap_side *sources = &m->planner->sources;
    size_t at = 0, item;

    m->n_clips = 0;
    while (dcpk_box_tree_next(&m->tree, &m->box, &at, &item)) {
        const uint32_t first = sources->first[m->planner->tensor];
        struct dcpk_move move = {.source = sources->items[first + item], .target = m->target};
        struct clip *clip;

        if (dcpk_grow(&m->clips, &m->clips_capacity, m->n_clips, sizeof *m->clips, err))
            return err->status;
        clip = &m->clips[m->n_clips++];
        clip->source = move.source;
        dcpk_move_box(m->planner->plan, &move, &clip->box);
        clip->nearness = find_nearness(m, &move);
    }
    return DCPK_OK;
}

static int compare_clip_boxes(const struct dcpk_box *a, const struct dcpk_box *b)
{
    const int order = dcpk_compare_i64s(a->offset, b->offset, (size_t)a->rank);

    return order != 0 ? order : dcpk_compare_i64s(a->extent, b->extent, (size_t)a->rank);
}

static int compare_clips(const void *a, const void *b)
{
    const struct clip *x = a, *y = b;
    const int order = compare_clip_boxes(&x->box, &y->box);

    if (order != 0)
        return order;
    return DCPK_ORDER_BY(x, y, source);
}

static void sort_clips(struct matcher *m)
{
    for (size_t i = 1; i < m->n_clips; i++)
        if (compare_clips(&m->clips[i - 1], &m->clips[i]) > 0) {
            qsort(m->clips, m->n_clips, sizeof *m->clips, compare_clips);
            return;
        }
}

/* True if a is better than b. Sources are numbered by holder: of equals the lowest rank is
 * taken. */
static bool is_better(const struct matcher *m, const struct clip *a, const struct clip *b)
{
    const struct dcpk_remap_plan *plan = m->planner->plan;
    uint64_t a_bytes, b_bytes;

    if (a->nearness != b->nearness)
        return a->nearness < b->nearness;
    if (a->nearness == NEAR_KEPT || a->nearness == NEAR_SELF)
        return a->source < b->source;
    a_bytes = plan->totals[plan->input.sources[a->source].holder].out_bytes;
    b_bytes = plan->totals[plan->input.sources[b->source].holder].out_bytes;
    if (a_bytes != b_bytes)
        return a_bytes < b_bytes;
    return a->source < b->source;
}

/* Count the bytes of a move: those of the narrower side, which cross the link. */
static void count_move(struct dcpk_remap_plan *plan, const struct dcpk_move *move,
                       enum nearness nearness, const struct dcpk_box *box)
{
    const struct dcpk_shard *source = &plan->input.sources[move->source];
    const struct dcpk_shard *target = &plan->input.targets[move->target];
    const size_t elem_bytes =
        dcpk_min_size(dcpk_dtype_bytes(source->dtype), dcpk_dtype_bytes(target->dtype));
    const uint64_t n_bytes = dcpk_box_elems(box) * elem_bytes;

    if (nearness == NEAR_KEPT) {
        plan->totals[target->holder].kept_bytes += n_bytes;
        return;
    }
    plan->totals[dcpk_move_mover(plan, move)].n_moves++;
    if (nearness == NEAR_SELF) {
        plan->totals[target->holder].local_bytes += n_bytes;
        return;
    }
    plan->totals[source->holder].out_bytes += n_bytes;
    plan->totals[target->holder].in_bytes += n_bytes;
}

/* box: what the move takes; keeps it where it is not all that source and target share. */
static dcpk_status add_move(struct matcher *m, const struct clip *clip, const struct dcpk_box *box,
                            struct dcpk_error *err)
{
    struct dcpk_remap_plan *plan = m->planner->plan;
    struct dcpk_move move = {.source = clip->source, .target = m->target};

    if (compare_clip_boxes(&clip->box, box) != 0) {
        int64_t *span = dcpk_arena_array(plan->arena, 2 * (size_t)box->rank, sizeof *span, err);

        if (span == NULL)
            return err->status;
        dcpk_box_pack(box, span);
        move.span = span;
    }
    if (dcpk_grow(&plan->moves, &m->planner->moves_capacity, plan->n_moves, sizeof *plan->moves,
                  err))
        return err->status;
    plan->moves[plan->n_moves++] = move;
    count_move(plan, &move, clip->nearness, box);
    return DCPK_OK;
}

/* The first clip after those of the same box as clip i. */
static size_t end_of_replicas(const struct matcher *m, size_t i)
{
    size_t end = i + 1;

    while (end < m->n_clips && compare_clip_boxes(&m->clips[i].box, &m->clips[end].box) == 0)
        end++;
    return end;
}

/* True if every pair of different boxes is apart. Clips are sorted; `few` of them. */
static bool few_are_apart(const struct matcher *m)
{
    struct dcpk_box common;

    for (size_t i = 0; i < m->n_clips; i = end_of_replicas(m, i))
        for (size_t j = end_of_replicas(m, i); j < m->n_clips; j = end_of_replicas(m, j))
            if (dcpk_box_intersect(&m->clips[i].box, &m->clips[j].box, &common))
                return false;
    return true;
}

/* The same of many, by the check of covers: spans are counted from the target's offset. */
static dcpk_status many_fill(const struct matcher *m, size_t n_boxes, bool *fill,
                             struct dcpk_error *err)
{
    const int rank = m->box.rank;
    const size_t width = 2 * (size_t)rank;
    int64_t *numbers = dcpk_alloc_array(n_boxes, width * sizeof *numbers, err);
    const int64_t **spans = NULL;
    struct dcpk_error why = DCPK_ERROR_INIT;
    dcpk_status st = DCPK_OK;
    size_t n = 0;

    if (numbers != NULL)
        spans = dcpk_alloc_array(n_boxes, sizeof *spans, err);
    if (spans == NULL) {
        dcpk_free(numbers);
        return err->status;
    }
    for (size_t i = 0; i < m->n_clips; i = end_of_replicas(m, i)) {
        spans[n] = numbers + n * width;
        dcpk_box_pack(&m->clips[i].box, numbers + n * width);
        for (int a = 0; a < rank; a++)
            numbers[n * width + (size_t)a] -= m->box.offset[a];
        n++;
    }
    st = dcpk_cover_check(m->box.extent, rank, spans, n, &why);
    *fill = st == DCPK_OK;
    if (st == DCPK_ENOMEM)
        *err = why;
    else
        st = DCPK_OK;
    dcpk_free(numbers);
    dcpk_free(spans);
    return st;
}

/* Sets *fill if the distinct clips fill the target, each element once. */
static dcpk_status clips_fill(const struct matcher *m, bool *fill, struct dcpk_error *err)
{
    int64_t n_wanted, n_elems = 0;
    size_t n_boxes = 0;

    *fill = false;
    if (dcpk_box_count(&m->box, &n_wanted, err))
        return err->status;
    for (size_t i = 0; i < m->n_clips; i = end_of_replicas(m, i)) {
        if (!dcpk_add_i64(n_elems, (int64_t)dcpk_box_elems(&m->clips[i].box), &n_elems))
            return DCPK_OK;
        n_boxes++;
    }
    if (n_elems != n_wanted)
        return DCPK_OK;
    if (n_boxes > FEW_CLIPS)
        return many_fill(m, n_boxes, fill, err);
    *fill = few_are_apart(m);
    return DCPK_OK;
}

/* One of each group of replicas. */
static dcpk_status take_replicas(struct matcher *m, struct dcpk_error *err)
{
    for (size_t i = 0, end; i < m->n_clips; i = end) {
        const struct clip *best = &m->clips[i];

        end = end_of_replicas(m, i);
        for (size_t j = i + 1; j < end; j++)
            if (is_better(m, &m->clips[j], best))
                best = &m->clips[j];
        if (add_move(m, best, &best->box, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status push_open(struct matcher *m, const struct dcpk_box *box, struct dcpk_error *err)
{
    if (dcpk_grow(&m->open, &m->open_capacity, m->n_open, sizeof *m->open, err))
        return err->status;
    m->open[m->n_open++] = *box;
    return DCPK_OK;
}

/* Keep what is left of `box` around `filled`, which lies in it, as open: on each axis what lies
 * before and after, within the filled extent of the axes before. */
static dcpk_status push_rest(struct matcher *m, struct dcpk_box box, const struct dcpk_box *filled,
                             struct dcpk_error *err)
{
    for (int a = 0; a < box.rank; a++) {
        const int64_t end = box.offset[a] + box.extent[a];
        const int64_t filled_end = filled->offset[a] + filled->extent[a];
        struct dcpk_box part = box;

        part.extent[a] = filled->offset[a] - box.offset[a];
        if (part.extent[a] > 0 && push_open(m, &part, err))
            return err->status;
        part.offset[a] = filled_end;
        part.extent[a] = end - filled_end;
        if (part.extent[a] > 0 && push_open(m, &part, err))
            return err->status;
        box.offset[a] = filled->offset[a];
        box.extent[a] = filled->extent[a];
    }
    return DCPK_OK;
}

static dcpk_status fail_missing(const struct matcher *m, const struct dcpk_box *box,
                                struct dcpk_error *err)
{
    char text[DCPK_SHARD_TEXT], missing[256];

    return dcpk_fail(err, DCPK_EMISMATCH, "%s wants %s, which no source holds",
                     dcpk_shard_format(m->shard, text, sizeof text),
                     dcpk_box_format(box, missing, sizeof missing));
}

/* Clips that overlap in part, or leave gaps. */
static dcpk_status fill_open(struct matcher *m, struct dcpk_error *err)
{
    m->n_open = 0;
    if (push_open(m, &m->box, err))
        return err->status;
    while (m->n_open > 0) {
        const struct dcpk_box box = m->open[--m->n_open];
        const struct clip *best = NULL;
        struct dcpk_box part;

        for (size_t i = 0; i < m->n_clips; i++)
            if (dcpk_box_intersect(&m->clips[i].box, &box, &part) &&
                (best == NULL || is_better(m, &m->clips[i], best)))
                best = &m->clips[i];
        if (best == NULL)
            return fail_missing(m, &box, err);
        (void)dcpk_box_intersect(&best->box, &box, &part);
        if (add_move(m, best, &part, err) || push_rest(m, box, &part, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status match_target(struct matcher *m, struct dcpk_error *err)
{
    bool fill;

    if (find_clips(m, err))
        return err->status;
    sort_clips(m);
    if (clips_fill(m, &fill, err))
        return err->status;
    if (fill)
        return take_replicas(m, err);
    return fill_open(m, err);
}

dcpk_status dcpk_remap_match(struct remap_planner *planner, uint32_t tensor, struct dcpk_error *err)
{
    const struct remap_side *sources = &planner->sources, *targets = &planner->targets;
    struct matcher m = {.planner = planner};
    dcpk_status st;

    planner->tensor = tensor;
    m.tree.items = planner;
    m.tree.span = source_span;
    m.tree.n = sources->first[tensor + 1] - sources->first[tensor];
    m.tree.rank = planner->plan->tensors[tensor].rank;
    st = dcpk_box_tree_build(&m.tree, err);
    for (uint32_t i = targets->first[tensor]; i < targets->first[tensor + 1] && st == DCPK_OK;
         i++) {
        m.target = targets->items[i];
        m.shard = &targets->shards[m.target];
        dcpk_box_unpack(m.shard->span, m.shard->rank, &m.box);
        st = match_target(&m, err);
    }
    dcpk_box_tree_release(&m.tree);
    dcpk_free(m.clips);
    dcpk_free(m.open);
    return st;
}
