/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - places tensors in files of a size, each after its header; then the
 * index. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/safetensors/hf_model.h"
#include "formats/safetensors/safetensors_header.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

/*
 * Tensor bytes of a file before the next is begun, unless a single tensor has more:
 * huggingface_hub's (FORMAT.md 3).
 */
#define MAX_FILE_BYTES   UINT64_C(5000000000)
#define HEADER_ALIGNMENT 8

/* A tensor on its way to its place. */
struct placing {
    const struct dcpk_out_tensor *tensor;
    uint64_t n_bytes, first_bytes; /* in the data of its file */
    uint32_t file;
};

/* Everything while it is laid out. */
struct layout {
    struct dcpk_output *out;
    struct placing *placings; /* file by file, in each in the order of their bytes */
};

/* Checks that the format can hold the tensor. */
static dcpk_status check_tensor(const struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    if (dcpk_safetensors_dtype_name(tensor->dtype) == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s': safetensors has no dtype for %s",
                         tensor->keys[0], dcpk_dtype_name(tensor->dtype));
    if (tensor->n_keys != 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' and '%s' share their bytes, which safetensors cannot say",
                         tensor->keys[0], tensor->keys[1]);
    return DCPK_OK;
}

/* True for a tensor whose file PEFT reads, which is one. */
static bool is_in_adapter(const struct dcpk_output *out, size_t tensor)
{
    return out->format == &dcpk_format_peft || tensor >= out->n_tensors - out->n_of_adapter;
}

/* Assigns tensors to files: in their order, as many as fit. */
static dcpk_status choose_files(struct layout *l, struct dcpk_error *err)
{
    struct dcpk_output *out = l->out;
    const uint64_t given_bytes = out->target.family.max_file_bytes;
    const uint64_t max_bytes = given_bytes > 0 ? given_bytes : MAX_FILE_BYTES;
    uint64_t n_bytes = 0;
    uint32_t file = 0;

    for (size_t t = 0; t < out->n_tensors; t++) {
        const struct dcpk_out_tensor *tensor = &out->tensors[t];
        const bool begins_adapter = t > 0 && t == out->n_tensors - out->n_of_adapter;
        struct placing *p = &l->placings[t];
        int64_t n_elems;

        if (check_tensor(tensor, err) ||
            dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err))
            return err->status;
        p->tensor = tensor;
        p->n_bytes = (uint64_t)n_elems * dcpk_dtype_bytes(tensor->dtype); /* the plan checked it */
        if (begins_adapter || (n_bytes > 0 && !is_in_adapter(out, t) &&
                               (p->n_bytes > max_bytes || n_bytes > max_bytes - p->n_bytes))) {
            file++;
            n_bytes = 0;
        }
        p->file = file;
        n_bytes += p->n_bytes;
    }
    return DCPK_OK;
}

/* In a file the wide elements come first, so that each tensor is aligned to its elements. */
static int compare_placings(const void *a, const void *b)
{
    const struct placing *x = a, *y = b;
    const size_t x_bytes = dcpk_dtype_bytes(x->tensor->dtype);
    const size_t y_bytes = dcpk_dtype_bytes(y->tensor->dtype);

    if (x->file != y->file)
        return DCPK_THREE_WAY(x->file, y->file);
    if (x_bytes != y_bytes)
        return DCPK_THREE_WAY(y_bytes, x_bytes);
    return strcmp(x->tensor->keys[0], y->tensor->keys[0]);
}

/* transformers 4 refuses a file that does not say its format. */
static void put_remarks(const struct dcpk_safetensors_state *from, struct dcpk_json_out *j)
{
    bool has_format = false;

    dcpk_json_put_key(j, "__metadata__");
    dcpk_json_begin_object(j);
    for (size_t i = 0; from != NULL && i < from->n_remarks; i++) {
        dcpk_json_add_string(j, from->remarks[i].key, from->remarks[i].text);
        has_format = has_format || strcmp(from->remarks[i].key, "format") == 0;
    }
    if (!has_format)
        dcpk_json_add_string(j, "format", "pt");
    dcpk_json_end_object(j);
}

static void put_shape(const struct dcpk_out_tensor *tensor, struct dcpk_json_out *j)
{
    if (tensor->written_shape != NULL)
        dcpk_json_add_ints(j, "shape", tensor->written_shape, tensor->written_rank);
    else
        dcpk_json_add_ints(j, "shape", tensor->shape, tensor->rank);
}

/* The header of n tensors, with spaces after it that align the data. */
static void safetensors_put_header(const struct dcpk_safetensors_state *from,
                                   const struct placing *placings, size_t n,
                                   struct dcpk_bytes *bytes)
{
    static const uint8_t unknown[DCPK_SAFETENSORS_LENGTH_BYTES] = {0};
    struct dcpk_json_out j;

    dcpk_bytes_put(bytes, unknown, sizeof unknown);
    dcpk_json_out_init(&j, bytes, 0);
    dcpk_json_begin_object(&j);
    put_remarks(from, &j);
    for (size_t i = 0; i < n; i++) {
        const struct placing *p = &placings[i];
        const int64_t place[] = {(int64_t)p->first_bytes, (int64_t)(p->first_bytes + p->n_bytes)};

        dcpk_json_put_key(&j, p->tensor->keys[0]);
        dcpk_json_begin_object(&j);
        dcpk_json_add_string(&j, "dtype", dcpk_safetensors_dtype_name(p->tensor->dtype));
        put_shape(p->tensor, &j);
        dcpk_json_add_ints(&j, "data_offsets", place, 2);
        dcpk_json_end_object(&j);
    }
    dcpk_json_end_object(&j);
    while (bytes->status == DCPK_OK && bytes->n_bytes % HEADER_ALIGNMENT != 0)
        dcpk_bytes_u8(bytes, ' ');
    if (bytes->status == DCPK_OK)
        dcpk_store_u64le(bytes->data, bytes->n_bytes - sizeof unknown);
}

/* Header number `file`, a payload: it is written with the objects of other formats. */
static dcpk_status add_header(struct dcpk_output *out, uint32_t file,
                              const struct dcpk_bytes *bytes, struct dcpk_error *err)
{
    const struct dcpk_value *value = dcpk_value_bytes(out->arena, bytes->data, bytes->n_bytes, err);

    if (value == NULL || dcpk_grow(&out->payloads, &out->payloads_capacity, out->n_payloads,
                                   sizeof *out->payloads, err))
        return err->status;
    out->payloads[out->n_payloads++] =
        (struct dcpk_out_payload){.value = value, .n_bytes = bytes->n_bytes, .file = file};
    return DCPK_OK;
}

/*
 * The bytes of a chunk within its tensor, which are one run: row-aligned boxes, or all of it.
 * Errors: DCPK_EMISMATCH.
 */
static dcpk_status safetensors_find_run(const struct dcpk_out_tensor *tensor, const int64_t *span,
                                        uint64_t *first_bytes, uint64_t *n_bytes,
                                        struct dcpk_error *err)
{
    const size_t rank = (size_t)tensor->rank;
    bool is_cut = false; /* an axis before this one has more than one index in the box */
    uint64_t first = 0, n = 1;

    for (size_t a = 0; a < rank; a++) {
        if (is_cut && span[rank + a] != tensor->shape[a])
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s': a box of it is not one run of bytes",
                             tensor->keys[0]);
        is_cut = is_cut || span[rank + a] > 1;
        first = first * (uint64_t)tensor->shape[a] + (uint64_t)span[a];
        n *= (uint64_t)span[rank + a];
    }
    *first_bytes = first * dcpk_dtype_bytes(tensor->dtype);
    *n_bytes = n * dcpk_dtype_bytes(tensor->dtype);
    return DCPK_OK;
}

static dcpk_status place_tensor(struct dcpk_output *out, const struct placing *p, uint64_t data_at,
                                struct dcpk_error *err)
{
    for (size_t i = 0; i < p->tensor->n_chunks; i++) {
        struct dcpk_out_chunk *chunk = &out->chunks[p->tensor->first_chunk + i];
        uint64_t first_bytes;

        if (safetensors_find_run(p->tensor, chunk->span, &first_bytes, &chunk->data_bytes, err))
            return err->status;
        chunk->file = p->file;
        chunk->offset_bytes = data_at + p->first_bytes + first_bytes;
    }
    return DCPK_OK;
}

/* One file of n tensors: their order and places, and the header. */
static dcpk_status lay_out_file(struct layout *l, struct placing *placings, size_t n,
                                struct dcpk_error *err)
{
    const uint32_t file = placings[0].file;
    struct dcpk_bytes header = {0};
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < n; i++) {
        placings[i].first_bytes = n_bytes;
        n_bytes += placings[i].n_bytes;
    }
    safetensors_put_header(l->out->form, placings, n, &header);
    if (dcpk_bytes_status(&header, err))
        goto out;
    if (header.n_bytes - DCPK_SAFETENSORS_LENGTH_BYTES > DCPK_SAFETENSORS_MAX_HEADER_BYTES) {
        dcpk_fail(err, DCPK_ERANGE, "the header of %zu tensors has %zu bytes, readers take %d", n,
                  header.n_bytes, DCPK_SAFETENSORS_MAX_HEADER_BYTES);
        goto out;
    }
    if (add_header(l->out, file, &header, err))
        goto out;
    for (size_t i = 0; i < n; i++)
        if (place_tensor(l->out, &placings[i], header.n_bytes, err))
            goto out;
    l->out->files[file].n_bytes = header.n_bytes + n_bytes;
out:
    dcpk_bytes_release(&header);
    return err->status;
}

/* "model-00001-of-00002.safetensors", or model.safetensors where there is one; an adapter's after
 * them. */
static dcpk_status name_files(struct dcpk_output *out, uint32_t n_files, struct dcpk_error *err)
{
    const uint32_t n = n_files - (out->n_of_adapter > 0);

    for (uint32_t f = 0; f < n_files; f++) {
        const char *name = DCPK_SAFETENSORS_SINGLE;

        if (out->format == &dcpk_format_peft)
            name = DCPK_PEFT_FILE;
        else if (f == n)
            name = DCPK_PEFT_FOLDER DCPK_PEFT_FILE;
        else if (n > 1)
            name = dcpk_arena_printf(out->arena, err,
                                     "model-%05" PRIu32 "-of-%05" PRIu32 DCPK_SAFETENSORS_ENDING,
                                     f + 1, n);
        if (name == NULL ||
            dcpk_grow(&out->files, &out->files_capacity, out->n_files, sizeof *out->files, err))
            return err->status;
        out->files[out->n_files++] = (struct dcpk_out_file){.name = name};
    }
    return DCPK_OK;
}

static dcpk_status safetensors_lay_out(struct dcpk_output *out, struct dcpk_error *err)
{
    struct layout l = {.out = out};

    if (out->n_objects > 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s': safetensors holds tensors alone",
                         out->objects[0].key);
    if (out->n_tensors == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "there are no tensors to write");
    l.placings = dcpk_alloc_array(out->n_tensors, sizeof *l.placings, err);
    if (l.placings == NULL)
        return err->status;
    if (choose_files(&l, err) || name_files(out, l.placings[out->n_tensors - 1].file + 1, err))
        goto out;
    qsort(l.placings, out->n_tensors, sizeof *l.placings, compare_placings);
    for (size_t i = 0, n; i < out->n_tensors; i += n) {
        for (n = 1; i + n < out->n_tensors && l.placings[i + n].file == l.placings[i].file;)
            n++;
        if (lay_out_file(&l, &l.placings[i], n, err))
            goto out;
    }
out:
    dcpk_free(l.placings);
    return err->status;
}

/* A header. */
static dcpk_status safetensors_encode(const struct dcpk_output *out,
                                      const struct dcpk_out_payload *payload,
                                      struct dcpk_bytes *bytes, struct dcpk_error *err)
{
    (void)out;
    (void)err; /* it is sticky in bytes */
    dcpk_bytes_put(bytes, payload->value->as.str, payload->value->n);
    return DCPK_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const struct dcpk_out_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->keys[0], (*y)->keys[0]);
}

/* As json.dumps(indent=2, sort_keys=True) and a newline, which the readers' own writer uses. */
static void put_index(const struct dcpk_output *out, const struct dcpk_out_tensor *const *sorted,
                      size_t n, struct dcpk_bytes *bytes)
{
    struct dcpk_json_out j;
    uint64_t n_bytes = 0;

    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < sorted[t]->n_chunks; i++)
            n_bytes += out->chunks[sorted[t]->first_chunk + i].data_bytes;
    dcpk_json_out_init(&j, bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "metadata");
    dcpk_json_begin_object(&j);
    dcpk_json_add_uint(&j, "total_size", n_bytes);
    dcpk_json_end_object(&j);
    dcpk_json_put_key(&j, "weight_map");
    dcpk_json_begin_object(&j);
    for (size_t t = 0; t < n; t++)
        dcpk_json_add_string(&j, sorted[t]->keys[0],
                             out->files[out->chunks[sorted[t]->first_chunk].file].name);
    dcpk_json_end_object(&j);
    dcpk_json_end_object(&j);
    dcpk_bytes_u8(bytes, '\n');
}

/* The index, last of all: with it the files are a model. One file needs none. */
static dcpk_status safetensors_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                                      struct dcpk_error *err)
{
    const size_t n = out->n_tensors - out->n_of_adapter;
    const struct dcpk_out_tensor **sorted;
    struct dcpk_bytes text = {0};

    if (out->n_files == (out->n_of_adapter > 0 ? 2U : 1U))
        return DCPK_OK;
    sorted = dcpk_alloc_array(n, sizeof *sorted, err);
    if (sorted == NULL)
        return err->status;
    for (size_t t = 0; t < n; t++)
        sorted[t] = &out->tensors[t];
    qsort(sorted, n, sizeof *sorted, compare_keys);
    put_index(out, sorted, n, &text);
    if (dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_folder_put(folder, DCPK_SAFETENSORS_INDEX, text.data, text.n_bytes, err);
    dcpk_bytes_release(&text);
    dcpk_free(sorted);
    return err->status;
}

const struct dcpk_format_writer dcpk_safetensors_writer = {
    .lay_out = safetensors_lay_out,
    /* No frame: a chunk is its data and nothing else. */
    .encode = safetensors_encode,
    .finish = safetensors_finish,
};
