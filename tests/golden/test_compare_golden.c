/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare_golden.c - a strict comparison reports every stored thing that differs: in a sample
 * of each format each is changed once. */
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/job/compare.h"
#include "tests/golden/samples.h"

#define MAX_LEAVES 25 /* of one value that are changed, evenly spread */

static const char *const folders[] = {
    "torch_dist_a_dense_tp2pp2", "torch_dist_b_dense_tp2pp2",
    "torch_dist_c_dense_tp2pp2", "torch_dist_c_dp_reshardable_tp2dp2",
    "torch_dist_c_extra_state",  "zarr_dense_tp2dp2",
    "fsdp_dtensor_native_dp2",   "fsdp_dtensor_converted_by_megatron",
    "fsdp_dtensor_v2_tied_dp2",
};

/* ---- values with one thing changed ---- */

/* The leaf at which `left` comes to 0 is changed; counts down all that are passed. */
struct change {
    struct dcpk_arena *arena;
    size_t left, n_passed;
};

static const struct dcpk_value *changed(struct change *c, const struct dcpk_value *v);

static const struct dcpk_value *changed_tensor(struct change *c, const struct dcpk_value *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *copy = dcpk_arena_alloc(c->arena, sizeof *copy, &err);
    struct dcpk_value_tensor *t = dcpk_arena_alloc(c->arena, sizeof *t, &err);
    uint8_t *data;

    if (v->as.tensor->n_bytes == 0)
        return dcpk_value_none();
    data = dcpk_arena_alloc(c->arena, v->as.tensor->n_bytes, &err);
    memcpy(data, v->as.tensor->data, v->as.tensor->n_bytes);
    data[0] ^= 1;
    *t = *v->as.tensor;
    t->data = data;
    *copy = *v;
    copy->as.tensor = t;
    return copy;
}

static const struct dcpk_value *changed_leaf(struct change *c, const struct dcpk_value *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *copy = dcpk_arena_alloc(c->arena, sizeof *copy, &err);

    *copy = *v;
    switch (v->kind) {
    case DCPK_V_BOOL:
        copy->as.b = !v->as.b;
        return copy;
    case DCPK_V_INT:
        copy->as.i = v->as.i ^ 1;
        return copy;
    case DCPK_V_FLOAT:
        copy->as.f = v->as.f == 0 ? 1 : v->as.f * 2;
        return copy;
    case DCPK_V_STR:
    case DCPK_V_BYTES:
    case DCPK_V_BIGINT:
        copy->as.str = dcpk_arena_printf(c->arena, &err, "%.*sx", (int)v->n, v->as.str);
        copy->n = strlen(copy->as.str);
        return copy;
    case DCPK_V_GLOBAL:
        copy->as.global.name = "float64";
        return copy;
    case DCPK_V_TENSOR:
        return changed_tensor(c, v);
    case DCPK_V_NONE:
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
    case DCPK_V_DICT:
    case DCPK_V_OBJECT:
        return dcpk_value_int(c->arena, 77, &err);
    }
    return NULL;
}

static const struct dcpk_value *const *
changed_items(struct change *c, const struct dcpk_value *const *items, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value **copy = dcpk_arena_array(c->arena, n + 1, sizeof *copy, &err);

    for (size_t i = 0; i < n; i++)
        copy[i] = changed(c, items[i]);
    return copy;
}

static const struct dcpk_value_pair *changed_pairs(struct change *c,
                                                   const struct dcpk_value_pair *pairs, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair *copy = dcpk_arena_array(c->arena, n + 1, sizeof *copy, &err);

    for (size_t i = 0; i < n; i++)
        copy[i] = (struct dcpk_value_pair){pairs[i].key, changed(c, pairs[i].value)};
    return copy;
}

static const struct dcpk_value *changed_object(struct change *c, const struct dcpk_value *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *copy = dcpk_arena_alloc(c->arena, sizeof *copy, &err);
    struct dcpk_value_object *o = dcpk_arena_alloc(c->arena, sizeof *o, &err);

    *o = *v->as.object;
    o->args = o->args == NULL ? NULL : changed(c, o->args);
    o->state = o->state == NULL ? NULL : changed(c, o->state);
    o->items = changed_items(c, o->items, o->n_items);
    o->pairs = changed_pairs(c, o->pairs, o->n_pairs);
    *copy = *v;
    copy->as.object = o;
    return copy;
}

/* A copy of the tree; what has no parts is a leaf. */
static const struct dcpk_value *changed(struct change *c, const struct dcpk_value *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value *copy = dcpk_arena_alloc(c->arena, sizeof *copy, &err);
    const bool is_seq = v->kind == DCPK_V_LIST || v->kind == DCPK_V_TUPLE || v->kind == DCPK_V_SET;

    if (v->kind == DCPK_V_OBJECT)
        return changed_object(c, v);
    *copy = *v;
    if (is_seq && v->n > 0) {
        copy->as.items = changed_items(c, v->as.items, v->n);
    } else if (v->kind == DCPK_V_DICT && v->n > 0) {
        copy->as.pairs = changed_pairs(c, v->as.pairs, v->n);
    } else {
        c->n_passed++;
        if (c->left-- == 0)
            return changed_leaf(c, v);
    }
    return copy;
}

static size_t count_leaves(const struct dcpk_value *v)
{
    struct change c = {.arena = dcpk_arena_new(), .left = SIZE_MAX};

    (void)changed(&c, v);
    dcpk_arena_free(c.arena);
    return c.n_passed;
}

/* ---- what B reads otherwise than it is stored ---- */

/* The hooks of a format know nothing but the checkpoint. */
static struct {
    const struct dcpk_format *real;
    const struct dcpk_checkpoint *ckpt; /* B */
    const char *object;                 /* its key; NULL: none */
    const char *entry;                  /* of the common state; NULL: none */
    size_t leaf;                        /* SIZE_MAX: the entry is gone */
} lie;

static dcpk_status lying_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    struct change c = {.arena = arena, .left = lie.leaf};
    const dcpk_status st = lie.real->reader->load_object(ckpt, object, arena, value, err);

    if (st == DCPK_OK && ckpt == lie.ckpt && lie.object != NULL &&
        strcmp(object->key, lie.object) == 0)
        *value = changed(&c, *value);
    return st;
}

static dcpk_status lying_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **value, struct dcpk_error *err)
{
    struct change c = {.arena = arena, .left = lie.leaf};
    const dcpk_status st = lie.real->load_common(ckpt, arena, value, err);
    struct dcpk_value_pair *pairs;
    size_t n = 0;

    if (st != DCPK_OK || ckpt != lie.ckpt || lie.entry == NULL)
        return st;
    pairs = dcpk_arena_array(arena, (*value)->n, sizeof *pairs, err);
    for (size_t i = 0; i < (*value)->n; i++) {
        struct dcpk_value_pair pair = (*value)->as.pairs[i];

        if (strcmp(dcpk_value_as_str(pair.key), lie.entry) == 0) {
            if (lie.leaf == SIZE_MAX)
                continue;
            pair.value = changed(&c, pair.value);
        }
        pairs[n++] = pair;
    }
    *value = dcpk_value_dict(arena, pairs, n, err);
    return st;
}

/* ---- comparing ---- */

/* Two openings of a sample, both by a format that lies about the second. */
struct twins {
    struct dcpk_format format;
    struct dcpk_format_reader reader;
    struct dcpk_checkpoint *a, *b;
    size_t n_asked, n_failed;
};

static void open_twins(const char *folder, struct twins *t)
{
    char path[256];
    struct sample s = {.folder = path};

    snprintf(path, sizeof path, "%s/iter_0000004", folder);
    *t = (struct twins){.a = sample_open(&s), .b = sample_open(&s)};
    t->format = *t->a->format;
    t->reader = *t->format.reader;
    t->reader.load_object = lying_object;
    t->format.reader = &t->reader;
    if (t->format.load_common != NULL)
        t->format.load_common = lying_common;
    memset(&lie, 0, sizeof lie);
    lie.real = t->a->format;
    lie.ckpt = t->b;
    t->a->format = t->b->format = &t->format;
}

static void close_twins(struct twins *t)
{
    dcpk_checkpoint_close(t->b);
    dcpk_checkpoint_close(t->a);
}

/* Are they the same, strictly? What cannot be read is not. */
static bool are_equal(struct twins *t, bool as_stored)
{
    const struct dcpk_compare_options options = {
        .strict = true, .as_stored = as_stored, .env = {.kernels = dcpk_host_kernel_sets[0]}};
    struct dcpk_compare_report report = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    const dcpk_status st = dcpk_compare_checkpoints(t->a, t->b, &options, &report, &err);
    const bool equal = st == DCPK_OK && report.equal;

    t->n_asked++;
    t->n_failed += st != DCPK_OK;
    dcpk_compare_release(&report);
    return equal;
}

/* Keys that differ in numbers alone are of one kind: the first of it is tried. */
static bool is_first_of_kind(struct dcpk_map *seen, struct dcpk_arena *arena, const char *key)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char *kind = dcpk_arena_strdup(arena, key, &err);
    size_t n = 0;
    bool existed;
    uint64_t found;

    for (const char *at = key; *at != '\0'; at++)
        if (*at < '0' || *at > '9')
            kind[n++] = *at;
    CHECK_OK(dcpk_map_put(seen, kind, n, 0, &existed, &found, &err), key);
    return !existed;
}

static void change_leaves(struct twins *t, const struct dcpk_value *value, const char *name)
{
    const size_t n = count_leaves(value), step = 1 + n / MAX_LEAVES;
    char label[512];

    for (lie.leaf = 0; lie.leaf < n; lie.leaf += step) {
        snprintf(label, sizeof label, "%s, leaf %zu of %zu", name, lie.leaf, n);
        CHECK(!are_equal(t, false), label);
    }
}

static void change_objects(struct twins *t)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_map seen = {0};
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *value;

    for (size_t i = 0; i < t->b->n_objects; i++) {
        const struct dcpk_object *object = &t->b->objects[i];

        if (dcpk_starts_with(object->key, "common_state/") || /* by its entries */
            !is_first_of_kind(&seen, arena, object->key))
            continue;
        CHECK_OK(lie.real->reader->load_object(t->b, object, arena, &value, &err), object->key);
        lie.object = object->key;
        change_leaves(t, value, object->key);
    }
    lie.object = NULL;
    dcpk_map_release(&seen);
    dcpk_arena_free(arena);
}

static void change_common(struct twins *t)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *common = NULL;

    if (lie.real->load_common != NULL)
        CHECK_OK(lie.real->load_common(t->b, arena, &common, &err), "common");
    for (size_t i = 0; common != NULL && i < common->n; i++) {
        lie.entry = dcpk_value_as_str(common->as.pairs[i].key);
        change_leaves(t, common->as.pairs[i].value, lie.entry);
        lie.leaf = SIZE_MAX;
        CHECK(!are_equal(t, false), lie.entry);
    }
    lie.entry = NULL;
    dcpk_arena_free(arena);
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct twins t;

        open_twins(folders[i], &t);
        CHECK(are_equal(&t, false) && are_equal(&t, true), folders[i]);
        change_objects(&t);
        change_common(&t);
        CHECK(t.n_asked > 2 && t.n_failed < t.n_asked / 4, folders[i]);
        close_twins(&t);
    }
}

/* ---- elements and files ---- */

/* A copy in memory, with one byte changed at that place of a file; NULL: with none. */
static struct dcpk_checkpoint *open_copy(const struct twins *t, const char *changed_name,
                                         uint64_t at_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;
    const struct dcpk_source *s = NULL;

    CHECK_OK(dcpk_store_new_memory("copy", &store, &err), "store");
    while ((s = dcpk_store_next(t->a->store, s)) != NULL) {
        const char *name = dcpk_source_name(s);
        struct dcpk_source *source;
        char *data;
        size_t n;

        CHECK_OK(dcpk_store_find(t->a->store, name, &source, &err), name);
        CHECK_OK(dcpk_source_slurp(source, UINT64_C(1) << 30, &data, &n, &err), name);
        if (changed_name != NULL && strcmp(name, changed_name) == 0)
            data[at_bytes] ^= 1;
        CHECK_OK(dcpk_store_add_memory(store, name, data, n, &err), name);
        dcpk_free(data);
    }
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, lie.real->name, &ckpt, &err), "copy");
    ckpt->format = &t->format;
    return ckpt;
}

/* Every file of the folder is found, so that it is among the store's sources. */
static void find_files(struct dcpk_store *store, const char *folder)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind;
    struct dcpk_source *source;
    char **names, path[1024];
    size_t n;

    CHECK_OK(dcpk_store_list_in(store, folder, &names, &n, &err), folder);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s%s%s", strcmp(folder, ".") == 0 ? "" : folder,
                 strcmp(folder, ".") == 0 ? "" : "/", names[i]);
        CHECK_OK(dcpk_store_look(store, path, &kind, &err), path);
        if (kind == DCPK_PATH_FOLDER)
            find_files(store, path);
        else
            CHECK_OK(dcpk_store_find(store, path, &source, &err), path);
    }
    dcpk_free(names);
}

/* The first element of the tensor's last chunk. */
static void change_element(struct twins *t, const struct dcpk_tensor *tensor)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_extent where = {0};

    if (tensor->n_chunks == 0)
        return;
    CHECK_OK(t->a->format->reader->locate(t->a,
                                          &t->a->chunks[tensor->first_chunk + tensor->n_chunks - 1],
                                          NULL, &where, &err),
             tensor->key);
    if (where.is_zero || where.decoded_bytes > 0)
        return;
    t->b = open_copy(t, dcpk_source_name(where.source), where.first_bytes);
    CHECK(!are_equal(t, false), tensor->key);
    dcpk_checkpoint_close(t->b);
}

static void test_elements(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct dcpk_map seen = {0};
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_checkpoint *kept;
        struct twins t;

        open_twins(folders[i], &t);
        kept = t.b;
        find_files(t.a->store, ".");
        t.b = open_copy(&t, NULL, 0);
        CHECK(are_equal(&t, false) && are_equal(&t, true), folders[i]);
        dcpk_checkpoint_close(t.b);
        for (size_t k = 0; k < t.a->n_tensors; k++)
            if (is_first_of_kind(&seen, arena, t.a->tensors[k].key))
                change_element(&t, &t.a->tensors[k]);
        CHECK(t.n_asked > 5 && t.n_failed < t.n_asked / 4, folders[i]);
        t.b = kept;
        close_twins(&t);
        dcpk_map_release(&seen);
        dcpk_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_elements),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
