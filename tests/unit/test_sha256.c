/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha256.c - SHA-256 and hexadecimal digits. */
#include "lib/base/digest.h"

#include "lib/base/hex.h"
#include "tests/check.h"

/* FIPS 180-4 examples of NIST's Cryptographic Standards, SHA256.pdf and SHA2_Additional.pdf. */
static const struct {
    const char *label, *text, *want;
    size_t n_times;
} cases[] = {
    {"empty", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 1},
    {"one block", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 1},
    {"two blocks", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1", 1},
    {"a million letters", "aaaaaaaaaa",
     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", 100000},
};

static void test_digests(void **state)
{
    struct dcpk_sha256 hash;
    uint8_t digest[DCPK_SHA256_BYTES];
    char text[2 * sizeof digest + 1];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcpk_sha256_begin(&hash);
        for (size_t n = 0; n < cases[i].n_times; n++)
            dcpk_sha256_update(&hash, cases[i].text, strlen(cases[i].text));
        dcpk_sha256_digest(&hash, digest);
        CHECK_EQ_STR(dcpk_hex_put(digest, sizeof digest, text), cases[i].want, cases[i].label);
    }
}

static void test_hex(void **state)
{
    static const char *const refused[] = {"",       "00ff1",  "00ff1a2", "00FF1a", "0x00ff",
                                          "00ff1g", "00ff1:", "00ff1`",  " 00ff1"};
    uint8_t data[3] = {1, 2, 3};

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(!dcpk_hex_get(refused[i], data, sizeof data), refused[i]);
    CHECK_EQ_INT(data[0] + data[1] + data[2], 6, "not touched");
    CHECK(dcpk_hex_get("00ff1a", data, sizeof data), "six digits");
    CHECK(data[0] == 0 && data[1] == 0xff && data[2] == 0x1a, "their bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_digests), cmocka_unit_test(test_hex)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
