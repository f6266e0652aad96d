/* SPDX-License-Identifier: Apache-2.0 */
/* delta_make.c - writes a delta: finds where each part of NEW is in BASE, compares, packs the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/ckpt/seen.h"
#include "lib/job/delta_priv.h"

/*
 * The least bytes that are found equal. 0.1 and 1 % of 1 GB changed, in pieces of 4 and of 64 KiB,
 * with blocks of 4, 16, 64, 256 KiB, 1 MiB: the deltas are within 3 % of each other, because zstd
 * packs the zeros in a difference; 1 MiB takes up to 1.8 of the CPU time (tests/bench/README.md).
 */
#define BLOCK_BYTES    ((size_t)64 << 10)
#define MAX_RUNS       (DCPK_DELTA_SPAN_BYTES / BLOCK_BYTES)
#define SLOTS_A_THREAD 4
#define PART_BYTES     ((uint64_t)64 << 20)

/* From this byte of a file of NEW on, up to the next cut, bytes must be found in BASE from
 * base_at on. */
struct cut {
    uint64_t at, base_at;
    uint32_t file, base; /* base: DCPK_DELTA_NO_FILE: nowhere */
    bool is_item;        /* it counts more than that of a file's name */
};

/* A task: n_bytes of a file of NEW, of which BASE may have the first n_base. */
struct span {
    uint64_t at, base_at;
    uint32_t file, base;
    size_t n_bytes, n_base;
};
struct slot {
    struct span span;
    struct dcpk_delta_record records[MAX_RUNS];
    size_t n_records, n_stored;
    uint8_t *stored; /* DCPK_DELTA_SPAN_BYTES */
};

/* A checkpoint's files. numbers: by file of the checkpoint, that in `files`. */
struct side {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_arena *arena;
    struct dcpk_delta_file *files;
    struct dcpk_source **sources;
    uint32_t *numbers;
    size_t n_files;
};

struct making {
    const struct dcpk_delta_job *job;
    struct dcpk_delta_counts *counts;
    struct side base, next;
    struct cut *cuts;
    size_t n_cuts, capacity;
    struct dcpk_delta_crew crew;
    struct slot *slots;
    uint8_t *stored; /* of all slots */
    size_t n_slots;
    struct dcpk_folder *folder;         /* NULL: a dry run */
    struct dcpk_hasher hasher;          /* of all records */
    struct dcpk_bytes records, payload; /* of the part under way */
    uint32_t n_records;
    uint64_t part_bytes; /* most of a payload */
    struct dcpk_delta_index index;
    uint32_t *used; /* by file of BASE: its number in the index */
};

/* ---- the two sides ---- */

static int compare_delta_files(const void *a, const void *b)
{
    return strcmp(((const struct dcpk_delta_file *)a)->name,
                  ((const struct dcpk_delta_file *)b)->name);
}

static uint32_t side_find(const struct side *s, const char *name)
{
    const struct dcpk_delta_file wanted = {.name = name}, *found;

    found = bsearch(&wanted, s->files, s->n_files, sizeof *s->files, compare_delta_files);
    return found == NULL ? DCPK_DELTA_NO_FILE : (uint32_t)(found - s->files);
}

static dcpk_status check_depth(const char *name, struct dcpk_error *err)
{
    const char *slash = strchr(name, '/');

    if (slash == NULL || strchr(slash + 1, '/') == NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%.200s' is deeper than a folder in the checkpoint's, where no format keeps "
                     "files: move it away",
                     name);
}

static dcpk_status side_init(struct side *s, struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    s->ckpt = ckpt;
    if (dcpk_delta_list(ckpt->store, &s->arena, &s->files, &s->n_files, err) != DCPK_OK)
        return err->status;
    s->sources = dcpk_arena_array(s->arena, s->n_files, sizeof *s->sources, err);
    s->numbers = dcpk_arena_array(s->arena, ckpt->n_files, sizeof *s->numbers, err);
    if (s->sources == NULL || s->numbers == NULL)
        return err->status;
    for (size_t i = 0; i < s->n_files; i++)
        if (check_depth(s->files[i].name, err) ||
            dcpk_store_find(ckpt->store, s->files[i].name, &s->sources[i], err))
            return err->status;
    for (size_t i = 0; i < ckpt->n_files; i++)
        s->numbers[i] = side_find(s, dcpk_source_name(ckpt->files[i]));
    return DCPK_OK;
}

/* ---- cuts ---- */

static dcpk_status add_cut(struct making *m, const struct cut *cut, struct dcpk_error *err)
{
    if (dcpk_grow(&m->cuts, &m->capacity, m->n_cuts, sizeof *m->cuts, err) != DCPK_OK)
        return err->status;
    m->cuts[m->n_cuts++] = *cut;
    return DCPK_OK;
}

/* Adds an item's cut; from: in BASE, NULL: it is not there, and what is before it counts. */
static dcpk_status add_item(struct making *m, const struct dcpk_place *place,
                            const struct dcpk_place *from, struct dcpk_error *err)
{
    struct cut cut = {.is_item = true};

    if (from == NULL)
        return DCPK_OK;
    cut.file = m->next.numbers[place->file];
    cut.base = m->base.numbers[from->file];
    cut.at = place->offset_bytes;
    cut.base_at = from->offset_bytes;
    if (cut.file == DCPK_DELTA_NO_FILE || cut.base == DCPK_DELTA_NO_FILE)
        return DCPK_OK;
    return add_cut(m, &cut, err);
}

/* The place in BASE of the chunk of that key and box: it has the same number among its tensor's, or
 * the layout is another one. */
static const struct dcpk_place *find_chunk(const struct making *m, const struct dcpk_chunk *chunk)
{
    const struct dcpk_checkpoint *next = m->next.ckpt, *base = m->base.ckpt;
    const struct dcpk_tensor *t = &next->tensors[chunk->tensor];
    const struct dcpk_tensor *there = dcpk_checkpoint_tensor(base, t->key);
    const size_t i = (size_t)(chunk - next->chunks) - t->first_chunk;
    const struct dcpk_chunk *found;

    if (there == NULL || there->rank != t->rank || i >= there->n_chunks)
        return NULL;
    found = &base->chunks[there->first_chunk + i];
    if (dcpk_compare_i64s(chunk->span, found->span, 2 * (size_t)t->rank) != 0)
        return NULL;
    return &found->place;
}

static const struct dcpk_place *find_object(const struct making *m, const char *key)
{
    const struct dcpk_object *found = dcpk_checkpoint_object(m->base.ckpt, key);

    return found != NULL ? &found->place : NULL;
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;

    return DCPK_ORDER_BY_4(x, y, file, at, is_item, base_at);
}

/* True if `cut` continues in BASE where the one before it leads. */
static bool continues(const struct cut *before, const struct cut *cut)
{
    return before->file == cut->file && before->base == cut->base &&
           cut->base_at - before->base_at == cut->at - before->at;
}

/* Sorts the cuts, and drops those that decide nothing. */
static void settle_cuts(struct making *m)
{
    size_t n = 0;

    qsort(m->cuts, m->n_cuts, sizeof *m->cuts, compare_cuts);
    for (size_t i = 0; i < m->n_cuts; i++) {
        const struct cut *cut = &m->cuts[i];

        if (i + 1 < m->n_cuts && cut[1].file == cut->file && cut[1].at == cut->at)
            continue; /* the one after it counts more */
        if (n == 0 || !continues(&m->cuts[n - 1], cut))
            m->cuts[n++] = *cut;
    }
    m->n_cuts = n;
}

static dcpk_status make_cuts(struct making *m, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *next = m->next.ckpt;

    for (size_t i = 0; i < m->next.n_files; i++) {
        const struct cut cut = {.file = (uint32_t)i,
                                .base = side_find(&m->base, m->next.files[i].name)};

        if (add_cut(m, &cut, err) != DCPK_OK)
            return err->status;
    }
    for (size_t i = 0; i < next->n_chunks; i++)
        if (add_item(m, &next->chunks[i].place, find_chunk(m, &next->chunks[i]), err))
            return err->status;
    for (size_t i = 0; i < next->n_objects; i++)
        if (add_item(m, &next->objects[i].place, find_object(m, next->objects[i].key), err))
            return err->status;
    settle_cuts(m);
    return DCPK_OK;
}

/* ---- a span ---- */

/* A run of blocks of a span, which all changed or did not. */
struct run {
    size_t at, n;
    bool is_changed;
    const uint8_t *b; /* as many bytes of BASE; NULL: there are none */
};

/* Packs a run's bytes at a, which it may change, to out. */
static dcpk_status pack_run(const struct dcpk_codec *codec, const struct run *run, uint8_t *a,
                            uint8_t *out, struct dcpk_delta_record *record, struct dcpk_error *err)
{
    size_t n_stored = run->n - run->n / 16; /* less is not worth unpacking */
    dcpk_status st = DCPK_OK;

    if (codec == NULL)
        n_stored = 0;
    record->method = DCPK_DELTA_PACKED;
    if (codec != NULL && run->b != NULL) {
        size_t n_xor = n_stored;

        dcpk_delta_xor(a, run->b, run->n);
        st = codec->encode(a, run->n, out, &n_xor, err);
        record->method = DCPK_DELTA_PACKED_XOR;
        record->stored_bytes = (uint32_t)n_xor;
        if (st != DCPK_OK || n_xor > 0)
            return st;
        dcpk_delta_xor(a, run->b, run->n);
        record->method = DCPK_DELTA_PACKED;
    }
    if (codec != NULL)
        st = codec->encode(a, run->n, out, &n_stored, err);
    if (n_stored == 0) {
        record->method = DCPK_DELTA_STORED;
        memcpy(out, a, run->n);
        n_stored = run->n;
    }
    record->stored_bytes = (uint32_t)n_stored;
    return st;
}

static dcpk_status add_run(const struct making *m, struct dcpk_delta_hand *hand, struct slot *slot,
                           const struct run *run, struct dcpk_error *err)
{
    const struct span *span = &slot->span;
    struct dcpk_delta_record *record = &slot->records[slot->n_records++];
    dcpk_status st = DCPK_OK;

    *record = (struct dcpk_delta_record){.n_bytes = (uint32_t)run->n, .base = DCPK_DELTA_NO_FILE};
    dcpk_hash_bytes(hand->a + run->at, run->n, &record->hash);
    if (run->is_changed) {
        st = pack_run(m->job->env->codec, run, hand->a + run->at, slot->stored + slot->n_stored,
                      record, err);
        slot->n_stored += record->stored_bytes;
    }
    if (!run->is_changed || record->method == DCPK_DELTA_PACKED_XOR) {
        record->base = span->base;
        record->base_at_bytes = span->base_at + run->at;
    }
    return st;
}

static bool differs(const struct dcpk_delta_hand *hand, const struct span *span, size_t at)
{
    const size_t n = dcpk_min_size(span->n_bytes - at, BLOCK_BYTES);

    return at + n > span->n_base || memcmp(hand->a + at, hand->b + at, n) != 0;
}

static dcpk_status make_span(void *context, int worker, uint64_t task, struct dcpk_error *err)
{
    struct making *m = context;
    struct dcpk_delta_hand *hand = &m->crew.hands[worker];
    struct slot *slot = &m->slots[task];
    const struct span *span = &slot->span;

    slot->n_records = slot->n_stored = 0;
    if (dcpk_source_read(m->next.sources[span->file], span->at, hand->a, span->n_bytes, err) ||
        (span->n_base > 0 &&
         dcpk_source_read(m->base.sources[span->base], span->base_at, hand->b, span->n_base, err)))
        return err->status;
    for (struct run run = {0}; run.at < span->n_bytes; run.at += run.n) {
        size_t end = run.at + BLOCK_BYTES;

        run.is_changed = differs(hand, span, run.at);
        while (end < span->n_bytes && differs(hand, span, end) == run.is_changed)
            end += BLOCK_BYTES;
        end = dcpk_min_size(end, span->n_bytes);
        run.n = end - run.at;
        run.b = end <= span->n_base ? hand->b + run.at : NULL;
        if (add_run(m, hand, slot, &run, err) != DCPK_OK)
            return err->status;
    }
    return dcpk_meter_add(&m->crew.meter, span->n_bytes, err);
}

/* ---- parts ---- */

static dcpk_status put_part(struct making *m, struct dcpk_error *err)
{
    char name[DCPK_DELTA_PART_NAME_BYTES];
    struct dcpk_sink *sink = NULL;
    struct dcpk_bytes head = {0};
    dcpk_status st;

    if (m->n_records == 0)
        return DCPK_OK;
    dcpk_bytes_u64(&head, m->n_records);
    dcpk_bytes_put(&head, m->records.data, m->records.n_bytes);
    st = dcpk_bytes_status(&head, err);
    if (st == DCPK_OK && m->folder != NULL)
        st = dcpk_folder_create(m->folder, dcpk_delta_part_name(m->index.n_parts, name),
                                head.n_bytes + m->payload.n_bytes, &sink, err);
    if (sink != NULL && st == DCPK_OK)
        st = dcpk_sink_write(sink, 0, head.data, head.n_bytes, err);
    if (sink != NULL && st == DCPK_OK)
        st = dcpk_sink_write(sink, head.n_bytes, m->payload.data, m->payload.n_bytes, err);
    if (sink != NULL && st == DCPK_OK)
        st = dcpk_sink_close(sink, err);
    else
        dcpk_sink_abandon(sink);
    m->counts->delta_bytes += head.n_bytes + m->payload.n_bytes;
    m->index.n_parts++;
    m->n_records = 0;
    m->records.n_bytes = m->payload.n_bytes = 0;
    dcpk_bytes_release(&head);
    return st;
}

/* The number of a file of BASE in the index, where the first record that needs it puts it. */
static dcpk_status use_base(struct making *m, uint32_t *base, struct dcpk_error *err)
{
    struct dcpk_delta_file *file;

    if (*base == DCPK_DELTA_NO_FILE)
        return DCPK_OK;
    if (m->used[*base] == DCPK_DELTA_NO_FILE) {
        file = &m->index.base[m->index.n_base];
        *file = m->base.files[*base];
        if (dcpk_seen_file(m->base.sources[*base], &file->seen, err) != DCPK_OK)
            return err->status;
        m->used[*base] = (uint32_t)m->index.n_base++;
    }
    *base = m->used[*base];
    return DCPK_OK;
}

static dcpk_status put_slot(struct making *m, struct slot *slot, struct dcpk_error *err)
{
    if ((m->n_records + slot->n_records > DCPK_DELTA_MAX_RECORDS ||
         m->payload.n_bytes + slot->n_stored > m->part_bytes) &&
        put_part(m, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < slot->n_records; i++) {
        struct dcpk_delta_record *record = &slot->records[i];

        if (record->method != DCPK_DELTA_COPY)
            m->counts->changed_bytes += record->n_bytes;
        if (use_base(m, &record->base, err) != DCPK_OK)
            return err->status;
        dcpk_delta_record_put(&m->records, record);
        if (dcpk_bytes_status(&m->records, err) != DCPK_OK)
            return err->status;
        dcpk_hasher_update(&m->hasher,
                           m->records.data + m->records.n_bytes - DCPK_DELTA_RECORD_BYTES,
                           DCPK_DELTA_RECORD_BYTES);
        m->n_records++;
    }
    dcpk_bytes_put(&m->payload, slot->stored, slot->n_stored);
    return dcpk_bytes_status(&m->payload, err);
}

static dcpk_status put_index(struct making *m, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    dcpk_status st;

    dcpk_hasher_digest(&m->hasher, &m->index.records);
    st = dcpk_delta_index_put(&m->index, &bytes, err);
    if (st == DCPK_OK && m->folder != NULL)
        st = dcpk_folder_put(m->folder, DCPK_DELTA_INDEX, bytes.data, bytes.n_bytes, err);
    m->counts->delta_bytes += bytes.n_bytes;
    dcpk_bytes_release(&bytes);
    return st;
}

/* ---- the whole ---- */

/* Cuts the next span out of the rest of NEW, which begins at byte *at of the file of cut *i. */
static bool next_span(const struct making *m, size_t *i, uint64_t *at, struct span *span)
{
    for (; *i < m->n_cuts; ++*i, *at = 0) {
        const struct cut *cut = &m->cuts[*i];
        uint64_t end = m->next.files[cut->file].n_bytes;

        if (*i + 1 < m->n_cuts && cut[1].file == cut->file)
            end = dcpk_min_u64(end, cut[1].at);
        *at = dcpk_max_u64(*at, cut->at);
        if (*at >= end)
            continue;
        *span = (struct span){.at = *at,
                              .file = cut->file,
                              .base = cut->base,
                              .n_bytes = (size_t)dcpk_min_u64(end - *at, DCPK_DELTA_SPAN_BYTES)};
        if (cut->base != DCPK_DELTA_NO_FILE) {
            const uint64_t base_bytes = m->base.files[cut->base].n_bytes;

            span->base_at = cut->base_at + (*at - cut->at);
            if (span->base_at < base_bytes)
                span->n_base = (size_t)dcpk_min_u64(base_bytes - span->base_at, span->n_bytes);
        }
        *at += span->n_bytes;
        return true;
    }
    return false;
}

static dcpk_status put_all(struct making *m, struct dcpk_error *err)
{
    size_t cut = 0, n;
    uint64_t at = 0;

    do {
        for (n = 0; n < m->n_slots && next_span(m, &cut, &at, &m->slots[n].span);)
            n++;
        if (dcpk_pool_run(m->crew.n_threads, n, make_span, m, err) != DCPK_OK)
            return err->status;
        for (size_t i = 0; i < n; i++)
            if (put_slot(m, &m->slots[i], err) != DCPK_OK)
                return err->status;
    } while (n == m->n_slots);
    if (put_part(m, err) || put_index(m, err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status making_init(struct making *m, struct dcpk_error *err)
{
    const struct dcpk_env *env = m->job->env;

    if (make_cuts(m, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < m->next.n_files; i++)
        m->counts->n_bytes += m->next.files[i].n_bytes;
    m->counts->n_files = m->next.n_files;
    if (dcpk_delta_crew_init(&m->crew, env, (2 + SLOTS_A_THREAD) * DCPK_DELTA_SPAN_BYTES * 4 / 3,
                             m->counts->n_bytes, err) != DCPK_OK)
        return err->status;
    m->part_bytes = dcpk_min_u64(dcpk_exec_memory_bytes(env) / 4, PART_BYTES);
    m->n_slots = SLOTS_A_THREAD * (size_t)m->crew.n_threads;
    m->slots = dcpk_alloc_array(m->n_slots, sizeof *m->slots, err);
    m->stored = dcpk_alloc_aligned(4096, m->n_slots * DCPK_DELTA_SPAN_BYTES, err);
    if (m->slots == NULL || m->stored == NULL)
        return err->status;
    for (size_t i = 0; i < m->n_slots; i++)
        m->slots[i].stored = m->stored + i * DCPK_DELTA_SPAN_BYTES;
    m->used = dcpk_arena_array(m->base.arena, m->base.n_files, sizeof *m->used, err);
    if (m->used == NULL)
        return err->status;
    memset(m->used, 0xff, m->base.n_files * sizeof *m->used);
    m->index.base = dcpk_arena_array(m->base.arena, m->base.n_files, sizeof *m->index.base, err);
    if (m->index.base == NULL)
        return err->status;
    m->index.next = m->next.files;
    m->index.n_next = m->next.n_files;
    dcpk_hasher_begin(&m->hasher);
    return DCPK_OK;
}

static void making_release(struct making *m)
{
    dcpk_bytes_release(&m->records);
    dcpk_bytes_release(&m->payload);
    dcpk_free(m->stored);
    dcpk_free(m->slots);
    dcpk_delta_crew_release(&m->crew);
    dcpk_free(m->cuts);
    dcpk_arena_free(m->base.arena);
    dcpk_arena_free(m->next.arena);
}

dcpk_status dcpk_delta_make(struct dcpk_checkpoint *base, struct dcpk_checkpoint *next,
                            const struct dcpk_delta_job *job, struct dcpk_delta_counts *counts,
                            struct dcpk_error *err)
{
    struct making m = {.job = job, .counts = counts};
    dcpk_status st = DCPK_OK;

    *counts = (struct dcpk_delta_counts){0};
    if (side_init(&m.base, base, err) || side_init(&m.next, next, err) || making_init(&m, err))
        st = err->status;
    if (st == DCPK_OK && !job->is_dry)
        st = dcpk_folder_begin(job->out, job->folder_flags, &m.folder, err);
    if (st == DCPK_OK)
        st = dcpk_meter_end(&m.crew.meter, NULL, NULL, NULL, put_all(&m, err));
    if (st == DCPK_OK && m.folder != NULL)
        st = dcpk_folder_publish(m.folder, err);
    if (st != DCPK_OK)
        dcpk_folder_abandon(m.folder);
    making_release(&m);
    return st;
}
