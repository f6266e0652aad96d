/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list_priv.h - what making a list of hashes and reading one share. */
#ifndef DCPK_LIB_JOB_HASH_LIST_PRIV_H
#define DCPK_LIB_JOB_HASH_LIST_PRIV_H

#include "lib/job/hash_list.h"

#define DCPK_HASH_LETTERS " *+" /* in text, by kind */
#define DCPK_HASH_NONE    "--------------------------------"

#define DCPK_FINGERPRINT_BYTES 8 /* of a dcpk_hash */

/* Room for n items. */
dcpk_status dcpk_hash_list_begin(struct dcpk_hash_list *list, size_t n, struct dcpk_error *err);
/* Set a tensor's n_bytes. Errors: DCPK_ERANGE. */
dcpk_status dcpk_hashed_count(struct dcpk_hashed *item, struct dcpk_error *err);
/* Put the items in order and count them by kind. */
void dcpk_hash_list_sort(struct dcpk_hash_list *list);

#endif
