/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - what a checkpoint format implements. A new format is a folder in formats/ and one row
 * in formats.c. */
#ifndef DCPK_LIB_CKPT_FORMAT_H
#define DCPK_LIB_CKPT_FORMAT_H

#include <string.h>

#include "lib/base/arena.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/foreign.h"
#include "lib/ckpt/output.h"
#include "lib/io/sink.h"
#include "lib/io/store.h"

struct dcpk_loading;
struct dcpk_model;

/* The place of a chunk's elements. Strides in bytes, one per axis of the tensor. */
struct dcpk_extent {
    struct dcpk_source *source;
    uint64_t first_bytes; /* the first element */
    int64_t stride_bytes[DCPK_MAX_RANK];
    bool is_row_major; /* the chunk is one run of bytes from first_bytes */
    bool is_zero;      /* the chunk was left out because all of it is zero: there are no bytes */
    /*
     * Not 0: the chunk is encoded in the record below; reader->decode gives so many bytes, in which
     * first_bytes and the strides are places.
     */
    uint64_t decoded_bytes;
    /* The range of a checksum of stored bytes; has_crc32 false: the format has none. */
    bool has_crc32;
    uint32_t crc32;
    uint64_t record_offset_bytes, record_bytes;
};

/* A run of an object's bytes and the CRC-32 that was stored for it; places count from its file's
 * start. */
struct dcpk_record {
    uint64_t offset_bytes, n_bytes;
    uint32_t crc32;
};
typedef dcpk_status dcpk_take_record(void *context, const struct dcpk_record *record,
                                     struct dcpk_error *err);

/* The most stored bytes of an object that load_object takes into memory. */
#define DCPK_MAX_LOADED_BYTES ((uint64_t)1 << 30)

/* How the items of a container are read. Formats on one container share it. Errors name no key: who
 * asks for an item does. */
struct dcpk_format_reader {
    /* Locate a chunk's elements. Called when they are first needed, by several threads, each with
     * its reader (or NULL). */
    dcpk_status (*locate)(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                          const struct dcpk_reader *reader, struct dcpk_extent *where,
                          struct dcpk_error *err);
    /* Optional, for encoded chunks: decode one whole chunk into out, the decoded_bytes that locate
     * gave. Thread-safe. */
    dcpk_status (*decode)(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk, void *out,
                          struct dcpk_error *err);
    /* Read an object item into `arena`; checks all its checksums. Thread-safe for different arenas.
     * Errors: DCPK_ERANGE past DCPK_MAX_LOADED_BYTES. */
    dcpk_status (*load_object)(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                               struct dcpk_arena *arena, const struct dcpk_value **value,
                               struct dcpk_error *err);
    /* Its outline: the same value, but its tensors hold the place of their bytes instead of the
     * bytes, so that an object of any size can be looked at. Their checksums are not checked. */
    dcpk_status (*outline_object)(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  struct dcpk_error *err);
    /* Hand over every record of an object, in the order of their bytes, for the caller to read and
     * check. Thread-safe. */
    dcpk_status (*each_record)(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                               dcpk_take_record *take, void *context, struct dcpk_error *err);
    /*
     * Optional: where the nested dict that was saved has each flat key. *paths: a DICT of key ->
     * TUPLE of names and indices, in `arena`, unchecked; untouched when nothing records it.
     * *n_bytes: of the file that was read for it.
     */
    dcpk_status (*load_paths)(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                              const struct dcpk_value **paths, uint64_t *n_bytes,
                              struct dcpk_error *err);
    /* True if the entry `name` of the folder belongs to its tensors and objects. */
    bool (*is_own)(const struct dcpk_checkpoint *ckpt, const char *name);
};

/*
 * How the items of a container are written. Formats on one container share it: files of their own
 * (common.pt, metadata.json) are the output's, dcpk_output_put_small_file.
 */
struct dcpk_format_writer {
    /* Fix the place of every byte: files, places of chunks and payloads. Chunk boxes are there
     * already. */
    dcpk_status (*lay_out)(struct dcpk_output *out, struct dcpk_error *err);
    /* Optional where no chunk has any: the bytes around a chunk's data, its CRC-32 now known,
     * lead_bytes and tail_bytes of them. Thread-safe. */
    dcpk_status (*frame)(const struct dcpk_output *out, const struct dcpk_out_chunk *chunk,
                         uint32_t crc32, uint8_t *lead, uint8_t *tail, struct dcpk_error *err);
    /* Append the bytes of a payload with a value (n_bytes, as lay_out has set it) to `bytes`. */
    dcpk_status (*encode)(const struct dcpk_output *out, const struct dcpk_out_payload *payload,
                          struct dcpk_bytes *bytes, struct dcpk_error *err);
    /*
     * Optional. Writes the slow part of the metadata early, under a hidden name
     * (dcpk_folder_create_hidden); it may need nothing but the places of lay_out. Called once
     * before finish, while other threads write data.
     */
    dcpk_status (*write_ahead)(const struct dcpk_output *out, struct dcpk_folder *folder,
                               struct dcpk_error *err);
    /* Write what makes the items readable, after all data. */
    dcpk_status (*finish)(struct dcpk_output *out, struct dcpk_folder *folder,
                          struct dcpk_error *err);
};

/* The meaning of a format's names and values: between it and the canonical view. */
struct dcpk_format_mapping {
    /* Its keys have prefixes, which the caller may replace (given.model_prefix) */
    bool has_prefixes;
    /* Its weights are chunks of Megatron-FSDP's flat buffers (lib/place/fsdp_layout.h). */
    bool has_flat_buffers;
    /* from_model writes an adapter of out->source (given.lora.goes_along), too. */
    bool writes_adapter;
    /* This format's names and leaves -> the canonical view. */
    dcpk_status (*to_model)(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                            struct dcpk_error *err);
    /* The canonical view -> output keys, pieces and objects of this format. NULL: read only. */
    dcpk_status (*from_model)(const struct dcpk_model *model, struct dcpk_output *out,
                              struct dcpk_error *err);
    /*
     * Instead of all others, for a mapping in addition to a format's own, as another tool does it,
     * and for a format of parts of a model: the keys of out->source become the output's one by one.
     * options: the mapping's own, given with it; NULL: none.
     */
    dcpk_status (*from_keys)(struct dcpk_output *out, const void *options, struct dcpk_error *err);
    /* Hand over what loading->loaders ask a checkpoint of this format for, each thing once
     * (lib/model/request.h). NULL: none of Megatron's loaders reads the format. */
    dcpk_status (*request)(const struct dcpk_loading *loading, struct dcpk_error *err);
    /*
     * Optional: the document next to the tensors that configures the model, as it stands. *value:
     * in `arena`; NULL: there is none.
     */
    dcpk_status (*load_config)(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err);
    /*
     * Optional: checks that the program that loads the format takes that document, and with it
     * the tensors, by their shapes. *found: the answer in words, untouched where there is none to
     * give. Errors: DCPK_EMISMATCH with all that stops it; those of reading.
     */
    dcpk_status (*check_class)(struct dcpk_checkpoint *ckpt, const char **found,
                               struct dcpk_error *err);
    /*
     * Optional, NULL: unknown. Names the layout of the optimizer's state, by keys that are not left
     * out and by the common state (NULL: there is none): Megatron's name for it
     * ("fully_reshardable", ...), "fsdp_dtensor", "model-shaped" (whole, of an optimizer that is
     * not distributed), "none" or "unknown". `inspect` shows it, and to_model follows it.
     */
    const char *(*optimizer_layout)(const struct dcpk_checkpoint *ckpt,
                                    const struct dcpk_value *common);
};

/*
 * Writes a checkpoint of this format again when its keys or dtypes are changed (lib/job/modify.h),
 * by the format's own writer.
 */
struct dcpk_format_editor {
    /* The keys lie in the files of the items: whatever is changed, all is rewritten. */
    bool rewrites;
    /* Optional: carries over what the source's metadata records about the release that wrote it. */
    void (*inherit)(struct dcpk_output *out);
    /*
     * For items in files of their own: checks the new keys, and lists the files of the items that
     * stay as they are (dcpk_output_keep). NULL: items share files.
     */
    dcpk_status (*keep)(struct dcpk_output *out, const struct dcpk_kept_item *items, size_t n,
                        struct dcpk_error *err);
};

/* A format: what it is, how a folder of it is opened, and the tables that work on it. */
struct dcpk_format {
    const char *name;        /* accepted by --from and --to */
    const char *other_names; /* more names for the two, separated by blanks; NULL: none */
    const char *summary;     /* one line of help */
    /* "core-0.15": the last release of Megatron whose loader reads it; NULL: the newest does. */
    const char *last_release;
    const struct dcpk_mark *marks; /* names of its files; ends with a zeroed row */
    /*
     * A scheme: names on the container of another format, whose row opens the folder. A folder
     * that `container` opens and fits() accepts is of this row instead. NULL: its own container.
     */
    const struct dcpk_format *container;
    bool (*fits)(struct dcpk_checkpoint *ckpt); /* may add notes */
    /* Optional: a plain file whose name ends so is a checkpoint by itself, ".safetensors". */
    const char *file_ending;
    /* A folder whose name begins so and one whose name does not, next to each other and each with
     * the first of the marks, are one checkpoint: the folder around them. NULL: none are. */
    const char *part_folder;
    /* It lies in the folder of a trainer's step, and is found by that (run_below.c). So do schemes,
     * which have a container. */
    bool is_nested;
    /* The output is OUT itself: a model, not an iteration of a run. */
    bool is_model;
    size_t state_bytes; /* the core allocates this much, zeroed, as ckpt->state before open() */
    /* True if an object item of this format may hold this class, function or call. Others are never
     * written, because Python would import or call them on loading. */
    bool (*is_known)(const char *module, const char *name);

    /* score: 0, not mine, to 100, certain; malformed files score low. Reads a few KiB at most.
     * Errors: DCPK_EIO, DCPK_ENOMEM, where no score would be one. */
    dcpk_status (*probe)(struct dcpk_store *store, int *score, struct dcpk_error *err);
    /* Fill ckpt from metadata alone; read no tensor bytes. */
    dcpk_status (*open)(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
    /* Optional. Runs exactly once for each state allocated, also after open() failed. */
    void (*close)(struct dcpk_checkpoint *ckpt);
    /* Optional: state outside items (common.pt, common_state): *value NULL: there is none. */
    dcpk_status (*load_common)(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err);
    /*
     * Optional: checks that the files which this format has in addition to tensors and objects are
     * there, also those that its items refer to. Reads names and metadata only. Errors:
     * DCPK_EFORMAT naming what is missing and what refers to it; DCPK_EIO when the system cannot
     * answer.
     */
    dcpk_status (*check_whole)(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
    /* Optional: checks that copies in several files, of which one is read, have the same bytes.
     * Reads them. Errors: DCPK_EFORMAT naming two files; those of reading. */
    dcpk_status (*check_copies)(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

    const struct dcpk_format_reader *reader;
    const struct dcpk_format_writer *writer;   /* NULL: it is not written */
    const struct dcpk_format_mapping *mapping; /* NULL: it cannot be converted */
    const struct dcpk_format_editor *editor;   /* NULL: its keys cannot be changed */
};

/* True if `name` is one of the format's names, in letters of either case, with '-' or '_'. */
bool dcpk_format_is_called(const struct dcpk_format *format, const char *name);

/* True if a tensor goes from names of a model's family to others, and no args of Megatron's
 * matter: one of the two is a scheme in another container. */
static inline bool dcpk_format_stays_in_family(const struct dcpk_format *a,
                                               const struct dcpk_format *b)
{
    return a->is_model && b->is_model && (a->container != NULL || b->container != NULL);
}

/* True if a config.json of Hugging Face's describes a checkpoint of the format. */
static inline bool dcpk_format_has_config(const struct dcpk_format *format)
{
    return format->is_model || (format->mapping != NULL && format->mapping->load_config != NULL);
}

/* True if the requests of Megatron's loaders to this format are known. */
static inline bool dcpk_format_has_loaders(const struct dcpk_format *format)
{
    return format->mapping != NULL && format->mapping->request != NULL;
}

/* True if a conversion can write it. */
static inline bool dcpk_format_is_target(const struct dcpk_format *format)
{
    return format->mapping != NULL &&
           (format->mapping->from_model != NULL || format->mapping->from_keys != NULL);
}

/* Inspects a file whose content a program runs on loading. *fault: why it should not be loaded, in
 * `arena`; NULL: no fault. Errors: those of reading, not of the content. */
typedef dcpk_status dcpk_find_fault(struct dcpk_source *source, struct dcpk_arena *arena,
                                    const char **fault, struct dcpk_error *err);

/* A file, or a folder of files; in tables the last has no name. */
struct dcpk_side_file {
    const char *name;
    dcpk_find_fault *find_fault; /* of a file; NULL: no program runs it */
};

#endif
