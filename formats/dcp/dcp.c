/* SPDX-License-Identifier: Apache-2.0 */
/* dcp.c - the PyTorch distributed checkpoint folder: the tables that torch_dist and fsdp_dtensor
 * share. */
#include "formats/dcp/dcp.h"

#include <inttypes.h>
#include <string.h>

#include "formats/dcp/metadata_priv.h"
#include "formats/torch/item.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* ---- signs that Megatron wrote a plain folder, whose metadata.json is lost ---- */

/* States of optimizer.state.<state>.<parameter> (formats/torch_dist/FORMAT.md 5). */
static const char *const states[] = {
    "optimizer.state.param.",
    "optimizer.state.fp32_param.",
    "optimizer.state.exp_avg.",
    "optimizer.state.exp_avg_sq.",
};

/* "0.1": numbers with dots between; returns what stands after them, NULL when there is none. */
static const char *skip_numbers(const char *text)
{
    for (;;) {
        const size_t n = strspn(text, "0123456789");

        if (n == 0)
            return NULL;
        text += n;
        if (*text != '.')
            return text;
        text++;
    }
}

/* "rng_state/shard_0.1_2.2": a sharded object (formats/torch_dist/FORMAT.md 3). */
static bool is_sharded(const char *key)
{
    const char *at = strstr(key, "/shard_");

    if (at != NULL)
        at = skip_numbers(at + strlen("/shard_"));
    if (at != NULL)
        at = *at == '_' ? skip_numbers(at + 1) : NULL;
    return at != NULL && *at == '\0';
}

/* "decoder.layers.mlp.linear_fc1.weight": all layers in one tensor. */
static bool is_stacked(const char *key)
{
    const char *at = strstr(key, "decoder.layers.");

    return at != NULL && (dcpk_starts_with(at + strlen("decoder.layers."), "mlp.") ||
                          dcpk_starts_with(at + strlen("decoder.layers."), "self_attention."));
}

/* The state of a parameter that is there under the rest of the key. */
static bool dcp_is_state(const struct dcpk_checkpoint *ckpt, const char *key)
{
    for (size_t i = 0; i < DCPK_COUNT(states); i++)
        if (dcpk_starts_with(key, states[i]))
            return dcpk_checkpoint_tensor(ckpt, key + strlen(states[i])) != NULL;
    return false;
}

/* A key that only Megatron's torch_dist has; NULL: none. */
static const char *find_megatron_key(const struct dcpk_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (is_sharded(ckpt->objects[i].key))
            return ckpt->objects[i].key;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (is_stacked(ckpt->tensors[i].key) || dcp_is_state(ckpt, ckpt->tensors[i].key))
            return ckpt->tensors[i].key;
    return NULL;
}

/*
 * The check_whole hook of a plain folder, whose state is its info: nothing in it is Megatron's
 * torch_dist, which cannot be loaded without its metadata.json. Errors: DCPK_EFORMAT naming the
 * sign.
 */
static dcpk_status dcp_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    static const char lost[] = "Megatron writes that with a metadata.json and does not load the "
                               "folder without it, and the file is missing (the copy is not whole)";
    const struct dcpk_dcp_info *info = ckpt->state;
    enum dcpk_path_kind metadata_json, common_pt;
    const char *key = find_megatron_key(ckpt);

    if (dcpk_store_look(ckpt->store, "metadata.json", &metadata_json, err) != DCPK_OK ||
        dcpk_store_look(ckpt->store, "common.pt", &common_pt, err) != DCPK_OK)
        return err->status;
    if (metadata_json == DCPK_PATH_FILE) /* asked for as a plain folder: nothing is lost */
        return DCPK_OK;
    if (common_pt == DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EFORMAT, "there is a 'common.pt': %s", lost);
    if (key != NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "there is the key '%.200s': %s", key, lost);
    if (info->is_mcore_class || info->has_mcore_data)
        return dcpk_fail(err, DCPK_EFORMAT, ".metadata has Megatron's own class: %s", lost);
    return DCPK_OK;
}

#define MAX_FILE_BYTES ((uint64_t)8 << 30)
#ifndef DCPK_MIN_FILE_BYTES /* the program of the fault tests has small files */
#define DCPK_MIN_FILE_BYTES ((uint64_t)256 << 20)
#endif
/* As many as threads by default. Writes into one file wait for each other in the system: 12.6 GB
 * into memory take 4.7 s into one file by 8 writers, 0.8 s into 8 files (16 CPUs, Linux 6.18,
 * tmpfs, 2026-11-30). */
#define WANTED_FILES     16
#define LARGE_ITEM_BYTES ((uint64_t)1 << 20)
#define LARGE_ITEM_ALIGN 4096u

/* The item holds what .metadata records: torch asserts the same when it loads. */
static dcpk_status check_item(const struct dcpk_tensor *tensor, const struct dcpk_chunk *chunk,
                              const struct dcpk_item_tensor *item, struct dcpk_error *err)
{
    const int64_t *extent = chunk->span + tensor->rank;
    char stored[256], wanted[256];

    if (item->dtype != tensor->dtype)
        return dcpk_fail(err, DCPK_EMISMATCH, "its item holds %s, .metadata says %s",
                         dcpk_dtype_name(item->dtype), dcpk_dtype_name(tensor->dtype));
    if (item->rank != tensor->rank ||
        memcmp(item->shape, extent, (size_t)tensor->rank * sizeof *extent) != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "its item has shape %s, the chunk in .metadata %s",
                         dcpk_shape_format(item->shape, item->rank, stored, sizeof stored),
                         dcpk_shape_format(extent, tensor->rank, wanted, sizeof wanted));
    return DCPK_OK;
}

static dcpk_status dcp_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                              const struct dcpk_reader *reader, struct dcpk_extent *where,
                              struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    struct dcpk_source *source = ckpt->files[chunk->place.file];
    struct dcpk_item_tensor item;
    char text[256];
    struct dcpk_box box;
    const struct dcpk_item_range range = {source, reader, chunk->place.offset_bytes,
                                          chunk->place.n_bytes};
    const struct dcpk_item_form expected = {tensor->dtype, tensor->rank,
                                            chunk->span + tensor->rank};

    if (dcpk_item_read_tensor(&range, &expected, &item, err) ||
        check_item(tensor, chunk, &item, err)) {
        dcpk_box_unpack(chunk->span, tensor->rank, &box);
        return dcpk_context(err, "chunk %s", dcpk_box_format(&box, text, sizeof text));
    }
    *where = (struct dcpk_extent){
        .source = source,
        .first_bytes = item.first_bytes,
        .is_row_major = dcpk_strides_are_row_major(item.shape, item.stride_elems, item.rank),
        .has_crc32 = true,
        .crc32 = item.record_crc32,
        .record_offset_bytes = item.record_offset_bytes,
        .record_bytes = item.record_bytes,
    };
    for (int i = 0; i < item.rank; i++) /* no overflow: a step stays inside the record */
        where->stride_bytes[i] = item.stride_elems[i] * (int64_t)dcpk_dtype_bytes(item.dtype);
    return DCPK_OK;
}

static struct dcpk_item_range object_range(const struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_object *object)
{
    return (struct dcpk_item_range){.source = ckpt->files[object->place.file],
                                    .offset_bytes = object->place.offset_bytes,
                                    .n_bytes = object->place.n_bytes};
}

static dcpk_status dcp_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                   struct dcpk_arena *arena, const struct dcpk_value **value,
                                   struct dcpk_error *err)
{
    const struct dcpk_item_range range = object_range(ckpt, object);

    return dcpk_item_read_value(&range, arena, value, err);
}

static dcpk_status dcp_outline_object(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_object *object, struct dcpk_arena *arena,
                                      const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_item_range range = object_range(ckpt, object);

    return dcpk_item_read_outline(&range, arena, value, err);
}

dcpk_status dcpk_dcp_each_record(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                 dcpk_take_record *take, void *context, struct dcpk_error *err)
{
    const struct dcpk_item_range range = object_range(ckpt, object);

    return dcpk_item_each_record(&range, take, context, err);
}

/* Begin the next file of an output. */
static dcpk_status output_begin_file(struct dcpk_output *out, struct dcpk_error *err)
{
    const char *name;

    if (dcpk_grow(&out->files, &out->files_capacity, out->n_files, sizeof *out->files, err))
        return err->status;
    name = dcpk_arena_printf(out->arena, err, "__0_%zu.distcp", out->n_files);
    if (name == NULL)
        return err->status;
    out->files[out->n_files++] = (struct dcpk_out_file){.name = name, .n_bytes = 0};
    return DCPK_OK;
}

/* The size at which another file begins: by the bytes of all chunks, so that it depends on nothing
 * else. */
static uint64_t choose_file_bytes(const struct dcpk_output *out)
{
    uint64_t n_bytes = 0;

    if (out->target.family.max_file_bytes > 0)
        return out->target.family.max_file_bytes;
    for (size_t i = 0; i < out->n_chunks; i++)
        n_bytes += out->chunks[i].data_bytes;
    return dcpk_min_u64(dcpk_max_u64(n_bytes / WANTED_FILES, DCPK_MIN_FILE_BYTES), MAX_FILE_BYTES);
}

/* Give an item of n_bytes its place after what was placed before. */
static dcpk_status dcp_place_item(struct dcpk_output *out, uint64_t max_bytes, uint64_t n_bytes,
                                  uint32_t *file, uint64_t *offset_bytes, struct dcpk_error *err)
{
    struct dcpk_out_file *last = out->n_files == 0 ? NULL : &out->files[out->n_files - 1];
    const uint64_t align = n_bytes >= LARGE_ITEM_BYTES ? LARGE_ITEM_ALIGN : 1;
    uint64_t at = 0, end = 0;

    if (last != NULL &&
        (!dcpk_align_u64(last->n_bytes, align, &at) || !dcpk_add_u64(at, n_bytes, &end)))
        return dcpk_fail(err, DCPK_ERANGE, "an item of %" PRIu64 " bytes", n_bytes);
    if (last == NULL || (last->n_bytes > 0 && end > max_bytes)) {
        if (output_begin_file(out, err))
            return err->status;
        at = 0;
    }
    *file = (uint32_t)(out->n_files - 1);
    *offset_bytes = at;
    out->files[out->n_files - 1].n_bytes = at + n_bytes;
    return DCPK_OK;
}

static dcpk_status dcp_encode(const struct dcpk_output *out, const struct dcpk_out_payload *payload,
                              struct dcpk_bytes *bytes, struct dcpk_error *err)
{
    if (dcpk_item_encode(payload->value, "archive", out->pickle_protocol, bytes, err))
        return dcpk_context(err, "encoding an object");
    return DCPK_OK;
}

/*
 * Encodes the value for its length alone; dcp_encode does it again. Keeping the bytes was measured
 * on 100 000 objects (zarr to torch_dist, 2 CPUs, 2026-11-22): 2.02 instead of 2.17 s of CPU time,
 * for 152 MB more memory, 1.5 KB an object.
 */
static dcpk_status place_payload(struct dcpk_output *out, uint64_t max_bytes,
                                 struct dcpk_out_payload *payload, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {.data = NULL};

    if (payload->source != NULL) {
        payload->n_bytes = payload->source->place.n_bytes;
    } else {
        (void)dcp_encode(out, payload, &bytes, err);
        payload->n_bytes = bytes.n_bytes;
        dcpk_bytes_release(&bytes);
    }
    if (err->status != DCPK_OK)
        return err->status;
    return dcp_place_item(out, max_bytes, payload->n_bytes, &payload->file, &payload->offset_bytes,
                          err);
}

/* room: where the form's shape may lie. */
static struct dcpk_item_form chunk_form(const struct dcpk_output *out,
                                        const struct dcpk_out_chunk *chunk,
                                        int64_t room[2 * DCPK_MAX_RANK])
{
    int rank;
    const int64_t *span = dcpk_out_chunk_span(out, chunk, &rank, room);

    return (struct dcpk_item_form){out->tensors[chunk->tensor].dtype, rank, span + rank};
}

/* The sizes of a chunk's item follow from its dtype and extents alone, of which the layers of a
 * model repeat few: one that was measured, in each place of a table. */
struct measured {
    struct dcpk_item_form form; /* shape NULL: none yet */
    int64_t shape[DCPK_MAX_RANK];
    struct dcpk_item_sizes sizes;
};
#define N_MEASURED 256 /* a power of two */

static struct measured *find_measured(struct measured *table, const struct dcpk_item_form *form)
{
    uint64_t hash = (uint64_t)form->dtype;

    for (int i = 0; i < form->rank; i++)
        hash = (hash ^ (uint64_t)form->shape[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return &table[hash >> 32 & (N_MEASURED - 1)];
}

static dcpk_status measure_chunk(const struct dcpk_output *out, struct measured *table,
                                 struct dcpk_out_chunk *chunk, struct dcpk_error *err)
{
    int64_t room[2 * DCPK_MAX_RANK];
    const struct dcpk_item_form form = chunk_form(out, chunk, room);
    struct measured *m = find_measured(table, &form);

    if (m->form.shape == NULL || m->form.dtype != form.dtype ||
        !dcpk_shape_equal(m->form.shape, m->form.rank, form.shape, form.rank)) {
        m->form.shape = NULL;
        if (dcpk_item_measure(&form, &m->sizes, err) != DCPK_OK)
            return err->status;
        m->form = form;
        m->form.shape = memcpy(m->shape, form.shape, (size_t)form.rank * sizeof *form.shape);
    }
    chunk->lead_bytes = m->sizes.lead_bytes;
    chunk->data_bytes = m->sizes.data_bytes;
    chunk->tail_bytes = m->sizes.tail_bytes;
    return DCPK_OK;
}

static dcpk_status place_chunk(struct dcpk_output *out, uint64_t max_bytes,
                               struct dcpk_out_chunk *chunk, struct dcpk_error *err)
{
    return dcp_place_item(out, max_bytes, chunk->data_bytes + chunk->lead_bytes + chunk->tail_bytes,
                          &chunk->file, &chunk->offset_bytes, err);
}

static dcpk_status dcp_lay_out(struct dcpk_output *out, struct dcpk_error *err)
{
    struct measured table[N_MEASURED] = {{.form = {.shape = NULL}}};
    uint64_t max_bytes;

    for (size_t i = 0; i < out->n_chunks; i++)
        if (measure_chunk(out, table, &out->chunks[i], err))
            return dcpk_context(err, "measuring a chunk of '%s'",
                                out->tensors[out->chunks[i].tensor].keys[0]);
    max_bytes = choose_file_bytes(out);
    for (size_t i = 0; i < out->n_payloads; i++)
        if (place_payload(out, max_bytes, &out->payloads[i], err))
            return err->status;
    for (size_t i = 0; i < out->n_chunks; i++)
        if (place_chunk(out, max_bytes, &out->chunks[i], err))
            return dcpk_context(err, "placing a chunk of '%s'",
                                out->tensors[out->chunks[i].tensor].keys[0]);
    return DCPK_OK;
}

static dcpk_status dcp_frame(const struct dcpk_output *out, const struct dcpk_out_chunk *chunk,
                             uint32_t crc32, uint8_t *lead, uint8_t *tail, struct dcpk_error *err)
{
    int64_t room[2 * DCPK_MAX_RANK];
    const struct dcpk_item_form form = chunk_form(out, chunk, room);

    return dcpk_item_frame(&form, crc32, lead, tail, err);
}

static dcpk_status count_piece(void *context, const void *data, size_t n_bytes,
                               struct dcpk_error *err)
{
    uint64_t *total_bytes = context;

    (void)data;
    (void)err;
    *total_bytes += n_bytes;
    return DCPK_OK;
}

/* A file that is written from its first byte to its last. */
struct sequence {
    struct dcpk_sink *sink;
    uint64_t at_bytes;
};

static dcpk_status write_piece(void *context, const void *data, size_t n_bytes,
                               struct dcpk_error *err)
{
    struct sequence *file = context;

    if (dcpk_sink_write(file->sink, file->at_bytes, data, n_bytes, err))
        return err->status;
    file->at_bytes += n_bytes;
    return DCPK_OK;
}

/* Written twice, the first time to be measured: files are made at their full length. */
static dcpk_status dcp_write_ahead(const struct dcpk_output *out, struct dcpk_folder *folder,
                                   struct dcpk_error *err)
{
    struct sequence file = {.sink = NULL};
    uint64_t n_bytes = 0;

    if (dcpk_metadata_write(out, count_piece, &n_bytes, err) ||
        dcpk_folder_create_hidden(folder, DCPK_DCP_METADATA, n_bytes, &file.sink, err) ||
        dcpk_metadata_write(out, write_piece, &file, err))
        dcpk_sink_abandon(file.sink);
    else
        (void)dcpk_sink_close(file.sink, err);
    if (err->status != DCPK_OK)
        dcpk_context(err, "writing '" DCPK_DCP_METADATA "'");
    return err->status;
}

static dcpk_status dcp_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                              struct dcpk_error *err)
{
    (void)out;
    return dcpk_folder_show(folder, DCPK_DCP_METADATA, err);
}

/* A data file that no key needs belongs to the tensors all the same. Files may lie in folders. */
static bool dcp_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    const size_t n = strlen(name);

    if (strcmp(name, DCPK_DCP_METADATA) == 0 || dcpk_ends_with(name, ".distcp"))
        return true;
    for (size_t i = 0; i < ckpt->n_files; i++) {
        const char *file = dcpk_source_name(ckpt->files[i]);

        if (strncmp(file, name, n) == 0 && (file[n] == '\0' || file[n] == '/'))
            return true;
    }
    return false;
}

static dcpk_status dcp_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    struct dcpk_dcp_parts parts;

    if (dcpk_dcp_find_parts(store, &parts, err))
        return err->status;
    *score = parts.n > 0 ? 10 : 0;
    return DCPK_OK;
}

static dcpk_status dcp_open_plain(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return dcpk_dcp_open(ckpt, ckpt->state, err);
}

/* Megatron does not look at planner_data. */
static void dcp_inherit(struct dcpk_output *out)
{
    const struct dcpk_dcp_info *info = out->source->state;

    if (info->has_planner_data &&
        (out->format == &dcpk_format_dcp || out->format->container == &dcpk_format_dcp))
        dcpk_checkpoint_note(out->source, "planner_data is written flat: dcp_to_torch_save makes "
                                          "no nested dicts, and gives the keys as they are");
    out->form = info;
}

const struct dcpk_mark dcpk_dcp_marks[] = {
    {DCPK_MARK_CHECKPOINT, DCPK_DCP_METADATA, NULL, NULL},
    {DCPK_MARK_PART, "", ".distcp",
     "its data files have lost their .metadata: a copy of 'FOLDER/*' leaves hidden files out, and "
     "a save that was cut short has none: take an earlier one"},
    {0},
};

const struct dcpk_format_reader dcpk_dcp_reader = {
    .locate = dcp_locate,
    .load_object = dcp_load_object,
    .outline_object = dcp_outline_object,
    .each_record = dcpk_dcp_each_record,
    .load_paths = dcpk_dcp_load_paths,
    .is_own = dcp_is_own,
};

const struct dcpk_format_writer dcpk_dcp_writer = {
    .lay_out = dcp_lay_out,
    .frame = dcp_frame,
    .encode = dcp_encode,
    .write_ahead = dcp_write_ahead,
    .finish = dcp_finish,
};

const struct dcpk_format_editor dcpk_dcp_editor = {.inherit = dcp_inherit};

const struct dcpk_format dcpk_format_dcp = {
    .name = "dcp",
    .summary = "any PyTorch distributed checkpoint folder: .metadata and .distcp files",
    .part_folder = DCPK_DCP_OPTIMIZER,
    .marks = dcpk_dcp_marks,
    .probe = dcp_probe,
    .open = dcp_open_plain,
    .check_whole = dcp_check_whole,
    DCPK_DCP_CONTAINER,
};
