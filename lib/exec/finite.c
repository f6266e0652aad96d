/* SPDX-License-Identifier: Apache-2.0 */
/* finite.c - the first NaN or Inf of a checkpoint. */
#include "lib/exec/finite.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/alloc.h"
#include "lib/exec/stats.h"
#include "lib/exec/workers.h"
#include "lib/tensor/elem.h"

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
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    struct dcpk_view *views = dcpk_alloc_array(ckpt->n_tensors + 1, sizeof *views, err);
    struct dcpk_stats *stats = dcpk_alloc_array(ckpt->n_tensors + 1, sizeof *stats, err);
    uint64_t n = 0;
    dcpk_status st = DCPK_OK;

    if (arena == NULL || views == NULL || stats == NULL) {
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
