/* SPDX-License-Identifier: Apache-2.0 */
/* exec.h - carries out a plan: reads, copies, casts, hashes and writes, on threads, in bounded
 * memory. */
#ifndef DCPK_LIB_EXEC_EXEC_H
#define DCPK_LIB_EXEC_EXEC_H

#include "lib/base/digest.h"
#include "lib/exec/env.h"
#include "lib/io/sink.h"
#include "lib/plan/plan.h"

#define DCPK_EXEC_MIN_MEMORY_BYTES   ((uint64_t)16 << 20)
#define DCPK_EXEC_USUAL_MEMORY_BYTES ((uint64_t)256 << 20)

#ifndef DCPK_UNIT_BYTES /* the program of the fault tests has smaller ones and so commits often */
#define DCPK_UNIT_BYTES (UINT64_C(64) << 20)
#endif

struct dcpk_exec_stats { /* of all ranks */
    /* Requests to the system: reads are put together as threads meet them, so the number differs
     * from run to run. */
    uint64_t read_bytes, written_bytes;
    uint64_t item_bytes; /* of dcpk_exec_check_items: of all items, each place once */
    /* The same: those that a stored checksum covers, except objects that fit a buffer. */
    uint64_t checked_bytes;
    /* Blocks of fp8 that were written with the scale 0, of numbers that have none in float32 */
    uint64_t n_zero_scales;
    double seconds;
};

/* The memory of all buffers, at least DCPK_EXEC_MIN_MEMORY_BYTES, and the bytes of a unit: those of
 * env, or the default. */
uint64_t dcpk_exec_memory_bytes(const struct dcpk_env *env);
uint64_t dcpk_exec_unit_bytes(const struct dcpk_env *env);

/* State that threads share to gather tensors of one checkpoint. */
struct dcpk_exec;
/* ckpt: borrowed. env: copied, except for its tables, which are not looked at. Errors:
 * DCPK_ENOMEM. */
dcpk_status dcpk_exec_new(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                          struct dcpk_exec **exec, struct dcpk_error *err);
void dcpk_exec_free(struct dcpk_exec *exec);

/* XXH3-128 of each view's elements, row-major; hashes: n of them. Many tensors at once, each in row
 * order; views of the same bytes (dcpk_views_fold) are read once. */
dcpk_status dcpk_exec_hash(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                           struct dcpk_hash *hashes, struct dcpk_exec_stats *stats,
                           struct dcpk_error *err);

/* The fingerprint of each view (lib/tensor/fingerprint.h); sums: n of them. In all else as
 * dcpk_exec_hash. */
dcpk_status dcpk_exec_fingerprint(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                                  uint64_t *sums, struct dcpk_error *err);

/* The hash of an object, or why it has none. */
struct dcpk_object_hash {
    struct dcpk_hash hash;
    enum dcpk_object_state {
        DCPK_OBJECT_HASHED,
        DCPK_OBJECT_TOO_LARGE, /* past DCPK_MAX_LOADED_BYTES, with tensors that lie strided */
        /* Something in its pickle is not supported, or it is nested or shared past all bounds. */
        DCPK_OBJECT_NOT_UNDERSTOOD,
    } state;
};
/*
 * The hash of every object's value (lib/ckpt/value_hash.h), by number; hashes: n_objects of them.
 * Those that share a place are read once. Errors: those of reading, except those that `state`
 * holds.
 */
dcpk_status dcpk_exec_hash_objects(struct dcpk_exec *exec, struct dcpk_object_hash *hashes,
                                   struct dcpk_error *err);

/* Outcome of comparing two views element by element. */
struct dcpk_compare {
    bool equal;              /* all elements, within the tolerance where there is one */
    uint64_t n_different;    /* elements that are not */
    int64_t first_different; /* row-major index, -1 when equal */
    /* Only for dcpk_exec_compare: elements that are NaN or infinite, left and right, each in its
     * own dtype. */
    uint64_t n_not_finite[2];
    /* Only for dcpk_exec_measure, over all elements whose bits differ: */
    uint64_t n_unequal_bits;
    uint64_t n_nan;   /* just one of the two is NaN; these count below in nothing */
    double max_abs;   /* |left - right| */
    double max_rel;   /* the same by |right|; infinite where that is 0 */
    bool has_ulp;     /* floats */
    uint64_t max_ulp; /* steps between them in the dtype they were compared in */
    /* Row-major index of the element with max_rel, or of one that is NaN on just one side; the
     * first of several, -1: bits are equal. */
    int64_t worst;
};
/* The pairs to compare: left[i], of the one checkpoint, with right[i], of the other. The shapes are
 * equal (asserted). All borrowed. */
struct dcpk_view_pairs {
    struct dcpk_exec *left_exec, *right_exec; /* may be the same */
    const struct dcpk_view *left, *right;     /* n of each */
    size_t n;
    /* By pair: the left one is values of float8_e4m3fn times scales, and elements within half a
     * step of it are equal; n_unequal_bits counts those whose bits differ. NULL: none. */
    const bool *rounds;
    /* 0: all elements. Else a sample: at most so many bytes of the wider side from the first
     * element on, and as many up to the last one; of a pair of at most 16 times as many, one of the
     * two. */
    uint64_t sample_bytes;
};
/*
 * Compare views bit for bit. Where the dtypes of a pair differ, the right one is cast to the left
 * one's first (bf16(master) against the weight). results: n of them.
 */
dcpk_status dcpk_exec_compare(const struct dcpk_view_pairs *pairs, struct dcpk_compare *results,
                              struct dcpk_exec_stats *stats, struct dcpk_error *err);

/* Elements are equal as by numpy.isclose(left, right, rtol, atol, equal_nan=True). */
struct dcpk_tolerance {
    double rtol, atol;
};
/*
 * As dcpk_exec_compare, and measure how far they are apart. Where the dtypes of a pair differ (both
 * floats), the wider one is cast to the narrower first; of two of one width the left one to the
 * right one's. tolerance: NULL: equal means bit for bit, after a cast by value.
 */
dcpk_status dcpk_exec_measure(const struct dcpk_view_pairs *pairs,
                              const struct dcpk_tolerance *tolerance, struct dcpk_compare *results,
                              struct dcpk_exec_stats *stats, struct dcpk_error *err);

/*
 * Reads boxes of one view into memory, one after the other; small neighbouring reads are put
 * together. exec and view: borrowed until the reader is freed. One thread's.
 */
struct dcpk_view_reader;
dcpk_status dcpk_view_reader_new(struct dcpk_exec *exec, const struct dcpk_view *view,
                                 struct dcpk_view_reader **reader, struct dcpk_error *err);
/* The elements of `region`, row-major, into out. Errors: those of reading, with key and file. */
dcpk_status dcpk_view_reader_read(struct dcpk_view_reader *reader, const struct dcpk_box *region,
                                  void *out, struct dcpk_error *err);
void dcpk_view_reader_free(struct dcpk_view_reader *reader); /* NULL is a no-op */

/* Check the stored checksum of every chunk and read every object item; DCPK_EFORMAT names the first
 * bad one. */
dcpk_status dcpk_exec_check_items(struct dcpk_exec *exec, struct dcpk_exec_stats *stats,
                                  struct dcpk_error *err);

/* Sets *is_there if the checkpoint's folder contains Megatron's integrity.json
 * (lib/ckpt/integrity.h). Errors: DCPK_EIO when the system cannot answer; DCPK_EMISMATCH when not
 * all ranks see it. */
dcpk_status dcpk_exec_find_integrity(struct dcpk_exec *exec, bool *is_there,
                                     struct dcpk_error *err);
/*
 * Checks the files of the checkpoint's folder against its integrity.json: each must be there and
 * have its SHA-256. *n_files: how many. Errors: DCPK_EFORMAT naming the first file that is not as
 * listed and how many are not; those of reading.
 */
dcpk_status dcpk_exec_check_integrity(struct dcpk_exec *exec, size_t *n_files,
                                      struct dcpk_error *err);
struct dcpk_integrity;
/* Set the sums of a list of files of the checkpoint's store, which are all there. */
dcpk_status dcpk_exec_sum_files(struct dcpk_exec *exec, struct dcpk_integrity *list,
                                struct dcpk_error *err);
/* Checks that integrity.json can be added to the checkpoint in its place. *is_there: there is one.
 * Errors: DCPK_EUSAGE for an archive, and for a checkpoint with files in folders, which it cannot
 * list. */
dcpk_status dcpk_exec_may_add_integrity(const struct dcpk_checkpoint *ckpt, bool *is_there,
                                        struct dcpk_error *err);
/*
 * Add it to the checkpoint's folder as it lies on disk, where it appears whole or not at all; one
 * that is there is replaced. Rank 0 does. *n_files: how many it lists. It must be possible.
 */
dcpk_status dcpk_exec_add_integrity(struct dcpk_exec *exec, size_t *n_files,
                                    struct dcpk_error *err);
/* Write it for the files of the checkpoint's folder, into `folder`, which is that one under
 * construction; rank 0 does. */
dcpk_status dcpk_exec_put_integrity(struct dcpk_exec *exec, struct dcpk_folder *folder,
                                    struct dcpk_error *err);

#endif
