/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - an opened checkpoint: its tensors, their chunks, its objects; metadata only, no
 * tensor bytes. */
#ifndef DCPK_LIB_CKPT_CHECKPOINT_H
#define DCPK_LIB_CKPT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "lib/base/map.h"
#include "lib/ckpt/open_options.h"
#include "lib/ckpt/value.h"
#include "lib/io/store.h"
#include "lib/place/grid.h"
#include "lib/tensor/box.h"
#include "lib/tensor/dtype.h"

struct dcpk_format;

/*
 * A tensor of float32 that others of the checkpoint, stored ones or views with chunks, make. In the
 * arena.
 * Values times scales (lib/tensor/scale.h): blocks lie in the last two axes; those before them are
 * the same in values, scales and the tensor. Values of DCPK_F4_E2M1FN_X2 have half as many in the
 * last axis.
 * Values plus a number: the values are floats of the tensor's shape, each one's float32 is added
 * to. Without values: the number.
 * Values plus a product of two matrices: the values are a matrix, [rows, columns], and the products
 * of `left` [rows, rank] and `right` [rank, columns] are summed in ascending order, in float32 and
 * each rounded with its sum; that times `addend`, rounded, is added to each value's float32.
 * is_turned: left is stored as [rank, rows], right as [columns, rank]. Of three axes they are
 * matrices of several experts, left [rows, rank, experts] from first_row on, right [experts, rank,
 * columns]. All three are floats of at most 4 bytes.
 */
struct dcpk_computed {
    uint32_t values; /* DCPK_NO_VALUES: all elements are `addend` */
    /* Floats; DCPK_F8_E8M0FNU or DCPK_U8: 2^(code - 127), code 255 NaN. DCPK_NO_SCALES: values plus
     * `addend`. */
    uint32_t scales;
    int64_t block_rows, block_cols; /* of scales */
    float addend;                   /* without scales */
    struct dcpk_product {
        uint32_t left, right;
        int64_t rank; /* 0: there is no product */
        int64_t expert, first_row;
        bool is_turned;
    } product; /* without scales */
    /* The distance of a value to the next one takes its place; of float8_e4m3fn times scales. */
    bool gives_steps;
};
#define DCPK_NO_SCALES UINT32_MAX
#define DCPK_NO_VALUES UINT32_MAX

/* A run of bytes in one of the checkpoint's files: an item of a .distcp file. */
struct dcpk_place {
    uint32_t file; /* index into files */
    uint64_t offset_bytes;
    uint64_t n_bytes;
};

/* A stored tensor. Its chunks are chunks[first_chunk .. first_chunk + n_chunks). */
struct dcpk_tensor {
    const char *key;
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
    size_t first_chunk;
    size_t n_chunks;
    /*
     * Flattened ("reformulated") by Megatron 0.8 to 0.15: the model's shape, while `shape` is that
     * of the blocks (formats/torch_dist/FORMAT.md 5.2). NULL for all others.
     */
    int model_rank;
    const int64_t *model_shape;
    /* For a view that is computed from stored tensors: it has no chunks. NULL for all others. */
    const struct dcpk_computed *computed;
};

/*
 * A stored box of a tensor: packed (offsets, extents), rank as its tensor. There may be millions.
 * A chunk of a view is a run of elements of a stored chunk instead (dcpk_checkpoint_chunk_run);
 * `place` is then that chunk's.
 */
struct dcpk_chunk {
    const int64_t *span;
    struct dcpk_place place;
    uint32_t tensor;
};

/*
 * The contents of a view's chunk: elements of the chunk `of` from `first` on, counted row-major in
 * it. of DCPK_IN_PLACE: all of a tensor inside an object, whose bytes are those at the chunk's
 * `place`.
 */
#define DCPK_IN_PLACE SIZE_MAX
struct dcpk_chunk_run {
    size_t of;
    int64_t first;
};

/* A non-tensor item. */
struct dcpk_object {
    const char *key;
    struct dcpk_place place;
};

/*
 * The releases of Megatron that write what is there: "core-0.13", "main". from NULL: not known; to
 * NULL: every later one.
 */
struct dcpk_releases {
    const char *from, *to;
};

/* A remark for the user that is not an error. */
struct dcpk_note {
    const char *text;
    struct dcpk_note *next;
};

/*
 * Everything is in the arena and dies with dcpk_checkpoint_close. Read-only once opened, so any
 * number of threads may read it.
 */
struct dcpk_checkpoint {
    struct dcpk_arena *arena;
    struct dcpk_store *store;
    /* A further one, of the files that views are in (dcpk_checkpoint_add_stored_view); closed with
     * it; NULL: none. */
    struct dcpk_checkpoint *adapter;
    const struct dcpk_format *format;
    /* the one that detection finds; `format` is another where that was asked for by name, or a
     * scheme on it */
    const struct dcpk_format *likely;
    /* of its folder (lib/ckpt/run.h), set by dcpk_env_open; DCPK_ITERATION_UNKNOWN until then */
    int64_t iteration;
    void *state; /* the format's own, state_bytes of it */

    /* "A", "B", "C" by what is stored; "": the format has one, or nothing shows which. */
    const char *generation;
    struct dcpk_releases releases;
    struct dcpk_source **files;
    size_t n_files;
    struct dcpk_tensor *tensors; /* in the order of the metadata; after them n_views views */
    size_t n_tensors;
    size_t n_views;
    struct dcpk_chunk *chunks; /* the stored ones, after them n_view_chunks of views */
    size_t n_chunks;
    size_t n_view_chunks;
    struct dcpk_chunk_run *runs; /* n_view_chunks of them */
    struct dcpk_object *objects;
    size_t n_objects;
    struct dcpk_map tensor_by_key; /* key -> index */
    struct dcpk_map object_by_key;
    struct dcpk_note *notes, **notes_end;
    /* A class or function that the metadata names, "os.system", and no release writes: Python would
     * import it, or call it, on opening the checkpoint. NULL: none. */
    const char *unknown_class;
    struct dcpk_open_options given; /* by the caller: lib/job/give_options.h */
    /* The reason why a tensor is left out, then why an object is; set by the caller. An entry is
     * NULL when it is not left out; the table is NULL when none is. */
    const char **left_out;
    struct dcpk_hash seen; /* of dcpk_checkpoint_see (seen.h); zeroed without it */
};

/*
 * Open a folder as a checkpoint.
 * store:   taken, also on failure (closed with the checkpoint).
 * formats: NULL-terminated table; name: one of them by name, or NULL to let the probes decide.
 * Errors: DCPK_EUNSUPPORTED when no format knows the folder (the message names what was searched
 * for), or another than the named one does; DCPK_EUSAGE when none has that name; the format's own
 * else. After open every tensor has dtype, rank <= DCPK_MAX_RANK and an element count below 2^63;
 * every chunk lies inside its tensor and its place inside its file; keys are unique; all chunks
 * stand for at most 1000 times the bytes of the files, and 1 GiB (DCPK_ERANGE). Exact cover is
 * checked by dcpk_checkpoint_check_cover.
 */
dcpk_status dcpk_checkpoint_open(struct dcpk_store *store, const struct dcpk_format *const *formats,
                                 const char *name, struct dcpk_checkpoint **ckpt,
                                 struct dcpk_error *err);
void dcpk_checkpoint_close(struct dcpk_checkpoint *ckpt); /* NULL is a no-op */

/*
 * Leave a stored tensor, or for `object` an object, out of every view of the model, for a reason
 * that lives as long as the checkpoint. Lookups by key do not find it any more.
 */
dcpk_status dcpk_checkpoint_leave_out(struct dcpk_checkpoint *ckpt, bool is_object, size_t index,
                                      const char *reason, struct dcpk_error *err);
/* The reason why it is left out, or NULL. */
const char *dcpk_checkpoint_tensor_left_out(const struct dcpk_checkpoint *ckpt, size_t tensor);
/* The same of an object. */
const char *dcpk_checkpoint_object_left_out(const struct dcpk_checkpoint *ckpt, size_t object);

/* NULL when there is none, or it is left out. */
const struct dcpk_tensor *dcpk_checkpoint_tensor(const struct dcpk_checkpoint *ckpt,
                                                 const char *key);
/* The object of this key; NULL when there is none, or it is left out. */
const struct dcpk_object *dcpk_checkpoint_object(const struct dcpk_checkpoint *ckpt,
                                                 const char *key);

/* All chunks of every tensor cover it exactly, DCPK_EFORMAT naming the first tensor that fails. */
dcpk_status dcpk_checkpoint_check_cover(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/*
 * Views: tensors of the model that are not stored as such, seen through runs of stored 1-D or
 * flattened chunks (flattened optimizer state, DDP buckets). to_model makes them, after all stored
 * tensors; listings and hashes do not show them, pieces refer to them like to stored tensors (index
 * n_tensors + i).
 */

/* A new view of the tensor's key, dtype, rank and shape; runs follow. *index: for pieces. */
dcpk_status dcpk_checkpoint_add_view(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                                     uint32_t *index, struct dcpk_error *err);
/* The same for a view that is computed as `how` has it, which is copied. */
dcpk_status dcpk_checkpoint_add_computed(struct dcpk_checkpoint *ckpt,
                                         const struct dcpk_tensor *tensor,
                                         const struct dcpk_computed *how, uint32_t *index,
                                         struct dcpk_error *err);
/*
 * A new view of a tensor inside an object: the bytes at `place` are its elements in row-major order
 * (format.h, outline_object). *chunk: its only one, through whose runs other views may look.
 * Errors: DCPK_EFORMAT when `place` is not in its file, or has other than the tensor's bytes.
 */
dcpk_status dcpk_checkpoint_add_inner(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_tensor *tensor,
                                      const struct dcpk_place *place, uint32_t *index,
                                      size_t *chunk, struct dcpk_error *err);
/*
 * A new view of a tensor that ckpt->adapter stores, through its bytes. first_file: the number of
 * that checkpoint's first file here, after dcpk_checkpoint_add_file of all. Errors:
 * DCPK_EUNSUPPORTED for a tensor whose elements are not stored one after the other.
 */
dcpk_status dcpk_checkpoint_add_stored_view(struct dcpk_checkpoint *ckpt,
                                            const struct dcpk_tensor *tensor, uint32_t first_file,
                                            uint32_t *index, struct dcpk_error *err);
/*
 * The n elements from run.first on of the chunk run.of, a stored one or that of an inner tensor,
 * counted row-major in it, are elements [start, start + n) of `block`, counted row-major in that
 * box of the last view added. Becomes at most 2 * rank boxes. Numbers from a file: DCPK_EFORMAT
 * when the run passes the end of the chunk or the block, or the block that of the view.
 */
dcpk_status dcpk_checkpoint_add_run(struct dcpk_checkpoint *ckpt, const struct dcpk_box *block,
                                    int64_t start, int64_t n, struct dcpk_chunk_run run,
                                    struct dcpk_error *err);

/* The shape of a tensor with `axis` as two, pairs and the 2 of each; in the checkpoint's arena.
 * Errors: DCPK_EMISMATCH where it has no such axis, or an odd number of lines. */
dcpk_status dcpk_checkpoint_pair_shape(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *tensor,
                                       int axis, struct dcpk_error *err);
/* A view of a stored tensor, or of a view of all of one, in that shape. Errors: as above. */
dcpk_status dcpk_checkpoint_pair_view(struct dcpk_checkpoint *ckpt, uint32_t index, int axis,
                                      uint32_t *view, struct dcpk_error *err);

/* Room for one more tensor and chunk after those numbers; the tables may move. For flat_view.c. */
dcpk_status dcpk_checkpoint_reserve(struct dcpk_checkpoint *ckpt, size_t n_tensors, size_t n_chunks,
                                    struct dcpk_error *err);

/* The run that a chunk of the checkpoint's table is; NULL: a stored one. */
const struct dcpk_chunk_run *dcpk_checkpoint_chunk_run(const struct dcpk_checkpoint *ckpt,
                                                       const struct dcpk_chunk *chunk);

/* An object's value, its outline, the common state (*value NULL: there is none): format.h describes
 * each. Errors name the object. Thread-safe for different arenas. */
dcpk_status dcpk_checkpoint_load_object(struct dcpk_checkpoint *ckpt,
                                        const struct dcpk_object *object, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err);
/* The value, or past DCPK_MAX_LOADED_BYTES (dcpk_object_is_large) its outline: what can be shown
 * of an object of any size. */
dcpk_status dcpk_checkpoint_show_object(struct dcpk_checkpoint *ckpt,
                                        const struct dcpk_object *object, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err);
bool dcpk_object_is_large(const struct dcpk_object *object); /* past DCPK_MAX_LOADED_BYTES */
/* Reads state that is kept outside items (common.pt). */
dcpk_status dcpk_checkpoint_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err);

/* The first two for callers that go through objects and name the one at hand: errors do not. */
dcpk_status dcpk_checkpoint_load_item(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_object *object, struct dcpk_arena *arena,
                                      const struct dcpk_value **value, struct dcpk_error *err);
/* As dcpk_checkpoint_outline_object. */
dcpk_status dcpk_checkpoint_outline_item(struct dcpk_checkpoint *ckpt,
                                         const struct dcpk_object *object, struct dcpk_arena *arena,
                                         const struct dcpk_value **value, struct dcpk_error *err);

struct dcpk_extent;
/* Finds the elements of a chunk, stored or of a view: reader->locate, then the run's part of it.
 * Thread-safe. */
dcpk_status dcpk_checkpoint_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                   const struct dcpk_reader *reader, struct dcpk_extent *where,
                                   struct dcpk_error *err);

/* Append a note; format as printf. Lost silently only when memory is out. */
void dcpk_checkpoint_note(struct dcpk_checkpoint *ckpt, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, unless the checkpoint has that note: for what is found each time it is viewed. */
void dcpk_checkpoint_note_once(struct dcpk_checkpoint *ckpt, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* True, with a note, if `name` in the checkpoint's store is a link to a file that fewer users may
 * read (dcpk_store_leads_to_private): it is not copied to an output. */
bool dcpk_checkpoint_skips_private(struct dcpk_checkpoint *ckpt, const char *name,
                                   const struct dcpk_folder *folder);

/* For formats while opening: append a tensor, chunk, object or file; keys must already be in the
 * arena; duplicate keys are DCPK_EFORMAT. */
dcpk_status dcpk_checkpoint_add_tensor(struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_tensor *tensor, struct dcpk_error *err);
/* The same of an object. */
dcpk_status dcpk_checkpoint_add_object(struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_object *object, struct dcpk_error *err);
/* *file: the number by which places name it. */
dcpk_status dcpk_checkpoint_add_file(struct dcpk_checkpoint *ckpt, struct dcpk_source *source,
                                     uint32_t *file, struct dcpk_error *err);

#endif
