/* SPDX-License-Identifier: Apache-2.0 */
/* zip_write.c - torch.save archives, byte for byte as torch 2.7 to 2.11 lays them out. */
#include "formats/torch/item_priv.h"

#include <assert.h>
#include <libdeflate.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

/*
 * Source of every rule: caffe2/serialize/inline_container.cc and third_party/miniz-3.0.2/miniz.c of
 * torch 2.11.0 (PyTorchStreamWriter, mz_zip_writer_add_mem_ex_v2), checked against its output;
 * FORMAT.md 2.
 */

#define ZIP64_ID    0x0001u
#define PADDING_ID  0x4246u /* 'F' 'B' */
#define PADDING     'Z'
#define MADE_BY     0x031eu
#define NEEDED      0x002du
#define SATURATED32 UINT32_MAX

void dcpk_zip_writer_init(struct dcpk_zip_writer *w, struct dcpk_bytes *out, const char *prefix)
{
    *w = (struct dcpk_zip_writer){.out = out, .start_bytes = out->n_bytes, .prefix = prefix};
}

void dcpk_zip_writer_release(struct dcpk_zip_writer *w)
{
    dcpk_free(w->records);
}

static uint64_t position(const struct dcpk_zip_writer *w)
{
    return w->out->n_bytes - w->start_bytes + w->external_bytes;
}

static bool is_wide(const struct dcpk_zip_record *r)
{
    return r->n_bytes >= SATURATED32 || r->header_offset_bytes >= SATURATED32;
}

static uint32_t narrow(uint64_t v)
{
    return (uint32_t)dcpk_min_u64(v, SATURATED32);
}

static uint16_t wide_field_bytes(const struct dcpk_zip_record *r)
{
    return (uint16_t)(16 * (r->n_bytes >= SATURATED32) +
                      8 * (r->header_offset_bytes >= SATURATED32));
}

/* With its own header. */
static unsigned wide_bytes(const struct dcpk_zip_record *r)
{
    return is_wide(r) ? 4u + wide_field_bytes(r) : 0;
}

/* The zip64 field. stored_bytes: 0 in a local header, which torch writes before it counts them. */
static void put_wide_field(struct dcpk_bytes *out, const struct dcpk_zip_record *r,
                           uint64_t stored_bytes)
{
    if (!is_wide(r))
        return;
    dcpk_bytes_u16(out, ZIP64_ID);
    dcpk_bytes_u16(out, wide_field_bytes(r));
    if (r->n_bytes >= SATURATED32) {
        dcpk_bytes_u64(out, r->n_bytes);
        dcpk_bytes_u64(out, stored_bytes);
    }
    if (r->header_offset_bytes >= SATURATED32)
        dcpk_bytes_u64(out, r->header_offset_bytes);
}

static uint16_t flags_of(const struct dcpk_zip_record *r)
{
    if (r->n_bytes == 0)
        return DCPK_ZIP_FLAG_UTF8;
    return DCPK_ZIP_FLAG_UTF8 | DCPK_ZIP_FLAG_DESCRIPTOR;
}

/* Local header, name, zip64 field and the padding that brings the data to a multiple of 64. */
static void zip_put_header(struct dcpk_zip_writer *w, const struct dcpk_zip_record *r)
{
    struct dcpk_bytes *out = w->out;
    const size_t n_name = strlen(w->prefix) + 1 + strlen(r->name);
    const unsigned n_wide = wide_bytes(r);
    const uint64_t unpadded = r->header_offset_bytes + DCPK_ZIP_LOCAL_BYTES + n_name + n_wide + 4;
    const unsigned n_padding = (unsigned)(-unpadded % DCPK_ZIP_ALIGNMENT);
    uint8_t *padding;

    dcpk_bytes_u32(out, DCPK_ZIP_LOCAL_MARK);
    dcpk_bytes_u16(out, 0);
    dcpk_bytes_u16(out, flags_of(r));
    dcpk_bytes_zeros(out, 18); /* method, time, date, crc and sizes: the descriptor has them */
    dcpk_bytes_u16(out, (uint16_t)n_name);
    dcpk_bytes_u16(out, (uint16_t)(n_wide + 4 + n_padding));
    dcpk_bytes_text(out, w->prefix);
    dcpk_bytes_u8(out, '/');
    dcpk_bytes_text(out, r->name);
    put_wide_field(out, r, 0);
    dcpk_bytes_u16(out, PADDING_ID);
    dcpk_bytes_u16(out, (uint16_t)n_padding);
    padding = dcpk_bytes_extend(out, n_padding);
    if (padding != NULL)
        memset(padding, PADDING, n_padding);
}

static void put_descriptor(struct dcpk_bytes *out, const struct dcpk_zip_record *r)
{
    if (r->n_bytes == 0)
        return;
    dcpk_bytes_u32(out, DCPK_ZIP_DESCRIPTOR_MARK);
    dcpk_bytes_u32(out, r->crc32);
    if (is_wide(r)) {
        dcpk_bytes_u64(out, r->n_bytes);
        dcpk_bytes_u64(out, r->n_bytes);
    } else {
        dcpk_bytes_u32(out, (uint32_t)r->n_bytes);
        dcpk_bytes_u32(out, (uint32_t)r->n_bytes);
    }
}

/* Begin a record here; NULL and err when memory is out. */
static struct dcpk_zip_record *begin(struct dcpk_zip_writer *w, const char *name, uint64_t n_bytes,
                                     uint32_t crc32, struct dcpk_error *err)
{
    struct dcpk_zip_record *r;

    if (dcpk_grow(&w->records, &w->capacity, w->n_records, sizeof *w->records, err) != DCPK_OK)
        return NULL;
    r = &w->records[w->n_records++];
    *r = (struct dcpk_zip_record){
        .crc32 = crc32, .header_offset_bytes = position(w), .n_bytes = n_bytes};
    assert(strlen(name) < sizeof r->name);
    memcpy(r->name, name, strlen(name) + 1);
    if (strncmp(name, "data/", 5) == 0)
        w->n_storages++;
    zip_put_header(w, r);
    return r;
}

dcpk_status dcpk_zip_writer_add(struct dcpk_zip_writer *w, const char *name, const void *data,
                                size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_zip_record *r = begin(w, name, n_bytes, libdeflate_crc32(0, data, n_bytes), err);

    if (r == NULL)
        return err->status;
    dcpk_bytes_put(w->out, data, n_bytes);
    put_descriptor(w->out, r);
    return dcpk_bytes_status(w->out, err);
}

dcpk_status dcpk_zip_writer_add_external(struct dcpk_zip_writer *w, const char *name,
                                         uint64_t n_bytes, uint32_t crc32, size_t *split_bytes,
                                         struct dcpk_error *err)
{
    struct dcpk_zip_record *r = begin(w, name, n_bytes, crc32, err);

    if (r == NULL)
        return err->status;
    *split_bytes = w->out->n_bytes;
    w->external_bytes += n_bytes;
    put_descriptor(w->out, r);
    return dcpk_bytes_status(w->out, err);
}

/* c10/util/hash.h@2.11.0 hash_combine */
static uint64_t combine(uint64_t seed, uint64_t value)
{
    return seed ^ (value + 0x9e3779b9u + (seed << 6) + (seed >> 2));
}

/*
 * torch's first 20 digits hash the record names in the order of a C++ hash set; known here for the
 * two sets of names that nearly all items have (read off torch 2.11.0 with libstdc++), FNV-1a of
 * the names in their order for others. Nothing reads them.
 */
static uint64_t names_hash(const struct dcpk_zip_writer *w)
{
    uint64_t hash = 0xcbf29ce484222325u;

    if (w->n_storages == 0)
        return 2908468677762923104u;
    if (w->n_storages == 1)
        return 15728199511854643026u;
    for (size_t i = 0; i < w->n_records; i++)
        for (const char *p = w->records[i].name;; p++) {
            hash = (hash ^ (uint8_t)*p) * 0x100000001b3u;
            if (*p == '\0')
                break;
        }
    return hash;
}

/* The last n decimal digits of a number. */
static void put_digits(char *text, size_t n, uint64_t number)
{
    for (; n > 0; number /= 10)
        text[--n] = (char)('0' + number % 10);
}

/* The last 20 digits combine the CRCs of the records in their order, empty ones left out, as torch
 * does. */
static dcpk_status add_serialization_id(struct dcpk_zip_writer *w, struct dcpk_error *err)
{
    uint64_t crcs = 0;
    char text[40];

    for (size_t i = 0; i < w->n_records; i++)
        if (w->records[i].n_bytes != 0)
            crcs = combine(crcs, w->records[i].crc32);
    put_digits(text, 20, names_hash(w));
    put_digits(text + 20, 20, crcs);
    return dcpk_zip_writer_add(w, ".data/serialization_id", text, sizeof text, err);
}

static void put_central(struct dcpk_zip_writer *w, const struct dcpk_zip_record *r)
{
    struct dcpk_bytes *out = w->out;

    dcpk_bytes_u32(out, DCPK_ZIP_CENTRAL_MARK);
    dcpk_bytes_u32(out, 0); /* version made by, version needed */
    dcpk_bytes_u16(out, flags_of(r));
    dcpk_bytes_zeros(out, 6); /* method, time, date */
    dcpk_bytes_u32(out, r->n_bytes == 0 ? 0 : r->crc32);
    dcpk_bytes_u32(out, narrow(r->n_bytes));
    dcpk_bytes_u32(out, narrow(r->n_bytes));
    dcpk_bytes_u16(out, (uint16_t)(strlen(w->prefix) + 1 + strlen(r->name)));
    dcpk_bytes_u16(out, (uint16_t)wide_bytes(r));
    dcpk_bytes_zeros(out, 10); /* comment, part, attributes */
    dcpk_bytes_u32(out, narrow(r->header_offset_bytes));
    dcpk_bytes_text(out, w->prefix);
    dcpk_bytes_u8(out, '/');
    dcpk_bytes_text(out, r->name);
    put_wide_field(out, r, r->n_bytes);
}

static void put_ends(struct dcpk_zip_writer *w, uint64_t directory_at, uint64_t directory_bytes)
{
    struct dcpk_bytes *out = w->out;
    const uint64_t end64_at = directory_at + directory_bytes;
    const uint16_t n_narrow = (uint16_t)dcpk_min_size(w->n_records, UINT16_MAX);

    dcpk_bytes_u32(out, DCPK_ZIP_END64_MARK);
    dcpk_bytes_u64(out, DCPK_ZIP_END64_BYTES - 12);
    dcpk_bytes_u16(out, MADE_BY);
    dcpk_bytes_u16(out, NEEDED);
    dcpk_bytes_u64(out, 0); /* parts */
    dcpk_bytes_u64(out, w->n_records);
    dcpk_bytes_u64(out, w->n_records);
    dcpk_bytes_u64(out, directory_bytes);
    dcpk_bytes_u64(out, directory_at);
    dcpk_bytes_u32(out, DCPK_ZIP_LOCATOR_MARK);
    dcpk_bytes_u32(out, 0);
    dcpk_bytes_u64(out, end64_at);
    dcpk_bytes_u32(out, 1);
    dcpk_bytes_u32(out, DCPK_ZIP_END_MARK);
    dcpk_bytes_u32(out, 0);
    dcpk_bytes_u16(out, n_narrow);
    dcpk_bytes_u16(out, n_narrow);
    dcpk_bytes_u32(out, narrow(directory_bytes));
    dcpk_bytes_u32(out, narrow(directory_at));
    dcpk_bytes_u16(out, 0);
}

dcpk_status dcpk_zip_writer_finish(struct dcpk_zip_writer *w, struct dcpk_error *err)
{
    uint64_t directory_at;

    if (add_serialization_id(w, err))
        return err->status;
    directory_at = position(w);
    for (size_t i = 0; i < w->n_records; i++)
        put_central(w, &w->records[i]);
    put_ends(w, directory_at, position(w) - directory_at);
    return dcpk_bytes_status(w->out, err);
}
