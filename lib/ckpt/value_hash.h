/* SPDX-License-Identifier: Apache-2.0 */
/* value_hash.h - one hash for a value, whichever pickle, torch or Python spelled it. */
#ifndef DCPK_LIB_CKPT_VALUE_HASH_H
#define DCPK_LIB_CKPT_VALUE_HASH_H

#include "lib/base/digest.h"
#include "lib/ckpt/value.h"

/*
 * The hash of a value is the XXH3-128 of its form: a letter, and then its content or the hashes of
 * what it holds, 16 bytes each, in xxhsum's byte order. H(x) is the hash of x:
 *
 *   None, True, False   "N", "T", "F"
 *   int                 "i" and its two's complement, little-endian, in the fewest bytes (0: one)
 *   float               "d" and its 8 bytes, little-endian; every NaN as 0x7ff8000000000000
 *   str, bytes          "s" and UTF-8; "b" and the bytes; a bytearray "a" and the bytes
 *   tuple, list         "t", "l" and H of each item, in order; torch.Size is a tuple
 *   set, frozenset      "e" and H of each member, sorted as bytes
 *   dict, OrderedDict   "m" and H(key) H(value) of each pair, the pairs sorted as bytes
 *   tensor              "x", H(name of the dtype, "bfloat16"), H(tuple of its sizes), and the
 *                       XXH3-128 of its elements, row-major
 *   class, dtype        "g", H(module), H(name)
 *   object              "o" when its class makes it, "c" when a call does; H(module), H(name),
 *                       H(tuple of arguments), H(list of its state: none or one), H(list of its
 *                       items), H(list of its (key, value) tuples)
 *
 * Two spellings are one: numpy._core is numpy.core, pathlib._local is pathlib. An object that a
 * pickle shares occurs twice; here too. Not one: numpy's arrays of pickle protocol 5, which are
 * another call
 * (torch writes protocol 2). README.md has the place of each; tests/interop/test_hash.py follows
 * it with what torch loads.
 */

/* Supplies the XXH3-128 of a tensor's elements where the value is an outline (format.h). Errors:
 * its own, passed on. */
typedef dcpk_status dcpk_hash_elements(void *context, const struct dcpk_value_tensor *tensor,
                                       struct dcpk_hash *hash, struct dcpk_error *err);

struct dcpk_value_hashing {
    dcpk_hash_elements *elements; /* NULL: tensors hold their bytes */
    void *context;
};

/* Linear in the unfolded size. Errors: DCPK_ENOMEM; DCPK_EUNSUPPORTED past 1000 levels; those of
 * `elements`. */
dcpk_status dcpk_value_hash(const struct dcpk_value *value,
                            const struct dcpk_value_hashing *hashing, struct dcpk_hash *hash,
                            struct dcpk_error *err);

/* Several values one after the other: what they share is hashed once. Zeroed = none yet, apart from
 * `options`. */
struct dcpk_value_walk {
    const struct dcpk_value_hashing *options;
    uint64_t n_containers;
    struct dcpk_kept_hash *kept; /* owned: dcpk_free; NULL: none yet */
};
dcpk_status dcpk_value_hash_next(struct dcpk_value_walk *walk, const struct dcpk_value *value,
                                 struct dcpk_hash *hash, struct dcpk_error *err);

#endif
