/* SPDX-License-Identifier: Apache-2.0 */
/* item.h - items of .distcp files and .pt files: complete torch.save zip archives, read strictly
 * and written. */
#ifndef DCPK_FORMATS_TORCH_ITEM_H
#define DCPK_FORMATS_TORCH_ITEM_H

#include "lib/ckpt/format.h"
#include "lib/ckpt/unknown.h"
#include "lib/io/store.h"
#include "lib/tensor/box.h"

/* The place of an item, and its reader (struct dcpk_reader; NULL: read directly). */
struct dcpk_item_range {
    struct dcpk_source *source;
    const struct dcpk_reader *reader;
    uint64_t offset_bytes, n_bytes;
};

/* A file that is one item. */
static inline struct dcpk_item_range dcpk_item_whole(struct dcpk_source *source)
{
    return (struct dcpk_item_range){.source = source, .n_bytes = dcpk_source_bytes(source)};
}

/* The tensor that an item holds, or ought to. */
struct dcpk_item_form {
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
};

/* A tensor item's content: where its elements lie in the source file. */
struct dcpk_item_tensor {
    enum dcpk_dtype dtype;
    int rank;
    int64_t shape[DCPK_MAX_RANK];
    int64_t stride_elems[DCPK_MAX_RANK];
    uint64_t first_bytes; /* of element (0, .., 0), from the start of the source file */
    uint64_t record_offset_bytes, record_bytes; /* the storage's record data/K in the source file */
    uint32_t record_crc32;
};

/*
 * Read the head and directory of an item: a torch.save archive of exactly one tensor. `expected`: a
 * guess that saves time where it is right (a pickle that is to the byte what torch writes for such
 * a contiguous tensor needs no reading) and means nothing else; NULL: none. Reads a few KiB, never
 * the data. Strict (FORMAT.md 2.2, 3): all entries stored, inside the item, not overlapping, names
 * unique and under one prefix, local and central headers agree, pickle CRC right, record length ==
 * numel * itemsize of the storage, every element inside the storage, byteorder little. Errors:
 * DCPK_EFORMAT, DCPK_EUNSUPPORTED (compressed, encrypted, big-endian, not a tensor), DCPK_EIO.
 */
dcpk_status dcpk_item_read_tensor(const struct dcpk_item_range *range,
                                  const struct dcpk_item_form *expected,
                                  struct dcpk_item_tensor *tensor, struct dcpk_error *err);

/*
 * Read an item as a value: tensors inside become DCPK_V_TENSOR with their bytes. All CRCs are
 * checked. The reader of the range is not asked. Errors: also DCPK_ERANGE past
 * DCPK_MAX_LOADED_BYTES.
 */
dcpk_status dcpk_item_read_value(const struct dcpk_item_range *range, struct dcpk_arena *arena,
                                 const struct dcpk_value **value, struct dcpk_error *err);
/* The common state that a .pt file of the folder holds, a dict; *value NULL: there is no such file.
 * Errors: DCPK_EFORMAT when it holds something else; those of reading. All name the file. */
dcpk_status dcpk_item_read_common(struct dcpk_store *store, const char *name,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  struct dcpk_error *err);

/*
 * The outline of an item of any size (format.h, outline_object): its data.pkl is read, at most 64
 * MiB of it, and checked, its tensors stay where they are.
 */
dcpk_status dcpk_item_read_outline(const struct dcpk_item_range *range, struct dcpk_arena *arena,
                                   const struct dcpk_value **value, struct dcpk_error *err);
/* The same of a file that may name only what is_known accepts. *folder: in the arena, that of the
 * archive: the stem of the name that torch.save was given, "archive" for a stream; NULL: it is not
 * asked for. Errors: also DCPK_EUNSUPPORTED with the first other class or function. */
dcpk_status dcpk_item_read_known(const struct dcpk_item_range *range, dcpk_is_known *is_known,
                                 struct dcpk_arena *arena, const struct dcpk_value **value,
                                 const char **folder, struct dcpk_error *err);
/*
 * Loads the tensors in (a part of) an outline, whose `data` is then set; in its arena. For small
 * ones, such as RNG states: at most 64 MiB with the records that hold them, whose CRCs are checked.
 * Errors: DCPK_ERANGE past that; DCPK_EUNSUPPORTED for elements that do not lie in order.
 */
dcpk_status dcpk_item_fill_outline(struct dcpk_source *source, struct dcpk_arena *arena,
                                   const struct dcpk_value *value, struct dcpk_error *err);
/* The reason why a .pt file is nothing to load with Python (lib/ckpt/format.h): it holds what
 * Python would import or call, or cannot be read. */
dcpk_status dcpk_item_find_fault(struct dcpk_source *source, struct dcpk_arena *arena,
                                 const char **fault, struct dcpk_error *err);
/* Hand over every record of an item (format.h, each_record). */
dcpk_status dcpk_item_each_record(const struct dcpk_item_range *range, dcpk_take_record *take,
                                  void *context, struct dcpk_error *err);

/*
 * Writing: byte layout of torch 2.7 to 2.11 (stored, 64-byte aligned records, data descriptors,
 * zip64 where needed, zip64 end record always).
 */

/* A contiguous tensor's item: what is before its data, the data, what is after it. */
struct dcpk_item_sizes {
    uint32_t lead_bytes, tail_bytes;
    uint64_t data_bytes;
};
/* Known without the data. Errors: DCPK_ERANGE past 2^63 bytes; DCPK_ENOMEM. */
dcpk_status dcpk_item_measure(const struct dcpk_item_form *form, struct dcpk_item_sizes *sizes,
                              struct dcpk_error *err);
/* The bytes before and after the data, its CRC-32 known; lead and tail: buffers of the sizes that
 * measure gave. */
dcpk_status dcpk_item_frame(const struct dcpk_item_form *form, uint32_t crc32, uint8_t *lead,
                            uint8_t *tail, struct dcpk_error *err);
/* torch.save(value) as a complete archive, appended to out. prefix: "archive" in .distcp files, the
 * file's stem in .pt files. protocol: 2 or 4. */
dcpk_status dcpk_item_encode(const struct dcpk_value *value, const char *prefix, int protocol,
                             struct dcpk_bytes *out, struct dcpk_error *err);
/*
 * The same of a value with n_outside tensors without bytes (data NULL, n_bytes not 0), whose
 * records the caller writes: "data/0" and on, in the order of the value.
 */
struct dcpk_item_style {
    const char *prefix;
    int protocol;
    size_t n_outside;
};
/* Where such a record belongs in the bytes that are appended: its header begins at `lead`, the
 * tensor's bytes stand at `data`, and a descriptor of their CRC-32 ends at `end`. */
struct dcpk_item_gap {
    size_t lead, data, end;
    const struct dcpk_value_tensor *tensor; /* of the value */
};
/* gaps: n_outside, set. crcs: of these tensors; NULL: not known yet, the bytes are as many. */
dcpk_status dcpk_item_encode_around(const struct dcpk_value *value,
                                    const struct dcpk_item_style *style, const uint32_t *crcs,
                                    struct dcpk_item_gap *gaps, struct dcpk_bytes *out,
                                    struct dcpk_error *err);
/* One of these records: "data/<number>", whose header is at offset_bytes of the archive. */
struct dcpk_item_outside {
    size_t number;
    uint64_t offset_bytes, n_bytes;
};
/* Its header and descriptor alone, into buffers of the sizes that the gaps show. */
dcpk_status dcpk_item_frame_outside(const char *prefix, const struct dcpk_item_outside *record,
                                    uint32_t crc32, uint8_t *lead, uint8_t *tail,
                                    struct dcpk_error *err);
enum { DCPK_ITEM_CRC32_BYTES = 8 }; /* of a descriptor: they hold the CRC-32 */
uint32_t dcpk_item_frame_crc32(const uint8_t *tail);
/* That as a file of an output, "<prefix>.pt" (dcpk_output_put_small_file). */
dcpk_status dcpk_item_put_file(struct dcpk_output *out, const char *prefix,
                               const struct dcpk_value *value, struct dcpk_error *err);

/* True if the elements lie one after the other in row-major order, and for tensors without
 * elements. */
bool dcpk_strides_are_row_major(const int64_t *shape, const int64_t *stride_elems, int rank);

#endif
