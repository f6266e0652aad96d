/* SPDX-License-Identifier: Apache-2.0 */
/* exec_hash.c - hashes and fingerprints of views: a tensor is read in row-major order by one
 * thread, many tensors at once, and what has several names once. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/ckpt/value_hash.h"
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
    return dcpk_box_elems(&whole) * dcpk_dtype_bytes(view->dtype);
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
        n_bytes = (size_t)dcpk_box_elems(&slab) * elem_bytes;
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

/* ---- objects ---- */

struct object_hashing {
    struct dcpk_exec *exec;
    struct dcpk_pass pass;
    uint32_t *objects; /* one of those that share a place */
    size_t n_objects;
    uint32_t *first; /* by object: its place in `objects` */
    struct dcpk_object_hash *made;
};

/* Hashing one object. */
struct one {
    struct object_hashing *h;
    int worker;
    const struct dcpk_object *object;
    uint64_t metered_bytes; /* already added to the meter */
};

static dcpk_status hash_elements(void *context, const struct dcpk_value_tensor *tensor,
                                 struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct one *o = context;
    struct dcpk_worker *worker = &o->h->pass.workers[o->worker];
    struct dcpk_source *source = o->h->exec->ckpt->files[o->object->place.file];
    struct dcpk_hasher hasher;

    if (!tensor->is_row_major && tensor->n_bytes > 0)
        return dcpk_fail(err, DCPK_ERANGE, "a tensor in it is strided");
    dcpk_hasher_begin(&hasher);
    for (uint64_t at = 0; at < tensor->n_bytes; at += worker->buffer_bytes) {
        const uint64_t left = tensor->n_bytes - at;
        const size_t n = (size_t)dcpk_min_u64(left, worker->buffer_bytes);

        if (dcpk_worker_read(worker, source, tensor->first_bytes + at, worker->buffer, n, err) !=
            DCPK_OK)
            return err->status;
        dcpk_hasher_update(&hasher, worker->buffer, n);
        o->metered_bytes += n;
        if (dcpk_meter_add(&o->h->pass.meter, n, err) != DCPK_OK)
            return err->status;
    }
    dcpk_hasher_digest(&hasher, hash);
    return DCPK_OK;
}

static dcpk_status hash_loaded(const struct one *o, struct dcpk_arena *arena,
                               struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = o->h->exec->ckpt;
    const struct dcpk_value_hashing hashing = {.elements = NULL};
    const struct dcpk_value *value;

    if (dcpk_checkpoint_load_item(ckpt, o->object, arena, &value, err) != DCPK_OK)
        return err->status;
    return dcpk_value_hash(value, &hashing, hash, err);
}

/* One that is larger than a buffer (gathered optimizer state has 12 bytes a parameter): its tensors
 * are read as streams, where they can be. */
static dcpk_status hash_large(struct one *o, struct dcpk_arena *arena, struct dcpk_hash *hash,
                              struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = o->h->exec->ckpt;
    const struct dcpk_value_hashing hashing = {.elements = hash_elements, .context = o};
    const struct dcpk_value *value;
    dcpk_status st = dcpk_checkpoint_outline_item(ckpt, o->object, arena, &value, err);

    if (st == DCPK_OK)
        st = dcpk_value_hash(value, &hashing, hash, err);
    if (st != DCPK_ERANGE || o->object->place.n_bytes > DCPK_MAX_LOADED_BYTES)
        return st;
    dcpk_error_clear(err);
    return hash_loaded(o, arena, hash, err);
}

static dcpk_status hash_object_task(void *context, int worker, uint64_t task,
                                    struct dcpk_error *err)
{
    struct object_hashing *h = context;
    struct one o = {h, worker, &h->exec->ckpt->objects[h->objects[task]], 0};
    const uint64_t n_bytes = o.object->place.n_bytes;
    struct dcpk_object_hash *made = &h->made[task];
    struct dcpk_arena *arena = dcpk_arena_new();
    dcpk_status st;

    if (n_bytes > h->pass.workers[worker].buffer_bytes)
        st = hash_large(&o, arena, &made->hash, err);
    else
        st = hash_loaded(&o, arena, &made->hash, err);
    dcpk_arena_free(arena);
    if (st == DCPK_ERANGE || st == DCPK_EUNSUPPORTED) { /* an answer, not a failure */
        made->state = st == DCPK_ERANGE ? DCPK_OBJECT_TOO_LARGE : DCPK_OBJECT_NOT_UNDERSTOOD;
        dcpk_error_clear(err);
        st = DCPK_OK;
    }
    if (st == DCPK_OK)
        st = dcpk_meter_add(&h->pass.meter, n_bytes - dcpk_min_u64(n_bytes, o.metered_bytes), err);
    if (st != DCPK_OK)
        dcpk_context(err, "hashing '%s'", o.object->key);
    return st;
}

static uint64_t object_task_bytes(const void *context, uint64_t task)
{
    const struct object_hashing *h = context;

    return h->exec->ckpt->objects[h->objects[task]].place.n_bytes;
}

static dcpk_status object_hashing_init(struct object_hashing *h, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = h->exec->ckpt;

    h->first = dcpk_alloc_array(ckpt->n_objects, sizeof *h->first, err);
    if (h->first == NULL ||
        dcpk_order_objects(ckpt, h->first, &h->objects, &h->n_objects, err) != DCPK_OK)
        return err->status;
    h->made = dcpk_alloc_array(h->n_objects, sizeof *h->made, err);
    if (h->made == NULL)
        return err->status;
    return DCPK_OK;
}

/* The hashes of all tasks, whichever rank has made them, by object. */
static dcpk_status share_object_hashes(struct object_hashing *h, struct dcpk_object_hash *hashes,
                                       dcpk_status st, struct dcpk_error *err)
{
    const struct dcpk_work *work = &h->pass.work;
    struct dcpk_bytes mine = {0}, all = {0};

    dcpk_bytes_put(&mine, h->made + work->first, (work->last - work->first) * sizeof *h->made);
    st = dcpk_pass_share(&h->pass, &mine, sizeof *h->made, &all, st, err);
    if (st == DCPK_OK && h->n_objects > 0)
        memcpy(h->made, all.data, h->n_objects * sizeof *h->made);
    for (size_t i = 0; i < h->exec->ckpt->n_objects && st == DCPK_OK; i++)
        hashes[i] = h->made[h->first[i]];
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

dcpk_status dcpk_exec_hash_objects(struct dcpk_exec *exec, struct dcpk_object_hash *hashes,
                                   struct dcpk_error *err)
{
    struct object_hashing h = {.exec = exec};
    dcpk_status st = dcpk_pass_begin(&h.pass, exec, err);

    if (st == DCPK_OK)
        st = object_hashing_init(&h, err);
    if (st == DCPK_OK) {
        h.pass.work = (struct dcpk_work){.n = h.n_objects, .bytes_of = object_task_bytes};
        h.pass.task = hash_object_task;
        h.pass.context = &h;
        st = share_object_hashes(&h, hashes, dcpk_pass_run(&h.pass, err), err);
    }
    st = dcpk_pass_end(&h.pass, NULL, st);
    dcpk_free(h.objects);
    dcpk_free(h.first);
    dcpk_free(h.made);
    return st;
}
