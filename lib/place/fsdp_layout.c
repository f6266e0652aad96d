/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_layout.c - groups, buckets and offsets of Megatron-FSDP's flat buffers. */
/*
 * Parameters of a group fill buckets; in a bucket the one with the longest rows comes first. Every
 * start and every slice is a multiple of the bucket's factor f, so that slices end between rows;
 * what is not a multiple of f leaves a gap, into which the head of another such parameter goes, or
 * parameters smaller than f ("fragments"):
 *
 *   |<-------- n = 2f + r ------->|  gap  |<- next multiple of f
 *   0        f        2f       2f+r       3f
 *                                 frag|head of a later one, its rest follows at 3f
 */
#include "lib/place/fsdp_layout.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"

/* A parameter to be placed. */
struct item {
    const struct dcpk_fsdp_param *param;
    size_t at; /* its number */
    size_t bucket;
    int64_t row, n; /* elements of a row, of all rows */
    bool is_placed;
};

struct layout {
    struct item *items;
    size_t n;
    struct dcpk_fsdp_place *places;
};

static dcpk_status layout_make_item(const struct dcpk_fsdp_param *param, size_t at,
                                    struct item *item, struct dcpk_error *err)
{
    assert(param->n_shards >= 1);
    if (param->rank < 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is a scalar: FSDP cannot cut it into rows",
                         param->name);
    *item = (struct item){.param = param, .at = at};
    if (dcpk_shape_count(param->shape, param->rank, &item->n, err) ||
        dcpk_shape_count(param->shape + 1, param->rank - 1, &item->row, err))
        return err->status;
    if (item->row == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' has rows without elements", param->name);
    return DCPK_OK;
}

/* Groups together, in each the order of registration. */
static int by_group(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    return DCPK_ORDER_BY_2(x, y, param->group, at);
}

/* Buckets together, in each the longest rows first; the sort is Python's, a stable one. */
static int by_row(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->bucket != y->bucket)
        return DCPK_THREE_WAY(x->bucket, y->bucket);
    if (x->row != y->row)
        return DCPK_THREE_WAY(y->row, x->row);
    return DCPK_THREE_WAY(x->at, y->at);
}

/* Number the buckets; items are sorted by group. */
static dcpk_status fill_buckets(struct layout *l, int64_t bucket_elems, struct dcpk_error *err)
{
    int64_t n_elems = 0;
    size_t bucket = 0;

    for (size_t i = 0; i < l->n; i++) {
        struct item *item = &l->items[i];
        const bool is_new_group = i > 0 && item->param->group != item[-1].param->group;
        const bool is_full =
            bucket_elems > 0 && !item->param->is_in_unit && n_elems >= bucket_elems;

        if (is_new_group || is_full) {
            bucket++;
            n_elems = 0;
        }
        item->bucket = bucket;
        if (!dcpk_add_i64(n_elems, item->n, &n_elems))
            return dcpk_fail(err, DCPK_ERANGE, "the flat buffer of '%s' passes 2^63 elements",
                             item->param->name);
    }
    return DCPK_OK;
}

static dcpk_status raise_factor(int64_t *f, const struct item *item, struct dcpk_error *err)
{
    int64_t a = *f, b = item->row;

    if (item->row == *f || (*f % item->row == 0 && item->n % *f == 0) || item->n < *f)
        return DCPK_OK;
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    if (!dcpk_mul_i64(*f / a, item->row, f))
        return dcpk_fail(err, DCPK_ERANGE,
                         "the row sizes of the bucket of '%s' have no common multiple below 2^63",
                         item->param->name);
    return DCPK_OK;
}

static void place_item(struct layout *l, struct item *item, int64_t first)
{
    l->places[item->at].first = first;
    item->is_placed = true;
}

/*
 * Fill the gap [gap, end) that an item with `rest` = n % f elements too many left: the head of the
 * first later item that fits, then fragments in their order. Returns the elements that the head's
 * item takes from `end` on.
 */
static int64_t fill_gap(struct layout *l, struct item *items, size_t n, int64_t f, int64_t rest,
                        int64_t end)
{
    int64_t gap = end - (f - rest), space = f - rest, behind = 0;

    for (size_t i = 0; i < n; i++) {
        struct item *item = &items[i];
        const int64_t head = item->n % f;

        if (item->is_placed || item->n < f || head == 0 || head > f - rest)
            continue;
        place_item(l, item, end - head);
        space -= head;
        behind = item->n - head;
        break;
    }
    for (size_t i = 0; i < n; i++) {
        struct item *item = &items[i];

        if (item->is_placed || item->n >= f || item->n > space)
            continue;
        place_item(l, item, gap);
        gap += item->n;
        space -= item->n;
    }
    return behind;
}

/* Place the items of one bucket, sorted; sizes are known to add up below 2^62. */
static int64_t place_bucket(struct layout *l, struct item *items, size_t n, int64_t f)
{
    int64_t cursor = 0;

    for (size_t i = 0; i < n; i++) {
        struct item *item = &items[i];
        const int64_t rest = item->n % f;

        if (item->is_placed || item->n < f)
            continue;
        place_item(l, item, cursor);
        cursor += item->n;
        if (rest == 0)
            continue;
        cursor += f - rest;
        cursor += fill_gap(l, items, n, f, rest, cursor);
    }
    for (size_t i = 0; i < n; i++)
        if (!items[i].is_placed) {
            place_item(l, &items[i], cursor);
            cursor += items[i].n;
        }
    return cursor;
}

static dcpk_status lay_out_bucket(struct layout *l, struct item *items, size_t n,
                                  struct dcpk_error *err)
{
    int64_t f = items[0].row, most = 0, unit, size;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = raise_factor(&f, &items[i], err);
    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < n; i++) /* each item and a gap after it */
        if (!dcpk_add_i64(most, items[i].n, &most) || !dcpk_add_i64(most, f, &most))
            break;
    if (!dcpk_mul_i64(f, items[0].param->n_shards, &unit) || !dcpk_add_i64(most, unit, &size) ||
        size > INT64_MAX / 2)
        return dcpk_fail(err, DCPK_ERANGE, "the flat buffer of '%s' passes 2^62 elements",
                         items[0].param->name);
    size = place_bucket(l, items, n, f);
    size = (size + unit - 1) / unit * unit;
    for (size_t i = 0; i < n; i++) {
        struct dcpk_fsdp_place *place = &l->places[items[i].at];

        place->bucket = items[i].bucket;
        place->factor = f;
        place->bucket_elems = size;
    }
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_layout(const struct dcpk_fsdp_param *params, size_t n, int64_t bucket_elems,
                             struct dcpk_fsdp_place *places, struct dcpk_error *err)
{
    struct layout l = {.n = n, .places = places};
    dcpk_status st = DCPK_OK;

    l.items = dcpk_alloc_array(n, sizeof *l.items, err);
    if (l.items == NULL)
        return err->status;
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = layout_make_item(&params[i], i, &l.items[i], err);
    if (st != DCPK_OK)
        goto out;
    qsort(l.items, n, sizeof *l.items, by_group);
    st = fill_buckets(&l, bucket_elems, err);
    if (st != DCPK_OK)
        goto out;
    qsort(l.items, n, sizeof *l.items, by_row);
    for (size_t first = 0, end; first < n && st == DCPK_OK; first = end) {
        for (end = first + 1; end < n && l.items[end].bucket == l.items[first].bucket;)
            end++;
        st = lay_out_bucket(&l, &l.items[first], end - first, err);
    }
out:
    dcpk_free(l.items);
    return st;
}

/* The rows of a parameter that ranks 0 .. r - 1 hold. */
static dcpk_status rows_before(const struct dcpk_fsdp_param *param,
                               const struct dcpk_fsdp_place *place, int64_t r, int64_t *rows,
                               struct dcpk_error *err)
{
    const int64_t shard = place->bucket_elems / param->n_shards;
    int64_t n, row, held;

    if (dcpk_shape_count(param->shape, param->rank, &n, err) ||
        dcpk_shape_count(param->shape + 1, param->rank - 1, &row, err))
        return err->status;
    held = dcpk_min_i64(dcpk_max_i64(r * shard - place->first, 0), n);
    if (held % row != 0)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_OTHER_SHARDS,
                             "fsdp-layout: row of '%s' would be cut: %" PRId64
                             " of its elements, in rows of %" PRId64
                             ", end with the slice of rank %" PRId64
                             ", and Megatron-FSDP fails, too",
                             param->name, held, row, r - 1);
    *rows = held / row;
    return DCPK_OK;
}

void dcpk_fsdp_holders(const struct dcpk_fsdp_param *param, const struct dcpk_fsdp_place *place,
                       int64_t *first, int64_t *end)
{
    const int64_t slice = place->bucket_elems / param->n_shards;
    const int64_t n = (int64_t)dcpk_count_elems(param->shape, param->rank);

    *first = *end = 0;
    if (n == 0)
        return;
    *first = place->first / slice;
    *end = (place->first + n - 1) / slice + 1;
}

dcpk_status dcpk_fsdp_check_rows(const struct dcpk_fsdp_param *param,
                                 const struct dcpk_fsdp_place *place, struct dcpk_error *err)
{
    int64_t r, end, ignored;

    dcpk_fsdp_holders(param, place, &r, &end);
    for (; r < end; r++)
        if (rows_before(param, place, r, &ignored, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_shard(const struct dcpk_fsdp_param *param,
                            const struct dcpk_fsdp_place *place, int64_t r, struct dcpk_box *box,
                            int64_t *first, struct dcpk_error *err)
{
    const int64_t slice_at = r * (place->bucket_elems / param->n_shards);
    int64_t low, high;

    assert(r >= 0 && r < param->n_shards);
    if (rows_before(param, place, r, &low, err) || rows_before(param, place, r + 1, &high, err))
        return err->status;
    dcpk_box_whole(param->shape, param->rank, box);
    box->offset[0] = low;
    box->extent[0] = high - low;
    *first = dcpk_max_i64(place->first - slice_at, 0);
    return DCPK_OK;
}
