/* SPDX-License-Identifier: Apache-2.0 */
/* test_objects_golden.c - every object of every sample loads, with the classes CPython names. */
#include <stdlib.h>

#include "tests/golden/samples.h"

#define MAX_CLASSES 64
#define MAX_DEPTH   64 /* of the samples' values; the reader's own limit is higher */

/* What a walk over values collects: names "module.name", each once. */
struct census {
    char names[MAX_CLASSES][128];
    size_t n_names;
    size_t n_unknown; /* objects of a class that is not on the reader's list */
    const char *label;
};

static void count_name(struct census *c, const char *module, const char *name)
{
    char full[128];

    snprintf(full, sizeof full, "%s.%s", module, name);
    for (size_t i = 0; i < c->n_names; i++)
        if (strcmp(c->names[i], full) == 0)
            return;
    CHECK(c->n_names < MAX_CLASSES, c->label);
    memcpy(c->names[c->n_names++], full, sizeof full);
}

static void walk(struct census *c, const struct dcpk_value *v, int depth);

static void walk_all(struct census *c, const struct dcpk_value *const *items, size_t n, int depth)
{
    for (size_t i = 0; i < n; i++)
        walk(c, items[i], depth);
}

static void walk_pairs(struct census *c, const struct dcpk_value_pair *pairs, size_t n, int depth)
{
    for (size_t i = 0; i < n; i++) {
        walk(c, pairs[i].key, depth);
        walk(c, pairs[i].value, depth);
    }
}

static void walk_object(struct census *c, const struct dcpk_value_object *o, int depth)
{
    count_name(c, o->module, o->name);
    if (!o->is_known) {
        print_message("%s: %s.%s is not known\n", c->label, o->module, o->name);
        c->n_unknown++;
    }
    walk(c, o->args, depth);
    if (o->state != NULL)
        walk(c, o->state, depth);
    walk_all(c, o->items, o->n_items, depth);
    walk_pairs(c, o->pairs, o->n_pairs, depth);
}

static void walk(struct census *c, const struct dcpk_value *v, int depth)
{
    CHECK(v != NULL, c->label);
    CHECK(depth < MAX_DEPTH, c->label);
    switch (v->kind) {
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
        walk_all(c, v->as.items, v->n, depth + 1);
        break;
    case DCPK_V_DICT:
        walk_pairs(c, v->as.pairs, v->n, depth + 1);
        break;
    case DCPK_V_GLOBAL:
        count_name(c, v->as.global.module, v->as.global.name);
        break;
    case DCPK_V_OBJECT:
        walk_object(c, v->as.object, depth + 1);
        break;
    case DCPK_V_TENSOR:
        CHECK(v->as.tensor->dtype != DCPK_DTYPE_NONE, c->label);
        break;
    case DCPK_V_NONE:
    case DCPK_V_BOOL:
    case DCPK_V_INT:
    case DCPK_V_BIGINT:
    case DCPK_V_FLOAT:
    case DCPK_V_STR:
    case DCPK_V_BYTES:
        break;
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in byte order with a blank between, as the table has them. */
static void check_classes(struct census *c, const struct sample *s)
{
    char got[MAX_CLASSES * 128] = "";
    size_t at = 0;

    qsort(c->names, c->n_names, sizeof c->names[0], by_text);
    for (size_t i = 0; i < c->n_names; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%s", i > 0 ? " " : "", c->names[i]);
    CHECK_EQ_STR(got, s->classes, s->folder);
    CHECK_EQ_INT(c->n_unknown, 0, s->folder);
}

static void check_sample(const struct sample *s)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = sample_open(s);
    struct dcpk_arena *arena = dcpk_arena_new();
    struct census census = {.n_names = 0};
    const struct dcpk_value *value = NULL;

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const struct dcpk_object *o = &ckpt->objects[i];

        census.label = o->key;
        CHECK_OK(dcpk_checkpoint_load_object(ckpt, o, arena, &value, &err), o->key);
        walk(&census, value, 0);
    }
    if (ckpt->format->load_common != NULL) {
        value = NULL;
        census.label = s->folder;
        CHECK_OK(dcpk_checkpoint_load_common(ckpt, arena, &value, &err), s->folder);
        if (value != NULL)
            walk(&census, value, 0);
        CHECK(value != NULL || strcmp(s->format, "fsdp_dtensor") == 0, s->folder);
    }
    check_classes(&census, s);
    print_message("%s: %zu objects\n", s->folder, ckpt->n_objects);
    dcpk_arena_free(arena);
    dcpk_checkpoint_close(ckpt);
}

static void test_every_sample(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++)
        check_sample(&samples[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_sample)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
