/* SPDX-License-Identifier: Apache-2.0 */
/* archive_scan.c - lists an archive's members with libarchive, in place or while unpacking them. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/archive/archive_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/checked.h"
#include "lib/base/clock.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"

/* ---- checks a member's place against the header before it ---- */

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

/*
 * True if n_bytes of plain data of the member `name` (as the archive spells it) start at
 * offset_bytes, by the header before them. False also when it cannot be read: unpacking then
 * fails with the reason.
 */
static bool archive_check_place(int fd, enum dcpk_member_kind kind, const char *name,
                                uint64_t offset_bytes, uint64_t n_bytes)
{
    if (kind == DCPK_ARCHIVE_TAR)
        return check_tar(fd, offset_bytes, n_bytes);
    return find_zip_header(fd, name, offset_bytes, n_bytes, ZIP_USUAL_EXTRA) ||
           find_zip_header(fd, name, offset_bytes, n_bytes, ZIP_MAX_EXTRA);
}

#define MAX_FOLDERS    64u /* around a file; each is looked at for what makes it a checkpoint */
#define MAX_READ_BYTES ((size_t)1 << 20)
#define MAX_MEMBERS    ((size_t)1 << 22) /* a checkpoint of 100 000 ranks has fewer files */
#define MAX_RATIO      1000u             /* unpacked to packed; FORMAT.md 5 */
#define FREE_BYTES     (UINT64_C(64) << 20)
/* Memory for a member, here and in the store: twice the name, and the tables around it. */
#define MEMBER_BYTES     300u
#define FREE_KEPT_BYTES  (UINT64_C(32) << 20)
#define MAX_KEPT         32u /* for each byte of the archive: a tar's header alone has 512 */
#define PROGRESS_SECONDS 0.1

/* A walk over the archive, of one of the two kinds. */
struct scan {
    struct dcpk_member_list *list;
    struct archive *archive;
    int archive_fd;
    bool unpacks;      /* into list->fd; else members must lie plainly in the archive */
    bool needs_unpack; /* set by a walk that does not unpack: it found one that does not */
    uint64_t limit_bytes;
    double reported_seconds;
};

static dcpk_status not_an_archive(const struct scan *s, struct dcpk_error *err)
{
    static const struct {
        const char *magic, *name;
    } packers[] = {{"\xfd"
                    "7zXZ",
                    "xz"},
                   {"BZh", "bzip2"},
                   {"\x04\x22\x4d\x18", "lz4"}};
    char begin[8] = {0};

    if (pread(s->archive_fd, begin, sizeof begin - 1, 0) > 0)
        for (size_t i = 0; i < DCPK_COUNT(packers); i++)
            if (strncmp(begin, packers[i].magic, strlen(packers[i].magic)) == 0)
                return dcpk_fail(err, DCPK_EFORMAT,
                                 "packed with %s, which is not read (gzip, zstd and zip are): "
                                 "unpack it first, with 'tar -xf'",
                                 packers[i].name);
    return dcpk_fail(err, DCPK_EFORMAT,
                     "neither a tar (plain, or packed with gzip or zstd) nor a zip archive; a "
                     "checkpoint is a folder, or in such an archive");
}

static dcpk_status archive_error(const struct scan *s, struct dcpk_error *err)
{
    const char *text = archive_error_string(s->archive);
    const int code = archive_errno(s->archive);

    if (archive_format(s->archive) == 0 && code == EILSEQ) /* its word for it */
        return not_an_archive(s, err);
    if (code > 0 && code != ENOMEM && code != EILSEQ && code != EINVAL) /* of a system call */
        return dcpk_fail_errno(err, code, "%.400s", text == NULL ? "reading" : text);
    if (text == NULL)
        text = "malformed archive";
    return dcpk_fail(err, code == ENOMEM ? DCPK_ENOMEM : DCPK_EFORMAT, "%.400s", text);
}

/* Only decoders that are in libarchive itself: without one it would start a program. */
static dcpk_status open_archive(struct scan *s, struct dcpk_error *err)
{
    const uint64_t n_bytes = s->list->archive_bytes;
    const size_t read_bytes = (size_t)dcpk_min_u64(n_bytes, MAX_READ_BYTES);
    struct archive *a = archive_read_new();

    if (a == NULL)
        return dcpk_fail(err, DCPK_ENOMEM, "no memory to read an archive");
    s->archive = a;
    archive_read_support_format_tar(a);
    archive_read_support_format_zip_seekable(a);
    if (archive_zlib_version() != NULL)
        archive_read_support_filter_gzip(a);
    if (archive_libzstd_version() != NULL)
        archive_read_support_filter_zstd(a);
    if (lseek(s->archive_fd, 0, SEEK_SET) != 0)
        return dcpk_fail_errno(err, errno, "seeking");
    if (archive_read_open_fd(a, s->archive_fd, read_bytes) != ARCHIVE_OK)
        return archive_error(s, err);
    return DCPK_OK;
}

static bool report_progress(struct scan *s)
{
    const struct dcpk_progress *progress = s->list->progress;
    const int64_t done = archive_filter_bytes(s->archive, -1);
    const double now = dcpk_now_seconds();

    if (progress == NULL || progress->update == NULL || done < 0)
        return true;
    if (now - s->reported_seconds < PROGRESS_SECONDS)
        return true;
    s->reported_seconds = now;
    return progress->update(progress->context, (uint64_t)done, s->list->archive_bytes);
}

/* Copy a member's name without empty and "." parts. */
static dcpk_status clean_name(const char *raw, char name[DCPK_ARCHIVE_NAME_BYTES],
                              struct dcpk_error *err)
{
    size_t n = 0, n_parts = 0;

    if (raw[0] == '/')
        return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is an absolute name", raw);
    for (const char *part = raw; *part != '\0';) {
        const size_t n_part = strcspn(part, "/");

        if (n_part == 2 && memcmp(part, "..", 2) == 0)
            return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' leaves the archive's folder", raw);
        if (n_part > 0 && !(n_part == 1 && part[0] == '.')) {
            if (n + n_part + 2 > DCPK_ARCHIVE_NAME_BYTES)
                return dcpk_fail(err, DCPK_EFORMAT, "the name '%.200s...' has more than %d bytes",
                                 raw, DCPK_ARCHIVE_NAME_BYTES);
            if (++n_parts > MAX_FOLDERS + 1)
                return dcpk_fail(err, DCPK_EFORMAT, "'%.200s...' lies in more than %u folders", raw,
                                 MAX_FOLDERS);
            if (n > 0)
                name[n++] = '/';
            memcpy(name + n, part, n_part);
            n += n_part;
        }
        part += n_part + (part[n_part] == '/');
    }
    name[n] = '\0';
    return DCPK_OK;
}

/* Names the kind of an entry that is neither a plain file nor a folder; NULL: it is one of them. */
static const char *oddity_of(struct archive_entry *entry)
{
    if (archive_entry_hardlink(entry) != NULL || archive_entry_filetype(entry) == AE_IFLNK)
        return "a link";
    if (archive_entry_filetype(entry) == AE_IFREG || archive_entry_filetype(entry) == AE_IFDIR)
        return NULL;
    return "a device, pipe or socket";
}

/* Checks the memory for all members so far: its bound follows from the archive's size, not from
 * that of its contents. */
static dcpk_status check_kept(struct dcpk_member_list *list, size_t n_name, struct dcpk_error *err)
{
    uint64_t limit_bytes;

    list->kept_bytes += 2 * (uint64_t)n_name + MEMBER_BYTES;
    if (!dcpk_mul_u64(list->archive_bytes, MAX_KEPT, &limit_bytes) ||
        !dcpk_add_u64(limit_bytes, FREE_KEPT_BYTES, &limit_bytes) ||
        list->kept_bytes <= limit_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "its names pass the limit of %" PRIu64 " bytes for an archive of %" PRIu64
                     " at member %zu; if that is right, unpack it and give the folder",
                     limit_bytes, list->archive_bytes, list->n);
}

static dcpk_status archive_add_member(struct dcpk_member_list *list, const char *name,
                                      const char *oddity, struct dcpk_member **member,
                                      struct dcpk_error *err)
{
    const size_t n_name = strlen(name);
    uint64_t found;
    bool existed;
    char *copy;

    if (list->n == MAX_MEMBERS)
        return dcpk_fail(err, DCPK_ERANGE, "it has more than %zu members", MAX_MEMBERS);
    if (n_name == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "member %zu has no name", list->n);
    if (check_kept(list, n_name, err) ||
        dcpk_grow(&list->members, &list->capacity, list->n, sizeof *list->members, err))
        return err->status;
    copy = dcpk_arena_strndup(list->arena, name, n_name, err);
    if (copy == NULL || dcpk_map_put(&list->by_name, copy, n_name, list->n, &existed, &found, err))
        return err->status;
    if (existed)
        return dcpk_fail(err, DCPK_EFORMAT, "it has '%.200s' twice", name);
    list->members[list->n] = (struct dcpk_member){.name = copy, .oddity = oddity};
    *member = &list->members[list->n++];
    return DCPK_OK;
}

/* More than FORMAT.md's limit: a bomb, or all zeros. */
static dcpk_status check_unpacked(const struct scan *s, uint64_t n_bytes, struct dcpk_error *err)
{
    if (n_bytes <= s->limit_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "it unpacks to more than %" PRIu64 " bytes, %u times its own %" PRIu64
                     "; if that is right, unpack it and give the folder",
                     s->limit_bytes, MAX_RATIO, s->list->archive_bytes);
}

static dcpk_status write_block(struct scan *s, const uint8_t *data, size_t n, uint64_t at,
                               struct dcpk_error *err)
{
    while (n > 0) {
        const ssize_t put = pwrite(s->list->fd, data, n, (off_t)at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return dcpk_fail_errno(err, put < 0 ? errno : EIO,
                                   "unpacking to a temporary file in '%s', %" PRIu64
                                   " bytes so far (TMPDIR says where; or unpack it and give the "
                                   "folder)",
                                   s->list->temporary, at);
        data += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return DCPK_OK;
}

/* Copy a member's data after what was unpacked before. */
static dcpk_status unpack_member(struct scan *s, struct dcpk_member *member, struct dcpk_error *err)
{
    const uint64_t start = s->list->unpacked_bytes;
    uint64_t end = start, block_end;
    const void *block;
    size_t n;
    la_int64_t at;
    int rc;

    while ((rc = archive_read_data_block(s->archive, &block, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || !dcpk_add_u64(start, (uint64_t)at, &block_end) ||
            !dcpk_add_u64(block_end, n, &block_end))
            return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' has no possible size", member->name);
        if (check_unpacked(s, block_end, err) || write_block(s, block, n, block_end - n, err))
            return err->status;
        end = dcpk_max_u64(end, block_end);
        if (!report_progress(s))
            return dcpk_fail(err, DCPK_ECANCELLED, "stopped while unpacking");
    }
    if (rc != ARCHIVE_EOF)
        return archive_error(s, err);
    do {
        rc = ftruncate(s->list->fd, (off_t)end); /* a hole at the end */
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return dcpk_fail_errno(err, errno, "giving the temporary file %" PRIu64 " bytes", end);
    member->offset_bytes = start;
    member->n_bytes = end - start;
    s->list->unpacked_bytes = end;
    return DCPK_OK;
}

/* Take a member where it lies; sets needs_unpack where it does not lie plainly. */
static dcpk_status place_member(struct scan *s, struct archive_entry *entry, const char *raw,
                                struct dcpk_member *member, struct dcpk_error *err)
{
    const bool is_zip =
        (archive_format(s->archive) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_ZIP;
    const int64_t at = archive_filter_bytes(s->archive, 0), n = archive_entry_size(entry);

    if (!archive_entry_size_is_set(entry) || archive_entry_sparse_count(entry) > 0 || at < 0 ||
        n < 0 ||
        !archive_check_place(s->archive_fd, is_zip ? DCPK_ARCHIVE_ZIP : DCPK_ARCHIVE_TAR, raw,
                             (uint64_t)at, (uint64_t)n)) {
        s->needs_unpack = true;
        return DCPK_OK;
    }
    member->offset_bytes = (uint64_t)at;
    member->n_bytes = (uint64_t)n;
    if (member->n_bytes > s->list->archive_bytes ||
        member->offset_bytes > s->list->archive_bytes - member->n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "cut short: '%.200s' has %" PRIu64 " bytes from byte %" PRIu64
                         " on, the archive %" PRIu64,
                         member->name, member->n_bytes, member->offset_bytes,
                         s->list->archive_bytes);
    return DCPK_OK;
}

static dcpk_status archive_take_entry(struct scan *s, struct archive_entry *entry,
                                      struct dcpk_error *err)
{
    const char *raw = archive_entry_pathname(entry), *oddity = oddity_of(entry);
    char name[DCPK_ARCHIVE_NAME_BYTES];
    struct dcpk_member *member = NULL;

    if (raw == NULL) /* not in the locale's letters */
        raw = archive_entry_pathname_utf8(entry);
    if (raw == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "the name of member %zu cannot be read", s->list->n);
    if (clean_name(raw, name, err))
        return err->status;
    if (oddity == NULL && archive_entry_filetype(entry) == AE_IFDIR)
        return DCPK_OK;
    if (archive_entry_is_encrypted(entry))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%.200s' is encrypted", name);
    if (archive_add_member(s->list, name, oddity, &member, err))
        return err->status;
    if (oddity != NULL)
        return DCPK_OK;
    if (s->unpacks)
        return unpack_member(s, member, err);
    return place_member(s, entry, raw, member, err);
}

/* The members one by one, until one cannot be read where it is. */
static dcpk_status walk_members(struct scan *s, struct dcpk_error *err)
{
    struct archive_entry *entry;

    while (!s->needs_unpack) {
        const int rc = archive_read_next_header(s->archive, &entry);

        if (rc == ARCHIVE_EOF)
            return DCPK_OK;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN) /* a warning: of owners, times, letters */
            return archive_error(s, err);
        if (!s->unpacks && archive_filter_code(s->archive, 0) != ARCHIVE_FILTER_NONE)
            s->needs_unpack = true;
        else if (archive_take_entry(s, entry, err))
            return err->status;
        if (archive_filter_bytes(s->archive, 0) > 0 && /* headers count as well */
            check_unpacked(s, (uint64_t)archive_filter_bytes(s->archive, 0), err))
            return err->status;
        if (!report_progress(s))
            return dcpk_fail(err, DCPK_ECANCELLED, "stopped");
    }
    return DCPK_OK;
}

static dcpk_status archive_walk(struct scan *s, struct dcpk_error *err)
{
    if (open_archive(s, err) == DCPK_OK)
        (void)walk_members(s, err);
    archive_read_free(s->archive);
    s->archive = NULL;
    return err->status;
}

/* A file without a name, gone with its descriptor. */
static dcpk_status archive_open_temporary(struct dcpk_member_list *list, struct dcpk_error *err)
{
    const char *folder = getenv("TMPDIR");
    struct dcpk_bytes path = {0};

    if (folder == NULL || folder[0] == '\0')
        folder = "/tmp";
    list->temporary = folder;
    list->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (list->fd >= 0)
        return DCPK_OK;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
        return dcpk_fail_errno(err, errno, "making a temporary file in '%s' (TMPDIR)", folder);
    dcpk_bytes_printf(&path, "%s/dcpkit-XXXXXX", folder); /* file systems without them */
    dcpk_bytes_u8(&path, 0);
    if (dcpk_bytes_status(&path, err) == DCPK_OK) {
        list->fd = mkostemp((char *)path.data, O_CLOEXEC);
        if (list->fd < 0)
            (void)dcpk_fail_errno(err, errno, "making a temporary file in '%s' (TMPDIR)", folder);
        else
            (void)unlink((char *)path.data);
    }
    dcpk_bytes_release(&path);
    return err->status;
}

static void new_list(struct dcpk_member_list *list)
{
    dcpk_map_release(&list->by_name);
    list->by_name = (struct dcpk_map){0};
    list->n = 0;
    list->kept_bytes = 0;
    dcpk_arena_free(list->arena);
    list->arena = dcpk_arena_new();
}

/* Once more, with a temporary file that takes what the members hold. */
static dcpk_status unpack(struct scan *s, struct dcpk_error *err)
{
    s->needs_unpack = false;
    s->unpacks = s->list->is_unpacked = true;
    new_list(s->list);
    if (archive_open_temporary(s->list, err) || archive_walk(s, err))
        return err->status;
    return dcpk_archive_check_gzip(s->archive_fd, s->list->progress, err);
}

dcpk_status dcpk_archive_scan(struct dcpk_member_list *list, struct dcpk_error *err)
{
    struct scan s = {.list = list};
    struct stat info;

    s.archive_fd = open(list->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (s.archive_fd < 0 || fstat(s.archive_fd, &info) != 0) {
        (void)dcpk_fail_errno(err, errno, "opening '%s'", list->path);
        goto out;
    }
    list->archive_bytes = (uint64_t)info.st_size;
    if (!dcpk_mul_u64(list->archive_bytes, MAX_RATIO, &s.limit_bytes) ||
        !dcpk_add_u64(s.limit_bytes, FREE_BYTES, &s.limit_bytes) || s.limit_bytes > INT64_MAX)
        s.limit_bytes = INT64_MAX;
    new_list(list);
    if (archive_walk(&s, err) == DCPK_OK && s.needs_unpack)
        (void)unpack(&s, err);
out:
    if (err->status == DCPK_OK && !list->is_unpacked)
        list->fd = s.archive_fd;
    else if (s.archive_fd >= 0)
        close(s.archive_fd);
    return err->status;
}

void dcpk_archive_release(struct dcpk_member_list *list)
{
    if (list->fd >= 0)
        close(list->fd);
    list->fd = -1;
    dcpk_map_release(&list->by_name);
    dcpk_free(list->members);
    dcpk_arena_free(list->arena);
}
