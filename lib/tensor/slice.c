/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c - parses and resolves Python's subscripts. */
#include "lib/tensor/slice.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"

/* One part between commas. */
struct part {
    enum { NUMBER, RANGE, ELLIPSIS } kind;
    int64_t start, stop, step; /* NUMBER: start */
    bool has_start, has_stop;
};

/* The text that is left. */
struct parser {
    const char *at, *end;
};

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        p->at++;
}

static bool parser_take(struct parser *p, char c)
{
    skip_space(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* A decimal number with its sign; *found false and nothing taken when there is none. */
static dcpk_status take_number(struct parser *p, int64_t *number, bool *found,
                               struct dcpk_error *err)
{
    const char *begin;
    int64_t v = 0, sign = 1;

    skip_space(p);
    begin = p->at;
    if (p->at < p->end && (*p->at == '-' || *p->at == '+'))
        sign = *p->at++ == '-' ? -1 : 1;
    *found = p->at < p->end && *p->at >= '0' && *p->at <= '9';
    if (!*found) {
        p->at = begin;
        return DCPK_OK;
    }
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (!dcpk_mul_i64(v, 10, &v) || !dcpk_add_i64(v, *p->at - '0', &v))
            return dcpk_fail(err, DCPK_EUSAGE, "the number '%.*s...' passes 2^63",
                             (int)(p->at - begin), begin);
    *number = sign * v;
    return DCPK_OK;
}

static dcpk_status take_range(struct parser *p, struct part *part, struct dcpk_error *err)
{
    bool has_step = false;
    dcpk_status st;

    part->kind = RANGE;
    part->step = 1;
    st = take_number(p, &part->stop, &part->has_stop, err);
    if (st == DCPK_OK && parser_take(p, ':'))
        st = take_number(p, &part->step, &has_step, err);
    if (st == DCPK_OK && part->step == 0)
        st = dcpk_fail(err, DCPK_EUSAGE, "a step cannot be 0");
    return st;
}

static dcpk_status part_take(struct parser *p, struct part *part, struct dcpk_error *err)
{
    dcpk_status st;

    memset(part, 0, sizeof *part);
    skip_space(p);
    if (p->end - p->at >= 3 && memcmp(p->at, "...", 3) == 0) {
        p->at += 3;
        part->kind = ELLIPSIS;
        return DCPK_OK;
    }
    st = take_number(p, &part->start, &part->has_start, err);
    if (st != DCPK_OK)
        return st;
    if (parser_take(p, ':'))
        return take_range(p, part, err);
    if (!part->has_start)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%.*s' is not a number, range (start:stop:step) or '...'",
                         (int)(p->end - p->at), p->at);
    part->kind = NUMBER;
    return DCPK_OK;
}

/* Python's slice.indices: negative bounds count from the end, then both are cut to [least,
 * most]. */
static int64_t bound(int64_t v, int64_t extent, int64_t least, int64_t most)
{
    if (v < 0)
        v = v < -extent ? least : v + extent;
    return dcpk_min_i64(v, most);
}

static void resolve_range(const struct part *part, int64_t extent, struct dcpk_slice_axis *axis)
{
    int64_t least = 0, most = extent, start, stop, way, n = 0;

    if (part->step < 0) {
        least = -1;
        most = extent - 1;
    }
    start = part->step > 0 ? least : most;
    stop = part->step > 0 ? most : least;
    if (part->has_start)
        start = bound(part->start, extent, least, most);
    if (part->has_stop)
        stop = bound(part->stop, extent, least, most);
    way = stop - start;
    if (way != 0 && (way > 0) == (part->step > 0))
        n = 1 + (way - (way > 0 ? 1 : -1)) / part->step;
    *axis = (struct dcpk_slice_axis){start, part->step, n, false};
}

static dcpk_status part_resolve(const struct part *part, int64_t extent, int number,
                                struct dcpk_slice_axis *axis, struct dcpk_error *err)
{
    if (part->kind == RANGE) {
        resolve_range(part, extent, axis);
        return DCPK_OK;
    }
    if (part->start < -extent || part->start >= extent)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "index %" PRId64 " is out of bounds for axis %d of %" PRId64, part->start,
                         number, extent);
    *axis = (struct dcpk_slice_axis){part->start, 1, 1, true};
    if (part->start < 0)
        axis->first += extent;
    return DCPK_OK;
}

static dcpk_status take_parts(struct parser *p, struct part *parts, int *n_parts, int rank,
                              struct dcpk_error *err)
{
    int n_ellipses = 0;
    dcpk_status st;

    do {
        skip_space(p);
        if (p->at == p->end && *n_parts > 0)
            break; /* a comma may end it */
        if (*n_parts - n_ellipses > rank)
            return dcpk_fail(err, DCPK_EUSAGE, "more than %d indices for a tensor of rank %d", rank,
                             rank);
        st = part_take(p, &parts[*n_parts], err);
        if (st != DCPK_OK)
            return st;
        if (parts[(*n_parts)++].kind == ELLIPSIS && ++n_ellipses > 1)
            return dcpk_fail(err, DCPK_EUSAGE, "'...' occurs twice");
    } while (parser_take(p, ','));
    skip_space(p);
    if (p->at != p->end)
        return dcpk_fail(err, DCPK_EUSAGE, "'%.*s' is left over", (int)(p->end - p->at), p->at);
    if (*n_parts - n_ellipses > rank)
        return dcpk_fail(err, DCPK_EUSAGE, "%d indices for a tensor of rank %d",
                         *n_parts - n_ellipses, rank);
    return DCPK_OK;
}

dcpk_status dcpk_slice_parse(const char *text, size_t n, const int64_t *shape, int rank,
                             struct dcpk_slice *slice, struct dcpk_error *err)
{
    struct part parts[DCPK_MAX_RANK + 3];
    struct parser p = {0};
    struct dcpk_slice s = {.rank = rank};
    int n_parts = 0, axis = 0;
    dcpk_status st = DCPK_OK;

    if (text != NULL) {
        p = (struct parser){text, text + n};
        st = take_parts(&p, parts, &n_parts, rank, err);
    }
    for (int i = 0; i < n_parts && st == DCPK_OK; i++) {
        if (parts[i].kind != ELLIPSIS) {
            st = part_resolve(&parts[i], shape[axis], axis, &s.axis[axis], err);
            axis++;
            continue;
        }
        for (int left = rank - (n_parts - 1); left > 0; left--, axis++)
            s.axis[axis] = (struct dcpk_slice_axis){0, 1, shape[axis], false};
    }
    for (; axis < rank; axis++)
        s.axis[axis] = (struct dcpk_slice_axis){0, 1, shape[axis], false};
    if (st == DCPK_OK)
        *slice = s;
    else
        dcpk_context(err, "slice [%.*s]", (int)n, text);
    return st;
}

uint64_t dcpk_slice_count(const struct dcpk_slice *slice)
{
    uint64_t n = 1;

    for (int axis = 0; axis < slice->rank; axis++)
        n *= (uint64_t)slice->axis[axis].n;
    return n;
}

int dcpk_slice_shape(const struct dcpk_slice *slice, int64_t shape[DCPK_MAX_RANK])
{
    int rank = 0;

    for (int axis = 0; axis < slice->rank; axis++)
        if (!slice->axis[axis].is_dropped)
            shape[rank++] = slice->axis[axis].n;
    return rank;
}
