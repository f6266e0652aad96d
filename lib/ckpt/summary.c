/* SPDX-License-Identifier: Apache-2.0 */
/* summary.c - totals with aliases counted once, and keys with their numbers folded. */
#include "lib/ckpt/summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/overlaps.h"

#define MAX_NUMBERS 16 /* folded numbers of one key; later ones stay as they are */
#define MAX_DIGITS  18 /* below 2^63 whatever they are */
#define MAX_RANGES  6  /* of one "{...}"; more are shown as first, last and count */
#define PLACEHOLDER 1  /* marks a folded number in a group's signature */

/* ---- totals ---- */

static dcpk_status add_bytes(uint64_t *total, uint64_t n_bytes, struct dcpk_error *err)
{
    if (!dcpk_add_u64(*total, n_bytes, total))
        return dcpk_fail(err, DCPK_ERANGE, "the sizes of all items pass 2^64 bytes");
    return DCPK_OK;
}

static dcpk_status chunk_elems(const struct dcpk_tensor *tensor, const struct dcpk_chunk *chunk,
                               uint64_t *n_elems, struct dcpk_error *err)
{
    struct dcpk_box box;
    int64_t n;

    dcpk_box_unpack(chunk->span, tensor->rank, &box);
    if (dcpk_box_count(&box, &n, err) != DCPK_OK)
        return err->status;
    *n_elems = (uint64_t)n;
    return DCPK_OK;
}

static dcpk_status totals_add_chunk(const struct dcpk_tensor *tensor,
                                    const struct dcpk_chunk *chunk, struct dcpk_totals *totals,
                                    struct dcpk_content_totals *content, struct dcpk_error *err)
{
    uint64_t n_elems, n_bytes;

    if (chunk_elems(tensor, chunk, &n_elems, err) != DCPK_OK)
        return err->status;
    n_bytes = n_elems * dcpk_dtype_bytes(tensor->dtype); /* below 2^63: checkpoint.h */
    if (add_bytes(&totals->n_elems, n_elems, err) ||
        add_bytes(&totals->tensor_bytes, n_bytes, err) ||
        add_bytes(&totals->stored_bytes, chunk->place.n_bytes, err))
        return err->status;
    content->n_elems += n_elems; /* no more than the totals */
    content->tensor_bytes += n_bytes;
    return DCPK_OK;
}

/* Add one tensor to the totals; *all_alias: every chunk of it is one. */
static dcpk_status count_tensor(const struct dcpk_checkpoint *ckpt,
                                const struct dcpk_tensor *tensor, const bool *is_alias,
                                struct dcpk_totals *totals, bool *all_alias, struct dcpk_error *err)
{
    const enum dcpk_content kind = dcpk_content_of(tensor->key);
    struct dcpk_content_totals *content = &totals->by_content[kind];
    const uint64_t n_before = content->n_elems;
    dcpk_status st = DCPK_OK;

    *all_alias = tensor->n_chunks > 0;
    for (size_t i = 0; i < tensor->n_chunks && st == DCPK_OK; i++) {
        const size_t c = tensor->first_chunk + i;

        if (is_alias[c]) {
            totals->n_alias_chunks++;
            continue;
        }
        *all_alias = false;
        st = totals_add_chunk(tensor, &ckpt->chunks[c], totals, content, err);
    }
    totals->n_alias_tensors += *all_alias;
    content->n_tensors += !*all_alias;
    if (kind == DCPK_CONTENT_WEIGHTS && !dcpk_content_is_buffer(tensor->key))
        totals->n_params += content->n_elems - n_before;
    return st;
}

static dcpk_status count_object(const struct dcpk_object *object, bool is_alias,
                                struct dcpk_totals *totals, struct dcpk_error *err)
{
    if (is_alias) {
        totals->n_alias_objects++;
        return DCPK_OK;
    }
    if (add_bytes(&totals->object_bytes, object->place.n_bytes, err) ||
        add_bytes(&totals->stored_bytes, object->place.n_bytes, err))
        return err->status;
    return DCPK_OK;
}

/* ---- folding ---- */

/* A group of keys under way: its row, and the numbers of all its keys, n_numbers for each. */
struct group {
    struct dcpk_summary_row row;
    const char *example; /* the first key (in the arena): the text around the numbers */
    size_t n_numbers;
    uint64_t *numbers; /* heap */
    size_t n_stored, capacity;
};

struct folding {
    struct dcpk_arena *arena; /* of the summary */
    struct dcpk_map by_signature;
    struct group *groups; /* heap */
    size_t n_groups, capacity;
    struct dcpk_bytes signature, starred; /* scratch */
};

/* One number to be folded: key[at .. at + n). */
struct number {
    size_t at, n;
    uint64_t value;
};

static bool ends_with(const char *text, size_t n, const char *end)
{
    const size_t n_end = strlen(end);

    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

/*
 * True if the run of digits key[at .. end) is an index: a component of its own ("layers.3."), a
 * grouped expert ("weight7", "bias7_w"), a part of a shard's coordinates ("/shard_0.1_2.2"), of a
 * rank "(0, 1)", or of a name in "_idx_".
 */
static bool is_index(const char *key, size_t at, size_t end, bool in_shard)
{
    const char before = at == 0 ? '.' : key[at - 1];
    const char after = key[end] == '\0' ? '.' : key[end];

    if (key[at] == '0' && end - at > 1)
        return false;
    if (in_shard)
        return before == '_' || before == '.';
    if (before == '.' || before == '(' || before == ' ')
        return after == '.' || after == '/' || after == ',' || after == ')';
    if (ends_with(key, at, "_idx_"))
        return after == '.';
    return (after == '.' || after == '_' || after == '/') &&
           (ends_with(key, at, "weight") || ends_with(key, at, "bias"));
}

/* The numbers to fold, at most MAX_NUMBERS. */
static size_t find_numbers(const char *key, struct number numbers[MAX_NUMBERS])
{
    const char *shard = strstr(key, "/shard_");
    size_t n = 0;

    for (size_t at = 0; key[at] != '\0' && n < MAX_NUMBERS;) {
        size_t end = at;
        uint64_t value = 0;

        while (key[end] >= '0' && key[end] <= '9' && end - at < MAX_DIGITS)
            value = value * 10 + (uint64_t)(key[end++] - '0');
        if (end == at) {
            at++;
            continue;
        }
        if (is_index(key, at, end, shard != NULL && key + at > shard))
            numbers[n++] = (struct number){at, end - at, value};
        at = end;
    }
    return n;
}

/* Makes the part of a key that all keys of its group share. */
static dcpk_status make_signature(struct folding *f, const struct dcpk_summary_row *row,
                                  const char *key, const struct number *numbers, size_t n,
                                  struct dcpk_error *err)
{
    struct dcpk_bytes *s = &f->signature;
    size_t at = 0;

    s->n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        dcpk_bytes_put(s, key + at, numbers[i].at - at);
        dcpk_bytes_u8(s, PLACEHOLDER);
        at = numbers[i].at + numbers[i].n;
    }
    dcpk_bytes_text(s, key + at);
    dcpk_bytes_u8(s, 0);
    dcpk_bytes_u8(s, (uint8_t)n);
    dcpk_bytes_u8(s, (uint8_t)row->dtype);
    dcpk_bytes_u8(s, (uint8_t)row->is_alias);
    dcpk_bytes_u8(s, (uint8_t)row->rank);
    dcpk_bytes_put(s, row->shape, (size_t)row->rank * sizeof *row->shape);
    return dcpk_bytes_status(s, err);
}

static dcpk_status find_group(struct folding *f, const struct dcpk_summary_row *row,
                              const char *key, size_t n_numbers, struct group **group,
                              struct dcpk_error *err)
{
    const char *signature = (const char *)f->signature.data;
    const size_t n = f->signature.n_bytes;
    char *kept, *example;
    uint64_t index;
    bool existed;

    if (!dcpk_map_get(&f->by_signature, signature, n, &index)) {
        kept = dcpk_arena_strndup(f->arena, signature, n, err);
        example = dcpk_arena_strdup(f->arena, key, err);
        if (kept == NULL || example == NULL ||
            dcpk_grow(&f->groups, &f->capacity, f->n_groups, sizeof *f->groups, err) ||
            dcpk_map_put(&f->by_signature, kept, n, f->n_groups, &existed, &index, err))
            return err->status;
        index = f->n_groups++;
        f->groups[index] = (struct group){.row = *row, .example = example, .n_numbers = n_numbers};
        f->groups[index].row.n_keys = f->groups[index].row.n_chunks = 0;
        f->groups[index].row.n_bytes = 0;
    }
    *group = &f->groups[index];
    return DCPK_OK;
}

/*
 * Settings of one thing, an object each: a dozen and more for every parameter
 * (formats/fsdp_dtensor/FORMAT.md 7). Their last component is folded into "*".
 */
static const char *const settings[] = {"optimizer.param_to_group_meta.", "opt_param_scheduler."};

static const char *star_key(struct folding *f, const char *key, struct dcpk_error *err)
{
    for (size_t i = 0; i < DCPK_COUNT(settings); i++) {
        const char *dot = strrchr(key, '.');

        if (strncmp(key, settings[i], strlen(settings[i])) != 0)
            continue;
        f->starred.n_bytes = 0;
        dcpk_bytes_put(&f->starred, key, (size_t)(dot - key));
        dcpk_bytes_put(&f->starred, ".*", sizeof ".*");
        if (dcpk_bytes_status(&f->starred, err) != DCPK_OK)
            return NULL;
        return (const char *)f->starred.data;
    }
    return key;
}

/* Add a key; row: what it counts for (n_keys is 1). */
static dcpk_status fold_key(struct folding *f, const char *key, const struct dcpk_summary_row *row,
                            struct dcpk_error *err)
{
    struct number numbers[MAX_NUMBERS];
    const size_t n = find_numbers(key, numbers);
    struct group *g;

    if (make_signature(f, row, key, numbers, n, err) || find_group(f, row, key, n, &g, err))
        return err->status;
    for (size_t i = 0; i < n; i++) {
        if (dcpk_grow(&g->numbers, &g->capacity, g->n_stored, sizeof *g->numbers, err) != DCPK_OK)
            return err->status;
        g->numbers[g->n_stored++] = numbers[i].value;
    }
    g->row.n_keys += row->n_keys;
    g->row.n_chunks += row->n_chunks;
    return add_bytes(&g->row.n_bytes, row->n_bytes, err);
}

static int compare_numbers(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return DCPK_THREE_WAY(*a, *b);
}

/* Sorted distinct numbers -> "3", "{0..3}", "{0,2,5..7}", "{0..99: 37 numbers}". */
static void put_set(struct dcpk_bytes *text, const uint64_t *v, size_t n)
{
    size_t n_ranges = n > 0;

    for (size_t i = 1; i < n; i++)
        n_ranges += v[i] != v[i - 1] + 1;
    if (n == 1) {
        dcpk_bytes_printf(text, "%" PRIu64, v[0]);
        return;
    }
    if (n_ranges > MAX_RANGES) {
        dcpk_bytes_printf(text, "{%" PRIu64 "..%" PRIu64 ": %zu numbers}", v[0], v[n - 1], n);
        return;
    }
    dcpk_bytes_text(text, "{");
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && v[end] == v[end - 1] + 1; end++)
            continue;
        dcpk_bytes_printf(text, "%s%" PRIu64, dcpk_joint(i > 0, ","), v[i]);
        if (end - i > 1)
            dcpk_bytes_printf(text, "%s%" PRIu64, end - i == 2 ? "," : "..", v[end - 1]);
    }
    dcpk_bytes_text(text, "}");
}

/* The numbers at position `which` of all keys of the group, sorted and distinct, into `out` (one
 * for each key). */
static size_t distinct(const struct group *g, size_t which, uint64_t *out)
{
    size_t n = 0, n_distinct = 0;

    for (size_t i = which; i < g->n_stored; i += g->n_numbers)
        out[n++] = g->numbers[i];
    qsort(out, n, sizeof *out, compare_numbers);
    for (size_t i = 0; i < n; i++)
        if (n_distinct == 0 || out[i] != out[n_distinct - 1])
            out[n_distinct++] = out[i];
    return n_distinct;
}

/* Write a group's pattern: its first key, each number replaced by the set of numbers there. */
static dcpk_status finish_group(struct folding *f, struct group *g, struct dcpk_error *err)
{
    struct number numbers[MAX_NUMBERS];
    const size_t n = find_numbers(g->example, numbers);
    struct dcpk_bytes text = {0};
    uint64_t *set = NULL;
    size_t at = 0;

    if (n > 0) {
        set = dcpk_alloc_array(g->n_stored / n, sizeof *set, err);
        if (set == NULL)
            return err->status;
    }
    for (size_t i = 0; i < n; i++) {
        dcpk_bytes_put(&text, g->example + at, numbers[i].at - at);
        put_set(&text, set, distinct(g, i, set));
        at = numbers[i].at + numbers[i].n;
    }
    dcpk_bytes_text(&text, g->example + at);
    dcpk_free(set);
    g->row.pattern = dcpk_bytes_to_arena(&text, f->arena, err);
    return dcpk_made(g->row.pattern, err);
}

static int compare_rows(const void *left, const void *right)
{
    const struct dcpk_summary_row *a = left, *b = right;
    int order = strcmp(a->pattern, b->pattern);

    if (order == 0)
        order = DCPK_ORDER_BY_3(a, b, is_alias, dtype, rank);
    return order != 0 ? order : dcpk_compare_i64s(a->shape, b->shape, (size_t)a->rank);
}

static dcpk_status finish_rows(struct folding *f, struct dcpk_summary_row **rows, size_t *n_rows,
                               struct dcpk_error *err)
{
    struct dcpk_summary_row *out = dcpk_arena_array(f->arena, f->n_groups, sizeof *out, err);

    if (out == NULL)
        return err->status;
    for (size_t i = 0; i < f->n_groups; i++) {
        if (finish_group(f, &f->groups[i], err) != DCPK_OK)
            return err->status;
        out[i] = f->groups[i].row;
    }
    qsort(out, f->n_groups, sizeof *out, compare_rows);
    *rows = out;
    *n_rows = f->n_groups;
    return DCPK_OK;
}

static void folding_release(struct folding *f)
{
    for (size_t i = 0; i < f->n_groups; i++)
        dcpk_free(f->groups[i].numbers);
    dcpk_free(f->groups);
    dcpk_map_release(&f->by_signature);
    dcpk_bytes_release(&f->signature);
    dcpk_bytes_release(&f->starred);
}

/* ---- the summary ---- */

static dcpk_status sum_tensors(const struct dcpk_checkpoint *ckpt, const bool *is_alias,
                               const bool *chosen, struct dcpk_summary *summary,
                               struct dcpk_error *err)
{
    struct folding f = {.arena = summary->arena};
    dcpk_status st = DCPK_OK;

    for (size_t t = 0; t < ckpt->n_tensors && st == DCPK_OK; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];
        struct dcpk_summary_row row = {.dtype = tensor->dtype,
                                       .rank = tensor->rank,
                                       .shape = tensor->shape,
                                       .n_keys = 1,
                                       .n_chunks = tensor->n_chunks};
        int64_t n_elems;

        st = count_tensor(ckpt, tensor, is_alias, &summary->totals, &row.is_alias, err);
        if (st == DCPK_OK)
            st = dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err);
        if (st == DCPK_OK && (chosen == NULL || chosen[t])) {
            row.n_bytes = (uint64_t)n_elems * dcpk_dtype_bytes(tensor->dtype);
            st = fold_key(&f, tensor->key, &row, err);
        }
    }
    if (st == DCPK_OK)
        st = finish_rows(&f, &summary->tensors, &summary->n_tensors, err);
    folding_release(&f);
    return st;
}

static dcpk_status sum_objects(const struct dcpk_checkpoint *ckpt, const bool *is_alias,
                               const bool *chosen, struct dcpk_summary *summary,
                               struct dcpk_error *err)
{
    struct folding f = {.arena = summary->arena};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < ckpt->n_objects && st == DCPK_OK; i++) {
        const struct dcpk_object *object = &ckpt->objects[i];
        const struct dcpk_summary_row row = {
            .is_alias = is_alias[i], .n_keys = 1, .n_bytes = object->place.n_bytes};
        const char *key = star_key(&f, object->key, err);

        if (key == NULL || count_object(object, row.is_alias, &summary->totals, err)) {
            st = err->status;
            goto out;
        }
        if (chosen == NULL || chosen[i])
            st = fold_key(&f, key, &row, err);
    }
    if (st == DCPK_OK)
        st = finish_rows(&f, &summary->objects, &summary->n_objects, err);
out:
    folding_release(&f);
    return st;
}

dcpk_status dcpk_summary_new(const struct dcpk_checkpoint *ckpt, const struct dcpk_chosen *chosen,
                             struct dcpk_summary **summary, struct dcpk_error *err)
{
    static const struct dcpk_chosen all = {0};
    bool *is_alias = dcpk_alloc(ckpt->n_chunks + ckpt->n_objects, err);
    struct dcpk_summary *s = NULL;
    dcpk_status st = DCPK_OK;

    if (chosen == NULL)
        chosen = &all;
    if (is_alias != NULL)
        s = dcpk_alloc(sizeof *s, err);
    if (s == NULL) {
        st = err->status;
        goto out;
    }
    s->arena = dcpk_arena_new();
    s->totals.n_tensors = ckpt->n_tensors;
    s->totals.n_chunks = ckpt->n_chunks;
    s->totals.n_objects = ckpt->n_objects;
    s->totals.n_files = ckpt->n_files;
    for (size_t i = 0; i < ckpt->n_files && st == DCPK_OK; i++)
        st = add_bytes(&s->totals.file_bytes, dcpk_source_bytes(ckpt->files[i]), err);
    if (st == DCPK_OK)
        st = dcpk_find_aliases(ckpt, is_alias, err);
    if (st == DCPK_OK)
        st = sum_tensors(ckpt, is_alias, chosen->tensors, s, err);
    if (st == DCPK_OK)
        st = sum_objects(ckpt, is_alias + ckpt->n_chunks, chosen->objects, s, err);
out:
    dcpk_free(is_alias);
    if (st != DCPK_OK) {
        dcpk_summary_free(s);
        dcpk_context(err, "adding up the checkpoint");
        return st;
    }
    *summary = s;
    return DCPK_OK;
}

void dcpk_summary_free(struct dcpk_summary *summary)
{
    if (summary == NULL)
        return;
    dcpk_arena_free(summary->arena);
    dcpk_free(summary);
}
