/* SPDX-License-Identifier: Apache-2.0 */
/* archive_gzip.c - the checksums of a gzip file, which libarchive reads over. */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/archive/archive_priv.h"
#include "lib/base/alloc.h"

#define IN_BYTES   ((size_t)256 << 10)
#define OUT_BYTES  ((size_t)1 << 20)
#define AUTO_CHECK (MAX_WBITS + 16) /* zlib: a gzip header, and its trailer is checked */

struct gzip {
    int fd;
    uint64_t at; /* of the next byte to be read */
    uint8_t *in, *out;
    z_stream stream;
};

/* Fill stream.next_in; at the end of the file there is nothing. */
static dcpk_status refill(struct gzip *g, struct dcpk_error *err)
{
    ssize_t n;

    do {
        n = pread(g->fd, g->in, IN_BYTES, (off_t)g->at);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return dcpk_fail_errno(err, errno, "reading at byte %" PRIu64, g->at);
    g->at += (uint64_t)n;
    g->stream.next_in = g->in;
    g->stream.avail_in = (uInt)n;
    return DCPK_OK;
}

static const char *why(const z_stream *stream, int rc)
{
    if (rc == Z_BUF_ERROR)
        return "unexpected end of file";
    if (stream->msg == NULL)
        return "bad data";
    return stream->msg;
}

/* Inflate one member and drop its bytes. Its end: zlib has compared CRC-32 and length. */
static dcpk_status check_member(struct gzip *g, const struct dcpk_progress *progress,
                                struct dcpk_error *err)
{
    int rc = Z_OK;

    while (rc != Z_STREAM_END) {
        if (g->stream.avail_in == 0 && refill(g, err) != DCPK_OK)
            return err->status;
        if (progress != NULL && progress->update != NULL &&
            !progress->update(progress->context, g->at, 0))
            return dcpk_fail(err, DCPK_ECANCELLED, "stopped while checking");
        g->stream.next_out = g->out;
        g->stream.avail_out = (uInt)OUT_BYTES;
        rc = inflate(&g->stream, Z_NO_FLUSH);
        if (rc == Z_MEM_ERROR)
            return dcpk_fail(err, DCPK_ENOMEM, "no memory to inflate");
        if (rc != Z_OK && rc != Z_STREAM_END)
            return dcpk_fail(err, DCPK_EFORMAT, "gzip is damaged before byte %" PRIu64 ": %s",
                             g->at - g->stream.avail_in, why(&g->stream, rc));
    }
    return DCPK_OK;
}

/* Sets *found if another member follows. Other bytes that follow are padding, which gzip leaves out
 * as well. */
static dcpk_status find_member(struct gzip *g, bool *found, struct dcpk_error *err)
{
    uint8_t magic[2] = {0};
    ssize_t n;

    g->at -= g->stream.avail_in;
    g->stream.avail_in = 0;
    do {
        n = pread(g->fd, magic, sizeof magic, (off_t)g->at);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return dcpk_fail_errno(err, errno, "reading at byte %" PRIu64, g->at);
    *found = n == (ssize_t)sizeof magic && magic[0] == 0x1f && magic[1] == 0x8b;
    return DCPK_OK;
}

/* Every member, one after another. */
static dcpk_status gzip_check_members(struct gzip *g, const struct dcpk_progress *progress,
                                      struct dcpk_error *err)
{
    bool found = true;

    while (found) {
        if (check_member(g, progress, err) || find_member(g, &found, err))
            return err->status;
        (void)inflateReset(&g->stream); /* cannot fail on a stream that was made */
    }
    return DCPK_OK;
}

dcpk_status dcpk_archive_check_gzip(int fd, const struct dcpk_progress *progress,
                                    struct dcpk_error *err)
{
    struct gzip g = {.fd = fd};
    bool found = false;

    if (find_member(&g, &found, err) || !found)
        return err->status;
    if (inflateInit2(&g.stream, AUTO_CHECK) != Z_OK)
        return dcpk_fail(err, DCPK_ENOMEM, "no memory to inflate");
    g.in = dcpk_alloc(IN_BYTES, err);
    g.out = dcpk_alloc(OUT_BYTES, err);
    if (g.in != NULL && g.out != NULL)
        (void)gzip_check_members(&g, progress, err);
    (void)inflateEnd(&g.stream);
    dcpk_free(g.in);
    dcpk_free(g.out);
    return err->status;
}
