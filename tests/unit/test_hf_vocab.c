/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_vocab.c - the rows of the vocabulary that an export writes. */
#include "tests/unit/hf_config_case.h"

/* A wish of 128 stored rows, as JSON has it. base NULL: no config.json is given. */
static dcpk_status find_rows(const char *args, const char *base, int64_t given, int64_t *n,
                             const char *label)
{
    const struct dcpk_json *args_doc, *base_doc = NULL;
    struct dcpk_hf_vocab wish;

    fresh();
    remarks[0] = '\0';
    args_doc = parse(args, label);
    if (base != NULL)
        base_doc = parse(base, label);
    wish = (struct dcpk_hf_vocab){.args = dcpk_hf_value(arena, args_doc, &err),
                                  .base = base_doc,
                                  .given = given,
                                  .stored_rows = 128,
                                  .remark = take_remark};
    (void)dcpk_hf_vocab_size(&wish, n, &err);
    dcpk_json_free((struct dcpk_json *)(uintptr_t)args_doc);
    dcpk_json_free((struct dcpk_json *)(uintptr_t)base_doc);
    return err.status;
}

static void rows_that_are_written(void **state)
{
    static const struct {
        const char *label, *args, *base;
        int64_t given, want;
    } cases[] = {
        {"given config.json", "{\"vocab_size\": 7}", "{\"vocab_size\": 90}", 0, 90},
        {"both, the same", "{\"vocab_size\": 7}", "{\"vocab_size\": 90}", 90, 90},
        {"given", "{\"vocab_size\": 7}", "{}", 80, 80},
        {"args", "{\"vocab_size\": 70}", NULL, 0, 70},
        {"all tokens", "{\"vocab_size\": 99}", NULL, 99, 99},
        {"all rows", "{\"vocab_size\": 99}", NULL, 127, 127},
        {"nothing", "{\"vocab_size\": null}", NULL, 0, 128},
        {"text in args", "{\"vocab_size\": \"70\"}", NULL, 0, 128},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        int64_t n = 0;

        CHECK_OK(find_rows(cases[i].args, cases[i].base, cases[i].given, &n, cases[i].label),
                 cases[i].label);
        CHECK_EQ_INT(n, cases[i].want, cases[i].label);
        CHECK_EQ_INT(strstr(remarks, "is not known") != NULL, cases[i].want == 128, cases[i].label);
    }
}

static void rows_that_are_refused(void **state)
{
    static const struct {
        const char *label, *args, *base;
        int64_t given;
        dcpk_status status;
        const char *says;
    } cases[] = {
        {"more than stored", "{}", NULL, 129, DCPK_EMISMATCH,
         "of 129 rows, and the checkpoint has 128"},
        {"more than stored in config.json", "{}", "{\"vocab_size\": 129}", 0, DCPK_EMISMATCH,
         "of 129 rows, and the checkpoint has 128"},
        {"fewer than tokens", "{\"vocab_size\": 99}", NULL, 98, DCPK_EMISMATCH,
         "of 98 would cut into the 99 tokens that args.vocab_size gives"},
        {"fewer than tokens in config.json", "{\"vocab_size\": 99}", "{\"vocab_size\": 98}", 0,
         DCPK_EMISMATCH, "of 98 would cut into the 99 tokens that args.vocab_size gives"},
        {"two sizes", "{}", "{\"vocab_size\": 120}", 99, DCPK_EUSAGE,
         "of 99 is asked for, and 'vocab_size' of the given config.json is 120"},
        {"text in config.json", "{}", "{\"vocab_size\": \"90\"}", 90, DCPK_EFORMAT,
         "'vocab_size' of the given config.json is not a number of rows"},
        {"null in config.json", "{}", "{\"vocab_size\": null}", 0, DCPK_EFORMAT,
         "is not a number of rows"},
        {"half a row in config.json", "{}", "{\"vocab_size\": 90.5}", 0, DCPK_EFORMAT,
         "is not a number of rows"},
        {"no row in config.json", "{\"vocab_size\": 7}", "{\"vocab_size\": 0}", 0, DCPK_EFORMAT,
         "is not a number of rows"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        int64_t n = -1;

        CHECK_FAILS(find_rows(cases[i].args, cases[i].base, cases[i].given, &n, cases[i].label),
                    cases[i].status, cases[i].says, cases[i].label);
        CHECK_EQ_INT(n, -1, cases[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_are_written),
        cmocka_unit_test(rows_that_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}
