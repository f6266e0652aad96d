/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - statistics of views: segments on all threads, blocks of a segment in their order. */
#include "lib/exec/stats.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/exec/slab.h"
#include "lib/exec/workers.h"
#include "lib/tensor/elem.h"

/* Fixed, whatever the options: the order of additions must not depend on them. */
#define SEGMENT_BYTES (UINT64_C(64) << 20)  /* a task */
#define BLOCK_BYTES   (UINT64_C(128) << 10) /* bytes read and summed at once; fits every buffer */
#define BATCH_ELEMS   256                   /* decoded at once */

struct surveying {
    struct dcpk_exec *exec;
    struct dcpk_worker *workers;
    const struct dcpk_view *views;
    size_t n;
    size_t *first;               /* by view: the one that it is another name of, or itself */
    uint64_t *first_task;        /* of each view, and after them how many there are */
    struct dcpk_stats *segments; /* one a task */
    struct dcpk_meter meter;
};

double dcpk_stats_mean(const struct dcpk_stats *stats)
{
    return stats->n_finite == 0 ? NAN : stats->sum / (double)stats->n_finite;
}

double dcpk_stats_norm(const struct dcpk_stats *stats)
{
    return stats->n_finite == 0 ? NAN : sqrt(stats->sum_squares);
}

static bool has_numbers(enum dcpk_dtype dtype)
{
    const enum dcpk_elem_kind kind = dcpk_elem_kind(dtype);

    return kind != DCPK_ELEM_COMPLEX && kind != DCPK_ELEM_BITS;
}

/* n elements as doubles; the common dtypes without the general decoder, which is an order
 * slower. */
static void decode(enum dcpk_dtype dtype, const uint8_t *data, size_t n, double *out)
{
    const size_t elem_bytes = dcpk_dtype_bytes(dtype);

    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = data + i * elem_bytes;
        float f;

        if (dtype == DCPK_F32 || dtype == DCPK_BF16) {
            const uint32_t bits =
                dtype == DCPK_F32 ? dcpk_load_u32le(at) : (uint32_t)dcpk_load_u16le(at) << 16;

            memcpy(&f, &bits, sizeof f);
            out[i] = (double)f;
        } else {
            const struct dcpk_elem elem = dcpk_elem_load(dtype, at);

            out[i] = dcpk_elem_double(&elem);
        }
    }
}

static bool is_finite(const struct dcpk_stats *s)
{
    return s->n_nan == 0 && s->n_inf == 0;
}

/* first: where they lie in the block. */
static void add_numbers(struct dcpk_stats *s, const double *v, size_t n, uint64_t first)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            if (is_finite(s))
                s->first_bad = first + i;
            s->n_nan += isnan(v[i]) != 0;
            s->n_inf += isinf(v[i]) != 0;
            continue;
        }
        s->n_zero += v[i] == 0;
        if (s->n_finite == 0 || v[i] < s->min)
            s->min = v[i];
        if (s->n_finite == 0 || v[i] > s->max)
            s->max = v[i];
        s->n_finite++;
        s->sum += v[i];
        s->sum_squares += v[i] * v[i];
    }
}

/* Put what follows after what was. */
static void merge(struct dcpk_stats *into, const struct dcpk_stats *next)
{
    if (next->n_finite > 0 && (into->n_finite == 0 || next->min < into->min))
        into->min = next->min;
    if (next->n_finite > 0 && (into->n_finite == 0 || next->max > into->max))
        into->max = next->max;
    if (is_finite(into) && !is_finite(next))
        into->first_bad = into->n_elems + next->first_bad;
    into->n_elems += next->n_elems;
    into->n_nan += next->n_nan;
    into->n_inf += next->n_inf;
    into->n_zero += next->n_zero;
    into->n_finite += next->n_finite;
    into->sum += next->sum;
    into->sum_squares += next->sum_squares;
}

static void survey_block(enum dcpk_dtype dtype, const uint8_t *data, uint64_t n_elems,
                         struct dcpk_stats *segment)
{
    const size_t elem_bytes = dcpk_dtype_bytes(dtype);
    struct dcpk_stats block = {.n_elems = n_elems};
    double batch[BATCH_ELEMS];

    for (uint64_t i = 0; i < n_elems; i += BATCH_ELEMS) {
        const size_t n = (size_t)dcpk_min_u64(n_elems - i, BATCH_ELEMS);

        decode(dtype, data + i * elem_bytes, n, batch);
        add_numbers(&block, batch, n, i);
    }
    merge(segment, &block);
}

static void cut_view(const struct dcpk_view *view, struct dcpk_slabs *segments)
{
    struct dcpk_box whole;

    dcpk_box_whole(view->shape, view->rank, &whole);
    dcpk_slabs_cut(&whole, dcpk_dtype_bytes(view->dtype), SEGMENT_BYTES, segments);
}

static dcpk_status survey_segment(struct surveying *s, struct dcpk_worker *worker,
                                  const struct dcpk_view *view, const struct dcpk_box *segment,
                                  struct dcpk_stats *stats, struct dcpk_error *err)
{
    const size_t elem_bytes = dcpk_dtype_bytes(view->dtype);
    struct dcpk_box_tree pieces;
    const struct dcpk_gather_from from = {view, &pieces};
    struct dcpk_slabs blocks;
    struct dcpk_box block;
    dcpk_status st = dcpk_piece_tree_build(view, &pieces, err);

    assert(worker->buffer_bytes >= BLOCK_BYTES);
    if (st != DCPK_OK)
        return st;
    dcpk_slabs_cut(segment, elem_bytes, BLOCK_BYTES, &blocks);
    for (uint64_t i = 0; i < blocks.n && st == DCPK_OK; i++) {
        dcpk_slabs_box(&blocks, i, &block);
        st = dcpk_gather(s->exec, worker, &from, &block, worker->buffer, err);
        if (st != DCPK_OK)
            break;
        survey_block(view->dtype, worker->buffer, dcpk_box_elems(&block), stats);
        st = dcpk_meter_add(&s->meter, dcpk_box_elems(&block) * elem_bytes, err);
    }
    dcpk_box_tree_release(&pieces);
    return st;
}

static dcpk_status survey_task(void *context, int worker, uint64_t task, struct dcpk_error *err)
{
    struct surveying *s = context;
    const size_t v = dcpk_find_last(s->first_task, sizeof *s->first_task, s->n, task);
    struct dcpk_slabs segments;
    struct dcpk_box segment;

    cut_view(&s->views[v], &segments);
    dcpk_slabs_box(&segments, task - s->first_task[v], &segment);
    return survey_segment(s, &s->workers[worker], &s->views[v], &segment, &s->segments[task], err);
}

/* Number the tasks; views without numbers have none, nor have further names of a view. */
static dcpk_status surveying_init(struct surveying *s, struct dcpk_error *err)
{
    uint64_t n_tasks = 0;

    s->workers = dcpk_workers_new(s->exec, err);
    if (s->workers == NULL)
        return err->status;
    s->first_task = dcpk_alloc_array(s->n + 1, sizeof *s->first_task, err);
    if (s->first_task != NULL)
        s->first = dcpk_alloc_array(s->n, sizeof *s->first, err);
    if (s->first == NULL)
        return err->status;
    if (dcpk_views_fold(s->exec->ckpt, s->views, s->n, s->first, err) != DCPK_OK)
        return err->status;
    for (size_t v = 0; v < s->n; v++) {
        struct dcpk_slabs segments;

        s->first_task[v] = n_tasks;
        if (!has_numbers(s->views[v].dtype) || s->first[v] != v)
            continue;
        cut_view(&s->views[v], &segments);
        n_tasks += segments.n;
        s->meter.total_bytes += dcpk_box_elems(&segments.box) * dcpk_dtype_bytes(s->views[v].dtype);
    }
    s->first_task[s->n] = n_tasks;
    s->segments = dcpk_alloc_array(n_tasks, sizeof *s->segments, err);
    if (s->segments == NULL)
        return err->status;
    return DCPK_OK;
}

static void add_up(const struct surveying *s, struct dcpk_stats *stats)
{
    for (size_t v = 0; v < s->n; v++) {
        struct dcpk_box whole;

        if (s->first[v] != v) {
            stats[v] = stats[s->first[v]];
            continue;
        }
        stats[v] = (struct dcpk_stats){.has_numbers = has_numbers(s->views[v].dtype)};
        for (uint64_t t = s->first_task[v]; t < s->first_task[v + 1]; t++)
            merge(&stats[v], &s->segments[t]);
        dcpk_box_whole(s->views[v].shape, s->views[v].rank, &whole);
        stats[v].n_elems = dcpk_box_elems(&whole);
    }
}

dcpk_status dcpk_exec_stats_of(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                               struct dcpk_stats *stats, struct dcpk_error *err)
{
    struct surveying s = {.exec = exec, .views = views, .n = n};
    dcpk_status st;

    dcpk_meter_begin(&s.meter, &exec->progress, 0);
    st = surveying_init(&s, err);
    if (st == DCPK_OK)
        st = dcpk_pool_run(exec->n_threads, s.first_task[n], survey_task, &s, err);
    st = dcpk_meter_end(&s.meter, exec, s.workers, NULL, st);
    if (st == DCPK_OK)
        add_up(&s, stats);
    dcpk_free(s.segments);
    dcpk_free(s.first);
    dcpk_free(s.first_task);
    dcpk_workers_free(exec, s.workers);
    return st;
}

/* ---- the first NaN or Inf of a checkpoint ---- */

/* The place of an element by its row-major number. */
static void place_of_number(const struct dcpk_view *view, uint64_t number, struct dcpk_box *place)
{
    *place = (struct dcpk_box){.rank = view->rank};
    for (int a = view->rank - 1; a >= 0; a--) {
        place->offset[a] = (int64_t)(number % (uint64_t)view->shape[a]);
        place->extent[a] = 1;
        number /= (uint64_t)view->shape[a];
    }
}

/* "key[1, 4, 8] = nan" */
static void format_place(const char *key, const struct dcpk_box *place, const char *number,
                         char text[DCPK_PLACE_TEXT_BYTES])
{
    size_t at = (size_t)snprintf(text, DCPK_PLACE_TEXT_BYTES, "%.700s", key);

    for (int a = 0; a < place->rank; a++)
        at += (size_t)snprintf(text + at, DCPK_PLACE_TEXT_BYTES - at, "%s%" PRId64,
                               a == 0 ? "[" : ", ", place->offset[a]);
    snprintf(text + at, DCPK_PLACE_TEXT_BYTES - at, "%s = %s", place->rank == 0 ? "" : "]", number);
}

static dcpk_status read_place(struct dcpk_exec *exec, const char *key, const struct dcpk_view *view,
                              uint64_t number, char text[DCPK_PLACE_TEXT_BYTES],
                              struct dcpk_error *err)
{
    struct dcpk_view_reader *reader = NULL;
    struct dcpk_box place;
    struct dcpk_elem elem;
    uint8_t bytes[16] = {0};
    char digits[32];
    dcpk_status st = dcpk_view_reader_new(exec, view, &reader, err);

    place_of_number(view, number, &place);
    if (st == DCPK_OK)
        st = dcpk_view_reader_read(reader, &place, bytes, err);
    dcpk_view_reader_free(reader);
    if (st != DCPK_OK)
        return st;
    elem = dcpk_elem_load(view->dtype, bytes);
    dcpk_elem_format_float(view->dtype, elem.re, digits);
    format_place(key, &place, digits, text);
    return DCPK_OK;
}

dcpk_status dcpk_exec_find_nonfinite(struct dcpk_exec *exec, uint64_t *n_bad,
                                     char place[DCPK_PLACE_TEXT_BYTES], struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = exec->ckpt;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_view *views = dcpk_alloc_array(ckpt->n_tensors + 1, sizeof *views, err);
    struct dcpk_stats *stats = dcpk_alloc_array(ckpt->n_tensors + 1, sizeof *stats, err);
    uint64_t n = 0;
    dcpk_status st = DCPK_OK;

    if (views == NULL || stats == NULL) {
        st = err->status;
        goto out;
    }
    for (size_t i = 0; i < ckpt->n_tensors && st == DCPK_OK; i++)
        st = dcpk_view_stored(ckpt, (uint32_t)i, arena, &views[i], err);
    if (st == DCPK_OK)
        st = dcpk_exec_stats_of(exec, views, ckpt->n_tensors, stats, err);
    for (size_t i = 0; i < ckpt->n_tensors && st == DCPK_OK; i++) {
        if (stats[i].n_nan == 0 && stats[i].n_inf == 0)
            continue;
        if (n++ == 0)
            st = read_place(exec, ckpt->tensors[i].key, &views[i], stats[i].first_bad, place, err);
    }
    if (st == DCPK_OK)
        *n_bad = n;
out:
    dcpk_free(stats);
    dcpk_free(views);
    dcpk_arena_free(arena);
    return st;
}
