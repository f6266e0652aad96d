/* SPDX-License-Identifier: Apache-2.0 */
/* test_integrity.c - Megatron's list of file checksums, read and written. */
#include "lib/ckpt/integrity.h"

#include "lib/base/alloc.h"
#include "tests/check.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

/* json.dumps({"algorithm": "sha256", "files": {...}}, indent=2) of CPython 3.11, the names sorted
 * by pathlib as Megatron does. */
static const char two_files[] = "{\n"
                                "  \"algorithm\": \"sha256\",\n"
                                "  \"files\": {\n"
                                "    \".metadata\": \"" ZEROS "\",\n"
                                "    \"__0_0.distcp\": \"" ZEROS "\",\n"
                                "    \"caf\\u00e9\": \"" ZEROS "\"\n"
                                "  }\n"
                                "}";

static struct dcpk_store *store_with(const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;

    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    if (text != NULL)
        CHECK_OK(dcpk_store_add_memory(store, DCPK_INTEGRITY_NAME, text, strlen(text), &err),
                 "list");
    return store;
}

/* The list itself and what is in folders are left out. */
static void test_collect(void **state)
{
    static const char *const names[] = {"caf\xc3\xa9", "__0_0.distcp", "folder/inner", ".metadata"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = store_with("old");
    struct dcpk_integrity list = {0};
    struct dcpk_bytes text = {0};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(dcpk_store_add_memory(store, names[i], "x", 1, &err), names[i]);
    CHECK_OK(dcpk_integrity_collect(store, &list, &err), "collect");
    dcpk_integrity_put(&list, &text);
    dcpk_bytes_u8(&text, 0);
    CHECK_OK(dcpk_bytes_status(&text, &err), "put");
    CHECK_EQ_STR((const char *)text.data, two_files, "text");
    dcpk_bytes_release(&text);
    dcpk_integrity_release(&list);
    dcpk_store_close(store);
}

static void test_read(void **state)
{
    static const char *const texts[] = {
        two_files,
        /* as Megatron: without an algorithm it is sha256; what else is there does not matter */
        "{\"files\": {\"a\": \"" ZEROS "\", \"b\": \"" ZEROS "\", \"c\": \"" ZEROS
        "\"}, \"x\": 1}"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store = store_with(texts[i]);
        struct dcpk_integrity list = {0};

        CHECK_OK(dcpk_integrity_read(store, &list, &err), texts[i]);
        CHECK_EQ_INT(list.n_files, 3, texts[i]);
        CHECK_EQ_STR(list.files[2].name, i == 0 ? "caf\xc3\xa9" : "c", texts[i]);
        dcpk_integrity_release(&list);
        dcpk_store_close(store);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        dcpk_status status;
        const char *message;
    } cases[] = {
        {NULL, DCPK_EIO, "'integrity.json' in 'memory'"},
        {"", DCPK_EFORMAT, "reading 'integrity.json'"},
        {"[]", DCPK_EFORMAT, "not a JSON object"},
        {"{}", DCPK_EFORMAT, "no object 'files'"},
        {"{\"files\": []}", DCPK_EFORMAT, "no object 'files'"},
        {"{\"algorithm\": \"md5\", \"files\": {}}", DCPK_EUNSUPPORTED, "'md5' is not known"},
        {"{\"algorithm\": 5, \"files\": {}}", DCPK_EUNSUPPORTED, "is not known"},
        {"{\"files\": {\"a\": 5}}", DCPK_EFORMAT, "'a' has no SHA-256"},
        {"{\"files\": {\"a\": \"00\"}}", DCPK_EFORMAT, "'a' has no SHA-256"},
        {"{\"files\": {\"a\": \"" ZEROS "\", \"a\": \"" ZEROS "\"}}", DCPK_EFORMAT, "twice"},
        {"{\"files\": {\"a\": \"" ZEROS "\"}", DCPK_EFORMAT, "reading 'integrity.json'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store = store_with(cases[i].text);
        struct dcpk_integrity list = {0};

        CHECK_FAILS(dcpk_integrity_read(store, &list, &err), cases[i].status, cases[i].message,
                    cases[i].text == NULL ? "no list" : cases[i].text);
        dcpk_integrity_release(&list);
        dcpk_store_close(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_collect), cmocka_unit_test(test_read),
                                       cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
