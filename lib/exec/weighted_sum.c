/* SPDX-License-Identifier: Apache-2.0 */
/* weighted_sum.c - gathers the same box of several checkpoints and adds it up, slab by slab. */
#include "lib/exec/weighted_sum.h"

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/slab.h"
#include "lib/exec/workers.h"

/* A term with what reads it: a worker for each lane, a tree for each view. */
struct term {
    struct dcpk_sum_term of;
    struct dcpk_worker *workers;
    struct dcpk_box_tree *pieces;
};

struct dcpk_weighted_sum {
    struct term *terms;
    size_t n_terms, n_views;
    int n_lanes;
    bool *is_busy; /* by lane */
    pthread_mutex_t mutex;
    pthread_cond_t freed; /* a lane is free again */
};

static dcpk_status term_init(struct term *term, const struct dcpk_sum_term *of, size_t n_views,
                             struct dcpk_error *err)
{
    term->of = *of;
    term->pieces = dcpk_alloc_array(n_views, sizeof *term->pieces, err);
    if (term->pieces == NULL || (term->workers = dcpk_workers_new(of->exec, err)) == NULL)
        return err->status;
    for (size_t i = 0; i < n_views; i++)
        if (dcpk_piece_tree_build(&of->views[i], &term->pieces[i], err))
            return err->status;
    return DCPK_OK;
}

static void term_release(struct term *term, size_t n_views)
{
    for (size_t i = 0; term->pieces != NULL && i < n_views; i++)
        dcpk_box_tree_release(&term->pieces[i]);
    dcpk_free(term->pieces);
    if (term->of.exec != NULL)
        dcpk_workers_free(term->of.exec, term->workers);
}

dcpk_status dcpk_weighted_sum_new(const struct dcpk_sum_term *terms, size_t n_terms, size_t n_views,
                                  struct dcpk_weighted_sum **sum, struct dcpk_error *err)
{
    struct dcpk_weighted_sum *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->freed, NULL);
    made->n_terms = n_terms;
    made->n_views = n_views;
    made->n_lanes = terms[0].exec->n_threads;
    made->terms = dcpk_alloc_array(n_terms, sizeof *made->terms, err);
    for (size_t t = 0; t < n_terms && err->status == DCPK_OK; t++) {
        made->n_lanes = (int)dcpk_min_i64(made->n_lanes, terms[t].exec->n_threads);
        (void)term_init(&made->terms[t], &terms[t], n_views, err);
    }
    if (err->status == DCPK_OK)
        made->is_busy = dcpk_alloc_array((size_t)made->n_lanes, sizeof *made->is_busy, err);
    if (err->status != DCPK_OK) {
        dcpk_weighted_sum_free(made);
        return err->status;
    }
    *sum = made;
    return DCPK_OK;
}

void dcpk_weighted_sum_free(struct dcpk_weighted_sum *sum)
{
    if (sum == NULL)
        return;
    for (size_t t = 0; sum->terms != NULL && t < sum->n_terms; t++)
        term_release(&sum->terms[t], sum->n_views);
    dcpk_free(sum->terms);
    dcpk_free(sum->is_busy);
    pthread_cond_destroy(&sum->freed);
    pthread_mutex_destroy(&sum->mutex);
    dcpk_free(sum);
}

/* The lane with the lowest number, whose windows are the warmest. */
static int lane_take(struct dcpk_weighted_sum *sum)
{
    int lane = 0;

    pthread_mutex_lock(&sum->mutex);
    while (sum->is_busy[lane])
        if (++lane == sum->n_lanes) {
            pthread_cond_wait(&sum->freed, &sum->mutex);
            lane = 0;
        }
    sum->is_busy[lane] = true;
    pthread_mutex_unlock(&sum->mutex);
    return lane;
}

static void lane_give(struct dcpk_weighted_sum *sum, int lane)
{
    pthread_mutex_lock(&sum->mutex);
    sum->is_busy[lane] = false;
    pthread_cond_signal(&sum->freed);
    pthread_mutex_unlock(&sum->mutex);
}

/* A region of one term's view, in the memory of one lane. */
struct term_read {
    const struct term *term;
    size_t view;
    int lane;
    const struct dcpk_box *region;
};

static dcpk_status term_gather(const struct term_read *r, void *out, struct dcpk_error *err)
{
    const struct dcpk_gather_from from = {&r->term->of.views[r->view], &r->term->pieces[r->view]};

    return dcpk_gather(r->term->of.exec, &r->term->workers[r->lane], &from, r->region, out, err);
}

/* All terms of a region that fits the buffers of the lane. */
static dcpk_status sum_slab(const struct dcpk_weighted_sum *sum, struct term_read *r, float *out,
                            struct dcpk_error *err)
{
    const struct dcpk_host_kernels *kernels = sum->terms[0].of.exec->kernels;
    const size_t n = (size_t)dcpk_box_elems(r->region);

    for (size_t t = 0; t < sum->n_terms; t++) {
        float *x = out;

        r->term = &sum->terms[t];
        if (t > 0)
            x = (float *)(void *)r->term->workers[r->lane].buffer;
        if (term_gather(r, x, err))
            return err->status;
        kernels->add_term(r->term->of.weight, x, t == 0, out, n);
    }
    return DCPK_OK;
}

static size_t min_buffer(const struct dcpk_weighted_sum *sum, int lane)
{
    size_t n_bytes = SIZE_MAX;

    for (size_t t = 0; t < sum->n_terms; t++)
        n_bytes = dcpk_min_size(n_bytes, sum->terms[t].workers[lane].buffer_bytes);
    return n_bytes;
}

static dcpk_status sum_region(const struct dcpk_weighted_sum *sum, size_t view, int lane,
                              const struct dcpk_box *region, float *out, struct dcpk_error *err)
{
    struct term_read r = {.view = view, .lane = lane};
    struct dcpk_slabs slabs;

    dcpk_slabs_cut(region, sizeof *out, min_buffer(sum, lane), &slabs);
    for (uint64_t i = 0; i < slabs.n; i++) {
        struct dcpk_box slab;

        dcpk_slabs_box(&slabs, i, &slab);
        r.region = &slab;
        if (sum_slab(sum, &r, out + dcpk_slabs_first(&slabs, i), err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_weighted_sum_read(struct dcpk_weighted_sum *sum, size_t view,
                                   const struct dcpk_box *region, void *out, struct dcpk_error *err)
{
    const int lane = lane_take(sum);
    const struct term_read whole = {&sum->terms[0], view, lane, region};

    if (sum->terms[0].of.views[view].dtype == DCPK_F32)
        (void)sum_region(sum, view, lane, region, out, err);
    else
        (void)term_gather(&whole, out, err);
    lane_give(sum, lane);
    return err->status;
}
