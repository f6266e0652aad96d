/* SPDX-License-Identifier: Apache-2.0 */
/* holding.h - what a checkpoint holds by name: one that is opened, planned, or opened and to be
 * given other keys. */
#ifndef DCPK_LIB_JOB_HOLDING_H
#define DCPK_LIB_JOB_HOLDING_H

#include "lib/ckpt/format.h"
#include "lib/rules/edit.h"

/* A tensor that was found. */
struct dcpk_found_tensor {
    size_t index; /* below n_tensors */
    int rank;
    const int64_t *shape;
};

/* Zero it before use. */
struct dcpk_holding {
    const struct dcpk_format *format; /* format whose loaders ask */
    struct dcpk_checkpoint *ckpt;     /* the opened one, or that from which values come */
    const struct dcpk_output *out;    /* the planned one; NULL: */
    /* The keys of ckpt's tensors, then objects; NULL: its own. */
    const struct dcpk_edit_item *items;
    size_t n_tensors;
    struct dcpk_map tensors, objects; /* of the latter two: key -> index, of fields: key -> row */
    uint64_t *fields;                 /* by row: which of field_names */
    const char *field_names[64];
    size_t n_fields, n_rows;
    const char *asked_fields[64]; /* the texts that were asked for, and the bit of each */
    size_t asked_bits[64], n_asked;
    struct dcpk_bytes key; /* scratch: a joined key; and the one asked for last, with its row */
    struct dcpk_bytes last;
    uint64_t last_row;
};

/* All are borrowed. Errors: DCPK_ENOMEM; DCPK_ERANGE past 64 kinds of fields. */
dcpk_status dcpk_holding_of_output(struct dcpk_holding *h, const struct dcpk_output *out,
                                   struct dcpk_error *err);
dcpk_status dcpk_holding_of_edits(struct dcpk_holding *h, struct dcpk_checkpoint *ckpt,
                                  const struct dcpk_edit_item *items, struct dcpk_error *err);
void dcpk_holding_of_checkpoint(struct dcpk_holding *h, struct dcpk_checkpoint *ckpt);
void dcpk_holding_release(struct dcpk_holding *h); /* zeroed: a no-op */

/* key: n bytes. */
bool dcpk_holding_tensor(const struct dcpk_holding *h, const char *key, size_t n,
                         struct dcpk_found_tensor *found);
/* The object "<key>.<field>", or `key` where field is NULL. field: the caller's until the holding
 * is released. */
bool dcpk_holding_object(struct dcpk_holding *h, const char *key, size_t n, const char *field);
/* Its value in `arena`, NULL when it is not there. */
dcpk_status dcpk_holding_value(struct dcpk_holding *h, const char *key, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err);
/* The common state of formats that keep one, NULL: there is none. */
dcpk_status dcpk_holding_common(struct dcpk_holding *h, struct dcpk_arena *arena,
                                const struct dcpk_value **common, struct dcpk_error *err);
/* The (first) name of a tensor, NULL: it goes. */
const char *dcpk_holding_name(const struct dcpk_holding *h, size_t tensor);

#endif
