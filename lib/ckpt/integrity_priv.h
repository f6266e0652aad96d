/* SPDX-License-Identifier: Apache-2.0 */
/* integrity_priv.h - a list of files under construction. */
#ifndef DCPK_LIB_CKPT_INTEGRITY_PRIV_H
#define DCPK_LIB_CKPT_INTEGRITY_PRIV_H

#include "lib/ckpt/integrity.h"

/* An arena and room for n files. */
dcpk_status dcpk_integrity_begin(struct dcpk_integrity *list, size_t n, struct dcpk_error *err);
/* A file (its name is copied) with the sum that its place has. There must be room. */
dcpk_status dcpk_integrity_add(struct dcpk_integrity *list, const char *name,
                               struct dcpk_error *err);
/* Begin the list and fill it from a parsed document. */
dcpk_status dcpk_integrity_take(struct dcpk_integrity *list, const struct dcpk_json *doc,
                                struct dcpk_error *err);

#endif
