/* SPDX-License-Identifier: Apache-2.0 */
/* test_value_hash.c - one hash for a value, whichever protocol pickled it. */
#include "lib/base/digest.h"
#include "lib/ckpt/value_hash.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/hex.h"
#include "tests/unit/pickle_show.h"

/*
 * The value pickled by CPython 3.11 at protocols 2 and 4, and its hash, made by H() of
 * tests/interop/test_hash.py, which follows the rule of value_hash.h with Python's xxhash.
 */
static const struct {
    const char *label, *by_2, *by_4, *hash;
} cases[] = {
    {"None", "80024e2e", "80044e2e", "626d368fe0e74b4f1a038927df1311d6"},
    {"True", "8002882e", "8004882e", "1d33c0bd3511c80d20948828081ddcb4"},
    {"int 0", "80024b002e", "80044b002e", "65990da81804816bc193c06d71cbf0cd"},
    {"int -1", "80024affffffff2e", "80049506000000000000004affffffff2e",
     "777f9375569d0c39b61efb9fe0d18f80"},
    {"int 128", "80024b802e", "80044b802e", "c5ac74d144c81691037f2e8c770cfb1e"},
    {"int -128", "80024a80ffffff2e", "80049506000000000000004a80ffffff2e",
     "30df23c6367c0aa56edae8ad40b1acc1"},
    {"int 2^63", "80028a090000000000000080002e", "8004950c000000000000008a090000000000000080002e",
     "53a46180d1decd7fadc7cdae61dcd1d0"},
    {"float", "800247bff80000000000002e", "8004950a0000000000000047bff80000000000002e",
     "412f002918caf50147ab45b1a07eb499"},
    {"NaN", "8002477ff80000000000002e", "8004950a00000000000000477ff80000000000002e",
     "e3c5dc4957fadfcc3a822c8a233e84f0"},
    {"text", "8002580500000074c3ab787471002e", "80049509000000000000008c0574c3ab7874942e",
     "e7ce8a7e3b0d532bdff78c54338ab336"},
    {"bytes past a buffer",
     "8002635f636f646563730a656e636f64650a7100585a000000000102030405060708090a0b0c0d0e0f10111213141"
     "5161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f40414243"
     "4445464748494a4b4c4d4e4f50515253545556575859710158060000006c6174696e3171028671035271042e",
     "8004955e00000000000000435a000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202"
     "122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f"
     "50515253545556575859942e",
     "f4ac132f9d5990e17538b6d2308059e7"},
    {"bytearray",
     "8002635f5f6275696c74696e5f5f0a6279746561727261790a7100635f636f646563730a656e636f64650a7101580"
     "400000061c3bf62710258060000006c6174696e3171038671045271058571065271072e",
     "80049524000000000000008c086275696c74696e73948c09627974656172726179949394430361ff6294859452942"
     "e",
     "8e0fbd10dca2f7b566a2806dd1c9c335"},
    {"list in tuple", "80025d7100284b015801000000617101658571022e",
     "8004950d000000000000005d94284b018c0161946585942e", "0ac210ffbad0c87bb902498fd4bc0fb5"},
    {"set", "8002635f5f6275696c74696e5f5f0a7365740a71005d7101284b014b024b03658571025271032e",
     "8004950b000000000000008f94284b014b024b03902e", "69b273265c544b5e1279f6e7c3eac052"},
    {"dict in another order", "80027d71002858010000006271014b0158010000006171025d71034e61752e",
     "80049513000000000000007d94288c0162944b018c0161945d944e61752e",
     "b5021f85a0b6dfb301ae84bfd8ceb4eb"},
    {"OrderedDict",
     "800263636f6c6c656374696f6e730a4f726465726564446963740a7100295271012858010000006271024b0158010"
     "000006171035d71044e61752e",
     "80049532000000000000008c0b636f6c6c656374696f6e73948c0b4f72646572656444696374949394295294288c0"
     "162944b018c0161945d944e61752e",
     "b5021f85a0b6dfb301ae84bfd8ceb4eb"},
    {"Namespace",
     "80026361726770617273650a4e616d6573706163650a7100298171017d71022858020000006c727103473fe000000"
     "000000058010000006e71045d71054b016175622e",
     "80049539000000000000008c086172677061727365948c094e616d6573706163659493942981947d94288c026c729"
     "4473fe00000000000008c016e945d944b016175622e",
     "805e682735f93dbb26cf18b081eae400"},
    {"path",
     "800263706174686c69620a50757265506f736978506174680a710058010000002f710158010000006171028671035"
     "271042e",
     "80049529000000000000008c07706174686c6962948c0d50757265506f736978506174689493948c012f948c01619"
     "4869452942e",
     "d3d3c74bcc684a84b69da161d71cc673"},
    {"a module that moved", "636e756d70792e5f636f72652e6d756c746961727261790a7363616c61720a2e",
     "636e756d70792e636f72652e6d756c746961727261790a7363616c61720a2e",
     "a038c793b400dec289ca62f6d74162c8"},
};

static const char *hash_of(const char *hex, char text[33], const char *label)
{
    const struct dcpk_value_hashing hashing = {.elements = NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v = NULL;
    struct dcpk_hash hash = {{0}};
    size_t n;
    uint8_t *data = from_hex(hex, &n);
    dcpk_status st;

    CHECK_OK(dcpk_pickle_read(data, n, NULL, arena, &v, &err), label);
    st = dcpk_value_hash(v, &hashing, &hash, &err);
    CHECK(st == DCPK_OK || (st == DCPK_EUNSUPPORTED && err.text[0] != '\0'), label);
    free(data);
    dcpk_arena_free(arena);
    return st == DCPK_OK ? dcpk_hex_put(hash.digest, sizeof hash.digest, text) : "refused";
}

static void test_protocols(void **state)
{
    char text[33];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQ_STR(hash_of(cases[i].by_2, text, cases[i].label), cases[i].hash, cases[i].label);
        CHECK_EQ_STR(hash_of(cases[i].by_4, text, cases[i].label), cases[i].hash, cases[i].label);
    }
}

/* x = []; 10 times x = (x, x): the hash is that of the 1024 lists, one by one. */
static void test_shared(void **state)
{
    struct dcpk_bytes shared = {0}, apart = {0};
    char text[33], again[33];

    (void)state;
    dcpk_bytes_text(&shared, "80025d");
    for (int i = 0; i < 10; i++)
        dcpk_bytes_text(&shared, "3286"); /* DUP, TUPLE2 */
    dcpk_bytes_text(&shared, "2e");
    dcpk_bytes_u8(&shared, 0);
    dcpk_bytes_text(&apart, "8002");
    for (int i = 1; i <= 1024; i++) {
        dcpk_bytes_text(&apart, "5d");
        for (int k = 2; i % k == 0; k *= 2)
            dcpk_bytes_text(&apart, "86");
    }
    dcpk_bytes_text(&apart, "2e");
    dcpk_bytes_u8(&apart, 0);
    CHECK_EQ_STR(hash_of((const char *)shared.data, text, "shared"),
                 hash_of((const char *)apart.data, again, "apart"), "the same");
    CHECK_EQ_INT(strlen(text), 32, "it has one");
    dcpk_bytes_release(&shared);
    dcpk_bytes_release(&apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_protocols),
                                       cmocka_unit_test(test_shared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
