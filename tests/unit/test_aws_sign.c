/* SPDX-License-Identifier: Apache-2.0 */
/* test_aws_sign.c - signatures against those of botocore 1.44.8 (S3SigV4Auth). */
#include "formats/remote/aws_sign.h"
#include "tests/check.h"

#define NOW 1673786096 /* 2023-01-15T12:34:56Z */

static void check_lines(const struct http_keys *keys, const char *method, const char *url,
                        const char *const wanted[])
{
    const struct aws_request request = {method, url, NOW};
    struct dcpk_bytes lines = {0};
    size_t at = 0;

    aws_sign(keys, &request, &lines);
    assert_int_equal(lines.status, DCPK_OK);
    for (; *wanted != NULL; wanted++) {
        assert_true(at < lines.n_bytes);
        assert_string_equal((const char *)lines.data + at, *wanted);
        at += strlen(*wanted) + 1;
    }
    assert_int_equal(at, lines.n_bytes);
    dcpk_bytes_release(&lines);
}

static void signs_as_botocore(void **state)
{
    const struct http_keys plain = {"AKID", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", NULL,
                                    "eu-west-1"};
    /* longer than a block of SHA-256, as those of some stores are */
    const struct http_keys session = {
        "AKID", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "tok/en==", "auto"};

    (void)state;
    check_lines(
        &plain, "GET", "https://b.s3.eu-west-1.amazonaws.com/run/a%20b%2Bc%25",
        (const char *const[]){
            "Host: b.s3.eu-west-1.amazonaws.com", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
            "x-amz-date: 20230115T123456Z",
            "Authorization: AWS4-HMAC-SHA256 Credential=AKID/20230115/eu-west-1/s3/aws4_request, "
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
            "Signature=8bc67673b3332045b772334f27365e41e33476a0143b3fd4334e027aab9821ed",
            NULL});
    check_lines(
        &session, "HEAD", "http://127.0.0.1:9000/b?list-type=2&prefix=run%2F",
        (const char *const[]){
            "Host: 127.0.0.1:9000", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
            "x-amz-date: 20230115T123456Z", "x-amz-security-token: tok/en==",
            "Authorization: AWS4-HMAC-SHA256 Credential=AKID/20230115/auto/s3/aws4_request, "
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, "
            "Signature=7c32553bc879e39d8e1a817cdc0908a388556f2575a0868649d97f63857611e3",
            NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(signs_as_botocore)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
