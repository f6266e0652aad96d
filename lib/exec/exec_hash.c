/* SPDX-License-Identifier: Apache-2.0 */
/* exec_hash.c - hashes and fingerprints of views: a tensor is read in row-major order by one
 * thread, many tensors at once, and what has several names once. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/exec/slab.h"
#include "lib/exec/workers.h"
#include "lib/tensor/fingerprint.h"

/* Tensors from this size on go first: one that began last would keep a thread busy while the others
 * are idle. */
#define LARGE_BYTES (UINT64_C(64) << 20)

struct view_hashing {
    struct dcpk_exec *exec;
    struct dcpk_pass pass;
    bool is_fingerprint;
    const struct dcpk_view *views;
    size_t n;
    size_t *first; /* by view: the one that it is another name of, or itself */
    size_t *order; /* views to be hashed */
    size_t n_tasks;
    uint8_t *results; /* by view */
    size_t result_bytes;
};

static void *view_result(const struct view_hashing *h, size_t view)
{
    return h->results + view * h->result_bytes;
}

static uint64_t view_bytes(const struct dcpk_view *view)
{
    struct dcpk_box whole;

    dcpk_box_whole(view->shape, view->rank, &whole);
    return dcpk_slab_elems(&whole) * dcpk_dtype_bytes(view->dtype);
}

/* Adds the view to the hasher, or its terms to *sum. */
static dcpk_status hash_slabs(struct view_hashing *h, struct dcpk_worker *worker,
                              const struct dcpk_gather_from *from, struct dcpk_hasher *hasher,
                              uint64_t *sum, struct dcpk_error *err)
{
    const struct dcpk_view *view = from->view;
    const size_t elem_bytes = dcpk_dtype_bytes(view->dtype);
    const size_t word_bytes = dcpk_fingerprint_word_bytes(elem_bytes);
    uint64_t word = 0; /* the first one of the slab */
    struct dcpk_slabs slabs;
    struct dcpk_box slab;
    dcpk_status st = DCPK_OK;

    dcpk_box_whole(view->shape, view->rank, &slab);
    dcpk_slabs_cut(&slab, elem_bytes, worker->buffer_bytes, &slabs);
    for (uint64_t i = 0; i < slabs.n && st == DCPK_OK; i++) {
        size_t n_bytes;

        if (i + 1 < slabs.n) {
            dcpk_slabs_box(&slabs, i + 1, &slab);
            dcpk_gather_advise(h->exec, from, &slab);
        }
        dcpk_slabs_box(&slabs, i, &slab);
        n_bytes = (size_t)dcpk_slab_elems(&slab) * elem_bytes;
        st = dcpk_gather(h->exec, worker, from, &slab, worker->buffer, err);
        if (st != DCPK_OK)
            break;
        if (!h->is_fingerprint)
            dcpk_hasher_update(hasher, worker->buffer, n_bytes);
        else
            *sum += dcpk_fingerprint_sum(worker->buffer, word_bytes, n_bytes / word_bytes, word);
        word += n_bytes / word_bytes;
        st = dcpk_meter_add(&h->pass.meter, n_bytes, err);
    }
    return st;
}

static dcpk_status hash_view_task(void *context, int worker, uint64_t task, struct dcpk_error *err)
{
    struct view_hashing *h = context;
    struct dcpk_hasher hasher;
    struct dcpk_box_tree pieces;
    const struct dcpk_gather_from from = {&h->views[h->order[task]], &pieces};
    void *result = view_result(h, h->order[task]);
    uint64_t sum = 0;
    dcpk_status st = dcpk_piece_tree_build(from.view, &pieces, err);

    if (st != DCPK_OK)
        return st;
    dcpk_hasher_begin(&hasher);
    st = hash_slabs(h, &h->pass.workers[worker], &from, &hasher, &sum, err);
    if (st == DCPK_OK && !h->is_fingerprint)
        dcpk_hasher_digest(&hasher, result);
    else if (st == DCPK_OK)
        memcpy(result, &sum, sizeof sum);
    dcpk_box_tree_release(&pieces);
    return st;
}

static uint64_t hash_task_bytes(const void *context, uint64_t task)
{
    const struct view_hashing *h = context;

    return view_bytes(&h->views[h->order[task]]);
}

/* The views that are their first name, large ones first. */
static void order_views(struct view_hashing *h)
{
    for (int small = 0; small < 2; small++)
        for (size_t i = 0; i < h->n; i++)
            if (h->first[i] == i && (view_bytes(&h->views[i]) < LARGE_BYTES) == small)
                h->order[h->n_tasks++] = i;
}

static dcpk_status view_hashing_init(struct view_hashing *h, struct dcpk_error *err)
{
    h->order = dcpk_alloc_array(h->n, sizeof *h->order, err);
    if (h->order != NULL)
        h->first = dcpk_alloc_array(h->n, sizeof *h->first, err);
    if (h->first == NULL)
        return err->status;
    if (dcpk_views_fold(h->exec->ckpt, h->views, h->n, h->first, err) != DCPK_OK)
        return err->status;
    order_views(h);
    return DCPK_OK;
}

/* The results of all tasks, whichever rank has made them, and of their other names. */
static dcpk_status share_view_hashes(struct view_hashing *h, dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_bytes mine = {0}, all = {0};

    for (uint64_t t = h->pass.work.first; t < h->pass.work.last; t++)
        dcpk_bytes_put(&mine, view_result(h, h->order[t]), h->result_bytes);
    st = dcpk_pass_share(&h->pass, &mine, h->result_bytes, &all, st, err);
    for (size_t t = 0; t < h->n_tasks && st == DCPK_OK; t++)
        memcpy(view_result(h, h->order[t]), all.data + t * h->result_bytes, h->result_bytes);
    for (size_t i = 0; i < h->n && st == DCPK_OK; i++)
        memmove(view_result(h, i), view_result(h, h->first[i]), h->result_bytes);
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status hash_views(struct view_hashing *h, struct dcpk_exec_stats *stats,
                              struct dcpk_error *err)
{
    dcpk_status st = dcpk_pass_begin(&h->pass, h->exec, err);

    if (st == DCPK_OK)
        st = view_hashing_init(h, err);
    if (st == DCPK_OK) {
        h->pass.work = (struct dcpk_work){.n = h->n_tasks, .bytes_of = hash_task_bytes};
        h->pass.task = hash_view_task;
        h->pass.context = h;
        st = share_view_hashes(h, dcpk_pass_run(&h->pass, err), err);
    }
    st = dcpk_pass_end(&h->pass, stats, st);
    dcpk_free(h->order);
    dcpk_free(h->first);
    return st;
}

dcpk_status dcpk_exec_hash(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                           struct dcpk_hash *hashes, struct dcpk_exec_stats *stats,
                           struct dcpk_error *err)
{
    struct view_hashing h = {.exec = exec,
                             .views = views,
                             .n = n,
                             .results = (uint8_t *)hashes,
                             .result_bytes = sizeof *hashes};

    return hash_views(&h, stats, err);
}

dcpk_status dcpk_exec_fingerprint(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                                  uint64_t *sums, struct dcpk_error *err)
{
    struct view_hashing h = {.exec = exec,
                             .views = views,
                             .n = n,
                             .is_fingerprint = true,
                             .results = (uint8_t *)sums,
                             .result_bytes = sizeof *sums};

    return hash_views(&h, NULL, err);
}
