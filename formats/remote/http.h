/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - requests to an HTTP server, signed for S3 where there are keys. */
#ifndef DCPK_FORMATS_REMOTE_HTTP_H
#define DCPK_FORMATS_REMOTE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"

/*
 * Connections to servers by libcurl (7.75 and later), which is loaded here, by dlopen, so that no
 * other command needs it. Thread-safe: each request under way has a connection of its own, which
 * later requests use again. A request that fails on its way, or that the server answers with 429 or
 * 5xx, is tried four times in about four seconds.
 */
struct http;

/* Sign requests by AWS's Signature Version 4 for the service "s3"; borrowed until http_free. */
struct http_keys {
    const char *id, *secret;
    const char *token; /* of a session; NULL: none */
    const char *region;
};

/* keys: NULL: requests are not signed. Errors: DCPK_EUNSUPPORTED where libcurl is missing or too
 * old. */
dcpk_status http_new(const struct http_keys *keys, struct http **http, struct dcpk_error *err);
void http_free(struct http *http); /* NULL: a no-op */

/* The file at `url` as the server describes it. */
struct http_file {
    bool is_there; /* false: 404, or 403 where a listing does not show it */
    uint64_t n_bytes;
};
/* Errors: DCPK_EIO for other answers, or a file without a length. */
dcpk_status http_look(struct http *http, const char *url, struct http_file *file,
                      struct dcpk_error *err);

/* Read the whole of `url`, which may be a listing, into `text`, in place of what it holds.
 * *is_there: false where the server answers 404. Errors: DCPK_EIO; DCPK_ERANGE for more than
 * limit_bytes. */
dcpk_status http_fetch(struct http *http, const char *url, size_t limit_bytes,
                       struct dcpk_bytes *text, bool *is_there, struct dcpk_error *err);

/* Bytes of a file of n_bytes. */
struct http_range {
    uint64_t at, n_bytes;
    uint64_t file_bytes;
};
/* Read exactly that range. Errors: DCPK_EIO, also where the file has another length now, or the
 * server knows no ranges. */
dcpk_status http_read(struct http *http, const char *url, const struct http_range *range, void *out,
                      struct dcpk_error *err);

/* Append a path as it stands in a URL: percent signs for all but letters, digits and "-._~/";
 * is_value: for '/' as well. */
void http_put_path(struct dcpk_bytes *url, const char *path, bool is_value);
/* Resolve "%41" in place. Returns false for a malformed text or a NUL. */
bool http_resolve(char *text);

#endif
