/* SPDX-License-Identifier: Apache-2.0 */
/* exec_compare.c - compares views of two checkpoints slab by slab, on all threads. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/env.h"
#include "lib/exec/measure.h"
#include "lib/exec/slab.h"
#include "lib/exec/workers.h"
#include "lib/tensor/elem.h"

#define FEW_SLABS 16

struct comparison {
    struct dcpk_view_pairs pairs;
    bool is_measured; /* dcpk_exec_measure */
    const struct dcpk_tolerance *tolerance;
    struct dcpk_pass pass; /* its workers serve both checkpoints */
    size_t side_bytes;     /* of one side of a slab: the same on all ranks */
    uint64_t *first_task;  /* of each pair */
    uint64_t n_tasks;      /* a slab each */
    pthread_mutex_t mutex; /* of results */
    struct dcpk_compare *results;
};

/*
 * A third of the worker's buffer each: left, right, and one of them cast to the other's dtype.
 * Buffers of ranks with more threads may be smaller, and slabs are cut alike on all.
 */
static dcpk_status choose_slabs(struct comparison *c, struct dcpk_error *err)
{
    uint64_t third = c->pass.workers[0].buffer_bytes / 3 / 64 * 64;
    const dcpk_status st = dcpk_ranks_least(c->pairs.left_exec->ranks, &third, err);

    c->side_bytes = (size_t)third;
    return st;
}

static bool is_rounded(const struct comparison *c, size_t pair)
{
    return c->pairs.rounds != NULL && c->pairs.rounds[pair];
}

static void cut_pair(const struct comparison *c, size_t pair, struct dcpk_slabs *slabs)
{
    const struct dcpk_view *left = &c->pairs.left[pair];
    const size_t a = dcpk_dtype_bytes(left->dtype),
                 b = dcpk_dtype_bytes(c->pairs.right[pair].dtype);
    size_t elem_bytes = dcpk_max_size(a, b);
    uint64_t limit_bytes = c->side_bytes;
    struct dcpk_box whole;

    if (is_rounded(c, pair)) /* compared in float32 at last */
        elem_bytes = dcpk_max_size(elem_bytes, sizeof(float));
    if (c->pairs.sample_bytes > 0)
        limit_bytes = dcpk_min_u64(limit_bytes, c->pairs.sample_bytes);
    dcpk_box_whole(left->shape, left->rank, &whole);
    dcpk_slabs_cut(&whole, elem_bytes, limit_bytes, slabs);
}

/*
 * The number of slabs of a pair to compare. A sample of many slabs has the first and the last one.
 * A sample of few has one of them, the last in every second pair: finding an item costs more than
 * reading it.
 */
static uint64_t count_slabs(const struct comparison *c, const struct dcpk_slabs *slabs)
{
    if (c->pairs.sample_bytes == 0)
        return slabs->n;
    return slabs->n <= FEW_SLABS ? dcpk_min_u64(slabs->n, 1) : 2;
}

/* The slab of a task of `pair`. */
static uint64_t slab_of(const struct comparison *c, size_t pair, const struct dcpk_slabs *slabs,
                        uint64_t task)
{
    const uint64_t number = task - c->first_task[pair];

    if (c->pairs.sample_bytes == 0)
        return number;
    return number > 0 || (slabs->n <= FEW_SLABS && pair % 2 == 1) ? slabs->n - 1 : 0;
}

static size_t find_pair(const struct comparison *c, uint64_t task)
{
    return dcpk_find_last(c->first_task, sizeof *c->first_task, c->pairs.n, task);
}

static dcpk_status gather_view(struct dcpk_exec *exec, struct dcpk_worker *worker,
                               const struct dcpk_view *view, const struct dcpk_box *slab, void *out,
                               struct dcpk_error *err)
{
    struct dcpk_box_tree pieces;
    const struct dcpk_gather_from from = {view, &pieces};
    dcpk_status st;

    if (dcpk_piece_tree_build(view, &pieces, err))
        return err->status;
    st = dcpk_gather(exec, worker, &from, slab, out, err);
    dcpk_box_tree_release(&pieces);
    return st;
}

/* Count the elements whose bits differ. result: DCPK_COMPARE_INIT. */
static void count_different(const struct dcpk_element_run *run, struct dcpk_compare *result)
{
    const size_t elem_bytes = dcpk_dtype_bytes(run->dtype);
    const uint8_t *a = run->a, *b = run->b;

    if (memcmp(a, b, (size_t)run->n * elem_bytes) == 0)
        return;
    for (uint64_t i = 0; i < run->n; i++)
        if (memcmp(a + i * elem_bytes, b + i * elem_bytes, elem_bytes) != 0 &&
            result->n_different++ == 0)
            result->first_different = (int64_t)(run->first + i);
    result->equal = result->n_different == 0;
}

static void add_result(struct comparison *c, size_t pair, const struct dcpk_compare *result)
{
    pthread_mutex_lock(&c->mutex);
    dcpk_compare_merge(&c->results[pair], result);
    pthread_mutex_unlock(&c->mutex);
}

/* The dtype that a pair is compared in. */
static enum dcpk_dtype common_dtype(const struct comparison *c, enum dcpk_dtype left,
                                    enum dcpk_dtype right)
{
    if (!c->is_measured || dcpk_dtype_bytes(left) < dcpk_dtype_bytes(right))
        return left;
    return right;
}

/* One side of a slab on its way into memory. */
struct side {
    struct dcpk_exec *exec;
    const struct dcpk_view *view;
    uint8_t *out, *cast;    /* where it goes, and where it goes when it has to be cast */
    const uint8_t *data;    /* one of the two, when it is there */
    uint64_t *n_not_finite; /* NULL: not counted */
};

static dcpk_status gather_side(struct dcpk_worker *worker, struct side *side,
                               const struct dcpk_box *slab, enum dcpk_dtype dtype,
                               struct dcpk_error *err)
{
    if (gather_view(side->exec, worker, side->view, slab, side->out, err))
        return err->status;
    side->data = side->out;
    if (side->n_not_finite != NULL)
        *side->n_not_finite =
            dcpk_elems_count_not_finite(side->view->dtype, side->out, dcpk_box_elems(slab));
    if (side->view->dtype == dtype)
        return DCPK_OK;
    side->data = side->cast;
    return side->exec->kernels->cast(side->view->dtype, side->out, dtype, side->cast,
                                     (size_t)dcpk_box_elems(slab), err);
}

/* Tensors that were cast are compared by value: the NaN that a cast makes does not matter. */
static const struct dcpk_tolerance *tolerance_of(const struct comparison *c, const struct side *a,
                                                 const struct side *b)
{
    static const struct dcpk_tolerance by_value = {0, 0};

    if (c->tolerance == NULL && a->view->dtype != b->view->dtype)
        return &by_value;
    return c->tolerance;
}

/* Elements of a slab that differ: those more than half a step apart, in float32. `result` has them
 * by their bits. */
static dcpk_status compare_rounded(const struct comparison *c, struct dcpk_worker *worker,
                                   size_t pair, const struct dcpk_box *slab,
                                   struct dcpk_compare *result, struct dcpk_error *err)
{
    struct dcpk_view left = c->pairs.left[pair], right = c->pairs.right[pair];
    float *of[3]; /* left, right, steps */

    for (int i = 0; i < 3; i++)
        of[i] = (float *)(void *)(worker->buffer + (size_t)i * c->side_bytes);
    left.dtype = right.dtype = DCPK_F32;
    if (gather_view(c->pairs.left_exec, worker, &left, slab, of[0], err) ||
        gather_view(c->pairs.right_exec, worker, &right, slab, of[1], err))
        return err->status;
    left.gives_steps = true;
    if (gather_view(c->pairs.left_exec, worker, &left, slab, of[2], err))
        return err->status;
    result->n_unequal_bits = result->n_different;
    result->n_different = 0;
    for (uint64_t i = 0; i < dcpk_box_elems(slab); i++) {
        const double apart = fabs((double)of[0][i] - (double)of[1][i]);

        /* a little more: quotients and products are rounded, too */
        if (!(apart <= (double)of[2][i] * (0.5 + 0x1p-16) + 0x1p-149))
            result->n_different++;
    }
    result->equal = result->n_different == 0;
    return DCPK_OK;
}

static dcpk_status compare_task(void *context, int worker_number, uint64_t task,
                                struct dcpk_error *err)
{
    struct comparison *c = context;
    struct dcpk_worker *worker = &c->pass.workers[worker_number];
    const size_t pair = find_pair(c, task), third = c->side_bytes;
    const struct dcpk_view *left = &c->pairs.left[pair], *right = &c->pairs.right[pair];
    const enum dcpk_dtype dtype = common_dtype(c, left->dtype, right->dtype);
    struct dcpk_compare result = DCPK_COMPARE_INIT;
    uint8_t *buffer = worker->buffer;
    struct side a = {c->pairs.left_exec, left, buffer, buffer + 2 * third, NULL, NULL};
    struct side b = {c->pairs.right_exec, right, buffer + third, buffer + 2 * third, NULL, NULL};
    struct dcpk_element_run run = {.dtype = dtype};
    struct dcpk_slabs slabs;
    struct dcpk_box slab;
    uint64_t slab_number;

    if (!c->is_measured) {
        a.n_not_finite = &result.n_not_finite[0];
        b.n_not_finite = &result.n_not_finite[1];
    }
    cut_pair(c, pair, &slabs);
    slab_number = slab_of(c, pair, &slabs, task);
    dcpk_slabs_box(&slabs, slab_number, &slab);
    if (gather_side(worker, &a, &slab, dtype, err) || gather_side(worker, &b, &slab, dtype, err))
        return err->status;
    run.a = a.data;
    run.b = b.data;
    run.n = dcpk_box_elems(&slab);
    run.first = dcpk_slabs_first(&slabs, slab_number);
    if (c->is_measured)
        dcpk_measure(&run, tolerance_of(c, &a, &b), &result);
    else
        count_different(&run, &result);
    if (!result.equal && is_rounded(c, pair) &&
        compare_rounded(c, worker, pair, &slab, &result, err))
        return err->status;
    add_result(c, pair, &result);
    return dcpk_meter_add(&c->pass.meter, dcpk_box_elems(&slab) * dcpk_dtype_bytes(left->dtype),
                          err);
}

static void number_tasks(struct comparison *c)
{
    for (size_t i = 0; i < c->pairs.n; i++) {
        struct dcpk_slabs slabs;

        assert(dcpk_view_same_shape(&c->pairs.left[i], &c->pairs.right[i]));
        cut_pair(c, i, &slabs);
        c->first_task[i] = c->n_tasks;
        c->results[i] = (struct dcpk_compare)DCPK_COMPARE_INIT;
        c->n_tasks += count_slabs(c, &slabs);
    }
}

/* On the left. */
static uint64_t task_bytes(const void *context, uint64_t task)
{
    const struct comparison *c = context;
    const size_t pair = find_pair(c, task);
    struct dcpk_slabs slabs;
    struct dcpk_box slab;

    cut_pair(c, pair, &slabs);
    dcpk_slabs_box(&slabs, slab_of(c, pair, &slabs, task), &slab);
    return dcpk_box_elems(&slab) * dcpk_dtype_bytes(c->pairs.left[pair].dtype);
}

/* One rank's report of a pair in which it found something: few, in most comparisons. */
struct seen {
    uint64_t pair;
    struct dcpk_compare result;
};

/* Put the results of all ranks together: slabs of one pair may be of several. */
static dcpk_status share_results(struct comparison *c, dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_bytes mine = {0}, all = {0};
    struct seen seen;

    for (size_t i = 0; i < c->pairs.n; i++) {
        const struct dcpk_compare *r = &c->results[i];

        if (r->equal && r->n_unequal_bits == 0 && r->n_not_finite[0] == 0 &&
            r->n_not_finite[1] == 0)
            continue;
        memset(&seen, 0, sizeof seen); /* padding travels as well */
        seen.pair = i;
        seen.result = c->results[i];
        dcpk_bytes_put(&mine, &seen, sizeof seen);
        c->results[i] = (struct dcpk_compare)DCPK_COMPARE_INIT;
    }
    st = dcpk_pass_share(&c->pass, &mine, 0, &all, st, err);
    for (size_t at = 0; st == DCPK_OK && at < all.n_bytes; at += sizeof seen) {
        if (all.n_bytes - at >= sizeof seen)
            memcpy(&seen, all.data + at, sizeof seen);
        if (all.n_bytes - at < sizeof seen || seen.pair >= c->pairs.n)
            st = dcpk_fail(err, DCPK_EIO, "a rank compared what there is not");
        else
            dcpk_compare_merge(&c->results[seen.pair], &seen.result);
    }
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status run_comparison(struct comparison *c, struct dcpk_exec_stats *stats,
                                  struct dcpk_error *err)
{
    dcpk_status st;

    pthread_mutex_init(&c->mutex, NULL);
    st = dcpk_pass_begin(&c->pass, c->pairs.left_exec, err);
    if (st == DCPK_OK)
        st = dcpk_ranks_check_checkpoint(c->pass.exec->ranks, c->pairs.right_exec->ckpt, err);
    if (st == DCPK_OK)
        st = choose_slabs(c, err);
    if (st == DCPK_OK) {
        c->first_task = dcpk_alloc_array(c->pairs.n, sizeof *c->first_task, err);
        if (c->first_task == NULL)
            st = err->status;
    }
    if (st == DCPK_OK) {
        number_tasks(c);
        c->pass.work = (struct dcpk_work){.n = c->n_tasks, .bytes_of = task_bytes};
        c->pass.task = compare_task;
        c->pass.context = c;
        st = share_results(c, dcpk_pass_run(&c->pass, err), err);
    }
    st = dcpk_pass_end(&c->pass, stats, st);
    dcpk_free(c->first_task);
    pthread_mutex_destroy(&c->mutex);
    return st;
}

dcpk_status dcpk_exec_compare(const struct dcpk_view_pairs *pairs, struct dcpk_compare *results,
                              struct dcpk_exec_stats *stats, struct dcpk_error *err)
{
    struct comparison c = {.pairs = *pairs, .results = results};

    return run_comparison(&c, stats, err);
}

dcpk_status dcpk_exec_measure(const struct dcpk_view_pairs *pairs,
                              const struct dcpk_tolerance *tolerance, struct dcpk_compare *results,
                              struct dcpk_exec_stats *stats, struct dcpk_error *err)
{
    struct comparison c = {
        .pairs = *pairs, .is_measured = true, .tolerance = tolerance, .results = results};

    return run_comparison(&c, stats, err);
}
