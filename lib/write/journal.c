/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - reads and writes the journal of a conversion. */
#include "lib/write/journal.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/seen.h"

static const char magic[] = "dcpkjrn3"; /* another layout or meaning gets another number */

/* Records of a unit besides the first: it may be lost and done again. A longer journal is not ours,
 * and would be taken into memory. */
#define MAX_MORE 64u

enum { HEADER_BYTES = 44, RECORD_BYTES = 16 }; /* the last 4 of each are its CRC-32 */
#define LOST (UINT64_C(1) << 63)               /* of a record's unit */

static void put_header(const struct dcpk_journal *journal, uint8_t header[HEADER_BYTES])
{
    memcpy(header, magic, 8);
    memcpy(header + 8, journal->subject.input.digest, 16);
    memcpy(header + 24, journal->subject.plan.digest, 16);
    dcpk_store_u32le(header + 40, dcpk_crc32(0, header, 40));
}

/* The checksum that records begin with: those of another journal do not pass for ours. */
static uint32_t seed_of(const struct dcpk_journal *journal)
{
    uint8_t header[HEADER_BYTES];

    put_header(journal, header);
    return dcpk_load_u32le(header + 40);
}

/* Checks that a header has the same subject. A header that was never written whole has none:
 * *is_whole. */
static dcpk_status check_header(const struct dcpk_journal *journal, const uint8_t *data,
                                bool *is_whole, struct dcpk_error *err)
{
    uint8_t header[HEADER_BYTES];
    const char *other = NULL;

    *is_whole = dcpk_crc32(0, data, 40) == dcpk_load_u32le(data + 40);
    if (!*is_whole)
        return DCPK_OK;
    put_header(journal, header);
    if (memcmp(data, header, 8) != 0)
        other = "was begun by another version of this program";
    else if (memcmp(data + 8, header + 8, 16) != 0)
        other = "has another input, or its input has changed since";
    else if (memcmp(data + 24, header + 24, 16) != 0)
        other = "was begun with other options";
    if (other == NULL)
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE, "the conversion to be resumed %s",
                         other);
}

/* Take the records over, up to the first that is not whole. */
static dcpk_status take_records(struct dcpk_journal *journal, const uint8_t *data, size_t n_bytes,
                                struct dcpk_error *err)
{
    const uint32_t seed = seed_of(journal);
    const size_t most = (n_bytes - HEADER_BYTES) / RECORD_BYTES;

    journal->found = dcpk_alloc_array(most, sizeof *journal->found, err);
    if (journal->found == NULL)
        return err->status;
    for (size_t i = 0; i < most; i++) {
        const uint8_t *record = data + HEADER_BYTES + i * RECORD_BYTES;
        const uint64_t unit = dcpk_load_u64le(record);

        if (dcpk_crc32(seed, record, 12) != dcpk_load_u32le(record + 12))
            break;
        journal->found[journal->n_found++] =
            (struct dcpk_journal_record){unit & ~LOST, dcpk_load_u32le(record + 8), unit & LOST};
    }
    journal->end_bytes = HEADER_BYTES + journal->n_found * RECORD_BYTES;
    return DCPK_OK;
}

dcpk_status dcpk_journal_parse(struct dcpk_journal *journal, const void *data, size_t n_bytes,
                               struct dcpk_error *err)
{
    bool is_whole = false;

    if (n_bytes >= HEADER_BYTES && check_header(journal, data, &is_whole, err) != DCPK_OK)
        return err->status;
    if (!is_whole)
        return DCPK_OK;
    return take_records(journal, data, n_bytes, err);
}

dcpk_status dcpk_journal_open(struct dcpk_folder *folder,
                              const struct dcpk_journal_subject *subject,
                              struct dcpk_journal *journal, struct dcpk_error *err)
{
    const uint64_t max_bytes = HEADER_BYTES + subject->n_units * RECORD_BYTES;
    const uint64_t limit_bytes = max_bytes + subject->n_units * MAX_MORE * RECORD_BYTES;
    struct dcpk_bytes bytes = {0};
    dcpk_status st = dcpk_folder_read_journal(folder, limit_bytes + 1, &bytes, err);

    *journal = (struct dcpk_journal){.folder = folder, .subject = *subject};
    if (st == DCPK_OK && bytes.n_bytes <= limit_bytes)
        st = dcpk_journal_parse(journal, bytes.data, bytes.n_bytes, err);
    if (st == DCPK_OK && bytes.n_bytes > 0 && journal->end_bytes == 0)
        st = dcpk_folder_clear(folder, err); /* the owner of its files is unknown */
    if (st == DCPK_OK)
        dcpk_folder_reserve_journal(folder, max_bytes);
    dcpk_bytes_release(&bytes);
    return st;
}

dcpk_status dcpk_journal_append(struct dcpk_journal *journal,
                                const struct dcpk_journal_record *records, size_t n,
                                struct dcpk_error *err)
{
    const uint32_t seed = seed_of(journal);
    struct dcpk_bytes bytes = {0};
    uint8_t header[HEADER_BYTES];
    dcpk_status st;

    if (journal->end_bytes == 0) {
        put_header(journal, header);
        dcpk_bytes_put(&bytes, header, sizeof header);
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t record[RECORD_BYTES];

        dcpk_store_u64le(record, records[i].unit | (records[i].is_lost ? LOST : 0));
        dcpk_store_u32le(record + 8, records[i].crc32);
        dcpk_store_u32le(record + 12, dcpk_crc32(seed, record, 12));
        dcpk_bytes_put(&bytes, record, sizeof record);
    }
    st = dcpk_bytes_status(&bytes, err);
    if (st == DCPK_OK)
        st = dcpk_folder_write_journal(journal->folder, journal->end_bytes, bytes.data,
                                       bytes.n_bytes, err);
    if (st == DCPK_OK)
        journal->end_bytes += bytes.n_bytes;
    dcpk_bytes_release(&bytes);
    return st;
}

void dcpk_journal_release(struct dcpk_journal *journal)
{
    dcpk_free(journal->found);
    journal->found = NULL;
    journal->n_found = 0;
}

/* ---- inputs that decide the bytes of an output ---- */

static void journal_put_number(struct dcpk_hasher *s, uint64_t v)
{
    dcpk_hasher_update(s, &v, sizeof v); /* never leaves this kind of machine's byte order */
}

static void put_text(struct dcpk_hasher *s, const char *text)
{
    dcpk_hasher_update(s, text, strlen(text) + 1);
}

static void put_span(struct dcpk_hasher *s, const int64_t *span, int n)
{
    dcpk_hasher_update(s, span, (size_t)n * sizeof *span);
}

void dcpk_journal_put_pieces(struct dcpk_hasher *s, const struct dcpk_piece *pieces, size_t n)
{
    journal_put_number(s, n);
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_piece *piece = &pieces[i];

        journal_put_number(s, piece->src);
        journal_put_number(s, piece->src_rank);
        journal_put_number(s, piece->dst_rank);
        journal_put_number(s, piece->axes);
        put_span(s, piece->span, 2 * (piece->src_rank + piece->dst_rank));
    }
}

static void put_tensor(struct dcpk_hasher *s, const struct dcpk_out_tensor *t)
{
    journal_put_number(s, t->n_keys);
    for (size_t i = 0; i < t->n_keys; i++)
        put_text(s, t->keys[i]);
    journal_put_number(s, (uint64_t)t->dtype);
    journal_put_number(s, (uint64_t)t->rank);
    put_span(s, t->shape, t->rank);
    if (t->blocks != NULL) {
        journal_put_number(s, (uint64_t)t->blocks->format.variant);
        journal_put_number(s, t->blocks->format.is_ue8m0);
    }
    journal_put_number(s, t->literal != NULL);
    if (t->literal != NULL)
        dcpk_hasher_update(s, t->literal,
                           dcpk_count_elems(t->shape, t->rank) * dcpk_dtype_bytes(t->dtype));
    dcpk_journal_put_pieces(s, t->pieces, t->n_pieces);
}

static void put_chunk(struct dcpk_hasher *s, const struct dcpk_output *out,
                      const struct dcpk_out_chunk *chunk)
{
    journal_put_number(s, chunk->tensor);
    journal_put_number(s, chunk->file);
    put_span(s, chunk->span, 2 * out->tensors[chunk->tensor].rank);
    journal_put_number(s, chunk->offset_bytes);
    journal_put_number(s, chunk->data_bytes);
    journal_put_number(s, chunk->lead_bytes);
    journal_put_number(s, chunk->tail_bytes);
}

static void put_computed(struct dcpk_hasher *s, const struct dcpk_computed *how)
{
    journal_put_number(s, how != NULL);
    if (how == NULL)
        return;
    journal_put_number(s, how->values);
    journal_put_number(s, how->scales);
    journal_put_number(s, (uint64_t)how->block_rows);
    journal_put_number(s, (uint64_t)how->block_cols);
    dcpk_hasher_update(s, &how->addend, sizeof how->addend);
    journal_put_number(s, how->product.left);
    journal_put_number(s, how->product.right);
    journal_put_number(s, (uint64_t)how->product.rank);
    journal_put_number(s, how->product.is_turned);
}

static void put_place(struct dcpk_hasher *s, const struct dcpk_place *place)
{
    journal_put_number(s, place->file);
    journal_put_number(s, place->offset_bytes);
    journal_put_number(s, place->n_bytes);
}

/*
 * Adds the views: pieces have but their numbers. The size of buckets, args, and other facts outside
 * the input's files may decide it; the places of stored bytes belong to the input.
 */
void dcpk_journal_put_views(struct dcpk_hasher *s, const struct dcpk_checkpoint *source)
{
    journal_put_number(s, source->n_views);
    for (size_t t = source->n_tensors; t < source->n_tensors + source->n_views; t++) {
        const struct dcpk_tensor *view = &source->tensors[t];

        journal_put_number(s, (uint64_t)view->dtype);
        journal_put_number(s, (uint64_t)view->rank);
        put_span(s, view->shape, view->rank);
        put_computed(s, view->computed);
        journal_put_number(s, view->n_chunks);
        for (size_t c = view->first_chunk; c < view->first_chunk + view->n_chunks; c++) {
            const struct dcpk_chunk *chunk = &source->chunks[c];
            const struct dcpk_chunk_run *run = dcpk_checkpoint_chunk_run(source, chunk);

            put_span(s, chunk->span, 2 * view->rank);
            journal_put_number(s, run->of);
            journal_put_number(s, (uint64_t)run->first);
            put_place(s, &chunk->place);
        }
    }
}

static void put_plan(struct dcpk_hasher *s, const struct dcpk_output *out)
{
    put_text(s, out->format->name);
    journal_put_number(s, out->n_tensors);
    for (size_t i = 0; i < out->n_tensors; i++)
        put_tensor(s, &out->tensors[i]);
    dcpk_journal_put_views(s, out->source);
    journal_put_number(s, out->n_chunks);
    for (size_t i = 0; i < out->n_chunks; i++)
        put_chunk(s, out, &out->chunks[i]);
    journal_put_number(s, out->n_payloads);
    for (size_t i = 0; i < out->n_payloads; i++) {
        journal_put_number(s, out->payloads[i].file);
        journal_put_number(s, out->payloads[i].offset_bytes);
        journal_put_number(s, out->payloads[i].n_bytes);
    }
    journal_put_number(s, out->n_kept); /* so that no name is left of a run that kept others */
    for (size_t i = 0; i < out->n_kept; i++)
        put_text(s, out->kept[i].name);
    journal_put_number(s, out->n_files);
    for (size_t i = 0; i < out->n_files; i++) {
        put_text(s, out->files[i].name);
        journal_put_number(s, out->files[i].n_bytes);
    }
}

dcpk_status dcpk_journal_describe(const struct dcpk_units *units, const char *in,
                                  struct dcpk_journal_subject *subject, struct dcpk_error *err)
{
    struct dcpk_hasher s;

    if (dcpk_seen_checkpoint(units->out->source, in, &subject->input, err) != DCPK_OK)
        return err->status;
    dcpk_hasher_begin(&s);
    subject->n_units = units->n;
    journal_put_number(&s, units->limit_bytes);
    put_plan(&s, units->out);
    dcpk_hasher_digest(&s, &subject->plan);
    return DCPK_OK;
}
