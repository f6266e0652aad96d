/* SPDX-License-Identifier: Apache-2.0 */
/* journal_subject.c - numbers for what decides the bytes of an output: its plan and its input. */
#include <string.h>

#include "lib/base/digest.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/seen.h"
#include "lib/write/journal.h"

/* A running hash of numbers and texts. */
struct summing {
    struct dcpk_hasher *hasher;
};

static void put_bytes(struct summing *s, const void *data, size_t n_bytes)
{
    dcpk_hasher_update(s->hasher, data, n_bytes);
}

static void put_number(struct summing *s, uint64_t v)
{
    put_bytes(s, &v, sizeof v); /* never leaves this kind of machine's byte order */
}

static void put_text(struct summing *s, const char *text)
{
    put_bytes(s, text, strlen(text) + 1);
}

static void put_span(struct summing *s, const int64_t *span, int n)
{
    put_bytes(s, span, (size_t)n * sizeof *span);
}

static uint64_t literal_bytes(const struct dcpk_out_tensor *t)
{
    uint64_t n = dcpk_dtype_bytes(t->dtype);

    for (int axis = 0; axis < t->rank; axis++)
        n *= (uint64_t)t->shape[axis];
    return n;
}

static void put_pieces(struct summing *s, const struct dcpk_piece *pieces, size_t n)
{
    put_number(s, n);
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_piece *piece = &pieces[i];

        put_number(s, piece->src);
        put_number(s, piece->src_rank);
        put_number(s, piece->dst_rank);
        put_number(s, piece->axes);
        put_span(s, piece->span, 2 * (piece->src_rank + piece->dst_rank));
    }
}

static void put_tensor(struct summing *s, const struct dcpk_out_tensor *t)
{
    put_number(s, t->n_keys);
    for (size_t i = 0; i < t->n_keys; i++)
        put_text(s, t->keys[i]);
    put_number(s, (uint64_t)t->dtype);
    put_number(s, (uint64_t)t->rank);
    put_span(s, t->shape, t->rank);
    put_number(s, t->literal != NULL);
    if (t->literal != NULL)
        put_bytes(s, t->literal, (size_t)literal_bytes(t));
    put_pieces(s, t->pieces, t->n_pieces);
}

static void put_chunk(struct summing *s, const struct dcpk_output *out,
                      const struct dcpk_out_chunk *chunk)
{
    put_number(s, chunk->tensor);
    put_number(s, chunk->file);
    put_span(s, chunk->span, 2 * out->tensors[chunk->tensor].rank);
    put_number(s, chunk->offset_bytes);
    put_number(s, chunk->data_bytes);
    put_number(s, chunk->lead_bytes);
    put_number(s, chunk->tail_bytes);
}

static void put_computed(struct summing *s, const struct dcpk_computed *how)
{
    put_number(s, how != NULL);
    if (how == NULL)
        return;
    put_number(s, how->values);
    put_number(s, how->scales);
    put_number(s, (uint64_t)how->block_rows);
    put_number(s, (uint64_t)how->block_cols);
    put_bytes(s, &how->addend, sizeof how->addend);
}

static void put_place(struct summing *s, const struct dcpk_place *place)
{
    put_number(s, place->file);
    put_number(s, place->offset_bytes);
    put_number(s, place->n_bytes);
}

/*
 * Adds the views: pieces have but their numbers. The size of buckets, args, and other facts outside
 * the input's files may decide it; the places of stored bytes belong to the input.
 */
static void put_views(struct summing *s, const struct dcpk_checkpoint *source)
{
    put_number(s, source->n_views);
    for (size_t t = source->n_tensors; t < source->n_tensors + source->n_views; t++) {
        const struct dcpk_tensor *view = &source->tensors[t];

        put_number(s, (uint64_t)view->dtype);
        put_number(s, (uint64_t)view->rank);
        put_span(s, view->shape, view->rank);
        put_computed(s, view->computed);
        put_number(s, view->n_chunks);
        for (size_t c = view->first_chunk; c < view->first_chunk + view->n_chunks; c++) {
            const struct dcpk_chunk *chunk = &source->chunks[c];
            const struct dcpk_chunk_run *run = dcpk_checkpoint_chunk_run(source, chunk);

            put_span(s, chunk->span, 2 * view->rank);
            put_number(s, run->of);
            put_number(s, (uint64_t)run->first);
            put_place(s, &chunk->place);
        }
    }
}

static void put_plan(struct summing *s, const struct dcpk_output *out)
{
    put_text(s, out->format->name);
    put_number(s, out->n_tensors);
    for (size_t i = 0; i < out->n_tensors; i++)
        put_tensor(s, &out->tensors[i]);
    put_views(s, out->source);
    put_number(s, out->n_chunks);
    for (size_t i = 0; i < out->n_chunks; i++)
        put_chunk(s, out, &out->chunks[i]);
    put_number(s, out->n_payloads);
    for (size_t i = 0; i < out->n_payloads; i++) {
        put_number(s, out->payloads[i].file);
        put_number(s, out->payloads[i].offset_bytes);
        put_number(s, out->payloads[i].n_bytes);
    }
    put_number(s, out->n_kept); /* so that no name is left of a run that kept others */
    for (size_t i = 0; i < out->n_kept; i++)
        put_text(s, out->kept[i].name);
    put_number(s, out->n_files);
    for (size_t i = 0; i < out->n_files; i++) {
        put_text(s, out->files[i].name);
        put_number(s, out->files[i].n_bytes);
    }
}

void dcpk_journal_put_pieces(struct dcpk_hasher *hasher, const struct dcpk_piece *pieces, size_t n)
{
    put_pieces(&(struct summing){.hasher = hasher}, pieces, n);
}

void dcpk_journal_put_views(struct dcpk_hasher *hasher, const struct dcpk_checkpoint *ckpt)
{
    put_views(&(struct summing){.hasher = hasher}, ckpt);
}

dcpk_status dcpk_journal_describe(const struct dcpk_units *units, const char *in,
                                  struct dcpk_journal_subject *subject, struct dcpk_error *err)
{
    struct summing s = {0};

    if (dcpk_seen_checkpoint(units->out->source, in, &subject->input, err) ||
        dcpk_hasher_new(&s.hasher, err))
        return err->status;
    subject->n_units = units->n;
    put_number(&s, units->limit_bytes);
    put_plan(&s, units->out);
    dcpk_hasher_digest(s.hasher, &subject->plan);
    dcpk_hasher_free(s.hasher);
    return DCPK_OK;
}
