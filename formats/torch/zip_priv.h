/* SPDX-License-Identifier: Apache-2.0 */
/* zip_priv.h - torch.save archives as zip files: the strict reader and the byte-exact writer under
 * item.h. */
#ifndef DCPK_FORMATS_TORCH_ZIP_PRIV_H
#define DCPK_FORMATS_TORCH_ZIP_PRIV_H

#include <stdbool.h>

#include "formats/torch/item.h"
#include "lib/base/bytes.h"
#include "lib/base/map.h"
#include "lib/io/store.h"

/* Sizes and marks of APPNOTE.TXT 6.3.10 sections 4.3.7 to 4.3.16 and 4.5.3. */
enum {
    DCPK_ZIP_LOCAL_BYTES = 30,
    DCPK_ZIP_CENTRAL_BYTES = 46,
    DCPK_ZIP_END_BYTES = 22,
    DCPK_ZIP_LOCATOR_BYTES = 20,
    DCPK_ZIP_END64_BYTES = 56,
    DCPK_ZIP_ALIGNMENT =
        64, /* torch: a record's data starts at a multiple of this in its archive */
};
#define DCPK_ZIP_LOCAL_MARK      0x04034b50u
#define DCPK_ZIP_CENTRAL_MARK    0x02014b50u
#define DCPK_ZIP_END_MARK        0x06054b50u
#define DCPK_ZIP_LOCATOR_MARK    0x07064b50u
#define DCPK_ZIP_END64_MARK      0x06064b50u
#define DCPK_ZIP_DESCRIPTOR_MARK 0x08074b50u
#define DCPK_ZIP_FLAG_DESCRIPTOR 0x0008u
#define DCPK_ZIP_FLAG_UTF8       0x0800u

/* One record of an archive. Offsets count from the archive's first byte. */
struct dcpk_zip_member {
    const char *name; /* without "<prefix>/"; borrowed from the directory, no NUL after it */
    size_t name_bytes;
    uint16_t flags;
    uint32_t crc32;
    uint64_t header_offset_bytes;
    uint64_t data_offset_bytes;
    uint64_t n_bytes;
};

/*
 * An archive being read: either all of it in memory, or its first and last bytes, which hold all
 * but the tensor data of an ordinary item, so that one costs two reads. Large: lives on the stack
 * of one function. Must not be moved once open (names may point into `tail`).
 */
struct dcpk_zip {
    struct dcpk_source *source; /* NULL when `whole` is set */
    const struct dcpk_reader *reader;
    const uint8_t *whole; /* borrowed */
    uint64_t base_bytes;  /* place of the archive in its file */
    uint64_t n_bytes;
    size_t head_bytes, tail_bytes;
    uint8_t *scratch; /* bytes in neither window */
    size_t scratch_bytes;
    uint8_t *directory; /* owned copy, when it does not lie in a window */
    struct dcpk_zip_member *members;
    size_t n_members;
    const char *folder; /* that all members are in; in the directory */
    size_t folder_bytes;
    struct dcpk_map by_name; /* of many records; of few it is empty */
    uint8_t head[4096];
    uint8_t tail[2048];
};

/*
 * Open an archive in a file. max_members: more are DCPK_ERANGE.
 * Checked: end records, every central entry against its local header, all stored, in the order of
 * their bytes from byte 0 to the directory with nothing between but data descriptors, one prefix,
 * unique names. zip is released by the caller in every case.
 */
dcpk_status dcpk_zip_open(struct dcpk_zip *zip, const struct dcpk_item_range *range,
                          size_t max_members, struct dcpk_error *err);
/* The same for bytes in memory, borrowed while zip is used. base_bytes: their place in the file. */
dcpk_status dcpk_zip_open_memory(struct dcpk_zip *zip, const uint8_t *data, size_t n_bytes,
                                 uint64_t base_bytes, size_t max_members, struct dcpk_error *err);
void dcpk_zip_release(struct dcpk_zip *zip); /* zeroed: a no-op */

/* The record of that name (without prefix), or NULL. */
const struct dcpk_zip_member *dcpk_zip_find(const struct dcpk_zip *zip, const char *name);

/*
 * The bytes of a record, their CRC-32 checked; borrowed until the next call with the same zip.
 * limit_bytes: DCPK_ERANGE for a longer one.
 */
dcpk_status dcpk_zip_borrow(struct dcpk_zip *zip, const struct dcpk_zip_member *member,
                            uint64_t limit_bytes, const uint8_t **data, struct dcpk_error *err);

/* A record that was written. */
struct dcpk_zip_record {
    char name[32];
    uint32_t crc32;
    uint64_t header_offset_bytes;
    uint64_t n_bytes;
};

/* An archive being written after what `out` holds already. */
struct dcpk_zip_writer {
    struct dcpk_bytes *out;  /* borrowed */
    size_t start_bytes;      /* out->n_bytes where the archive begins */
    uint64_t external_bytes; /* data that the caller puts elsewhere */
    const char *prefix;      /* borrowed */
    struct dcpk_zip_record *records;
    size_t n_records, capacity;
    size_t n_storages; /* records called data/<k> */
};

/* Zeroed fields are the writer's own; release it in every case. */
void dcpk_zip_writer_init(struct dcpk_zip_writer *w, struct dcpk_bytes *out, const char *prefix);
void dcpk_zip_writer_release(struct dcpk_zip_writer *w); /* zeroed: a no-op */
/* Append a record: header, padding, data, descriptor. name: at most 31 bytes. */
dcpk_status dcpk_zip_writer_add(struct dcpk_zip_writer *w, const char *name, const void *data,
                                size_t n_bytes, struct dcpk_error *err);
/* The same for data that the caller puts elsewhere; split_bytes: place in `out` where it
 * belongs. */
dcpk_status dcpk_zip_writer_add_external(struct dcpk_zip_writer *w, const char *name,
                                         uint64_t n_bytes, uint32_t crc32, size_t *split_bytes,
                                         struct dcpk_error *err);
/* Append .data/serialization_id, the directory and the end records. */
dcpk_status dcpk_zip_writer_finish(struct dcpk_zip_writer *w, struct dcpk_error *err);

#endif
