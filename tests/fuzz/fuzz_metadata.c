/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_metadata.c - any bytes as .metadata: a checkpoint that keeps its promises, or an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "lib/base/checked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define N_RANKS    4
#define N_PER_RANK 2
#define FILE_BYTES 16384u /* of half of the files; small, because each run copies them */

/* A place from an accepted .metadata lies inside its file. */
static void check_place(const struct dcpk_checkpoint *ckpt, const struct dcpk_place *place)
{
    uint64_t file_bytes;

    if (place->file >= ckpt->n_files)
        abort();
    file_bytes = dcpk_source_bytes(ckpt->files[place->file]);
    if (place->n_bytes > file_bytes || place->offset_bytes > file_bytes - place->n_bytes)
        abort();
}

/* The shape's elements can be counted. */
static void check_shape(const struct dcpk_tensor *t)
{
    bool has_zero = false;
    int64_t n_elems = 1;

    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0)
            abort();
        has_zero = has_zero || t->shape[i] == 0;
    }
    for (int i = 0; i < t->rank && !has_zero; i++)
        if (!dcpk_mul_i64(n_elems, t->shape[i], &n_elems))
            abort();
}

static void check_tensor(const struct dcpk_checkpoint *ckpt, size_t number, size_t *next_chunk)
{
    const struct dcpk_tensor *t = &ckpt->tensors[number];

    if (t->rank < 0 || t->rank > DCPK_MAX_RANK || dcpk_dtype_bytes(t->dtype) == 0 ||
        t->first_chunk != *next_chunk || dcpk_checkpoint_tensor(ckpt, t->key) != t)
        abort();
    check_shape(t);
    for (size_t c = 0; c < t->n_chunks; c++) {
        const struct dcpk_chunk *chunk = &ckpt->chunks[t->first_chunk + c];

        if (chunk->tensor != number)
            abort();
        for (int i = 0; i < t->rank; i++)
            if (chunk->span[i] < 0 || chunk->span[t->rank + i] < 0 ||
                chunk->span[i] > t->shape[i] - chunk->span[t->rank + i])
                abort();
        check_place(ckpt, &chunk->place);
    }
    *next_chunk += t->n_chunks;
}

static void check_checkpoint(const struct dcpk_checkpoint *ckpt)
{
    size_t next_chunk = 0;

    for (size_t i = 0; i < ckpt->n_tensors; i++)
        check_tensor(ckpt, i, &next_chunk);
    if (next_chunk != ckpt->n_chunks)
        abort();
    for (size_t i = 0; i < ckpt->n_objects; i++) {
        if (dcpk_checkpoint_object(ckpt, ckpt->objects[i].key) != &ckpt->objects[i] ||
            dcpk_checkpoint_tensor(ckpt, ckpt->objects[i].key) != NULL)
            abort();
        check_place(ckpt, &ckpt->objects[i].place);
    }
}

/* The files that the corpus names: some large enough, some too small for it. */
static void add_files(struct dcpk_store *store, struct dcpk_error *err)
{
    static const uint8_t zeros[FILE_BYTES];
    char name[32];

    for (int rank = 0; rank < N_RANKS; rank++)
        for (int n = 0; n < N_PER_RANK; n++) {
            snprintf(name, sizeof name, "__%d_%d.distcp", rank, n);
            if (dcpk_store_add_memory(store, name, zeros, n == 0 ? FILE_BYTES : FILE_BYTES / 2,
                                      err) != DCPK_OK)
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct dcpk_format *const formats[] = {&dcpk_format_dcp, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_store *store;

    if (dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        abort();
    add_files(store, &err);
    if (dcpk_store_add_memory(store, ".metadata", data, n_bytes, &err) != DCPK_OK)
        abort();
    if (dcpk_checkpoint_open(store, formats, "dcp", &ckpt, &err) != DCPK_OK)
        return 0;
    check_checkpoint(ckpt);
    dcpk_checkpoint_close(ckpt);
    return 0;
}
