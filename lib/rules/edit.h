/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h - operations on the keys of a checkpoint: rename, remove, keep, cast. */
#ifndef DCPK_LIB_RULES_EDIT_H
#define DCPK_LIB_RULES_EDIT_H

#include "lib/base/arena.h"
#include "lib/tensor/dtype.h"

/* A key and what becomes of it. */
struct dcpk_edit_item {
    const char *key;       /* as stored; borrowed */
    enum dcpk_dtype dtype; /* DCPK_DTYPE_NONE: an object */
    /* Set by dcpk_edits_apply: */
    const char *name;       /* the new key; `key` itself when it stays */
    enum dcpk_dtype to;     /* the new dtype */
    const char *removed_by; /* the operation's text, NULL: it stays */
};

/* Compiled operations. Texts are borrowed until dcpk_edits_free. */
struct dcpk_edits;

/*
 * Compile operations:
 * - "rename RE NEW": every match in a key becomes NEW, a template as dcpk_replacement_new takes it.
 * - "remove RE": keys that match go.
 * - "keep RE": keys that do not match go.
 * - "cast RE DTYPE": tensors that match get another floating point dtype (torch's name); objects
 *   stay.
 * RE is a regular expression (lib/base/regex.h) that is looked for anywhere in the key. It may hold
 * blanks; NEW and DTYPE, the last word, may not; NEW "''" is the empty text. Errors: DCPK_EUSAGE
 * with the operation and the fault.
 */
dcpk_status dcpk_edits_parse(const char *const *texts, size_t n, struct dcpk_edits **edits,
                             struct dcpk_error *err);
void dcpk_edits_free(struct dcpk_edits *edits); /* NULL is a no-op */

/*
 * Apply them in order, each to the keys as the ones before left them. New names live in `arena`.
 * Errors, DCPK_EUSAGE: an operation that matches nothing (a cast: no tensor), two keys that become
 * one (names both), a key that becomes empty, a cast of a tensor that is not of floats, nothing
 * left. Also those of searching and replacing.
 */
dcpk_status dcpk_edits_apply(const struct dcpk_edits *edits, struct dcpk_arena *arena,
                             struct dcpk_edit_item *items, size_t n, struct dcpk_error *err);

#endif
