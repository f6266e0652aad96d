/* SPDX-License-Identifier: Apache-2.0 */
/* item_priv.h - what the item_*.c share in addition to item.h. */
#ifndef DCPK_FORMATS_TORCH_ITEM_PRIV_H
#define DCPK_FORMATS_TORCH_ITEM_PRIV_H

#include <stdbool.h>

#include "formats/torch/item.h"
#include "lib/base/bytes.h"
#include "lib/base/map.h"
#include "lib/io/store.h"

/* ---- archives (zip_read.c, zip_write.c) ---- */

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

/* A tensor as its pickle describes it: offsets and strides in elements of dtype. */
struct dcpk_rebuilt {
    enum dcpk_dtype dtype;
    int rank;
    int64_t shape[DCPK_MAX_RANK];
    int64_t stride_elems[DCPK_MAX_RANK]; /* 0 on axes of length 1 and when there are no elements */
    int64_t offset_elems;
    int64_t storage_elems;
    const char *key; /* of the storage; in the pickle's arena */
};

/* Name of the OBJECTs that persistent ids become; recognised by its address, so that no pickle can
 * make one. */
extern const char dcpk_storage_mark[];

/* Read data.pkl of an archive into arena. n_storages: how many persistent ids it has. limit_bytes:
 * the longest data.pkl. */
dcpk_status dcpk_item_read_pickle(struct dcpk_zip *zip, uint64_t limit_bytes,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  size_t *n_storages, struct dcpk_error *err);

/* Append data.pkl of a contiguous tensor of storage "0", to the byte as torch.save writes it. */
dcpk_status dcpk_item_put_pickle(const struct dcpk_item_form *form, struct dcpk_bytes *out,
                                 struct dcpk_error *err);

/*
 * Read a node of that value as a tensor; is_tensor false, r untouched: it is something else. Every
 * element lies inside the storage that the pickle claims. v: may be NULL.
 */
dcpk_status dcpk_rebuilt_read(const struct dcpk_value *v, bool *is_tensor, struct dcpk_rebuilt *r,
                              struct dcpk_error *err);

/* The record of a tensor's storage; DCPK_EFORMAT unless it has exactly the bytes that the pickle
 * claims. */
dcpk_status dcpk_rebuilt_find_storage(const struct dcpk_zip *zip, const struct dcpk_rebuilt *r,
                                      const struct dcpk_zip_member **member,
                                      struct dcpk_error *err);

/* Name in module `torch` for dtypes saved by _rebuild_tensor_v2; NULL: _rebuild_tensor_v3,
 * torch.storage UntypedStorage. */
const char *dcpk_storage_class_name(enum dcpk_dtype dtype);

#endif
