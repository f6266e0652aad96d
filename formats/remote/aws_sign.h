/* SPDX-License-Identifier: Apache-2.0 */
/* aws_sign.h - signs a request by AWS's Signature Version 4 for the service "s3". */
#ifndef DCPK_FORMATS_REMOTE_AWS_SIGN_H
#define DCPK_FORMATS_REMOTE_AWS_SIGN_H

#include <time.h>

#include "lib/base/bytes.h"

/* Borrowed. */
struct http_keys {
    const char *id, *secret; /* one NULL: requests are not signed */
    const char *token;       /* of a session; NULL: none */
    const char *region;
};

/* A request without a body; url: its path and query are encoded as AWS wants them, parameters in
 * the order of their names. */
struct aws_request {
    const char *method, *url;
    time_t now;
};

/*
 * Append the lines of its head, each with a NUL: host, date, token and signature. libcurl has this
 * as well, but before 7.87 it signs neither the token nor the port, and S3 refuses what comes out.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 */
void aws_sign(const struct http_keys *keys, const struct aws_request *request,
              struct dcpk_bytes *lines);

#endif
