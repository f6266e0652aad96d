/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_write.c - files of ranks as torch.save archives whose tensors are written one by one. */
/*
 *   | data.pkl, small records | header data/0 desc. | header data/1 desc. | ... | version,
 * directory
 *   +--------- payload -------+------- chunk -------+------- chunk -------+     +---- at the end
 * ---
 *
 * The directory has the CRC-32 of every record: it is written last of all, from the descriptors.
 */
#include <assert.h>

#include "formats/mp_rank/mp_rank_priv.h"
#include "formats/torch/item.h"
#include "lib/base/alloc.h"

static const struct dcpk_mp_files *files_of(const struct dcpk_output *out)
{
    return out->form;
}

/* The bytes of a file without its tensors, and where these belong. Release both in any case. */
struct mp_around {
    struct dcpk_bytes bytes;
    struct dcpk_item_gap *gaps;
};

static void around_release(struct mp_around *around)
{
    dcpk_bytes_release(&around->bytes);
    dcpk_free(around->gaps);
}

static dcpk_status around_make(const struct dcpk_output *out, const struct dcpk_mp_file *file,
                               const uint32_t *crcs, struct mp_around *around,
                               struct dcpk_error *err)
{
    const struct dcpk_item_style style = {file->prefix, out->pickle_protocol, file->n_tensors};

    *around = (struct mp_around){.gaps = NULL};
    around->gaps = dcpk_alloc_array(file->n_tensors, sizeof *around->gaps, err);
    if (around->gaps == NULL || dcpk_item_encode_around(out->payloads[file->payload].value, &style,
                                                        crcs, around->gaps, &around->bytes, err))
        return dcpk_context(err, "encoding '%s'", file->name);
    return DCPK_OK;
}

/* ---- places ---- */

/* Each tensor is one chunk: chunks have the numbers of tensors. */
static dcpk_status place_file(struct dcpk_output *out, uint32_t f, struct dcpk_error *err)
{
    const struct dcpk_mp_file *file = &files_of(out)->list[f];
    struct dcpk_out_payload *payload = &out->payloads[file->payload];
    uint64_t outside_bytes = 0;
    struct mp_around around;

    if (around_make(out, file, NULL, &around, err))
        goto out;
    payload->file = f;
    payload->offset_bytes = 0;
    payload->n_bytes = around.bytes.n_bytes;
    if (file->n_tensors > 0)
        payload->n_bytes = around.gaps[0].lead;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct dcpk_item_gap *gap = &around.gaps[i];
        struct dcpk_out_chunk *chunk = &out->chunks[file->first_tensor + i];

        /* The same tensor: their order in the value is that of the output. */
        assert(chunk->tensor == file->first_tensor + i &&
               out->tensors[chunk->tensor].shape == gap->tensor->shape);
        chunk->file = f;
        chunk->offset_bytes = gap->lead + outside_bytes;
        chunk->lead_bytes = (uint32_t)(gap->data - gap->lead);
        chunk->data_bytes = gap->tensor->n_bytes;
        chunk->tail_bytes = (uint32_t)(gap->end - gap->data);
        outside_bytes += gap->tensor->n_bytes; /* no overflow: the plan has added them */
    }
    out->files[out->n_files++] =
        (struct dcpk_out_file){file->name, around.bytes.n_bytes + outside_bytes};
out:
    around_release(&around);
    return err->status;
}

static dcpk_status mp_lay_out(struct dcpk_output *out, struct dcpk_error *err)
{
    const struct dcpk_mp_files *files = files_of(out);

    for (uint32_t f = 0; f < files->n; f++)
        if (dcpk_grow(&out->files, &out->files_capacity, out->n_files, sizeof *out->files, err) ||
            place_file(out, f, err))
            return err->status;
    return DCPK_OK;
}

/* ---- bytes ---- */

static dcpk_status mp_frame(const struct dcpk_output *out, const struct dcpk_out_chunk *chunk,
                            uint32_t crc32, uint8_t *lead, uint8_t *tail, struct dcpk_error *err)
{
    const struct dcpk_mp_file *file = &files_of(out)->list[chunk->file];
    const struct dcpk_item_outside record = {chunk->tensor - file->first_tensor,
                                             chunk->offset_bytes, chunk->data_bytes};

    return dcpk_item_frame_outside(file->prefix, &record, crc32, lead, tail, err);
}

static dcpk_status mp_encode(const struct dcpk_output *out, const struct dcpk_out_payload *payload,
                             struct dcpk_bytes *bytes, struct dcpk_error *err)
{
    const struct dcpk_mp_file *file = &files_of(out)->list[payload->file];
    struct mp_around around;

    if (around_make(out, file, NULL, &around, err) == DCPK_OK) {
        dcpk_bytes_put(bytes, around.bytes.data, (size_t)payload->n_bytes);
        (void)dcpk_bytes_status(bytes, err);
    }
    around_release(&around);
    return err->status;
}

/* ---- directories ---- */

/* The checksums that follow the tensors. */
static dcpk_status read_crcs(const struct dcpk_output *out, const struct dcpk_mp_file *file,
                             struct dcpk_sink *sink, uint32_t *crcs, struct dcpk_error *err)
{
    uint8_t tail[DCPK_ITEM_CRC32_BYTES];

    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct dcpk_out_chunk *chunk = &out->chunks[file->first_tensor + i];
        const uint64_t at = chunk->offset_bytes + chunk->lead_bytes + chunk->data_bytes;

        if (dcpk_sink_read(sink, at, tail, sizeof tail, err))
            return err->status;
        crcs[i] = dcpk_item_frame_crc32(tail);
    }
    return DCPK_OK;
}

static dcpk_status end_file(const struct dcpk_output *out, uint32_t f, struct dcpk_sink *sink,
                            struct dcpk_error *err)
{
    const struct dcpk_mp_file *file = &files_of(out)->list[f];
    uint32_t *crcs = dcpk_alloc_array(file->n_tensors, sizeof *crcs, err);
    struct mp_around around = {.gaps = NULL};

    if (crcs != NULL && read_crcs(out, file, sink, crcs, err) == DCPK_OK &&
        around_make(out, file, crcs, &around, err) == DCPK_OK) {
        const size_t end = around.gaps[file->n_tensors - 1].end;
        const size_t n_bytes = around.bytes.n_bytes - end;

        (void)dcpk_sink_write(sink, out->files[f].n_bytes - n_bytes, around.bytes.data + end,
                              n_bytes, err);
    }
    around_release(&around);
    dcpk_free(crcs);
    return err->status;
}

static dcpk_status mp_finish(struct dcpk_output *out, struct dcpk_folder *folder,
                             struct dcpk_error *err)
{
    for (uint32_t f = 0; f < out->n_files; f++) {
        struct dcpk_sink *sink;

        if (files_of(out)->list[f].n_tensors == 0)
            continue;
        if (dcpk_folder_reopen(folder, out->files[f].name, out->files[f].n_bytes, &sink, err))
            return err->status;
        if (end_file(out, f, sink, err)) {
            dcpk_sink_abandon(sink);
            return dcpk_context(err, "ending '%s'", out->files[f].name);
        }
        if (dcpk_sink_close(sink, err))
            return err->status;
    }
    return DCPK_OK;
}

const struct dcpk_format_writer dcpk_mp_writer = {
    .lay_out = mp_lay_out,
    .frame = mp_frame,
    .encode = mp_encode,
    .finish = mp_finish,
};
