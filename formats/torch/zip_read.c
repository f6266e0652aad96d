/* SPDX-License-Identifier: Apache-2.0 */
/* zip_read.c - the strict reader of torch.save archives. */
#include "formats/torch/item_priv.h"

#include <inttypes.h>
#include <libdeflate.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"

/*
 * From the end: end record (last 22 bytes), before it the zip64 locator and end record when there
 * is a locator, before them the directory, before it the records one after the other from byte 0:
 *
 *   | header name extra data descriptor | ... | directory | end64 | locator | end |
 *
 * A tensor item of 1 GiB is read with one pread of its last 2 KiB (directory and the last local
 * headers) and one of its first 4 KiB (the other local headers and the small records).
 */

#define MAX_DIRECTORY_BYTES ((uint64_t)16 << 20)
#define NARROW_DESCRIPTOR   16u /* mark, crc, two u32 */
#define WIDE_DESCRIPTOR     24u /* mark, crc, two u64 */
#define SATURATED32         UINT32_MAX
/* Up to so many records a name is looked for one by one: a tensor's item has about seven. */
#define FEW_MEMBERS 16u

/* The place of the directory. */
struct directory {
    uint64_t n_members, offset_bytes, n_bytes;
};

/* Read a range of the archive, which lies in its file. */
static dcpk_status read_range(const struct dcpk_zip *zip, uint64_t at, uint8_t *out, size_t n,
                              struct dcpk_error *err)
{
    return dcpk_reader_read(zip->reader, zip->source, zip->base_bytes + at, out, n, err);
}

/* Borrow a range of the archive from a window, or read it into `scratch` (valid until the next
 * call). */
static dcpk_status borrow(struct dcpk_zip *zip, uint64_t at, uint64_t n, const uint8_t **out,
                          struct dcpk_error *err)
{
    uint8_t *grown;

    if (n > zip->n_bytes || at > zip->n_bytes - n)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: %" PRIu64 " bytes at byte %" PRIu64
                         " pass the end of the archive (%" PRIu64 " bytes)",
                         n, at, zip->n_bytes);
    if (zip->whole != NULL) {
        *out = zip->whole + at;
        return DCPK_OK;
    }
    if (at + n <= zip->head_bytes) {
        *out = zip->head + at;
        return DCPK_OK;
    }
    if (at >= zip->n_bytes - zip->tail_bytes) {
        *out = zip->tail + (at - (zip->n_bytes - zip->tail_bytes));
        return DCPK_OK;
    }
    if (n > zip->scratch_bytes) {
        grown = dcpk_realloc(zip->scratch, (size_t)n, err);
        if (grown == NULL)
            return err->status;
        zip->scratch = grown;
        zip->scratch_bytes = (size_t)n;
    }
    if (read_range(zip, at, zip->scratch, (size_t)n, err))
        return err->status;
    *out = zip->scratch;
    return DCPK_OK;
}

/* The zip64 end record, which torch always writes: it must agree with the classic one. */
static dcpk_status read_end64(struct dcpk_zip *zip, const uint8_t *locator, struct directory *dir,
                              struct dcpk_error *err)
{
    const uint64_t at =
        zip->n_bytes - DCPK_ZIP_END_BYTES - DCPK_ZIP_LOCATOR_BYTES - DCPK_ZIP_END64_BYTES;
    const bool is_short =
        zip->n_bytes < DCPK_ZIP_END_BYTES + DCPK_ZIP_LOCATOR_BYTES + DCPK_ZIP_END64_BYTES;
    const uint64_t located_at = dcpk_load_u64le(locator + 8);
    struct directory wide;
    const uint8_t *p;

    if (is_short || located_at != at || dcpk_load_u32le(locator + 4) != 0 ||
        dcpk_load_u32le(locator + 16) > 1)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: the zip64 locator points at byte %" PRIu64
                         ", not at the record right before it",
                         located_at);
    if (borrow(zip, at, DCPK_ZIP_END64_BYTES, &p, err))
        return err->status;
    if (dcpk_load_u32le(p) != DCPK_ZIP_END64_MARK || dcpk_load_u64le(p + 4) != 44 ||
        dcpk_load_u32le(p + 16) != 0 || dcpk_load_u32le(p + 20) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "zip: no zip64 end record at byte %" PRIu64, at);
    wide.n_members = dcpk_load_u64le(p + 32);
    wide.n_bytes = dcpk_load_u64le(p + 40);
    wide.offset_bytes = dcpk_load_u64le(p + 48);
    if (wide.n_members != dcpk_load_u64le(p + 24) ||
        (dir->n_members != UINT16_MAX && dir->n_members != wide.n_members) ||
        (dir->n_bytes != SATURATED32 && dir->n_bytes != wide.n_bytes) ||
        (dir->offset_bytes != SATURATED32 && dir->offset_bytes != wide.offset_bytes))
        return dcpk_fail(err, DCPK_EFORMAT, "zip: the two end records disagree");
    *dir = wide;
    return DCPK_OK;
}

/* Find the directory from the archive's last bytes. */
static dcpk_status read_end(struct dcpk_zip *zip, struct directory *dir, struct dcpk_error *err)
{
    const uint64_t locator_at = DCPK_ZIP_END_BYTES + DCPK_ZIP_LOCATOR_BYTES;
    uint64_t end_bytes = zip->n_bytes - DCPK_ZIP_END_BYTES, directory_end;
    const uint8_t *p;

    if (zip->n_bytes < DCPK_ZIP_END_BYTES)
        return dcpk_fail(err, DCPK_EFORMAT, "zip: %" PRIu64 " bytes are not an archive",
                         zip->n_bytes);
    if (borrow(zip, end_bytes, DCPK_ZIP_END_BYTES, &p, err))
        return err->status;
    if (dcpk_load_u32le(p) != DCPK_ZIP_END_MARK || dcpk_load_u16le(p + 20) != 0)
        return dcpk_fail(
            err, DCPK_EFORMAT,
            "zip: the last 22 bytes are not an end record: not a torch.save archive, or cut");
    if (dcpk_load_u32le(p + 4) != 0 || dcpk_load_u16le(p + 8) != dcpk_load_u16le(p + 10))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "zip: an archive in several parts");
    dir->n_members = dcpk_load_u16le(p + 10);
    dir->n_bytes = dcpk_load_u32le(p + 12);
    dir->offset_bytes = dcpk_load_u32le(p + 16);
    if (zip->n_bytes >= locator_at) {
        if (borrow(zip, zip->n_bytes - locator_at, DCPK_ZIP_LOCATOR_BYTES, &p, err))
            return err->status;
        if (dcpk_load_u32le(p) == DCPK_ZIP_LOCATOR_MARK) {
            if (read_end64(zip, p, dir, err))
                return err->status;
            end_bytes -= DCPK_ZIP_LOCATOR_BYTES + DCPK_ZIP_END64_BYTES;
        }
    }
    if (!dcpk_add_u64(dir->offset_bytes, dir->n_bytes, &directory_end) ||
        directory_end != end_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: the directory of %" PRIu64 " bytes at byte %" PRIu64
                         " does not end at the end record (byte %" PRIu64 ")",
                         dir->n_bytes, dir->offset_bytes, end_bytes);
    return DCPK_OK;
}

/* Borrow the directory for as long as the zip lives. */
static dcpk_status borrow_directory(struct dcpk_zip *zip, const struct directory *dir,
                                    const uint8_t **data, struct dcpk_error *err)
{
    if (dir->n_bytes > MAX_DIRECTORY_BYTES)
        return dcpk_fail(err, DCPK_ERANGE,
                         "zip: a directory of %" PRIu64 " bytes; the limit is %" PRIu64,
                         dir->n_bytes, MAX_DIRECTORY_BYTES);
    if (zip->whole != NULL || dir->offset_bytes >= zip->n_bytes - zip->tail_bytes)
        return borrow(zip, dir->offset_bytes, dir->n_bytes, data, err);
    zip->directory = dcpk_alloc((size_t)dir->n_bytes, err);
    if (zip->directory == NULL)
        return err->status;
    *data = zip->directory;
    return read_range(zip, dir->offset_bytes, zip->directory, (size_t)dir->n_bytes, err);
}

/* The zip64 field of an extra area; empty where there is none. */
static dcpk_status find_wide(const uint8_t *extra, size_t n_bytes, struct dcpk_cursor *wide,
                             struct dcpk_error *err)
{
    struct dcpk_cursor c;
    const uint8_t *field = NULL;
    uint16_t id = 0, n = 0;

    dcpk_cursor_init(&c, extra, n_bytes, 0);
    while (id != 1 && c.at_bytes < c.n_bytes)
        if (dcpk_cursor_u16(&c, &id, err) || dcpk_cursor_u16(&c, &n, err) ||
            dcpk_cursor_bytes(&c, n, &field, err))
            return err->status;
    dcpk_cursor_init(wide, field, id == 1 ? n : 0, 0);
    return DCPK_OK;
}

static dcpk_status read_wide(const uint8_t *extra, size_t n_bytes, uint64_t *const *numbers,
                             struct dcpk_error *err)
{
    struct dcpk_cursor wide;

    if (find_wide(extra, n_bytes, &wide, err))
        return err->status;
    for (size_t i = 0; i < 3; i++)
        if (*numbers[i] == SATURATED32 && dcpk_cursor_u64(&wide, numbers[i], err))
            return err->status;
    return DCPK_OK;
}

/* The saturated ones of three numbers, in this order, from the zip64 field of a central entry's
 * extra bytes. */
static dcpk_status widen(const uint8_t *extra, size_t n_bytes, uint64_t *const *numbers,
                         struct dcpk_error *err)
{
    if (read_wide(extra, n_bytes, numbers, err))
        return dcpk_context(err, "zip64 field");
    return DCPK_OK;
}

/* The fields of a central entry, except for its name. */
static dcpk_status check_central(const uint8_t *p, uint64_t n_bytes, uint64_t stored_bytes,
                                 struct dcpk_error *err)
{
    const unsigned flags = dcpk_load_u16le(p + 8), method = dcpk_load_u16le(p + 10);

    if (flags & 0x2041u)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "an encrypted record (flags 0x%04x)", flags);
    if (flags & ~(DCPK_ZIP_FLAG_DESCRIPTOR | DCPK_ZIP_FLAG_UTF8))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a record with flags 0x%04x", flags);
    if (method != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "a compressed record (method %u); torch.save stores without compression",
                         method);
    if (stored_bytes != n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "a stored record of %" PRIu64 " bytes that claims %" PRIu64, stored_bytes,
                         n_bytes);
    if (dcpk_load_u16le(p + 32) != 0 || dcpk_load_u16le(p + 34) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a record with a comment or in another part");
    return DCPK_OK;
}

/* Take the next central entry; `name` still has its prefix. */
static dcpk_status read_central(struct dcpk_cursor *c, struct dcpk_zip_member *m,
                                struct dcpk_error *err)
{
    const uint8_t *p, *name, *extra;
    uint64_t stored_bytes;

    if (dcpk_cursor_bytes(c, DCPK_ZIP_CENTRAL_BYTES, &p, err))
        return err->status;
    if (dcpk_load_u32le(p) != DCPK_ZIP_CENTRAL_MARK)
        return dcpk_fail(err, DCPK_EFORMAT, "no directory entry where one must be");
    if (dcpk_cursor_bytes(c, dcpk_load_u16le(p + 28), &name, err) ||
        dcpk_cursor_bytes(c, dcpk_load_u16le(p + 30), &extra, err))
        return err->status;
    m->name = (const char *)name;
    m->name_bytes = dcpk_load_u16le(p + 28);
    m->flags = dcpk_load_u16le(p + 8);
    m->crc32 = dcpk_load_u32le(p + 16);
    stored_bytes = dcpk_load_u32le(p + 20);
    m->n_bytes = dcpk_load_u32le(p + 24);
    m->header_offset_bytes = dcpk_load_u32le(p + 42);
    if (widen(extra, dcpk_load_u16le(p + 30),
              (uint64_t *const[]){&m->n_bytes, &stored_bytes, &m->header_offset_bytes}, err))
        return err->status;
    return check_central(p, m->n_bytes, stored_bytes, err);
}

/* Sizes and CRC in a local header count only without a data descriptor. */
static bool local_sizes_agree(const uint8_t *p, const struct dcpk_zip_member *m)
{
    const uint32_t stored_bytes = dcpk_load_u32le(p + 18), n_bytes = dcpk_load_u32le(p + 22);

    return (m->flags & DCPK_ZIP_FLAG_DESCRIPTOR) != 0 ||
           (dcpk_load_u32le(p + 14) == m->crc32 &&
            (stored_bytes == m->n_bytes || stored_bytes == SATURATED32) &&
            (n_bytes == m->n_bytes || n_bytes == SATURATED32));
}

/* Compare the local header with the directory and find the data after it. */
static dcpk_status read_local(struct dcpk_zip *zip, struct dcpk_zip_member *m,
                              struct dcpk_error *err)
{
    const uint8_t *p;

    if (borrow(zip, m->header_offset_bytes, DCPK_ZIP_LOCAL_BYTES + m->name_bytes, &p, err))
        return err->status;
    if (dcpk_load_u32le(p) != DCPK_ZIP_LOCAL_MARK || dcpk_load_u16le(p + 6) != m->flags ||
        dcpk_load_u16le(p + 8) != 0 || dcpk_load_u16le(p + 26) != m->name_bytes ||
        memcmp(p + DCPK_ZIP_LOCAL_BYTES, m->name, m->name_bytes) != 0 || !local_sizes_agree(p, m))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: the local header at byte %" PRIu64 " and the directory disagree",
                         m->header_offset_bytes);
    m->data_offset_bytes =
        m->header_offset_bytes + DCPK_ZIP_LOCAL_BYTES + m->name_bytes + dcpk_load_u16le(p + 28);
    return DCPK_OK;
}

/* The data descriptor of n bytes after a record repeats the directory's entry. */
static dcpk_status check_descriptor(struct dcpk_zip *zip, const struct dcpk_zip_member *m,
                                    uint64_t n_bytes, struct dcpk_error *err)
{
    const uint64_t at = m->data_offset_bytes + m->n_bytes;
    bool agrees = false;
    const uint8_t *p;

    if (n_bytes == 0 && m->n_bytes == 0) {
        /* torch writes none for an empty record */
        return DCPK_OK;
    }
    if (n_bytes == NARROW_DESCRIPTOR || n_bytes == WIDE_DESCRIPTOR) {
        if (borrow(zip, at, n_bytes, &p, err))
            return err->status;
        agrees =
            dcpk_load_u32le(p) == DCPK_ZIP_DESCRIPTOR_MARK && dcpk_load_u32le(p + 4) == m->crc32;
        if (n_bytes == WIDE_DESCRIPTOR) {
            agrees = agrees && dcpk_load_u64le(p + 8) == m->n_bytes &&
                     dcpk_load_u64le(p + 16) == m->n_bytes;
        } else {
            agrees = agrees && dcpk_load_u32le(p + 8) == m->n_bytes &&
                     dcpk_load_u32le(p + 12) == m->n_bytes;
        }
    }
    if (!agrees)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: the %" PRIu64 " bytes after the record that ends at byte %" PRIu64
                         " are not its data descriptor",
                         n_bytes, at);
    return DCPK_OK;
}

/* Record i ends where the next one (or the directory) starts, except for its descriptor. */
static dcpk_status member_check_range(struct dcpk_zip *zip, size_t i, uint64_t next_bytes,
                                      struct dcpk_error *err)
{
    const struct dcpk_zip_member *m = &zip->members[i];
    uint64_t end_bytes;

    if (!dcpk_add_u64(m->data_offset_bytes, m->n_bytes, &end_bytes) || end_bytes > next_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: record %zu of %" PRIu64 " bytes at byte %" PRIu64
                         " passes the start of the next at byte %" PRIu64
                         ": records overlap or are out of order",
                         i, m->n_bytes, m->data_offset_bytes, next_bytes);
    if ((m->flags & DCPK_ZIP_FLAG_DESCRIPTOR) != 0)
        return check_descriptor(zip, m, next_bytes - end_bytes, err);
    if (end_bytes != next_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "zip: %" PRIu64 " foreign bytes after record %zu at byte %" PRIu64,
                         next_bytes - end_bytes, i, end_bytes);
    return DCPK_OK;
}

/* Records follow each other from byte 0 to `end_bytes`, the directory. */
static dcpk_status check_ranges(struct dcpk_zip *zip, uint64_t end_bytes, struct dcpk_error *err)
{
    if (zip->members[0].header_offset_bytes != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "zip: the first record starts at byte %" PRIu64,
                         zip->members[0].header_offset_bytes);
    for (size_t i = 0; i + 1 < zip->n_members; i++)
        if (member_check_range(zip, i, zip->members[i + 1].header_offset_bytes, err))
            return err->status;
    return member_check_range(zip, zip->n_members - 1, end_bytes, err);
}

/* The first n records are looked at. NULL: none has the name. */
static const struct dcpk_zip_member *find_of(const struct dcpk_zip *zip, size_t n, const char *name,
                                             size_t name_bytes)
{
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_zip_member *m = &zip->members[i];

        if (m->name_bytes == name_bytes && memcmp(m->name, name, name_bytes) == 0)
            return m;
    }
    return NULL;
}

/* Record i gets a name that none before it has. */
static dcpk_status name_member(struct dcpk_zip *zip, size_t i, struct dcpk_error *err)
{
    const struct dcpk_zip_member *m = &zip->members[i], *twin;
    bool existed = false;
    uint64_t other = 0;

    if (zip->n_members <= FEW_MEMBERS) {
        twin = find_of(zip, i, m->name, m->name_bytes);
        existed = twin != NULL;
        if (existed)
            other = (uint64_t)(twin - zip->members);
    } else if (dcpk_map_put(&zip->by_name, m->name, m->name_bytes, i, &existed, &other, err) !=
               DCPK_OK) {
        return err->status;
    }
    if (existed)
        return dcpk_fail(err, DCPK_EFORMAT, "zip: records %" PRIu64 " and %zu have one name", other,
                         i);
    return DCPK_OK;
}

/* Take "<prefix>/" off every name; one prefix, no name twice. */
static dcpk_status strip_prefix(struct dcpk_zip *zip, struct dcpk_error *err)
{
    const char *first = zip->members[0].name;
    const char *slash = memchr(first, '/', zip->members[0].name_bytes);
    size_t n_prefix;

    if (slash == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "zip: record names have no 'archive/' in front");
    n_prefix = (size_t)(slash - first) + 1;
    zip->folder = first;
    zip->folder_bytes = n_prefix - 1;
    for (size_t i = 0; i < zip->n_members; i++) {
        struct dcpk_zip_member *m = &zip->members[i];

        if (m->name_bytes <= n_prefix || memcmp(m->name, first, n_prefix) != 0)
            return dcpk_fail(err, DCPK_EFORMAT, "zip: record %zu is not in the folder '%.*s'", i,
                             (int)dcpk_min_size(n_prefix, 64), first);
        m->name += n_prefix;
        m->name_bytes -= n_prefix;
        if (name_member(zip, i, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status read_directory(struct dcpk_zip *zip, size_t max_members, struct dcpk_error *err)
{
    struct dcpk_cursor c;
    struct directory dir = {0, 0, 0};
    const uint8_t *data;

    if (read_end(zip, &dir, err))
        return err->status;
    if (dir.n_members == 0 || dir.n_members > max_members)
        return dcpk_fail(err, DCPK_ERANGE, "zip: %" PRIu64 " records; 1 to %zu can be",
                         dir.n_members, max_members);
    if (borrow_directory(zip, &dir, &data, err))
        return err->status;
    zip->members = dcpk_alloc_array((size_t)dir.n_members, sizeof *zip->members, err);
    if (zip->members == NULL)
        return err->status;
    zip->n_members = (size_t)dir.n_members;
    dcpk_cursor_init(&c, data, (size_t)dir.n_bytes, zip->base_bytes + dir.offset_bytes);
    for (size_t i = 0; i < zip->n_members; i++) {
        if (read_central(&c, &zip->members[i], err))
            return dcpk_context(err, "zip: directory entry %zu", i);
        if (read_local(zip, &zip->members[i], err))
            return err->status;
    }
    if (c.at_bytes != c.n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "zip: %zu bytes after the last directory entry",
                         c.n_bytes - c.at_bytes);
    if (check_ranges(zip, dir.offset_bytes, err))
        return err->status;
    return strip_prefix(zip, err);
}

dcpk_status dcpk_zip_open(struct dcpk_zip *zip, const struct dcpk_item_range *range,
                          size_t max_members, struct dcpk_error *err)
{
    const uint64_t file_bytes = dcpk_source_bytes(range->source), n_bytes = range->n_bytes;

    memset(zip, 0, offsetof(struct dcpk_zip, head));
    zip->source = range->source;
    zip->reader = range->reader;
    zip->base_bytes = range->offset_bytes;
    zip->n_bytes = n_bytes;
    if (n_bytes > file_bytes || range->offset_bytes > file_bytes - n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "%" PRIu64 " bytes at byte %" PRIu64 " pass the end of the file (%" PRIu64
                         " bytes)",
                         n_bytes, range->offset_bytes, file_bytes);
    zip->head_bytes = (size_t)dcpk_min_u64(n_bytes, sizeof zip->head);
    if (read_range(zip, 0, zip->head, zip->head_bytes, err))
        return err->status;
    /* A small item is all in the head: its tail is a part of it. */
    zip->tail_bytes = (size_t)dcpk_min_u64(n_bytes, sizeof zip->tail);
    if (n_bytes <= sizeof zip->head) {
        memcpy(zip->tail, zip->head + (n_bytes - zip->tail_bytes), zip->tail_bytes);
    } else if (read_range(zip, n_bytes - zip->tail_bytes, zip->tail, zip->tail_bytes, err)) {
        return err->status;
    }
    return read_directory(zip, max_members, err);
}

dcpk_status dcpk_zip_open_memory(struct dcpk_zip *zip, const uint8_t *data, size_t n_bytes,
                                 uint64_t base_bytes, size_t max_members, struct dcpk_error *err)
{
    memset(zip, 0, offsetof(struct dcpk_zip, head));
    zip->whole = data;
    zip->base_bytes = base_bytes;
    zip->n_bytes = n_bytes;
    return read_directory(zip, max_members, err);
}

void dcpk_zip_release(struct dcpk_zip *zip)
{
    dcpk_map_release(&zip->by_name);
    dcpk_free(zip->members);
    dcpk_free(zip->directory);
    dcpk_free(zip->scratch);
}

const struct dcpk_zip_member *dcpk_zip_find(const struct dcpk_zip *zip, const char *name)
{
    const size_t name_bytes = strlen(name);
    uint64_t i;

    if (zip->n_members <= FEW_MEMBERS)
        return find_of(zip, zip->n_members, name, name_bytes);
    return dcpk_map_get(&zip->by_name, name, name_bytes, &i) ? &zip->members[i] : NULL;
}

dcpk_status dcpk_zip_borrow(struct dcpk_zip *zip, const struct dcpk_zip_member *member,
                            uint64_t limit_bytes, const uint8_t **data, struct dcpk_error *err)
{
    const int n_shown = (int)dcpk_min_size(member->name_bytes, 64);
    uint32_t crc32;

    if (member->n_bytes > limit_bytes)
        return dcpk_fail(err, DCPK_ERANGE,
                         "record '%.*s' has %" PRIu64 " bytes; the limit is %" PRIu64, n_shown,
                         member->name, member->n_bytes, limit_bytes);
    if (borrow(zip, member->data_offset_bytes, member->n_bytes, data, err))
        return err->status;
    crc32 = libdeflate_crc32(0, *data, (size_t)member->n_bytes);
    if (crc32 != member->crc32)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "record '%.*s' at byte %" PRIu64 " is damaged: CRC-32 %08" PRIx32
                         ", the directory has %08" PRIx32,
                         n_shown, member->name, zip->base_bytes + member->data_offset_bytes, crc32,
                         member->crc32);
    return DCPK_OK;
}
