/* SPDX-License-Identifier: Apache-2.0 */
/* delta_apply.c - rebuilds a folder from another and a delta, which may be hostile. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/ckpt/seen.h"
#include "lib/job/delta_priv.h"
#include "lib/job/target.h"

/* An output may be so many times as large as what it is made from; each may be larger by the
 * second, so that small ones are free. */
#define MAX_RATIO      1000
#define MAX_FREE_BYTES ((uint64_t)1 << 30)

struct applying {
    const struct dcpk_delta_job *job;
    struct dcpk_store *base, *delta;
    struct dcpk_delta_index index;
    struct dcpk_source **sources; /* by file of index.base */
    struct dcpk_delta_counts *counts;
    struct dcpk_delta_crew crew;
    struct dcpk_folder *folder; /* NULL: records are only checked */
    struct dcpk_hasher hasher;  /* of all records */
    /* The part at hand. */
    struct dcpk_source *part;
    uint8_t *records;
    struct step *steps;
    /* The next byte of NEW. */
    size_t file;
    uint64_t at_bytes;
    struct dcpk_sink *sink; /* of that file; NULL: nothing is written yet */
};

/* A record with its places in NEW's file and in the part. */
struct step {
    struct dcpk_delta_record record;
    uint64_t at_bytes, stored_at_bytes;
};

/* ---- sizes and hashes by the delta ---- */

static dcpk_status find_base_file(struct applying *a, size_t i, uint64_t *sum,
                                  struct dcpk_error *err)
{
    const struct dcpk_delta_file *file = &a->index.base[i];
    enum dcpk_path_kind kind;
    struct dcpk_hash seen;

    if (dcpk_store_look(a->base, file->name, &kind, err) != DCPK_OK)
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EMISMATCH, "it has no file '%.200s'", file->name);
    if (dcpk_store_leads_to_private(a->base, file->name, NULL))
        return dcpk_fail(err, DCPK_EUSAGE, "'%.200s' is a link to a file that fewer users may read",
                         file->name);
    if (dcpk_store_find(a->base, file->name, &a->sources[i], err) ||
        dcpk_seen_file(a->sources[i], &seen, err))
        return err->status;
    if (dcpk_source_bytes(a->sources[i]) != file->n_bytes ||
        memcmp(seen.digest, file->seen.digest, sizeof seen.digest) != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "its file '%.200s' is not the same", file->name);
    if (!dcpk_add_u64(*sum, file->n_bytes, sum))
        return dcpk_fail(err, DCPK_ERANGE, "its files have more than 2^64 bytes");
    return DCPK_OK;
}

static dcpk_status find_base(struct applying *a, uint64_t *sum, struct dcpk_error *err)
{
    a->sources = dcpk_arena_array(a->index.arena, a->index.n_base, sizeof *a->sources, err);
    if (a->sources == NULL)
        return err->status;
    for (size_t i = 0; i < a->index.n_base; i++)
        if (find_base_file(a, i, sum, err) != DCPK_OK) {
            dcpk_context(err, "'%s' is not the base of this delta", dcpk_store_path(a->base));
            return err->status;
        }
    return DCPK_OK;
}

/* from_bytes: of the base's files that are used, and of the delta. */
static dcpk_status check_ratio(struct applying *a, uint64_t from_bytes, struct dcpk_error *err)
{
    uint64_t n_bytes = 0, most;

    for (size_t i = 0; i < a->index.n_next; i++)
        if (!dcpk_add_u64(n_bytes, a->index.next[i].n_bytes, &n_bytes) || n_bytes > INT64_MAX)
            return dcpk_fail(err, DCPK_ERANGE, "the delta claims files of more than 2^63 bytes");
    if (dcpk_mul_u64(from_bytes, MAX_RATIO, &most) && dcpk_add_u64(most, MAX_FREE_BYTES, &most) &&
        n_bytes > most)
        return dcpk_fail(err, DCPK_ERANGE,
                         "the delta claims files of %" PRIu64 " bytes, made from %" PRIu64
                         ": more than %d times as many",
                         n_bytes, from_bytes, MAX_RATIO);
    a->counts->n_files = a->index.n_next;
    a->counts->n_bytes = n_bytes;
    return DCPK_OK;
}

/* ---- writing ---- */

static dcpk_status fail_changed(const struct applying *a, const struct step *s,
                                struct dcpk_error *err)
{
    const struct dcpk_delta_record *r = &s->record;

    if (r->base == DCPK_DELTA_NO_FILE)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the delta is damaged: the hash of %" PRIu32 " bytes "
                         "at byte %" PRIu64 " of '%.200s' differs",
                         r->n_bytes, s->at_bytes, a->index.next[a->file].name);
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "'%s' is not the base of this delta: its file '%.200s' differs from it in "
                     "%" PRIu32 " bytes at byte %" PRIu64,
                     dcpk_store_path(a->base), a->index.base[r->base].name, r->n_bytes,
                     r->base_at_bytes);
}

static dcpk_status read_stored(const struct applying *a, const struct step *s,
                               struct dcpk_delta_hand *hand, struct dcpk_error *err)
{
    const struct dcpk_delta_record *r = &s->record;

    if (dcpk_source_read(a->part, s->stored_at_bytes, hand->b, r->stored_bytes, err) ||
        a->job->env->codec->decode(hand->b, r->stored_bytes, hand->a, r->n_bytes, err)) {
        dcpk_context(err, "the delta's block for byte %" PRIu64 " of '%.200s'", s->at_bytes,
                     a->index.next[a->file].name);
        return err->status;
    }
    return DCPK_OK;
}

/* The bytes of a step into hand->a. */
static dcpk_status make_bytes(const struct applying *a, const struct step *s,
                              struct dcpk_delta_hand *hand, struct dcpk_error *err)
{
    const struct dcpk_delta_record *r = &s->record;

    switch ((enum dcpk_delta_method)r->method) {
    case DCPK_DELTA_COPY:
        return dcpk_source_read(a->sources[r->base], r->base_at_bytes, hand->a, r->n_bytes, err);
    case DCPK_DELTA_STORED:
        return dcpk_source_read(a->part, s->stored_at_bytes, hand->a, r->n_bytes, err);
    case DCPK_DELTA_PACKED:
        return read_stored(a, s, hand, err);
    case DCPK_DELTA_PACKED_XOR:
        if (read_stored(a, s, hand, err) ||
            dcpk_source_read(a->sources[r->base], r->base_at_bytes, hand->b, r->n_bytes, err))
            return err->status;
        dcpk_delta_xor(hand->a, hand->b, r->n_bytes);
        return DCPK_OK;
    case DCPK_DELTA_N_METHODS:
        break;
    }
    return dcpk_fail(err, DCPK_EFORMAT, "unknown method %" PRIu32, r->method);
}

static dcpk_status apply_step(void *context, int worker, uint64_t task, struct dcpk_error *err)
{
    struct applying *a = context;
    struct dcpk_delta_hand *hand = &a->crew.hands[worker];
    const struct step *s = &a->steps[task];
    struct dcpk_hash hash;

    if (make_bytes(a, s, hand, err) != DCPK_OK)
        return err->status;
    dcpk_hash_bytes(hand->a, s->record.n_bytes, &hash);
    if (memcmp(hash.digest, s->record.hash.digest, sizeof hash.digest) != 0)
        return fail_changed(a, s, err);
    if (dcpk_sink_write(a->sink, s->at_bytes, hand->a, s->record.n_bytes, err) != DCPK_OK)
        return err->status;
    return dcpk_meter_add(&a->crew.meter, s->record.n_bytes, err);
}

/* Runs the first n steps, all of one file, and begins that. */
static dcpk_status apply_steps(struct applying *a, size_t n, struct dcpk_error *err)
{
    const struct dcpk_delta_file *file = &a->index.next[a->file];

    if (a->folder == NULL || n == 0)
        return DCPK_OK;
    if (a->sink == NULL &&
        dcpk_folder_create(a->folder, file->name, file->n_bytes, &a->sink, err) != DCPK_OK)
        return err->status;
    if (dcpk_pool_run(a->crew.n_threads, n, apply_step, a, err) != DCPK_OK)
        return err->status;
    dcpk_sink_flush(a->sink, a->steps[0].at_bytes, a->at_bytes - a->steps[0].at_bytes);
    return DCPK_OK;
}

/* Closes files that are complete, also empty ones. */
static dcpk_status pass_files(struct applying *a, struct dcpk_error *err)
{
    for (; a->file < a->index.n_next && a->at_bytes == a->index.next[a->file].n_bytes; a->file++) {
        struct dcpk_sink *sink = a->sink;

        a->sink = NULL;
        a->at_bytes = 0;
        if (sink != NULL && dcpk_sink_close(sink, err) != DCPK_OK)
            return err->status;
        if (sink == NULL && a->folder != NULL &&
            dcpk_folder_put(a->folder, a->index.next[a->file].name, "", 0, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* ---- records ---- */

static bool is_packed(const struct dcpk_delta_record *r)
{
    return r->method == DCPK_DELTA_PACKED || r->method == DCPK_DELTA_PACKED_XOR;
}

/* Checks the form of a record for what is left of NEW's file. */
static dcpk_status check_record(const struct applying *a, const struct dcpk_delta_record *r,
                                struct dcpk_error *err)
{
    const bool has_base = r->method == DCPK_DELTA_COPY || r->method == DCPK_DELTA_PACKED_XOR;

    if (a->file == a->index.n_next)
        return dcpk_fail(err, DCPK_EFORMAT, "there are more records than files");
    if (r->method >= DCPK_DELTA_N_METHODS || r->n_bytes == 0 ||
        r->n_bytes > DCPK_DELTA_SPAN_BYTES ||
        r->n_bytes > a->index.next[a->file].n_bytes - a->at_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "method %" PRIu32 ", %" PRIu32 " bytes", r->method,
                         r->n_bytes);
    if ((r->base != DCPK_DELTA_NO_FILE) != has_base ||
        (has_base &&
         (r->base >= a->index.n_base || r->base_at_bytes > a->index.base[r->base].n_bytes ||
          r->n_bytes > a->index.base[r->base].n_bytes - r->base_at_bytes)))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "byte %" PRIu64 " of the base's file %" PRIu32 " is no place",
                         r->base_at_bytes, r->base);
    if ((r->method == DCPK_DELTA_COPY && r->stored_bytes != 0) ||
        (r->method == DCPK_DELTA_STORED && r->stored_bytes != r->n_bytes) ||
        (is_packed(r) && (r->stored_bytes == 0 || r->stored_bytes > r->n_bytes)))
        return dcpk_fail(err, DCPK_EFORMAT, "%" PRIu32 " bytes are stored for %" PRIu32,
                         r->stored_bytes, r->n_bytes);
    if (is_packed(r) && a->job->env->codec == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LIST_BUILT,
                             "the delta is packed with zstd, which this build lacks");
    return DCPK_OK;
}

/* Goes through n records; with a folder it writes what they describe. stored_at: of the first. */
static dcpk_status take_records(struct applying *a, size_t n, uint64_t stored_at,
                                struct dcpk_error *err)
{
    size_t n_steps = 0;

    dcpk_hasher_update(&a->hasher, a->records, n * DCPK_DELTA_RECORD_BYTES);
    for (size_t i = 0; i < n; i++) {
        struct step *s = &a->steps[n_steps];

        dcpk_delta_record_get(a->records + i * DCPK_DELTA_RECORD_BYTES, &s->record);
        if (check_record(a, &s->record, err) != DCPK_OK) {
            dcpk_context(err, "record %zu", i);
            return err->status;
        }
        s->at_bytes = a->at_bytes;
        s->stored_at_bytes = stored_at;
        stored_at += s->record.stored_bytes;
        a->at_bytes += s->record.n_bytes;
        n_steps++;
        if (a->folder == NULL && s->record.method != DCPK_DELTA_COPY)
            a->counts->changed_bytes += s->record.n_bytes;
        if (a->at_bytes != a->index.next[a->file].n_bytes)
            continue;
        if (apply_steps(a, n_steps, err) || pass_files(a, err))
            return err->status;
        n_steps = 0;
    }
    if (stored_at != dcpk_source_bytes(a->part))
        return dcpk_fail(err, DCPK_EFORMAT, "it has %" PRIu64 " bytes, its records need %" PRIu64,
                         dcpk_source_bytes(a->part), stored_at);
    return apply_steps(a, n_steps, err);
}

static dcpk_status take_part(struct applying *a, const char *name, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    uint8_t head[8];
    uint64_t n;

    if (dcpk_store_look(a->delta, name, &kind, err) != DCPK_OK)
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EFORMAT, "the delta lacks this file");
    if (dcpk_store_find(a->delta, name, &a->part, err) ||
        dcpk_source_read(a->part, 0, head, sizeof head, err))
        return err->status;
    n = dcpk_load_u64le(head);
    if (n > DCPK_DELTA_MAX_RECORDS)
        return dcpk_fail(err, DCPK_EFORMAT, "%" PRIu64 " records, the limit is %u", n,
                         DCPK_DELTA_MAX_RECORDS);
    if (dcpk_source_read(a->part, sizeof head, a->records, (size_t)n * DCPK_DELTA_RECORD_BYTES,
                         err) != DCPK_OK)
        return err->status;
    if (a->folder == NULL)
        a->counts->delta_bytes += dcpk_source_bytes(a->part);
    return take_records(a, (size_t)n, sizeof head + n * DCPK_DELTA_RECORD_BYTES, err);
}

/* Goes through all records, once without a folder to check them, once with it. */
static dcpk_status take_parts(struct applying *a, struct dcpk_error *err)
{
    char name[DCPK_DELTA_PART_NAME_BYTES];
    struct dcpk_hash hash;

    a->file = 0;
    a->at_bytes = 0;
    dcpk_hasher_begin(&a->hasher);
    if (pass_files(a, err) != DCPK_OK)
        return err->status;
    for (uint64_t i = 0; i < a->index.n_parts; i++)
        if (take_part(a, dcpk_delta_part_name(i, name), err) != DCPK_OK) {
            dcpk_context(err, "'%s'", name);
            return err->status;
        }
    dcpk_hasher_digest(&a->hasher, &hash);
    if (memcmp(hash.digest, a->index.records.digest, sizeof hash.digest) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "the hash of the records differs: they are damaged");
    if (a->file < a->index.n_next)
        return dcpk_fail(err, DCPK_EFORMAT, "no record has byte %" PRIu64 " of '%.200s'",
                         a->at_bytes, a->index.next[a->file].name);
    return DCPK_OK;
}

/* ---- the whole ---- */

static dcpk_status applying_check(struct applying *a, struct dcpk_error *err)
{
    uint64_t from_bytes = 0;
    dcpk_status st;

    if (dcpk_delta_index_read(a->delta, &a->index, err) || find_base(a, &from_bytes, err))
        return err->status;
    a->records = dcpk_arena_alloc(a->index.arena,
                                  DCPK_DELTA_MAX_RECORDS * (size_t)DCPK_DELTA_RECORD_BYTES, err);
    a->steps = dcpk_arena_array(a->index.arena, DCPK_DELTA_MAX_RECORDS, sizeof *a->steps, err);
    if (a->records == NULL || a->steps == NULL)
        return err->status;
    st = take_parts(a, err);
    if (st == DCPK_OK)
        st = check_ratio(a, from_bytes + a->counts->delta_bytes, err);
    if (st != DCPK_OK)
        dcpk_context(err, "checking the delta '%s'", dcpk_store_path(a->delta));
    return st;
}

static dcpk_status applying_write(struct applying *a, struct dcpk_error *err)
{
    const unsigned flags =
        a->job->folder_flags | dcpk_target_flags_of((size_t)a->counts->n_files, a->counts->n_bytes);
    dcpk_status st = dcpk_delta_crew_init(&a->crew, a->job->env, 2 * DCPK_DELTA_SPAN_BYTES,
                                          a->counts->n_bytes, err);

    if (st == DCPK_OK)
        st = dcpk_folder_begin(a->job->out, flags, &a->folder, err);
    if (st == DCPK_OK)
        st = take_parts(a, err);
    dcpk_sink_abandon(a->sink);
    st = dcpk_meter_end(&a->crew.meter, NULL, NULL, NULL, st);
    if (st == DCPK_OK)
        st = dcpk_folder_publish(a->folder, err);
    if (st != DCPK_OK)
        dcpk_folder_abandon(a->folder);
    dcpk_delta_crew_release(&a->crew);
    return st;
}

dcpk_status dcpk_delta_apply(struct dcpk_store *base, struct dcpk_store *delta,
                             const struct dcpk_delta_job *job, struct dcpk_delta_counts *counts,
                             struct dcpk_error *err)
{
    struct applying a = {.job = job, .base = base, .delta = delta, .counts = counts};
    dcpk_status st;

    *counts = (struct dcpk_delta_counts){0};
    st = applying_check(&a, err);
    if (st == DCPK_OK && !job->is_dry)
        st = applying_write(&a, err);
    dcpk_arena_free(a.index.arena);
    return st;
}
