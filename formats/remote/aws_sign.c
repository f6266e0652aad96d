/* SPDX-License-Identifier: Apache-2.0 */
/* aws_sign.c - AWS's Signature Version 4. */
#include "formats/remote/aws_sign.h"

#include "lib/base/digest.h"
#include "lib/base/hex.h"

#define BLOCK_BYTES 64 /* of SHA-256 */
#define PAYLOAD     "UNSIGNED-PAYLOAD"
#define NAMES       "host;x-amz-content-sha256;x-amz-date"

struct aws_code {
    uint8_t bytes[DCPK_SHA256_BYTES];
};

/* The hash of a key's block with a pad on each byte (NULL: none), and n bytes after it. */
static struct aws_code aws_hash(const uint8_t *key, uint8_t pad, const void *data, size_t n)
{
    struct aws_code code;
    struct dcpk_sha256 hash;
    uint8_t padded[BLOCK_BYTES];

    dcpk_sha256_begin(&hash);
    for (size_t i = 0; key != NULL && i < BLOCK_BYTES; i++)
        padded[i] = key[i] ^ pad;
    if (key != NULL)
        dcpk_sha256_update(&hash, padded, BLOCK_BYTES);
    dcpk_sha256_update(&hash, data, n);
    dcpk_sha256_digest(&hash, code.bytes);
    return code;
}

/* HMAC-SHA-256 (RFC 2104) of n bytes. libcrypto's own goes through EVP, which lib/base/digest.c
 * avoids. */
static struct aws_code aws_hmac(const void *key, size_t n_key, const void *data, size_t n)
{
    uint8_t block[BLOCK_BYTES] = {0};
    struct aws_code code;

    if (n_key > BLOCK_BYTES) {
        code = aws_hash(NULL, 0, key, n_key);
        memcpy(block, code.bytes, sizeof code.bytes);
    } else {
        memcpy(block, key, n_key);
    }
    code = aws_hash(block, 0x36, data, n);
    return aws_hash(block, 0x5c, code.bytes, sizeof code.bytes);
}

static void put_code(struct dcpk_bytes *text, const struct aws_code *code)
{
    char hex[2 * DCPK_SHA256_BYTES + 1];

    dcpk_bytes_text(text, dcpk_hex_put(code->bytes, sizeof code->bytes, hex));
}

/* The canonical request, of which the hash is signed. */
static void put_request(struct dcpk_bytes *text, const struct http_keys *keys,
                        const struct aws_request *request, const char *names, const char *date)
{
    const char *host = strstr(request->url, "://") + 3;
    const int n_host = (int)strcspn(host, "/"), n_path = (int)strcspn(host + n_host, "?");
    const char *query = host + n_host + n_path;

    dcpk_bytes_printf(text, "%s\n%.*s\n%s\n", request->method, n_path, host + n_host,
                      query + (*query == '?'));
    dcpk_bytes_printf(text, "host:%.*s\nx-amz-content-sha256:" PAYLOAD "\nx-amz-date:%s\n", n_host,
                      host, date);
    if (keys->token != NULL)
        dcpk_bytes_printf(text, "x-amz-security-token:%s\n", keys->token);
    dcpk_bytes_printf(text, "\n%s\n" PAYLOAD, names);
}

/* The key of this day and region, then the signature of `text` by it. */
static struct aws_code sign_text(const char *secret, const char *scope,
                                 const struct dcpk_bytes *text)
{
    struct aws_code code = {{0}};
    size_t n_part, n_key = strlen(secret);

    for (const void *key = secret; *scope != '\0'; key = code.bytes, n_key = sizeof code.bytes) {
        n_part = strcspn(scope, "/");
        code = aws_hmac(key, n_key, scope, n_part);
        scope += n_part + (scope[n_part] == '/');
    }
    return aws_hmac(code.bytes, sizeof code.bytes, text->data, text->n_bytes);
}

void aws_sign(const struct http_keys *keys, const struct aws_request *request,
              struct dcpk_bytes *lines)
{
    const char *host = strstr(request->url, "://") + 3;
    const char *names = keys->token == NULL ? NAMES : NAMES ";x-amz-security-token";
    struct dcpk_bytes text = {0}, secret = {0}, scope = {0};
    struct aws_code code;
    char date[32];
    struct tm utc;

    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&request->now, &utc));
    dcpk_bytes_printf(&scope, "%.8s/%s/s3/aws4_request%c", date, keys->region, 0);
    dcpk_bytes_printf(&secret, "AWS4%s%c", keys->secret, 0);
    put_request(&text, keys, request, names, date);
    if (text.status != DCPK_OK || secret.status != DCPK_OK || scope.status != DCPK_OK) {
        lines->status = DCPK_ENOMEM;
    } else {
        code = aws_hash(NULL, 0, text.data, text.n_bytes);
        text.n_bytes = 0;
        dcpk_bytes_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n", date, (const char *)scope.data);
        put_code(&text, &code);
        dcpk_bytes_printf(lines, "Host: %.*s%cx-amz-content-sha256: " PAYLOAD "%cx-amz-date: %s%c",
                          (int)strcspn(host, "/"), host, 0, 0, date, 0);
        if (keys->token != NULL)
            dcpk_bytes_printf(lines, "x-amz-security-token: %s%c", keys->token, 0);
        dcpk_bytes_printf(lines,
                          "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, "
                          "Signature=",
                          keys->id, (const char *)scope.data, names);
        code = sign_text((const char *)secret.data, (const char *)scope.data, &text);
        put_code(lines, &code);
        dcpk_bytes_u8(lines, 0);
    }
    dcpk_bytes_release(&text);
    dcpk_bytes_release(&secret);
    dcpk_bytes_release(&scope);
}
