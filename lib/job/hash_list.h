/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list.h - the hashes of what a checkpoint holds as a document that can be checked later. */
#ifndef DCPK_LIB_JOB_HASH_LIST_H
#define DCPK_LIB_JOB_HASH_LIST_H

#include "lib/base/digest.h"
#include "lib/base/json.h"
#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"

enum dcpk_hashed_kind {
    /* XXH3-128 of its elements, row-major, or its fingerprint (lib/tensor/fingerprint.h): the same
     * however it is chunked. */
    DCPK_HASHED_TENSOR,
    DCPK_HASHED_OBJECT, /* of its value (lib/ckpt/value_hash.h): the same however it is pickled */
    DCPK_HASHED_COMMON, /* of the common state (format->load_common), wherever it is kept */
    DCPK_N_HASHED,
};

struct dcpk_hashed {
    const char *key; /* "" of the common state */
    enum dcpk_hashed_kind kind;
    enum dcpk_dtype dtype; /* of tensors; DCPK_DTYPE_NONE: not recorded */
    int rank;
    const int64_t *shape;
    uint64_t n_bytes; /* of a tensor's elements */
    /* A fingerprint: 8 bytes, the most significant first, then zeros. */
    struct dcpk_hash hash;
    bool is_fingerprint;
    const char *not_covered; /* why there is no hash; NULL: there is one. Only for objects */
};

/* The parts that a list which was read does not have. */
enum dcpk_hash_list_lacks {
    DCPK_LACKS_OBJECTS = 1, /* and the common state: fingerprints, lists of other programs */
    DCPK_LACKS_FORMS = 2,   /* dtypes and shapes: text */
    DCPK_LACKS_WHOLE = 4,
};

/* In the order of key, then kind. Everything lives in the arena. Zero it before use; release it in
 * any case. */
struct dcpk_hash_list {
    struct dcpk_arena *arena;
    struct dcpk_hashed *items;
    size_t n, capacity;
    size_t n_of[DCPK_N_HASHED];
    size_t n_not_covered;
    unsigned lacks;        /* of enum dcpk_hash_list_lacks */
    bool has_fingerprints; /* of tensors alone, and no `whole` */
    const char *format;    /* of a document that was read; NULL: not recorded */
    /*
     * One for all: the SHA-256 of a line for each item, in order: key, kind, dtype, shape and hash,
     * a NUL after each but the last and a newline after that; the sizes of the shape with ","
     * between; of objects and the common state dtype and shape are empty, of one that is not
     * covered the hash. It knows nothing of chunks, files and their order.
     */
    uint8_t whole[DCPK_SHA256_BYTES];
};
void dcpk_hash_list_release(struct dcpk_hash_list *list); /* zeroed: a no-op */

/* Hash every stored tensor and object of ckpt, exec's checkpoint, and its common state; the list
 * borrows keys and shapes from it. Errors: those of reading. */
dcpk_status dcpk_hash_list_make(struct dcpk_exec *exec, struct dcpk_checkpoint *ckpt,
                                struct dcpk_hash_list *list, struct dcpk_error *err);

/* The same of the fingerprints of all stored tensors. */
dcpk_status dcpk_hash_list_make_fingerprints(struct dcpk_exec *exec,
                                             const struct dcpk_checkpoint *ckpt,
                                             struct dcpk_hash_list *list, struct dcpk_error *err);

/* 32 hexadecimal digits, 16 of a fingerprint. Returns text. */
#define DCPK_HASH_TEXT_BYTES 33
const char *dcpk_hashed_text(const struct dcpk_hashed *item, char text[DCPK_HASH_TEXT_BYTES]);

/* {"dtype", "n_bytes", "shape", "xxh3_128"} of a tensor ("fingerprint" in the place of the last),
 * {"xxh3_128"} of the others: null where it is not covered. */
void dcpk_hashed_put(const struct dcpk_hashed *item, struct dcpk_json_out *j);

/*
 * The document: {"common": as above, or null, "format", "not_covered": {key: reason}, "objects":
 * {key: as above}, "tensors": {key: as above}, "totals", "version", "whole": {"sha256"}}, indented
 * by 2, no newline at the end. A list of fingerprints has format, tensors, totals and version.
 * Errors: DCPK_ENOMEM, DCPK_ERANGE.
 */
dcpk_status dcpk_hash_list_print(const struct dcpk_hash_list *list,
                                 const struct dcpk_checkpoint *ckpt, struct dcpk_bytes *text,
                                 struct dcpk_error *err);
/*
 * The same as text, a line each: the hash, a blank, a letter for the kind (a blank: tensor, "*":
 * object, "+": common state), the key with its control bytes as \xNN; 32 "-" where it is not
 * covered. At the end the SHA-256 of the whole, but not of fingerprints. Errors are sticky in
 * `text`.
 */
void dcpk_hash_list_put_text(const struct dcpk_hash_list *list, struct dcpk_bytes *text);

/*
 * Reads a list in either form. A document needs only "tensors", each with dtype, shape and
 * xxh3_128; "objects", "common" and "whole" are optional, so that manifests of other programs can
 * be read. The first tensor decides whether it is a list of fingerprints. Errors: DCPK_EFORMAT for
 * anything else, DCPK_ERANGE for a shape past all limits, DCPK_EUNSUPPORTED for a dtype that is not
 * known.
 */
dcpk_status dcpk_hash_list_parse(const char *text, size_t n_bytes, struct dcpk_hash_list *list,
                                 struct dcpk_error *err);

/*
 * Hold a recorded list against one that was found: `each` is called for every item that differs in
 * dtype, shape or hash, in order; NULL for the side that has none. Entries that `recorded` lacks
 * are not differences. Both have hashes, or both fingerprints. Returns the number of differences.
 */
typedef void dcpk_hash_differs(void *context, const struct dcpk_hashed *recorded,
                               const struct dcpk_hashed *found);
size_t dcpk_hash_list_compare(const struct dcpk_hash_list *recorded,
                              const struct dcpk_hash_list *found, dcpk_hash_differs *each,
                              void *context);

#endif
