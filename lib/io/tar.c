/* SPDX-License-Identifier: Apache-2.0 */
/* tar.c - the header of a plain file in a tar archive that we write. */
#include "lib/io/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES  100u
#define OCTAL_LIMIT (UINT64_C(1) << 33) /* 11 digits */
#define RECORDS     "PaxHeaders/records"

/* n - 1 octal digits and a NUL. */
static void put_octal(uint8_t *field, size_t n, uint64_t value)
{
    for (size_t i = n - 1; i-- > 0; value >>= 3)
        field[i] = (uint8_t)('0' + (value & 7));
}

static void put_block(struct dcpk_bytes *out, const char *name, char type, uint64_t n_bytes)
{
    uint8_t block[DCPK_TAR_BLOCK_BYTES] = {0};
    uint64_t sum = 0;

    memcpy(block, name, strnlen(name, NAME_BYTES));
    put_octal(block + 100, 8, 0644);                                 /* mode */
    put_octal(block + 108, 8, 0);                                    /* user */
    put_octal(block + 116, 8, 0);                                    /* group */
    put_octal(block + 124, 12, n_bytes < OCTAL_LIMIT ? n_bytes : 0); /* else in a record */
    put_octal(block + 136, 12, 0);                                   /* time */
    memset(block + 148, ' ', 8);                                     /* the sum counts as blanks */
    block[156] = (uint8_t)type;
    memcpy(block + 257, "ustar\00000", 8);
    put_octal(block + 329, 8, 0); /* device */
    put_octal(block + 337, 8, 0);
    for (size_t i = 0; i < sizeof block; i++)
        sum += block[i];
    put_octal(block + 148, 7, sum);
    dcpk_bytes_put(out, block, sizeof block);
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts its own digits too. */
static void put_record(struct dcpk_bytes *out, const char *key, const char *value)
{
    const size_t rest = strlen(key) + strlen(value) + 3;
    size_t n = rest, before;

    do {
        before = n;
        n = rest + (size_t)snprintf(NULL, 0, "%zu", before);
    } while (n != before);
    dcpk_bytes_printf(out, "%zu %s=%s\n", n, key, value);
}

void dcpk_tar_header(struct dcpk_bytes *out, const char *name, uint64_t n_bytes)
{
    struct dcpk_bytes records = {0};
    char text[24];

    if (strlen(name) > NAME_BYTES)
        put_record(&records, "path", name);
    if (n_bytes >= OCTAL_LIMIT) {
        snprintf(text, sizeof text, "%" PRIu64, n_bytes);
        put_record(&records, "size", text);
    }
    if (records.status != DCPK_OK && out->status == DCPK_OK)
        out->status = records.status;
    if (records.n_bytes > 0) {
        put_block(out, RECORDS, 'x', records.n_bytes);
        dcpk_bytes_put(out, records.data, records.n_bytes);
        dcpk_bytes_zeros(out, -records.n_bytes % DCPK_TAR_BLOCK_BYTES);
    }
    put_block(out, name, '0', n_bytes);
    dcpk_bytes_release(&records);
}
