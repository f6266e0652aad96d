/* SPDX-License-Identifier: Apache-2.0 */
/* test_drop_unknown.c - what Python would import or call on loading is neither kept nor written. */
#include "tests/fake_model.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/model/account.h"

static bool is_known(const char *module, const char *name)
{
    return strcmp(module, "numpy") == 0 && strcmp(name, "ndarray") == 0;
}

static const struct dcpk_format format = {.name = "fake", .is_known = is_known};

/* What `os.system("...")` is in a pickle, and an array as RNG states have them. */
static const struct dcpk_value_object call = {"posix", "system", .is_reduce = true};
static const struct dcpk_value_object array = {"numpy", "ndarray", .is_known = true};
static const struct dcpk_value evil = {.kind = DCPK_V_OBJECT, .as.object = &call};
static const struct dcpk_value known = {.kind = DCPK_V_OBJECT, .as.object = &array};
static const struct dcpk_value global = {.kind = DCPK_V_GLOBAL,
                                         .as.global = {.module = "builtins", .name = "eval"}};

static const struct dcpk_value *dict(struct dcpk_model *m, const char *name,
                                     const struct dcpk_value *v, const char *other)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair *pairs = dcpk_arena_array(m->arena, 2, sizeof *pairs, &err);

    pairs[0] = (struct dcpk_value_pair){dcpk_value_str(m->arena, name, &err), v};
    pairs[1] = (struct dcpk_value_pair){dcpk_value_str(m->arena, other, &err),
                                        dcpk_value_int(m->arena, 7, &err)};
    return dcpk_value_dict(m->arena, pairs, 2, &err);
}

static bool is_dropped(const struct dcpk_model *m, const char *key)
{
    for (const struct dcpk_note *note = m->dropped; note != NULL; note = note->next)
        if (dcpk_starts_with(note->text, key) && note->text[strlen(key)] == '\t')
            return true;
    return false;
}

static void drops_what_python_would_run(void **state)
{
    struct dcpk_checkpoint ckpt = {.format = &format};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *m = fake_model_new(&ckpt, "model");
    const struct dcpk_value *groups[1], *inner, *items[1];
    struct dcpk_value nested = {.kind = DCPK_V_LIST, .n = 1};

    (void)state;
    items[0] = &evil;
    nested.as.items = items;
    m->iteration = &evil;
    m->version = &global;
    m->flops = dcpk_value_int(m->arena, 3, &err);
    m->scheduler = dict(m, "max_lr", &evil, "min_lr");
    inner = dict(m, "deep", &nested, "shallow");
    m->further = dict(m, "mine", inner, "yours");
    groups[0] = dict(m, "lr", &evil, "step");
    m->groups = groups;
    m->n_groups = 1;
    CHECK_OK(dcpk_model_drop_unknown(m, &err), "drop");
    CHECK(m->iteration == NULL && is_dropped(m, "iteration"), "iteration");
    CHECK(m->version == NULL && is_dropped(m, "checkpoint_version"), "a bare global");
    CHECK(m->flops != NULL, "a number stays");
    CHECK(dcpk_value_get(m->scheduler, "max_lr") == NULL, "the entry goes");
    CHECK(dcpk_value_get(m->scheduler, "min_lr") != NULL, "the others stay");
    CHECK(is_dropped(m, "opt_param_scheduler.max_lr"), "and is named");
    CHECK(dcpk_value_get(m->further, "mine") == NULL, "deep inside");
    CHECK(dcpk_value_get(m->groups[0], "lr") == NULL, "of a group");
    CHECK(dcpk_value_get(m->groups[0], "step") != NULL, "of a group");
    dcpk_model_free(m);
}

static void keeps_what_the_format_knows(void **state)
{
    struct dcpk_checkpoint ckpt = {.format = &format};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *m = fake_model_new(&ckpt, "model");
    bool existed;

    (void)state;
    CHECK_OK(dcpk_model_add_rng(m, &(struct dcpk_rng){.states = &known}, &existed, &err), "rng");
    CHECK_OK(dcpk_model_drop_unknown(m, &err), "drop");
    CHECK_EQ_INT(m->n_rng, 1, "arrays of RNG states stay");
    CHECK_OK(dcpk_model_add_rng(m, &(struct dcpk_rng){.tp = 1, .states = &evil}, &existed, &err),
             "rng");
    CHECK_OK(dcpk_model_drop_unknown(m, &err), "drop");
    CHECK_EQ_INT(m->n_rng, 0, "all ranks' states go together");
    CHECK(is_dropped(m, "rng_state"), "and are named");
    m->iteration = dcpk_value_float(m->arena, 4.5, &err);
    CHECK_OK(dcpk_model_drop_unknown(m, &err), "drop");
    CHECK(m->iteration == NULL, "an iteration is an integer");
    dcpk_model_free(m);
}

/* Of a scheduler stay the settings: those that formats can keep each under a key of its own. */
static void keeps_settings_of_a_scheduler(void **state)
{
    static const struct dcpk_value number = {.kind = DCPK_V_INT, .as.i = 7};
    static const struct dcpk_value empty = {.kind = DCPK_V_DICT};
    static const struct dcpk_value_tensor one = {.dtype = DCPK_F32};
    static const struct dcpk_value tensor = {.kind = DCPK_V_TENSOR, .as.tensor = &one};
    static const struct dcpk_value *const flat[] = {&number}, *const deep[] = {&empty};
    static const struct dcpk_value list = {.kind = DCPK_V_LIST, .n = 1, .as.items = flat},
                                   nest = {.kind = DCPK_V_LIST, .n = 1, .as.items = deep},
                                   tuple = {.kind = DCPK_V_TUPLE, .n = 1, .as.items = deep};
    static const struct {
        const char *name;
        const struct dcpk_value *value;
        bool stays;
    } cases[] = {
        {"lr", &number, true},   {"steps", &list, true}, {"betas", &tuple, true},
        {"deep", &empty, false}, {"nest", &nest, false}, {"tensor", &tensor, false},
        {"a.b", &number, false}, {"", &number, false},
    };
    static const struct dcpk_value *const whole[] = {&number, &list, &empty, &tensor};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_checkpoint ckpt = {.format = &format};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *m = fake_model_new(&ckpt, "model");
        char key[64];

        m->scheduler = dict(m, cases[i].name, cases[i].value, "min_lr");
        snprintf(key, sizeof key, "opt_param_scheduler.%s", cases[i].name);
        CHECK_OK(dcpk_model_drop_unknown(m, &err), cases[i].name);
        CHECK_EQ_INT(m->scheduler->n, 1 + cases[i].stays, cases[i].name);
        CHECK(is_dropped(m, key) == !cases[i].stays, cases[i].name);
        dcpk_model_free(m);
    }
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        struct dcpk_checkpoint ckpt = {.format = &format};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *m = fake_model_new(&ckpt, "model");

        m->scheduler = whole[i];
        CHECK_OK(dcpk_model_drop_unknown(m, &err), "whole");
        CHECK(m->scheduler == NULL && is_dropped(m, "opt_param_scheduler"), "no dict of settings");
        dcpk_model_free(m);
    }
}

static void writes_none_of_it(void **state)
{
    struct dcpk_checkpoint ckpt = {.format = &format};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_output *out = NULL;
    uint32_t payload;

    (void)state;
    CHECK_OK(dcpk_output_new(&ckpt, &format, &out, &err), "output");
    CHECK_OK(dcpk_output_add_payload(out, &known, NULL, &payload, &err), "known");
    CHECK_FAILS(dcpk_output_add_payload(out, &evil, NULL, &payload, &err), DCPK_EUNSUPPORTED,
                "'posix.system', which Python would import or call", "a call");
    CHECK_FAILS(dcpk_output_add_payload(out, &global, NULL, &payload, &err), DCPK_EUNSUPPORTED,
                "'builtins.eval'", "a bare global");
    CHECK_EQ_INT(out->n_payloads, 1, "none was added");
    dcpk_output_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drops_what_python_would_run),
                                       cmocka_unit_test(keeps_what_the_format_knows),
                                       cmocka_unit_test(keeps_settings_of_a_scheduler),
                                       cmocka_unit_test(writes_none_of_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
