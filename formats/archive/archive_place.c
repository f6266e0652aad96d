/* SPDX-License-Identifier: Apache-2.0 */
/* archive_place.c - checks a member's place against the header in front of it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "formats/archive/archive_priv.h"
#include "lib/base/cursor.h"

/* POSIX ustar, "Interchange Format": fields of the 512-byte header. */
#define TAR_BLOCK       512u
#define TAR_SIZE_AT     124u
#define TAR_SUM_AT      148u
#define TAR_SUM_BYTES   8u
#define TAR_TYPE_AT     156u
#define TAR_FIELD_BYTES 12u
#define TAR_OCTAL_LIMIT (UINT64_C(1) << 33) /* sizes from here on do not fit 11 octal digits */

/* APPNOTE.TXT 4.3.7: the local file header. */
#define ZIP_SIGNATURE     0x04034b50u
#define ZIP_HEADER        30u
#define ZIP_ENCRYPTED     1u
#define ZIP_SIZES_FOLLOW  8u
#define ZIP_SIZE_IN_EXTRA 0xffffffffu
#define ZIP_USUAL_EXTRA   256u
#define ZIP_MAX_EXTRA     65535u

static bool read_exactly(int fd, uint64_t at, uint8_t *out, size_t n)
{
    while (n > 0) {
        const ssize_t got = pread(fd, out, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += (uint64_t)got;
        out += got;
        n -= (size_t)got;
    }
    return true;
}

/* Octal digits, blanks around them; 12 of them fit. Base-256 (GNU, for huge sizes) is not
 * decoded. */
static bool parse_octal(const uint8_t *field, size_t n, uint64_t *value)
{
    uint64_t v = 0;
    size_t i = 0;

    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        v = v * 8 + (uint64_t)(field[i] - '0');
    *value = v;
    return i == n || field[i] == ' ' || field[i] == '\0';
}

static bool check_tar(int fd, uint64_t offset_bytes, uint64_t n_bytes)
{
    uint8_t header[TAR_BLOCK];
    uint64_t sum = 0, want, size;

    if (offset_bytes < TAR_BLOCK || !read_exactly(fd, offset_bytes - TAR_BLOCK, header, TAR_BLOCK))
        return false;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= TAR_SUM_AT && i < TAR_SUM_AT + TAR_SUM_BYTES ? ' ' : header[i];
    if (!parse_octal(header + TAR_SUM_AT, TAR_SUM_BYTES, &want) || sum != want)
        return false;
    if (header[TAR_TYPE_AT] != '0' && header[TAR_TYPE_AT] != '\0')
        return false;
    if (n_bytes >= TAR_OCTAL_LIMIT)
        return true; /* the size is in a pax record, or base-256; the checksum fits */
    return parse_octal(header + TAR_SIZE_AT, TAR_FIELD_BYTES, &size) && size == n_bytes;
}

/* True if all n bytes are the local header of a stored member of this name and size. */
static bool is_zip_header(const uint8_t *header, size_t n, const char *name, uint64_t n_bytes)
{
    const uint16_t flags = dcpk_load_u16le(header + 6), method = dcpk_load_u16le(header + 8);
    const uint32_t packed = dcpk_load_u32le(header + 18), size = dcpk_load_u32le(header + 22);
    const size_t n_name = dcpk_load_u16le(header + 26), n_extra = dcpk_load_u16le(header + 28);

    if (dcpk_load_u32le(header) != ZIP_SIGNATURE || method != 0 || (flags & ZIP_ENCRYPTED) != 0)
        return false;
    if (n_name != strlen(name) || ZIP_HEADER + n_name + n_extra != n ||
        memcmp(header + ZIP_HEADER, name, n_name) != 0)
        return false;
    if ((flags & ZIP_SIZES_FOLLOW) != 0 || size == ZIP_SIZE_IN_EXTRA)
        return true; /* sizes after the data, or in the extra field */
    return size == n_bytes && packed == n_bytes;
}

/* Look for a header that ends where the data starts, with an extra field of at most max_extra. */
static bool find_zip_header(int fd, const char *name, uint64_t offset_bytes, uint64_t n_bytes,
                            size_t max_extra)
{
    const size_t n_name = strlen(name), least = ZIP_HEADER + n_name;
    uint8_t window[ZIP_HEADER + DCPK_ARCHIVE_NAME_BYTES + ZIP_MAX_EXTRA];
    size_t n = least + max_extra;

    if (n_name > DCPK_ARCHIVE_NAME_BYTES || offset_bytes < least)
        return false;
    if (n > offset_bytes)
        n = (size_t)offset_bytes;
    if (!read_exactly(fd, offset_bytes - n, window, n))
        return false;
    for (size_t at = n - least + 1; at-- > 0;)
        if (is_zip_header(window + at, n - at, name, n_bytes))
            return true;
    return false;
}

bool dcpk_archive_check_place(int fd, enum dcpk_archive_kind kind, const char *name,
                              uint64_t offset_bytes, uint64_t n_bytes)
{
    if (kind == DCPK_ARCHIVE_TAR)
        return check_tar(fd, offset_bytes, n_bytes);
    return find_zip_header(fd, name, offset_bytes, n_bytes, ZIP_USUAL_EXTRA) ||
           find_zip_header(fd, name, offset_bytes, n_bytes, ZIP_MAX_EXTRA);
}
