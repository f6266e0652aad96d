/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_write.c - a canonical view -> a zarr checkpoint: one folder a tensor, one file a chunk. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/torch/item.h"
#include "formats/zarr/zarr_array.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define CHUNK_BYTES (UINT64_C(64) << 20) /* of a chunk where no mesh defines the cut */
#define MIN_BYTES   (UINT64_C(1) << 20)  /* smaller ones only when the rows cannot be cut else */

/* The extents of a tensor's chunks: all of them are whole (cut_evenly, check_grid). */
static void chunk_shape(const struct dcpk_out_tensor *tensor, int64_t chunk[DCPK_MAX_RANK])
{
    for (int a = 0; a < tensor->rank; a++) {
        chunk[a] = dcpk_max_i64(tensor->shape[a], 1);
        if (tensor->n_spans > 0)
            chunk[a] = tensor->spans[0][tensor->rank + a];
    }
}

/* The largest divisor of n that is at most `limit` (at least 1). */
static int64_t largest_divisor(int64_t n, int64_t limit)
{
    for (int64_t parts = (n - 1) / limit + 1; parts <= n / parts; parts++)
        if (n % parts == 0)
            return n / parts;
    for (int64_t d = dcpk_min_i64(limit, n); d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/*
 * A regular grid without padding at the edge: single indices of the outer axes whose rows are
 * large, of the next one as many rows as divide it and make up to 64 MiB. Rows that only divide
 * into crumbs (a prime number of them) stay together.
 */
static void choose_grid(const struct dcpk_out_tensor *tensor, int64_t chunk[DCPK_MAX_RANK])
{
    uint64_t row_bytes = dcpk_dtype_bytes(tensor->dtype);
    int axis = 0;

    for (int a = 0; a < tensor->rank; a++) {
        chunk[a] = tensor->shape[a];
        row_bytes *= (uint64_t)tensor->shape[a];
    }
    for (; axis < tensor->rank && row_bytes > CHUNK_BYTES; axis++) {
        const uint64_t one = row_bytes / (uint64_t)tensor->shape[axis];

        if (one <= CHUNK_BYTES) {
            const int64_t rows = largest_divisor(tensor->shape[axis], (int64_t)(CHUNK_BYTES / one));

            if ((uint64_t)rows * one >= MIN_BYTES)
                chunk[axis] = rows;
            return;
        }
        chunk[axis] = 1;
        row_bytes = one;
    }
}

/* The spans of all cells of a grid that divides the shape. */
static dcpk_status cut_evenly(struct dcpk_output *out, struct dcpk_out_tensor *tensor,
                              const int64_t *chunk, struct dcpk_error *err)
{
    const size_t rank = (size_t)tensor->rank;
    int64_t index[DCPK_MAX_RANK] = {0};
    const int64_t **spans;
    size_t n = 1;

    for (size_t a = 0; a < rank; a++) {
        const size_t cells = chunk[a] == 0 ? 0 : (size_t)(tensor->shape[a] / chunk[a]);

        if (cells > 0 && n > UINT32_MAX / cells)
            return dcpk_fail(err, DCPK_ERANGE, "more than %u chunks", UINT32_MAX);
        n *= cells;
    }
    spans = dcpk_arena_array(out->arena, n + 1, sizeof *spans, err);
    if (spans == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        int64_t *span = dcpk_arena_array(out->arena, 2 * rank, sizeof *span, err);

        if (span == NULL)
            return err->status;
        for (size_t a = 0; a < rank; a++) {
            span[a] = index[a] * chunk[a];
            span[rank + a] = chunk[a];
        }
        spans[i] = span;
        for (size_t a = rank; a-- > 0 && ++index[a] == tensor->shape[a] / chunk[a];)
            index[a] = 0;
    }
    tensor->spans = spans;
    tensor->n_spans = n;
    return DCPK_OK;
}

/* The chunks of a mesh's ranks are cells of one grid: that is all that zarr can store. */
static dcpk_status check_grid(const struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    int64_t chunk[DCPK_MAX_RANK];

    chunk_shape(tensor, chunk);
    for (size_t i = 0; i < tensor->n_spans; i++)
        for (int a = 0; a < tensor->rank; a++)
            if (tensor->spans[i][tensor->rank + a] != chunk[a] ||
                tensor->spans[i][a] % chunk[a] != 0)
                return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_NO_MESH,
                                     "its chunks under the target's mesh differ in size: zarr "
                                     "cannot store them");
    return DCPK_OK;
}

static dcpk_status prepare_tensor(struct dcpk_output *out, struct dcpk_out_tensor *tensor,
                                  struct dcpk_error *err)
{
    int64_t chunk[DCPK_MAX_RANK];

    if (dcpk_zarr_dtype_name(tensor->dtype) == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "zarr has no dtype for %s",
                         dcpk_dtype_name(tensor->dtype));
    if (tensor->spans != NULL)
        return check_grid(tensor, err);
    choose_grid(tensor, chunk);
    return cut_evenly(out, tensor, chunk, err);
}

/* The same tensor again, under key k of it. */
static dcpk_status add_copy(struct dcpk_output *out, const struct dcpk_out_tensor *tensor, size_t k,
                            struct dcpk_error *err)
{
    struct dcpk_out_tensor copy = *tensor;

    copy.keys += k;
    copy.n_keys = 1;
    return dcpk_output_add_tensor(out, &copy, err);
}

/*
 * A folder has one name, and two with the same weight would be two weights: of the spellings of a
 * parameter the main one is written. A weight that is its own master has two meanings, and so two
 * arrays.
 */
static dcpk_status choose_keys(struct dcpk_output *out, struct dcpk_error *err)
{
    static const char state[] = "optimizer.state.";
    const size_t n = out->n_tensors;

    for (size_t t = 0; t < n; t++) {
        const struct dcpk_out_tensor tensor = out->tensors[t];
        const bool is_state = dcpk_starts_with(tensor.keys[0], state);
        bool is_split = false;

        out->tensors[t].n_keys = 1;
        for (size_t k = 1; k < tensor.n_keys; k++) {
            if (dcpk_starts_with(tensor.keys[k], state) == is_state || is_split) {
                if (!is_state) {
                    /* and its optimizer state likewise */
                    dcpk_output_event(out, DCPK_EVENT_NOTE, tensor.keys[k],
                                      "'%s' is another name of '%s': an array has one name, "
                                      "which the target's implementation gives",
                                      tensor.keys[k], tensor.keys[0]);
                }
                continue;
            }
            is_split = true;
            if (add_copy(out, &tensor, k, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

/* The form of a payload here. */
struct bare {
    const struct dcpk_value *value; /* NULL: no object has it yet */
    uint64_t unfolded;
    uint32_t payload; /* of the first object that has it */
    bool is_dropped;
};

/* All objects as files of their own. */
struct splitting {
    struct dcpk_output *out;
    struct bare *bare;    /* by payload, as they were */
    uint64_t once, again; /* unfolded size of the values, and of shared objects that add to it */
};

/* The first value of a list of one that lies under a key of a zarr folder. */
static dcpk_status load_bare(struct splitting *s, const struct dcpk_out_payload *payload,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value *list = payload->value;

    if (payload->source != NULL &&
        dcpk_checkpoint_load_item(s->out->source, payload->source, s->out->arena, &list, err))
        return err->status;
    if (dcpk_value_at(list, 0) == NULL)
        return dcpk_fail(err, DCPK_EMISMATCH, "no list of one value");
    *value = dcpk_value_at(list, 0);
    return DCPK_OK;
}

/*
 * The value of an object, without the list that torch_dist has around it. A value of the source
 * that cannot be read is dropped: there is nothing then, as where a module has no extra state.
 */
static dcpk_status find_bare(struct splitting *s, const struct dcpk_out_object *object,
                             struct dcpk_error *err)
{
    struct bare *bare = &s->bare[object->payload];
    const struct dcpk_value *value = dcpk_value_none();

    if (bare->value != NULL) {
        s->again += bare->unfolded;
        if (bare->is_dropped)
            dcpk_output_event(s->out, DCPK_EVENT_DROPPED, object->key,
                              "its item was dropped under another key");
        return DCPK_OK;
    }
    if (load_bare(s, &s->out->payloads[object->payload], &value, err)) {
        if (!dcpk_status_is_content(err->status))
            return err->status;
        bare->is_dropped = true;
        dcpk_output_event(s->out, DCPK_EVENT_DROPPED, object->key, "%s", err->text);
        dcpk_error_clear(err);
    }
    bare->value = value;
    bare->unfolded = dcpk_value_unfolded(value);
    s->once += bare->unfolded;
    return DCPK_OK;
}

/* A name alone is worth so many bytes of a file; what is shared beyond that is bounded. */
#define NAME_BYTES 128

static dcpk_status check_unfolded(const struct splitting *s, struct dcpk_error *err)
{
    const uint64_t names_bytes = (uint64_t)s->out->n_objects * NAME_BYTES;

    if (s->again <= dcpk_unfold_limit(s->once + names_bytes))
        return DCPK_OK;
    return dcpk_fail(
        err, DCPK_ERANGE,
        "extra states share their items so often that, each in a file of its own, they "
        "unfold to %" PRIu64 " values more, the limit is %" PRIu32,
        s->again, dcpk_unfold_limit(s->once + names_bytes));
}

/* The payload of one object, whose number is that of before. */
static dcpk_status split_payload(struct splitting *s, uint32_t *payload, struct dcpk_error *err)
{
    struct bare *bare = &s->bare[*payload];

    if (bare->payload != UINT32_MAX)
        return dcpk_output_copy_payload(s->out, bare->payload, payload, err);
    if (dcpk_output_add_payload(s->out, bare->value, NULL, payload, err) == DCPK_OK)
        bare->payload = *payload;
    return err->status;
}

/* Each object is a file of its own. */
static dcpk_status split_objects(struct dcpk_output *out, struct dcpk_error *err)
{
    struct splitting s = {.out = out};

    s.bare = dcpk_arena_array(out->arena, out->n_payloads, sizeof *s.bare, err);
    if (s.bare == NULL)
        return err->status;
    for (size_t i = 0; i < out->n_objects; i++)
        if (find_bare(&s, &out->objects[i], err))
            return err->status;
    if (check_unfolded(&s, err))
        return err->status;
    for (size_t i = 0; i < out->n_payloads; i++)
        s.bare[i].payload = UINT32_MAX;
    out->n_payloads = 0;
    for (size_t i = 0; i < out->n_objects; i++)
        if (split_payload(&s, &out->objects[i].payload, err))
            return err->status;
    return DCPK_OK;
}

/* Finds the implementation that names an array, which can have one name: that of the run that
 * saved, by its args. */
static const char *find_impl(const struct dcpk_model *model)
{
    const char *name =
        dcpk_value_as_str(dcpk_value_get(dcpk_value_attrs(model->args), "transformer_impl"));

    if (name == NULL)
        return NULL;
    return strcmp(name, "local") == 0 ? "local" : "te";
}

/* metadata.json makes the folder a checkpoint: it is written last of all. */
static dcpk_status put_files(struct dcpk_output *out, struct dcpk_error *err)
{
    static const char json[] = "{\"sharded_backend\": \"zarr\", \"sharded_backend_version\": 1, "
                               "\"common_backend\": \"torch\", \"common_backend_version\": 1}";

    if (dcpk_item_put_file(out, "common", out->common, err) != DCPK_OK)
        return err->status;
    return dcpk_output_put_small_file(out, DCPK_MEGATRON_METADATA_JSON, json, sizeof json - 1, err);
}

dcpk_status dcpk_zarr_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err)
{
    if (out->target.impl == NULL)
        out->target.impl = find_impl(model);
    if (dcpk_megatron_from_model(model, out, DCPK_MEGATRON_RNG_BY_MODEL_RANK, &out->common, err) ||
        put_files(out, err) || choose_keys(out, err) || split_objects(out, err))
        return err->status;
    for (size_t t = 0; t < out->n_tensors; t++) {
        if (prepare_tensor(out, &out->tensors[t], err))
            return dcpk_context(err, "'%s'", out->tensors[t].keys[0]);
    }
    return DCPK_OK;
}

static dcpk_status output_add_file(struct dcpk_output *out, const char *name, uint64_t n_bytes,
                                   uint32_t *file, struct dcpk_error *err)
{
    if (name == NULL)
        return err->status;
    if (out->n_files >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "more than %u files", UINT32_MAX);
    if (dcpk_grow(&out->files, &out->files_capacity, out->n_files, sizeof *out->files, err))
        return err->status;
    *file = (uint32_t)out->n_files;
    out->files[out->n_files++] = (struct dcpk_out_file){.name = name, .n_bytes = n_bytes};
    return DCPK_OK;
}

/* "<folder>/shard_0_4.pt": torch.save names the archive after the file, without its ending. */
static dcpk_status zarr_encode(const struct dcpk_output *out,
                               const struct dcpk_out_payload *payload, struct dcpk_bytes *bytes,
                               struct dcpk_error *err)
{
    const char *name = strrchr(out->files[payload->file].name, '/') + 1;
    const size_t n = strlen(name) - strlen(".pt");
    char *stem = dcpk_alloc(n + 1, err);

    if (stem == NULL)
        return err->status;
    memcpy(stem, name, n);
    (void)dcpk_item_encode(payload->value, stem, out->pickle_protocol, bytes, err);
    dcpk_free(stem);
    return err->status;
}

static dcpk_status place_object(struct dcpk_output *out, const struct dcpk_out_object *object,
                                struct dcpk_error *err)
{
    struct dcpk_out_payload *payload = &out->payloads[object->payload];
    struct dcpk_bytes bytes = {.data = NULL};

    if (strchr(object->key, '/') == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "object '%s' has no shard", object->key);
    if (output_add_file(out, dcpk_arena_printf(out->arena, err, "%s.pt", object->key), 0,
                        &payload->file, err) ||
        zarr_encode(out, payload, &bytes, err) || dcpk_bytes_status(&bytes, err)) {
        dcpk_context(err, "encoding '%s'", object->key);
    } else {
        payload->offset_bytes = 0;
        payload->n_bytes = bytes.n_bytes;
        out->files[payload->file].n_bytes = bytes.n_bytes;
    }
    dcpk_bytes_release(&bytes);
    return err->status;
}

/* "<key>/0.1.0" */
static const char *output_chunk_name(struct dcpk_output *out, const struct dcpk_out_chunk *chunk,
                                     const int64_t *extent, struct dcpk_error *err)
{
    const struct dcpk_out_tensor *tensor = &out->tensors[chunk->tensor];
    char index[24 * DCPK_MAX_RANK] = "0";
    size_t n = 0;

    for (int a = 0; a < tensor->rank; a++)
        n += (size_t)snprintf(index + n, sizeof index - n, "%s%" PRId64, a > 0 ? "." : "",
                              chunk->span[a] / extent[a]);
    return dcpk_arena_printf(out->arena, err, "%s/%s", tensor->keys[0], index);
}

static dcpk_status zarr_place_chunk(struct dcpk_output *out, struct dcpk_out_chunk *chunk,
                                    struct dcpk_error *err)
{
    const struct dcpk_out_tensor *tensor = &out->tensors[chunk->tensor];
    int64_t extent[DCPK_MAX_RANK], n_elems;

    chunk_shape(tensor, extent);
    if (dcpk_shape_count(extent, tensor->rank, &n_elems, err))
        return err->status;
    chunk->data_bytes = (uint64_t)n_elems * dcpk_dtype_bytes(tensor->dtype);
    return output_add_file(out, output_chunk_name(out, chunk, extent, err), chunk->data_bytes,
                           &chunk->file, err);
}

static dcpk_status zarr_lay_out(struct dcpk_output *out, struct dcpk_error *err)
{
    for (size_t t = 0; t < out->n_tensors; t++)
        if (dcpk_zarr_dtype_name(out->tensors[t].dtype) == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s': zarr has no dtype for %s",
                             out->tensors[t].keys[0], dcpk_dtype_name(out->tensors[t].dtype));
    for (size_t i = 0; i < out->n_objects; i++)
        if (place_object(out, &out->objects[i], err))
            return err->status;
    for (size_t i = 0; i < out->n_chunks; i++)
        if (zarr_place_chunk(out, &out->chunks[i], err))
            return err->status;
    return DCPK_OK;
}

/* The text that zarr 2 writes for Megatron's arrays, byte for byte (FORMAT.md 2). */
static void put_json(const struct dcpk_out_tensor *tensor, struct dcpk_bytes *bytes)
{
    int64_t chunk[DCPK_MAX_RANK];
    struct dcpk_json_out j;

    chunk_shape(tensor, chunk);
    dcpk_json_out_init(&j, bytes, 4);
    dcpk_json_begin_object(&j);
    dcpk_json_add_ints(&j, "chunks", chunk, tensor->rank);
    dcpk_json_add_null(&j, "compressor");
    dcpk_json_add_string(&j, "dtype", dcpk_zarr_dtype_name(tensor->dtype));
    dcpk_json_add_null(&j, "fill_value");
    dcpk_json_add_null(&j, "filters");
    dcpk_json_add_string(&j, "order", "C");
    dcpk_json_add_ints(&j, "shape", tensor->shape, tensor->rank);
    dcpk_json_add_int(&j, "zarr_format", 2);
    dcpk_json_end_object(&j);
}

static dcpk_status put_array(struct dcpk_folder *folder, const struct dcpk_out_tensor *tensor,
                             struct dcpk_error *err)
{
    struct dcpk_bytes name = {.data = NULL}, text = {.data = NULL};

    dcpk_bytes_printf(&name, "%s/.zarray", tensor->keys[0]);
    dcpk_bytes_u8(&name, 0);
    put_json(tensor, &text);
    if (dcpk_bytes_status(&name, err) == DCPK_OK && dcpk_bytes_status(&text, err) == DCPK_OK)
        (void)dcpk_folder_put(folder, (const char *)name.data, text.data, text.n_bytes, err);
    dcpk_bytes_release(&name);
    dcpk_bytes_release(&text);
    return err->status;
}

static dcpk_status zarr_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                               struct dcpk_error *err)
{
    for (size_t t = 0; t < out->n_tensors; t++)
        if (put_array(folder, &out->tensors[t], err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

const struct dcpk_format_writer dcpk_zarr_writer = {
    .lay_out = zarr_lay_out,
    /* No frame: a chunk is its data and nothing else. */
    .encode = zarr_encode,
    .finish = zarr_finish,
};
