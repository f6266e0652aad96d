/* SPDX-License-Identifier: Apache-2.0 */
/* test_groups_golden.c - parameter groups derived by rule are those that Megatron dumped
 * (lib/rules/RULES.md 2). */
#include <stdio.h>
#include <stdlib.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/io/store.h"
#include "lib/rules/rules.h"
#include "tests/check.h"

/* A checkpoint and the map that the same run dumped. */
static const struct {
    const char *checkpoint, *map;
    size_t n_params;
} goldens[] = {
    {"torch_dist_b_dense_tp2pp2/iter_0000004", "torch_dist_b_dense_tp2pp2_p2g", 27},
    {"torch_dist_c_moe_ep2pp2/iter_0000004", "torch_dist_c_moe_ep2pp2_p2g", 48},
    {"v016_moe_ep2pp2/iter_0000004", "v016_moe_ep2pp2_p2g", 48},
};

static struct dcpk_model *open_model(const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_model *model = NULL;
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", DCPK_SAMPLES, name);
    CHECK_OK(dcpk_store_open(path, &store, &err), name);
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), name);
    CHECK_OK(dcpk_model_new(ckpt, &model, &err), name);
    CHECK_OK(ckpt->format->mapping->to_model(ckpt, model, &err), name);
    return model;
}

static void close_model(struct dcpk_model *model)
{
    struct dcpk_checkpoint *ckpt = model->ckpt;

    dcpk_model_free(model);
    dcpk_checkpoint_close(ckpt);
}

static char *read_map(const char *name, size_t *n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_source *source = NULL;
    char path[4096], *text = NULL;

    snprintf(path, sizeof path, "%s/%s", DCPK_SAMPLES, name);
    CHECK_OK(dcpk_store_open(path, &store, &err), name);
    CHECK_OK(dcpk_store_find(store, "param_to_param_group_map.json", &source, &err), name);
    CHECK_OK(dcpk_source_slurp(source, 1 << 20, &text, n, &err), name);
    dcpk_store_close(store);
    return text;
}

static void the_rule_gives_what_megatron_dumped(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof goldens / sizeof goldens[0]; g++) {
        const char *label = goldens[g].checkpoint;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_rule_options derived = {.impl = DCPK_IMPL_ANY},
                                 mapped = {.impl = DCPK_IMPL_ANY};
        struct dcpk_model *by_rule = open_model(label), *by_map = open_model(label);
        size_t n_bytes, n_members = 0;
        char *text = read_map(goldens[g].map, &n_bytes);
        struct dcpk_json *doc = NULL;

        mapped.group_map = text;
        mapped.group_map_bytes = n_bytes;
        CHECK_OK(dcpk_rules_apply(by_rule, &derived, &err), label);
        CHECK_OK(dcpk_rules_apply(by_map, &mapped, &err), label);
        CHECK_EQ_INT(by_rule->n_params, goldens[g].n_params, label);
        CHECK_EQ_INT(by_map->n_params, goldens[g].n_params, label);
        for (size_t i = 0; i < by_rule->n_params; i++) {
            CHECK_EQ_STR(by_rule->params[i].name, by_map->params[i].name, label);
            CHECK(by_rule->params[i].group != DCPK_NO_GROUP, by_rule->params[i].name);
            CHECK_EQ_INT(by_rule->params[i].group, by_map->params[i].group,
                         by_rule->params[i].name);
        }
        /* The map names each of our parameters and no others. */
        CHECK_OK(dcpk_json_parse(text, n_bytes, &doc, &err), label);
        for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL; m = dcpk_json_next(m))
            n_members++;
        CHECK_EQ_INT(n_members, goldens[g].n_params, label);
        dcpk_json_free(doc);
        dcpk_free(text);
        close_model(by_rule);
        close_model(by_map);
    }
}

static void a_map_that_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *label, *json, *message;
        dcpk_status status;
    } maps[] = {
        {"empty", "{}", "lacks 'embedding.word_embeddings.weight'", DCPK_EMISMATCH},
        {"no such group", "{\"model.module.embedding.word_embeddings.weight\": 7}",
         "into group 7, the checkpoint has 2 groups", DCPK_EMISMATCH},
        {"no number", "{\"model.module.embedding.word_embeddings.weight\": \"x\"}",
         "has no group number", DCPK_EFORMAT},
        {"no object", "[]", "not a JSON object", DCPK_EFORMAT},
        {"no JSON", "{", "the parameter group map", DCPK_EFORMAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = open_model(goldens[0].checkpoint);
        struct dcpk_rule_options options = {.group_map = maps[i].json,
                                            .group_map_bytes = strlen(maps[i].json)};

        CHECK_FAILS(dcpk_rules_apply(model, &options, &err), maps[i].status, maps[i].message,
                    maps[i].label);
        close_model(model);
    }
}

static void a_contradicting_swiglu_switch_is_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = open_model(goldens[0].checkpoint);
    struct dcpk_rule_options options = {.swiglu = DCPK_SWIGLU_OFF};

    (void)state;
    CHECK_FAILS(dcpk_rules_apply(model, &options, &err), DCPK_EMISMATCH,
                "the checkpoint's args say swiglu=True", "off");
    close_model(model);
    model = open_model(goldens[0].checkpoint);
    model->args = NULL;
    options.swiglu = DCPK_SWIGLU_AUTO;
    CHECK_FAILS(dcpk_rules_apply(model, &options, &err), DCPK_EUSAGE, "whether fc1 is SwiGLU",
                "no args");
    CHECK_EQ_INT(err.fixes, DCPK_FIX_SWIGLU | DCPK_FIX_ARGS, "no args");
    close_model(model);
    model = open_model(goldens[0].checkpoint);
    options.swiglu = DCPK_SWIGLU_ON;
    err = (struct dcpk_error)DCPK_ERROR_INIT;
    CHECK_OK(dcpk_rules_apply(model, &options, &err), "on");
    for (size_t i = 0; i < model->n_params; i++)
        CHECK_EQ_INT(model->params[i].parts != NULL,
                     strstr(model->params[i].name, "linear_fc1.weight") != NULL,
                     model->params[i].name);
    close_model(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rule_gives_what_megatron_dumped),
        cmocka_unit_test(a_map_that_does_not_fit_is_refused),
        cmocka_unit_test(a_contradicting_swiglu_switch_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
