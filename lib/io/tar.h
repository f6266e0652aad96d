/* SPDX-License-Identifier: Apache-2.0 */
/* tar.h - the header of a plain file in a tar archive that we write. */
#ifndef DCPK_LIB_IO_TAR_H
#define DCPK_LIB_IO_TAR_H

#include <stdint.h>

#include "lib/base/bytes.h"

#define DCPK_TAR_BLOCK_BYTES  512u
#define DCPK_TAR_RECORD_BYTES 10240u /* an archive ends with two empty blocks, in whole records */

/*
 * Append the header of a plain file: one ustar block; before it a pax header where the name has
 * more than 100 bytes or the file 8 GiB or more. The file's bytes follow, filled up to a whole
 * block. Mode 0644, owner 0, time 0: nothing depends on who packs, or when. Errors are sticky in
 * `out`. Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header".
 */
void dcpk_tar_header(struct dcpk_bytes *out, const char *name, uint64_t n_bytes);

#endif
