/* SPDX-License-Identifier: Apache-2.0 */
/* journal_subject.c - numbers for what decides the bytes of an output: its plan and its input. */
#include <string.h>
#include <sys/stat.h>

#include "lib/ckpt/format.h"
#include "lib/exec/journal.h"

/* A running hash of numbers and texts. */
struct summing {
    const struct dcpk_backend *backend;
    struct dcpk_hasher *hasher;
};

static void put_bytes(struct summing *s, const void *data, size_t n_bytes)
{
    s->backend->hasher_update(s->hasher, data, n_bytes);
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
    put_number(s, t->n_pieces);
    for (size_t i = 0; i < t->n_pieces; i++) {
        const struct dcpk_piece *piece = &t->pieces[i];

        put_number(s, piece->src);
        put_number(s, piece->src_rank);
        put_span(s, piece->span, 2 * (piece->src_rank + piece->dst_rank));
    }
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

static void put_plan(struct summing *s, const struct dcpk_output *out)
{
    put_text(s, out->format->name);
    put_number(s, out->n_tensors);
    for (size_t i = 0; i < out->n_tensors; i++)
        put_tensor(s, &out->tensors[i]);
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

/* One file of the input, mixed into `sum` so that the order of the files does not matter. */
static void put_file(struct summing *s, const char *name, uint64_t n_bytes, uint64_t stamp,
                     struct dcpk_hash *sum)
{
    struct dcpk_hash hash;

    s->backend->hasher_reset(s->hasher);
    put_text(s, name);
    put_number(s, n_bytes);
    put_number(s, stamp);
    s->backend->hasher_digest(s->hasher, &hash);
    for (size_t i = 0; i < sizeof hash.digest; i++)
        sum->digest[i] ^= hash.digest[i];
}

static dcpk_status describe_input(struct summing *s, const struct dcpk_store *store, const char *in,
                                  struct dcpk_hash *sum, struct dcpk_error *err)
{
    const struct dcpk_source *source = NULL;
    struct stat info;

    memset(sum, 0, sizeof *sum);
    if (stat(in, &info) == 0 && S_ISREG(info.st_mode))
        put_file(s, "", (uint64_t)info.st_size,
                 (uint64_t)info.st_mtim.tv_sec * 1000000000 + (uint64_t)info.st_mtim.tv_nsec, sum);
    while ((source = dcpk_store_next(store, source)) != NULL) {
        uint64_t stamp;

        if (dcpk_source_stamp(source, &stamp, err) != DCPK_OK)
            return err->status;
        put_file(s, dcpk_source_name(source), dcpk_source_bytes(source), stamp, sum);
    }
    return DCPK_OK;
}

dcpk_status dcpk_journal_describe(const struct dcpk_units *units, const char *in,
                                  const struct dcpk_backend *backend,
                                  struct dcpk_journal_subject *subject, struct dcpk_error *err)
{
    struct summing s = {.backend = backend};
    dcpk_status st = backend->hasher_new(&s.hasher, err);

    if (st != DCPK_OK)
        return st;
    subject->n_units = units->n;
    st = describe_input(&s, units->out->source->store, in, &subject->input, err);
    backend->hasher_reset(s.hasher);
    put_number(&s, units->limit_bytes);
    put_plan(&s, units->out);
    backend->hasher_digest(s.hasher, &subject->plan);
    backend->hasher_free(s.hasher);
    return st;
}
