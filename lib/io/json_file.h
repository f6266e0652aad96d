/* SPDX-License-Identifier: Apache-2.0 */
/* json_file.h - JSON in the file of a store. */
#ifndef DCPK_LIB_IO_JSON_FILE_H
#define DCPK_LIB_IO_JSON_FILE_H

#include "lib/base/json.h"
#include "lib/io/store.h"

/* The same of the file `name` in a store. Errors also: those of finding and reading it;
 * DCPK_ERANGE when it is larger than limit_bytes. */
dcpk_status dcpk_json_read(struct dcpk_store *store, const char *name, uint64_t limit_bytes,
                           struct dcpk_json **doc, struct dcpk_error *err);

#endif
