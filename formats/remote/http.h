/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - requests to an HTTP server, signed for S3 where there are keys. */
#ifndef DCPK_FORMATS_REMOTE_HTTP_H
#define DCPK_FORMATS_REMOTE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/remote/aws_sign.h"
#include "lib/base/bytes.h"
#include "lib/base/error.h"

/*
 * Connections to servers by libcurl (tried: 7.81, 7.88), which is loaded here, by dlopen, so that
 * no other command needs it. Thread-safe: each request under way has a connection of its own, which
 * later requests use again. A request that fails on its way, whose body ends early, or that the
 * server answers with 429 or 5xx, is tried four times in about three seconds, or after the time
 * that it asks for, at most 30 seconds.
 */
struct http;

/* Borrowed until http_free. */
struct http_options {
    struct http_keys keys;
    const char *ca_file; /* the certificates that are trusted; NULL: those of libcurl */
    bool is_s3;
    bool (*is_stopped)(void); /* true: give up; from any thread; NULL: never */
};

/* Errors: DCPK_EUNSUPPORTED where libcurl is missing. */
dcpk_status http_new(const struct http_options *options, struct http **http,
                     struct dcpk_error *err);
void http_free(struct http *http); /* NULL: a no-op */

/* The file at `url` as the server describes it. */
#define HTTP_VERSION_BYTES 128
struct http_file {
    bool is_there; /* false: 404 */
    uint64_t n_bytes;
    char version[HTTP_VERSION_BYTES]; /* ETag, else Last-Modified; "": the server has neither */
};
/* Errors: DCPK_EIO for other answers, or a file without a length. */
dcpk_status http_look(struct http *http, const char *url, struct http_file *file,
                      struct dcpk_error *err);

/* Read the whole of `url`, which may be a listing, into `text`, in place of what it holds.
 * *is_there: false where the server answers 404; NULL: that is an error. Errors: DCPK_EIO;
 * DCPK_ERANGE for more than limit_bytes. */
dcpk_status http_fetch(struct http *http, const char *url, size_t limit_bytes,
                       struct dcpk_bytes *text, bool *is_there, struct dcpk_error *err);

/* Bytes of a file of file_bytes. */
struct http_range {
    uint64_t at, n_bytes;
    uint64_t file_bytes;
    const char *version; /* NULL: not known */
};
/* Read exactly that range. Errors: DCPK_EIO, also where the file has another length or version now,
 * or the server knows no ranges. */
dcpk_status http_read(struct http *http, const char *url, const struct http_range *range, void *out,
                      struct dcpk_error *err);

/* Append a path as it stands in a URL: percent signs for all but letters, digits and "-._~/";
 * is_value: for '/' as well. */
void http_put_path(struct dcpk_bytes *url, const char *path, bool is_value);
/* Resolve "%41" in place. Returns false for a malformed text or a NUL. */
bool http_resolve(char *text);

#endif
